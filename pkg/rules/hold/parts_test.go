package hold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

const gpu v1.ResourceName = "nvidia.com/gpu"

var team, train = Holder{"a", "team"}, Holder{"a", "train"}

// step is what happens to a ledger.
type step func(*Ledger) Change

// reserve holds GPUs and places for pods on a node for pods that may use what team has.
func reserve(id ID, node string, gpus int64, pods int, ports ...Port) step {
	return func(l *Ledger) Change {
		l.Put(Hold{ID: id, Holder: team, Node: node, Reason: Reservation, Request: resource.Vector{gpu: gpus}, Pods: pods, Ports: ports})
		return Change{}
	}
}

func consume(id ID, pod types.UID, gpus int64, ports ...Port) step {
	return func(l *Ledger) Change {
		l.Consume(id, pod, resource.Vector{gpu: gpus}, ports...)
		return Change{}
	}
}

func planned(pod types.UID, node string, gpus int64, from ID) step {
	return func(l *Ledger) Change {
		return l.FollowPlan(train, []types.UID{pod}, []Hold{{For: pod, Node: node, Request: resource.Vector{gpu: gpus}, From: from}})
	}
}

func nominated(pod types.UID, node string, gpus int64) step {
	return func(l *Ledger) Change {
		l.Put(Hold{For: pod, Holder: train, Node: node, Reason: Nomination, Request: resource.Vector{gpu: gpus}})
		return Change{}
	}
}

func use(pod types.UID, node string) step {
	return func(l *Ledger) Change { return l.PodAssumed(pod, node) }
}
func bound(pod types.UID, node string) step {
	return func(l *Ledger) Change { return l.PodBound(pod, node) }
}
func giveBack(pods ...types.UID) step { return func(l *Ledger) Change { return l.Release(pods...) } }
func giveUp(pods ...types.UID) step   { return func(l *Ledger) Change { return l.ReturnParts(pods...) } }
func drop(id ID) step                 { return func(l *Ledger) Change { l.Drop(id); return Change{} } }

