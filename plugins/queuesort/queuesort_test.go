package queuesort

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	stock "k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/admission/positions"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

func at(n int) time.Time { return time.Unix(int64(n), 0) }

// queued returns a pod that entered the queue at a time. kube-scheduler takes a nil
// priority for 0.
func queued(uid string, priority *int32, when int) fwk.QueuedEntityInfo {
	pod := st.MakePod().Name(uid).UID(uid).Obj()
	pod.Spec.Priority = priority
	return &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: pod}, QueueingParams: framework.QueueingParams{Timestamp: at(when)}}
}

// nativeGroup returns a pod group that kube-scheduler itself queues.
func nativeGroup(name string, priority int32, when int) fwk.QueuedEntityInfo {
	group := st.MakePodGroup().Namespace("ns").Name(name).Priority(priority).Obj()
	return &framework.QueuedPodGroupInfo{
		PodGroupInfo:   &framework.PodGroupInfo{Namespace: group.Namespace, Name: group.Name, PodGroup: group},
		QueueingParams: framework.QueueingParams{Timestamp: at(when)},
	}
}

func nameOf(e fwk.QueuedEntityInfo) string { return e.(framework.QueuedEntityInfo).GetName() }

func TestLess(t *testing.T) {
	high, low := new(int32(10)), new(int32(-1))
	member := func(gang string, since int, extra bool) turns.Rank {
		return turns.Rank{Name: gang, Created: at(since), Surplus: extra}
	}
	for sentence, c := range map[string]struct {
		first, second fwk.QueuedEntityInfo
		members       map[types.UID]turns.Rank
	}{
		"the higher priority leads": {first: queued("z", high, 9), second: queued("a", nil, 1)},
		"also over an older gang":   {first: queued("z", high, 9), second: queued("a", nil, 1), members: map[types.UID]turns.Rank{"a": member("g", 0, false)}},
		"no priority is 0":          {first: queued("z", nil, 9), second: queued("a", low, 1)},
		"who came first leads":      {first: queued("z", nil, 1), second: queued("a", nil, 2)},
		"a gang counts from when it came to be, not from when its member was queued": {
			first: queued("z", nil, 9), second: queued("a", nil, 2), members: map[types.UID]turns.Rank{"z": member("g", 1, false)},
		},
		"the older gang leads": {
			first: queued("z", nil, 9), second: queued("a", nil, 1), members: map[types.UID]turns.Rank{"z": member("y", 1, false), "a": member("x", 2, false)},
		},
		"of two gangs as old the names decide, so that neither is torn apart": {
			first: queued("z", nil, 9), second: queued("a", nil, 1), members: map[types.UID]turns.Rank{"z": member("x", 1, false), "a": member("y", 1, false)},
		},
		"a member without which its gang runs in vain leads": {
			first: queued("z", nil, 9), second: queued("a", nil, 1), members: map[types.UID]turns.Rank{"z": {Begun: true, Created: at(9), Name: "x"}},
		},
		"extra members come after everything else of their priority": {
			first: queued("z", nil, 9), second: queued("a", nil, 1), members: map[types.UID]turns.Rank{"a": member("x", 0, true)},
		},
		"but before what has a lower one": {
			first: queued("z", nil, 9), second: queued("a", low, 1), members: map[types.UID]turns.Rank{"z": member("x", 0, true)},
		},
		"of pods that differ in nothing the UIDs decide": {first: queued("a", nil, 1), second: queued("b", nil, 1)},
		"a native group stands where it was queued":      {first: nativeGroup("z", 0, 1), second: queued("a", nil, 2)},
		"a gang that is older than a native group leads": {
			first: queued("z", nil, 9), second: nativeGroup("a", 0, 2), members: map[types.UID]turns.Rank{"z": member("x", 1, false)},
		},
		"a native group of high priority leads": {
			first: nativeGroup("z", 10, 9), second: queued("a", nil, 2), members: map[types.UID]turns.Rank{"a": member("x", 1, false)},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := positions.New()
			for uid, p := range c.members {
				o.Freeze(uid, p)
			}
			pl := &QueueSort{order: o}
			if !pl.Less(c.first, c.second) || pl.Less(c.second, c.first) {
				t.Errorf("first before second %v, second before first %v", pl.Less(c.first, c.second), pl.Less(c.second, c.first))
			}
		})
	}
}

// crowd returns entities of all kinds, of which many agree in much.
func crowd(rng *rand.Rand, o *positions.Order) []fwk.QueuedEntityInfo {
	var list []fwk.QueuedEntityInfo
	for i := range 24 {
		priority := new(rng.Int32N(2))
		if rng.IntN(4) == 0 {
			priority = nil
		}
		uid := fmt.Sprint("pod-", i)
		switch rng.IntN(4) {
		case 0:
			list = append(list, nativeGroup(uid, rng.Int32N(2), rng.IntN(3)))
			continue
		case 1:
			// plain
		default:
			if rng.IntN(2) == 0 {
				o.Plan([]types.UID{types.UID(uid)})
			}
			o.Freeze(types.UID(uid), turns.Rank{Name: fmt.Sprint("g", rng.IntN(2)), Created: at(rng.IntN(3)), Surplus: rng.IntN(3) == 0})
		}
		list = append(list, queued(uid, priority, rng.IntN(3)))
	}
	return list
}

