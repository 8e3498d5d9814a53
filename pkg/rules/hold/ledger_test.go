package hold

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// model is the ledger without any sum: a list that is recounted each time.
type model map[types.UID]Hold

func (m model) others(node string, there []types.UID, holders ...Holder) (Taken, bool) {
	t := Taken{Request: resource.Vector{}}
	for _, h := range m {
		if h.Node == node && !slices.Contains(holders, h.Holder) && !slices.Contains(there, h.For) {
			t.Pods++
			t.Request.Add(h.Request, 1)
			t.Ports = append(t.Ports, h.Ports...)
		}
	}
	return t, t.Pods > 0
}

func (m model) nodes() []string {
	var names []string
	for _, h := range m {
		if !slices.Contains(names, h.Node) {
			names = append(names, h.Node)
		}
	}
	return names
}

func (m model) count(r Reason) int {
	n := 0
	for _, h := range m {
		if h.Reason == r {
			n++
		}
	}
	return n
}

func (m model) nominations() map[Holder][]types.UID {
	list := map[Holder][]types.UID{}
	for _, uid := range slices.Sorted(maps.Keys(m)) {
		if h := m[uid]; h.Reason == Nomination {
			list[h.Holder] = append(list[h.Holder], uid)
		}
	}
	return list
}

// sameTaken compares what holds add up to: an amount of 0 is none, and ports come
// in any order.
var sameTaken = gocmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreMapEntries(func(_ v1.ResourceName, amount int64) bool { return amount == 0 }),
	cmpopts.SortSlices(func(a, b Port) bool {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.IP, b.IP), cmp.Compare(a.Protocol, b.Protocol)) < 0
	}),
	cmpopts.SortSlices(func(a, b string) bool { return a < b }),
}

var (
	nodeNames = []string{"n0", "n1", "n2"}
	holders   = []Holder{{"a", "x"}, {"a", "y"}, {"b", "x"}}
	reasons   = []Reason{Plan, Nomination}
)

func randomHold(rng *rand.Rand) Hold {
	h := Hold{
		For:     types.UID(fmt.Sprint("pod-", rng.IntN(12))),
		Holder:  holders[rng.IntN(len(holders))],
		Node:    nodeNames[rng.IntN(len(nodeNames))],
		Reason:  reasons[rng.IntN(len(reasons))],
		Request: resource.Vector{},
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "nvidia.com/gpu"} {
		if amount := rng.Int64N(4); amount > 0 {
			h.Request[name] = amount
		}
	}
	for range rng.IntN(3) { // two holds may have the same port; one may have it twice
		h.Ports = append(h.Ports, Port{Protocol: "TCP", Number: 80 + rng.Int32N(3)})
	}
	return h
}

func TestLedgerEqualsARecount(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 3))
		ledger, counted := NewLedger(), model{}
		for step := range 60 {
			h := randomHold(rng)
			if rng.IntN(3) > 0 {
				ledger.Put(h)
				counted[h.For] = h
			} else {
				_, had := counted[h.For]
				delete(counted, h.For)
				if got := ledger.Drop(IDOf(h.For)); got != had {
					t.Fatalf("seed %d, step %d: Drop answers %v, want %v", seed, step, got, had)
				}
			}
			compare(t, fmt.Sprintf("seed %d, step %d", seed, step), ledger, counted)
		}
		for uid := range counted {
			ledger.Drop(IDOf(uid))
		}
		compare(t, "empty again", ledger, model{})
	}
}

func compare(t *testing.T, when string, ledger *Ledger, counted model) {
	t.Helper()
	if ledger.Len() != len(counted) {
		t.Fatalf("%s: %d holds, want %d", when, ledger.Len(), len(counted))
	}
	if diff := gocmp.Diff(counted.nodes(), slices.Collect(maps.Keys(ledger.nodes)), sameTaken); diff != "" {
		t.Fatalf("%s: nodes (-want +got):\n%s", when, diff)
	}
	for _, reason := range reasons {
		if got, want := ledger.Count(reason), counted.count(reason); got != want {
			t.Fatalf("%s: %d for reason %s, want %d", when, got, reason, want)
		}
	}
	nominations := counted.nominations()
	if diff := gocmp.Diff(nominations, ledger.Nominations()); diff != "" {
		t.Fatalf("%s: nominations (-want +got):\n%s", when, diff)
	}
	for _, holder := range holders {
		if got, want := ledger.Nominated(holder), len(nominations[holder]) > 0; got != want {
			t.Fatalf("%s: %s has nominations: %v, want %v", when, holder, got, want)
		}
	}
	for mine := range 1 << len(holders) { // every set of holders
		var own []Holder
		for i, holder := range holders {
			if mine>>i&1 == 1 {
				own = append(own, holder)
			}
		}
		node := nodeNames[mine%len(nodeNames)]
		var there []types.UID
		if mine%3 == 0 {
			there = []types.UID{"pod-0", "pod-3", "pod-7", "stranger"}
		}
		want, wantSome := counted.others(node, there, own...)
		got, some := ledger.Others(node, slices.Values(there), own...)
		if some != wantSome {
			t.Fatalf("%s: somebody but %v holds something on %s: %v, want %v", when, own, node, some, wantSome)
		}
		if diff := gocmp.Diff(want, got, sameTaken); some && diff != "" {
			t.Fatalf("%s: held on %s by others than %v (-want +got):\n%s", when, node, own, diff)
		}
	}
}