// TestParts: pods take parts of what is held for no pod yet. What is held and what pods have on the node are never more
// together than was reserved, and never less.
func TestParts(t *testing.T) {
	port := Port{Protocol: "TCP", Number: 80}
	gpus := func(n int64, pods int, ports ...Port) Taken {
		return Taken{Pods: pods, Request: resource.Vector{gpu: n}, Ports: ports}
	}
	for sentence, c := range map[string]struct {
		story []step
		there []types.UID // pods that are counted on node n1
		held  Taken       // on n1 for pods that may not use what team has
		all   Taken       // on n1 in all
		left  Taken       // of r
		last  Change
	}{
		"what nobody has taken is left, and held":    {story: []step{reserve("r", "n1", 8, 2)}, all: gpus(8, 2), left: gpus(8, 2)},
		"a pod takes a part, the rest stays held":    {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4)}, there: []types.UID{"a"}, all: gpus(4, 1), left: gpus(4, 1)},
		"two pods take all":                          {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4), consume("r", "b", 4)}, there: []types.UID{"a", "b"}},
		"a third gets nothing of it":                 {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4), consume("r", "b", 4), consume("r", "c", 4)}, there: []types.UID{"a", "b", "c"}},
		"one that takes more gets what is left":      {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 6), consume("r", "b", 4)}, there: []types.UID{"a", "b"}},
		"a part that is not on the node yet is held": {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4)}, held: gpus(4, 1), all: gpus(8, 2), left: gpus(4, 1)},
		"what a pod gives back is held again": {
			story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4), consume("r", "b", 4), giveUp("a")}, there: []types.UID{"b"},
			all: gpus(4, 1), left: gpus(4, 1), last: Change{Freed: []string{"n1"}},
		},
		"no more than it took": {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 6), consume("r", "b", 4), giveUp("b")}, there: []types.UID{"a"}, all: gpus(2, 1), left: gpus(2, 1), last: Change{Freed: []string{"n1"}}},
		"and once":             {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4), giveUp("a"), giveUp("a")}, all: gpus(8, 2), left: gpus(8, 2)},
		"who says twice that it takes takes once": {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4), consume("r", "a", 4)}, there: []types.UID{"a"}, all: gpus(4, 1), left: gpus(4, 1)},
		"a pod that had nothing gives back none":  {story: []step{reserve("r", "n1", 8, 2), giveUp("a")}, all: gpus(8, 2), left: gpus(8, 2)},
		"of what there is not nobody takes":       {story: []step{consume("r", "a", 4)}},
		"of what is for a pod nobody takes":       {story: []step{planned("p", "n1", 8, ""), consume("p", "a", 4)}, there: []types.UID{"a"}, held: gpus(8, 1), all: gpus(8, 1)},
		"what it does not hold nobody takes of it": {
			story: []step{func(l *Ledger) Change {
				l.Put(Hold{ID: "r", Holder: team, Node: "n1", Request: resource.Vector{v1.ResourceCPU: 1}})
				return Change{}
			}, consume("r", "a", 4)},
			all: Taken{Request: resource.Vector{v1.ResourceCPU: 1}}, left: Taken{Request: resource.Vector{v1.ResourceCPU: 1}},
		},
		"ports go with the pod that has them": {story: []step{reserve("r", "n1", 8, 2, port), consume("r", "a", 4, port, Port{Number: 81})}, there: []types.UID{"a"}, all: gpus(4, 1), left: gpus(4, 1)},
		"and come back":                       {story: []step{reserve("r", "n1", 8, 2, port), consume("r", "a", 4, port), giveUp("a")}, all: gpus(8, 2, port), left: gpus(8, 2, port), last: Change{Freed: []string{"n1"}}},

		"a plan takes a part, which is not held twice":  {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 4, "r")}, held: gpus(4, 1), all: gpus(8, 2), left: gpus(4, 1)},
		"what it takes beside its part is held, too":    {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 9, "r")}, held: gpus(9, 1), all: gpus(9, 2), left: gpus(0, 1)},
		"a plan on another node takes none":             {story: []step{reserve("r", "n1", 8, 2), planned("a", "n2", 4, "r")}, all: gpus(8, 2), left: gpus(8, 2)},
		"a member that is held keeps its part":          {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 4, "r"), use("a", "n1")}, there: []types.UID{"a"}, all: gpus(4, 1), left: gpus(4, 1)},
		"of what it took beside that nothing stays":     {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 9, "r"), use("a", "n1")}, held: gpus(8, 1), all: gpus(8, 2), left: gpus(0, 1)},
		"a member that is held elsewhere gives it back": {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 4, "r"), use("a", "n2")}, all: gpus(8, 2), left: gpus(8, 2), last: Change{Freed: []string{"n1"}}},
		"one that is planned again has it still":        {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 4, "r"), use("a", "n1"), planned("a", "n1", 4, "")}, held: gpus(4, 1), all: gpus(8, 2), left: gpus(4, 1)},
		"a plan that ends gives it back":                {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 9, "r"), giveBack("a")}, all: gpus(8, 2), left: gpus(8, 2), last: Change{Freed: []string{"n1"}}},
		"a part does not end a plan":                    {story: []step{reserve("r", "n1", 8, 2), planned("a", "n1", 4, "r"), giveUp("a")}, held: gpus(4, 1), all: gpus(8, 2), left: gpus(4, 1)},
		"room was made for one that consumes": {
			story: []step{reserve("r", "n1", 8, 2), nominated("a", "n1", 9), consume("r", "a", 9), use("a", "n1"), bound("a", "n1")}, there: []types.UID{"a"},
			all: gpus(0, 1), left: gpus(0, 1),
		},
		"and is kept until it is bound": {
			story: []step{reserve("r", "n1", 8, 2), nominated("a", "n1", 9), consume("r", "a", 9), use("a", "n1")},
			held:  gpus(9, 1), all: gpus(9, 2), left: gpus(0, 1),
		},

		"what ends is held no more": {story: []step{reserve("r", "n1", 8, 2), drop("r")}},
		"pods keep what they have":  {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4), planned("b", "n1", 4, "r"), drop("r")}, there: []types.UID{"a"}, held: gpus(4, 1), all: gpus(4, 1)},
		"and give it to everybody":  {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 4), drop("r"), giveUp("a")}},
		"it grows beside its parts": {story: []step{reserve("r", "n1", 4, 2), consume("r", "a", 4), reserve("r", "n1", 8, 2)}, there: []types.UID{"a"}, all: gpus(4, 1), left: gpus(4, 1)},
		"it shrinks below them":     {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 3), consume("r", "b", 3), reserve("r", "n1", 4, 2)}, there: []types.UID{"a", "b"}},
		"and so do they":            {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 3), consume("r", "b", 3), reserve("r", "n1", 4, 2), giveUp("b")}, there: []types.UID{"a"}, all: gpus(1, 1), left: gpus(1, 1), last: Change{Freed: []string{"n1"}}},
		"it goes to another node":   {story: []step{reserve("r", "n1", 8, 2), consume("r", "a", 3), reserve("r", "n2", 8, 2)}, left: gpus(8, 2)},
	} {
		t.Run(sentence, func(t *testing.T) {
			l := NewLedger()
			var last Change
			for _, step := range c.story {
				last = step(l)
			}
			held, _ := l.Others("n1", slices.Values(c.there), team)
			all, _ := l.Others("n1", slices.Values(c.there))
			for what, pair := range map[string][2]Taken{"held for others": {c.held, held}, "held": {c.all, all}, "left": {c.left, l.Left("r")}} {
				if diff := gocmp.Diff(listed(pair[0]), listed(pair[1]), sameTaken); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if diff := gocmp.Diff(c.last, last, sameTaken); diff != "" {
				t.Errorf("what the last step changes (-want +got):\n%s", diff)
			}
			for id := range l.holds {
				l.Drop(id)
			}
			if l.Len()+len(l.nodes)+len(l.holders) != 0 {
				t.Errorf("left over: %d holds, %d nodes, %d holders", l.Len(), len(l.nodes), len(l.holders))
			}
		})
	}
}