// TestLessIsATotalOrder: a heap stays sound only if exactly one of two entities
// comes first, and first of first is first.
func TestLessIsATotalOrder(t *testing.T) {
	for seed := range uint64(20) {
		o := positions.New()
		list := crowd(rand.New(rand.NewPCG(seed, 5)), o)
		pl := &QueueSort{order: o}
		for _, a := range list {
			for _, b := range list {
				if a != b && pl.Less(a, b) == pl.Less(b, a) {
					t.Fatalf("seed %d: %s and %s: %v both ways", seed, nameOf(a), nameOf(b), pl.Less(a, b))
				}
				if a == b && pl.Less(a, b) {
					t.Fatalf("seed %d: %s comes before itself", seed, nameOf(a))
				}
				for _, c := range list {
					if pl.Less(a, b) && pl.Less(b, c) && !pl.Less(a, c) {
						t.Fatalf("seed %d: %s before %s before %s before %s", seed, nameOf(a), nameOf(b), nameOf(c), nameOf(a))
					}
				}
			}
		}
	}
}

// TestGangsStandTogether: between two members of a gang, of one priority, there is no
// other entity; extras stand apart.
func TestGangsStandTogether(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 6))
		o := positions.New()
		var list []fwk.QueuedEntityInfo
		gangOf := map[string]string{}
		for i := range 30 {
			uid, gang := fmt.Sprint("pod-", i), rng.IntN(4)
			if gang > 0 {
				gangOf[uid] = fmt.Sprint("g", gang)
				o.Freeze(types.UID(uid), turns.Rank{Name: gangOf[uid], Created: at(gang / 2)}) // two gangs of one age
			}
			list = append(list, queued(uid, nil, rng.IntN(3)))
		}
		pl := &QueueSort{order: o}
		slices.SortFunc(list, func(a, b fwk.QueuedEntityInfo) int {
			if pl.Less(a, b) {
				return -1
			}
			return 1
		})
		var seen []string
		for _, e := range list {
			if gang := gangOf[nameOf(e)]; len(seen) == 0 || gang == "" || seen[len(seen)-1] != gang {
				seen = append(seen, gang)
			}
		}
		seen = slices.DeleteFunc(seen, func(gang string) bool { return gang == "" })
		if diff := cmp.Diff([]string{"g1", "g2", "g3"}, seen); diff != "" {
			t.Fatalf("seed %d: the gangs as the queue has them (-want +got):\n%s", seed, diff)
		}
	}
}

// TestPlainPodsAreSortedAsEver compares with kube-scheduler's own plugin.
func TestPlainPodsAreSortedAsEver(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	ours, theirs := &QueueSort{order: positions.New()}, &stock.PrioritySort{}
	var list []fwk.QueuedEntityInfo
	for i := range 60 {
		priority := new(rng.Int32N(3) - 1)
		if rng.IntN(3) == 0 {
			priority = nil
		}
		list = append(list, queued(fmt.Sprint("pod-", i), priority, rng.IntN(5)), nativeGroup(fmt.Sprint("group-", i), rng.Int32N(2), rng.IntN(5)))
	}
	for _, a := range list {
		for _, b := range list {
			if theirs.Less(a, b) && !ours.Less(a, b) {
				t.Fatalf("PrioritySort has %s before %s", nameOf(a), nameOf(b))
			}
		}
	}
}

// TestPositionsAreFrozen: what is in the heap compares the same until it enters it
// anew, or is forgotten.
func TestPositionsAreFrozen(t *testing.T) {
	o := positions.New()
	pl := &QueueSort{order: o}
	names := []string{"a", "b", "c", "plain"}
	entities := []fwk.QueuedEntityInfo{queued("a", nil, 5), queued("b", nil, 5), queued("c", nil, 5), queued("plain", nil, 3)}
	freeze := func(uids ...types.UID) {
		for _, uid := range uids {
			o.Freeze(uid, turns.Rank{Name: "g", Created: at(1)})
		}
	}
	for _, step := range []struct {
		sentence string
		do       func()
		want     []string
	}{
		{"members stand where their gang does, by UID", func() { freeze("a", "b", "c") }, []string{"a", "b", "c", "plain"}},
		{"a plan does not move those in the queue", func() { o.Plan([]types.UID{"c", "a"}) }, []string{"a", "b", "c", "plain"}},
		{"but those that enter it; who is in no plan comes last", func() { freeze("a", "b", "c") }, []string{"c", "a", "b", "plain"}},
		{"a later plan comes after an earlier one", func() { o.Plan([]types.UID{"b", "c"}); freeze("a", "b", "c") }, []string{"a", "b", "c", "plain"}},
		{"who leaves the plan goes behind the others", func() { o.Forget("a"); freeze("a") }, []string{"b", "c", "a", "plain"}},
		{"who is forgotten is a pod like any other", func() { o.Forget("c") }, []string{"b", "a", "plain", "c"}},
		{"and keeps no place", func() { freeze("c") }, []string{"b", "a", "c", "plain"}},
	} {
		step.do()
		list := slices.Clone(names)
		slices.SortFunc(list, func(a, b string) int {
			if pl.Less(entities[slices.Index(names, a)], entities[slices.Index(names, b)]) {
				return -1
			}
			return 1
		})
		if diff := cmp.Diff(step.want, list); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.sentence, diff)
		}
	}
}

func TestNewTakesNoArguments(t *testing.T) {
	if _, err := New(positions.New())(t.Context(), &v1.Pod{}, named{}); err == nil {
		t.Error("arguments pass unread")
	}
}

// named is a handle that knows its profile.
type named struct{ fwk.Handle }

func (named) ProfileName() string { return "ours" }