// TestOthersIsTheCallersOwn: what Others returns does not change with the ledger, nor the ledger
// with it.
func TestOthersIsTheCallersOwn(t *testing.T) {
	ledger := NewLedger()
	ledger.Put(Hold{For: "a", Holder: Holder{Group: "x"}, Node: "n", Request: resource.Vector{v1.ResourceCPU: 1}, Ports: []Port{{Number: 80}}})
	got, _ := ledger.Others("n", slices.Values([]types.UID(nil)))
	got.Request[v1.ResourceCPU] = 7
	got.Ports[0].Number = 7
	want := Taken{Pods: 1, Request: resource.Vector{v1.ResourceCPU: 1}, Ports: []Port{{Number: 80}}}
	again, _ := ledger.Others("n", slices.Values([]types.UID(nil)))
	if diff := gocmp.Diff(want, again); diff != "" {
		t.Errorf("after the caller wrote to it (-want +got):\n%s", diff)
	}
	ledger.Put(Hold{For: "b", Holder: Holder{Group: "x"}, Node: "n", Request: resource.Vector{v1.ResourceCPU: 1}})
	if diff := gocmp.Diff(want, again); diff != "" {
		t.Errorf("after the ledger changed (-want +got):\n%s", diff)
	}
}

// TestRoomThatWasMade: what pods were evicted for stays with the preemptor, whatever becomes of its plan, until it
// is bound or gives up.
func TestRoomThatWasMade(t *testing.T) {
	nominate := func(pod types.UID, node string) func(*Ledger) Change {
		return func(l *Ledger) Change {
			l.Put(Hold{For: pod, Holder: Holder{Group: "g"}, Node: node, Reason: Nomination, Priority: 7})
			return Change{}
		}
	}
	plan := func(places ...Hold) func(*Ledger) Change {
		return func(l *Ledger) Change { return l.FollowPlan(Holder{Group: "g"}, []types.UID{"a", "b", "c"}, places) }
	}
	use := func(pod types.UID, node string) func(*Ledger) Change {
		return func(l *Ledger) Change { return l.PodAssumed(pod, node) }
	}
	back := func(pods ...types.UID) func(*Ledger) Change {
		return func(l *Ledger) Change { return l.Release(pods...) }
	}
	at := func(pod types.UID, node string) Hold { return Hold{For: pod, Node: node} }
	for sentence, c := range map[string]struct {
		story []func(*Ledger) Change
		want  map[types.UID]string // node and reason of each hold
		last  Change               // by the last step
	}{
		"a plan without nominations gives back all": {[]func(*Ledger) Change{plan(at("a", "n1")), back("a")}, nil, Change{Freed: []string{"n1"}}},
		"what is used is the pod's":                 {[]func(*Ledger) Change{plan(at("a", "n1")), use("a", "n1")}, nil, Change{}},
		"a plan takes the place of nominations, also of members that it leaves out": {
			[]func(*Ledger) Change{nominate("a", "n1"), nominate("b", "n2"), plan(at("c", "n1"))},
			map[types.UID]string{"c": "n1 plan"}, Change{Freed: []string{"n1", "n2"}, Renominated: []types.UID{"a", "b"}},
		},
		"what it gives back stays nominated": {
			[]func(*Ledger) Change{nominate("a", "n1"), plan(at("b", "n1")), back("b")},
			map[types.UID]string{"b": "n1 nomination"}, Change{Renominated: []types.UID{"b"}},
		},
		"so does the place of a member that is held, in case that it is rejected": {
			[]func(*Ledger) Change{nominate("a", "n1"), plan(at("b", "n1")), use("b", "n1"), back("b")},
			map[types.UID]string{"b": "n1 nomination"}, Change{},
		},
		"a second plan of the round knows": {
			[]func(*Ledger) Change{nominate("a", "n1"), plan(at("b", "n1")), plan(at("c", "n2")), back("c")},
			map[types.UID]string{"b": "n1 plan", "c": "n2 nomination"}, Change{Renominated: []types.UID{"c"}},
		},
		"a pod that goes elsewhere does not need its nomination": {
			[]func(*Ledger) Change{nominate("a", "n1"), use("a", "n2")}, nil, Change{Freed: []string{"n1"}},
		},
		"one that goes where it is nominated keeps it": {
			[]func(*Ledger) Change{nominate("a", "n1"), use("a", "n1")}, map[types.UID]string{"a": "n1 nomination"}, Change{},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			l := NewLedger()
			var last Change
			for _, step := range c.story {
				last = step(l)
			}
			got := map[types.UID]string{}
			for _, h := range l.holds {
				uid := h.For
				got[uid] = h.Node + " " + string(h.Reason)
				if h.Reason == Nomination && h.Priority != 7 {
					t.Errorf("%s is held at priority %d, want that of the preemptor", uid, h.Priority)
				}
			}
			if diff := gocmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			slices.Sort(last.Freed)
			if diff := gocmp.Diff(c.last, last, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("what the last step changes (-want +got):\n%s", diff)
			}
			for uid := range got {
				l.Drop(IDOf(uid))
			}
			if l.Len()+len(l.nodes)+len(l.holders) != 0 {
				t.Errorf("left over: %d holds, %d nodes, %d holders", l.Len(), len(l.nodes), len(l.holders))
			}
		})
	}
}