// listed returns a list of what is taken, even if it is empty.
func listed(t Taken) Taken {
	list := Taken{Request: resource.Vector{}}
	list.add(t, 1)
	return list
}

// TestNamedTwice: a holder that is named twice is not counted twice.
func TestNamedTwice(t *testing.T) {
	l := NewLedger()
	l.Put(Hold{For: "a", Holder: team, Node: "n", Request: resource.Vector{gpu: 1}})
	l.Put(Hold{For: "b", Holder: train, Node: "n", Request: resource.Vector{gpu: 1}})
	if got, some := l.Others("n", slices.Values([]types.UID(nil)), team, team); !some || got.Request[gpu] != 1 {
		t.Errorf("others hold %v, %t, want 1", got, some)
	}
}

// slow is the ledger without any sum: lists that are recounted each time.
type slow struct {
	holds map[ID]Hold
	// parts are what holds from another hold have taken of it.
	parts map[ID]Taken
}

func (s *slow) sorted() []ID { return slices.Sorted(maps.Keys(s.holds)) }

func (s *slow) left(id ID) Taken {
	h := s.holds[id]
	left := Taken{Pods: h.Pods, Request: resource.Vector{}, Ports: slices.Clone(h.Ports)}
	left.Request.Add(h.Request, 1)
	for _, other := range s.sorted() {
		if s.holds[other].From == id && id != "" {
			left.Pods -= s.parts[other].Pods
			left.Request.Add(s.parts[other].Request, -1)
			for _, port := range s.parts[other].Ports {
				i := slices.Index(left.Ports, port)
				left.Ports = slices.Delete(left.Ports, i, i+1)
			}
		}
	}
	return left
}

// put adds the hold of a pod, or one for no pod.
func (s *slow) put(h Hold) {
	if h.For != "" {
		h.ID = IDOf(h.For)
		if h.Reason != Reservation {
			h.Pods = 1
		}
		s.remove(h.ID)
		of, ok := s.holds[h.From]
		part := Taken{Request: resource.Vector{}}
		if ok && h.From != "" && of.For == "" && of.Node == h.Node {
			left := s.left(h.From)
			part.Pods = min(h.Pods, left.Pods)
			for name, amount := range h.Request {
				part.Request[name] = min(amount, left.Request[name])
			}
			for _, port := range h.Ports {
				if slices.Contains(left.Ports, port) && !slices.Contains(part.Ports, port) {
					part.Ports = append(part.Ports, port)
				}
			}
		}
		if part.Pods == 0 && part.Request.Zero() && len(part.Ports) == 0 {
			h.From = ""
		}
		s.holds[h.ID], s.parts[h.ID] = h, part
		return
	}
	var takers []Hold
	for _, id := range s.sorted() {
		if one := s.holds[id]; one.From == h.ID {
			takers = append(takers, one)
		}
	}
	for _, one := range takers {
		s.remove(one.ID)
	}
	s.holds[h.ID] = h
	for _, one := range takers {
		s.put(one)
		if one.Reason == Reservation {
			s.settle(one.ID)
		}
	}
}

func (s *slow) remove(id ID) {
	delete(s.holds, id)
	delete(s.parts, id)
}

func (s *slow) settle(id ID) {
	h, part := s.holds[id], s.parts[id]
	if h.From == "" {
		s.remove(id)
		return
	}
	h.Reason, h.WasNominated, h.Pods, h.Request, h.Ports = Reservation, false, part.Pods, part.Request, part.Ports
	s.holds[id] = h
}

func (s *slow) end(id ID) {
	for _, other := range s.sorted() {
		if h := s.holds[other]; h.From == id {
			if h.Reason == Reservation {
				s.remove(other)
				continue
			}
			h.From = ""
			s.holds[other] = h
		}
	}
	s.remove(id)
}

func (s *slow) others(node string, there []types.UID, holders []Holder) Taken {
	sum := Taken{Request: resource.Vector{}}
	for _, id := range s.sorted() {
		if h := s.holds[id]; h.Node == node && !slices.Contains(holders, h.Holder) && (h.For == "" || !slices.Contains(there, h.For)) {
			left := s.left(id)
			sum.Pods += left.Pods
			sum.Request.Add(left.Request, 1)
			sum.Ports = append(sum.Ports, left.Ports...)
		}
	}
	return sum
}

// TestPartsEqualARecount: whatever happens in whatever order, what is left and what is held equals a recount, and none
// of it is negative.
func TestPartsEqualARecount(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		l, s := NewLedger(), &slow{holds: map[ID]Hold{}, parts: map[ID]Taken{}}
		var told []string
		for range 40 {
			told = append(told, happen(t, rng, l, s))
			agree(t, fmt.Sprintf("seed %d, after %q", seed, told), rng, l, s)
		}
	}
}

// happen makes the same random change to both.
func happen(t *testing.T, rng *rand.Rand, l *Ledger, s *slow) string {
	node, id := nodeNames[rng.IntN(2)], ID(fmt.Sprint("r", rng.IntN(3)))
	pod := types.UID(fmt.Sprint("pod-", rng.IntN(5)))
	h := Hold{Holder: holders[rng.IntN(len(holders))], Node: node, Request: resource.Vector{}}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, gpu} {
		h.Request[name] = rng.Int64N(5)
	}
	for range rng.IntN(3) {
		h.Ports = append(h.Ports, Port{Number: rng.Int32N(3)})
	}
	mine, has := s.holds[IDOf(pod)]
	switch rng.IntN(11) {
	case 0, 1:
		h.ID, h.Reason, h.Pods = id, Reservation, rng.IntN(3)
		l.Put(h)
		s.put(h)
		return fmt.Sprint("reserve ", h)
	case 2:
		l.Drop(id)
		s.end(id)
		return fmt.Sprint("end ", id)
	case 3, 4:
		got := l.Consume(id, pod, h.Request, h.Ports...)
		if of, ok := s.holds[id]; ok {
			if !has || mine.Node != of.Node || mine.Reason == Reservation {
				h.Holder = Holder{of.Holder.Profile, SinglePod(pod)}
				mine = Hold{For: pod, Holder: h.Holder, Node: of.Node, Reason: Reservation, Pods: 1, Request: h.Request, Ports: h.Ports}
			}
			mine.From = id
			s.put(mine)
			if mine.Reason == Reservation {
				s.settle(IDOf(pod))
			}
		}
		if want := s.holds[IDOf(pod)].From == id; got != want {
			t.Fatalf("%s has a part of %s: %t, want %t", pod, id, got, want)
		}
		return fmt.Sprint("consume ", id, " by ", pod, " ", h.Request, h.Ports)
	case 5, 6:
		h.For, h.Reason = pod, Plan
		if rng.IntN(2) == 0 {
			h.From = id
		}
		l.FollowPlan(h.Holder, nil, []Hold{h})
		if h.From == "" && has && mine.Node == h.Node {
			h.From = mine.From
		}
		for _, one := range s.holds {
			h.WasNominated = h.WasNominated || one.Holder == h.Holder && (one.Reason == Nomination || one.WasNominated)
		}
		s.put(h)
		return fmt.Sprint("plan ", h)
	case 7:
		l.PodAssumed(pod, node)
		switch {
		case has && mine.Node != node:
			s.remove(mine.ID)
		case has && mine.Reason == Plan && mine.WasNominated:
			s.put(mine.nomination())
		case has && mine.Reason == Plan:
			s.settle(mine.ID)
		}
		return fmt.Sprint("use ", pod, " ", node)
	case 8:
		h.For, h.Reason = pod, Nomination
		l.Put(h)
		s.put(h)
		return fmt.Sprint("nominate ", h)
	case 9:
		l.PodBound(pod, node)
		switch {
		case has && mine.Reason == Nomination && mine.Node != node:
			s.remove(mine.ID)
		case has && mine.Reason == Nomination:
			s.settle(mine.ID)
		}
		return fmt.Sprint("bind ", pod, " ", node)
	default:
		if rng.IntN(2) == 0 {
			l.Release(pod)
			if has && mine.Reason == Plan {
				s.remove(mine.ID)
				if mine.WasNominated {
					s.put(mine.nomination())
				}
			}
			return fmt.Sprint("give back ", pod)
		}
		l.ReturnParts(pod)
		if has && mine.Reason == Reservation {
			s.remove(mine.ID)
		}
		return fmt.Sprint("return ", pod)
	}
}

// agree compares both.
func agree(t *testing.T, when string, rng *rand.Rand, l *Ledger, s *slow) {
	t.Helper()
	if l.Len() != len(s.holds) {
		t.Fatalf("%s: %d holds, want %d", when, l.Len(), len(s.holds))
	}
	for id, h := range s.holds {
		left, got := l.Left(id), l.holds[id]
		if diff := gocmp.Diff(s.left(id), left, sameTaken); diff != "" {
			t.Fatalf("%s: left of %s (-want +got):\n%s", when, id, diff)
		}
		if got.From != h.From || got.Holder != h.Holder || got.Reason != h.Reason {
			t.Fatalf("%s: %s is %+v, want %+v", when, id, got.Hold, h)
		}
		for name, amount := range left.Request {
			if amount < 0 || left.Pods < 0 {
				t.Fatalf("%s: %d %s and %d pods are left of %s", when, amount, name, left.Pods, id)
			}
		}
	}
	for _, node := range nodeNames[:2] {
		var there []types.UID
		for i := range 5 {
			if rng.IntN(2) == 0 {
				there = append(there, types.UID(fmt.Sprint("pod-", i)))
			}
		}
		all := s.others(node, nil, nil)
		sum, some := l.Total(node)
		if diff := gocmp.Diff(all, sum, sameTaken); some != !all.zero() || some && diff != "" {
			t.Fatalf("%s: held on %s by whomever (-want +got):\n%s", when, node, diff)
		}
		if most := l.MaxHeld(); most == nil && some {
			t.Fatalf("%s: nothing is held anywhere, want %v on %s", when, all, node)
		} else if some {
			for name, amount := range all.Request {
				if most.Request[name] < amount || most.Pods < all.Pods {
					t.Fatalf("%s: on no node is more held than %v, want at least the %v of %s", when, *most, all, node)
				}
			}
		}
		own := holders[:rng.IntN(len(holders)+1)]
		want := s.others(node, there, own)
		got, some := l.Others(node, slices.Values(there), own...)
		if some != !want.zero() {
			t.Fatalf("%s: somebody holds something on %s: %t, want %t", when, node, some, !want.zero())
		}
		if diff := gocmp.Diff(want, got, sameTaken); some && diff != "" {
			t.Fatalf("%s: held on %s by others than %v beside %v (-want +got):\n%s", when, node, own, there, diff)
		}
	}
}
