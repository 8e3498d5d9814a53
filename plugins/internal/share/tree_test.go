package share

import (
	order "cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const gpu v1.ResourceName = "nvidia.com/gpu"

func gpus(n int64) Vector { return Vector{gpu: n} }

// byName returns a map of queues; one without a weight has weight 1.
func byName(list ...Queue) map[string]Queue {
	queues := map[string]Queue{}
	for _, q := range list {
		q.Weight = max(q.Weight, 1)
		queues[q.Name] = q
	}
	return queues
}

func TestDeserve(t *testing.T) {
	for sentence, c := range map[string]struct {
		total  int64
		queues map[string]Queue
		want   string // queue: deserved, or deserved/fair
	}{
		"queues of one weight": {9000, byName(Queue{Name: "a", Request: gpus(10000)}, Queue{Name: "b", Request: gpus(5000)}), "a:4500 b:4500"},
		"a third that asks for little": {
			9000, byName(Queue{Name: "a", Request: gpus(10000)}, Queue{Name: "b", Request: gpus(5000)}, Queue{Name: "c", Request: gpus(1000)}), "a:4000 b:4000 c:1000",
		},
		"by weight":                            {8, byName(Queue{Name: "a", Weight: 3, Request: gpus(99)}, Queue{Name: "b", Request: gpus(99)}), "a:6 b:2"},
		"an idle guarantee is lent":            {8, byName(Queue{Name: "a", Guarantee: gpus(6)}, Queue{Name: "b", Request: gpus(99)}), "a:0 b:8"},
		"a guarantee is a floor":               {8, byName(Queue{Name: "a", Guarantee: gpus(6), Request: gpus(99)}, Queue{Name: "b", Request: gpus(99)}), "a:6 b:2"},
		"a capability is a ceiling":            {8, byName(Queue{Name: "a", Capability: gpus(2), Request: gpus(99)}, Queue{Name: "b", Request: gpus(99)}), "a:2 b:6"},
		"one of nothing shuts out":             {8, byName(Queue{Name: "a", Capability: gpus(0), Request: gpus(99)}), "a:0"},
		"what is stated stands, and is lent":   {8, byName(Queue{Name: "a", Deserved: gpus(3), Request: gpus(4)}, Queue{Name: "b", Deserved: gpus(5), Request: gpus(1)}), "a:3/4 b:1"},
		"beside others by weight":              {8, byName(Queue{Name: "a", Deserved: gpus(2), Request: gpus(99)}, Queue{Name: "b", Request: gpus(99)}), "a:2 b:6"},
		"also where more is stated than there": {5, byName(Queue{Name: "a", Deserved: gpus(3), Request: gpus(4)}, Queue{Name: "b", Deserved: gpus(5), Request: gpus(5)}), "a:3 b:5"},
		"children share what their parent has": {
			8, byName(Queue{Name: "p"}, Queue{Name: "p1", Parent: "p", Request: gpus(99)}, Queue{Name: "p2", Parent: "p", Request: gpus(99)}, Queue{Name: "q", Request: gpus(99)}),
			"p:4 p1:2 p2:2 q:4",
		},
		"a parent's ceiling holds for all below it": {
			8, byName(Queue{Name: "p", Capability: gpus(3)}, Queue{Name: "p1", Parent: "p", Request: gpus(99)}, Queue{Name: "q", Request: gpus(99)}), "p:3 p1:3 q:5",
		},
		"a child's floor is its parent's": {
			8, byName(Queue{Name: "p"}, Queue{Name: "p1", Parent: "p", Guarantee: gpus(6), Request: gpus(99)}, Queue{Name: "q", Request: gpus(99)}), "p:6 p1:6 q:2",
		},
		"an inner queue's own pods have a part": {
			8, byName(Queue{Name: "p", Request: gpus(99)}, Queue{Name: "p1", Parent: "p", Request: gpus(99)}), "p:8 p1:4",
		},
		"queues that hang on nothing have nothing": {
			8, byName(Queue{Name: "a", Request: gpus(9)}, Queue{Name: "x", Parent: "gone", Request: gpus(9)}, Queue{Name: "y", Parent: "z", Request: gpus(9)}, Queue{Name: "z", Parent: "y"}), "a:8",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got []string
			shares := Deserve(gpus(c.total), c.queues)
			for _, name := range slices.Sorted(maps.Keys(shares)) {
				s := shares[name]
				text := fmt.Sprintf("%s:%d", name, s.Deserved[gpu])
				if s.Fair[gpu] != s.Deserved[gpu] {
					text += fmt.Sprintf("/%d", s.Fair[gpu])
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("shares (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDeserveHolds: what is deserved adds up, at every level of random trees.
func TestDeserveHolds(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		queues := map[string]Queue{}
		children := map[string][]string{}
		for i := range 1 + r.IntN(8) {
			q := Queue{Name: fmt.Sprint("q", i), Weight: 1 + r.Int64N(5), Request: gpus(r.Int64N(30))}
			if i > 0 && r.IntN(2) == 0 {
				q.Parent = fmt.Sprint("q", r.IntN(i))
			}
			if r.IntN(3) == 0 {
				q.Capability = gpus(r.Int64N(30))
			}
			if r.IntN(3) == 0 {
				q.Guarantee = gpus(r.Int64N(5))
			}
			queues[q.Name] = q
			children[q.Parent] = append(children[q.Parent], q.Name)
		}
		total := r.Int64N(60)
		shares := Deserve(gpus(total), queues)
		var wanted func(name string) int64
		wanted = func(name string) int64 {
			sum := queues[name].Request[gpu]
			for _, child := range children[name] {
				sum += wanted(child)
			}
			if ceiling, ok := queues[name].Capability[gpu]; ok {
				sum = min(sum, ceiling)
			}
			return sum
		}
		for parent, names := range children {
			has, sum, want := total, int64(0), int64(0)
			if parent != "" {
				has, want = shares[parent].Fair[gpu], queues[parent].Request[gpu]
			}
			for _, name := range names {
				s := shares[name]
				sum += s.Fair[gpu]
				want += wanted(name)
				if s.Fair[gpu] > wanted(name) || s.Deserved[gpu] != s.Fair[gpu] {
					t.Errorf("seed %d: %s has %d and deserves %d of %d that it wants", seed, name, s.Fair[gpu], s.Deserved[gpu], wanted(name))
				}
			}
			own := int64(0)
			if parent != "" {
				own = min(has-sum, queues[parent].Request[gpu])
			}
			if sum+own != min(has, want) {
				t.Errorf("seed %d: the children of %q have %d and it keeps %d, of %d; they want %d", seed, parent, sum, own, has, want)
			}
		}
	}
}

func TestAncestors(t *testing.T) {
	queues := byName(Queue{Name: "a"}, Queue{Name: "b", Parent: "a"}, Queue{Name: "x", Parent: "y"}, Queue{Name: "y", Parent: "x"}, Queue{Name: "z", Parent: "gone"})
	for name, want := range map[string]error{"a": nil, "b": nil, "x": ErrCycle, "z": ErrNoParent, "gone": ErrNoParent} {
		path, err := Ancestors(queues, name)
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("ancestors of %s: %v, %v, want %v", name, path, err, want)
		}
	}
}

func TestDominant(t *testing.T) {
	total := Vector{gpu: 8, v1.ResourceCPU: 1000}
	for want, used := range map[float64]Vector{0: nil, 0.5: {gpu: 4, v1.ResourceCPU: 100}, 0.25: {v1.ResourceCPU: 250}, 1: {"unknown": 1}} {
		if got := Dominant(used, total); got != want {
			t.Errorf("dominant share of %v is %v, want %v", used, got, want)
		}
	}
}

// TestCompareFillsProgressively serves the queue that comes first, one unit at a time, and compares
// with dividing from the top down.
func TestCompareFillsProgressively(t *testing.T) {
	queues := byName(Queue{Name: "p", Weight: 2}, Queue{Name: "p1", Parent: "p"}, Queue{Name: "p2", Parent: "p", Weight: 3}, Queue{Name: "q"}, Queue{Name: "q1", Parent: "q"})
	used := map[string]int64{}
	of := func(name string) float64 { return float64(used[name]) / float64(queues[name].Weight) }
	leaves := []string{"p1", "p2", "q1"}
	for range 24 {
		next := slices.MinFunc(leaves, func(a, b string) int {
			one, _ := Ancestors(queues, a)
			two, _ := Ancestors(queues, b)
			return Compare(one, two, func(i, j string) int { return order.Or(order.Compare(of(i), of(j)), order.Compare(i, j)) })
		})
		path, _ := Ancestors(queues, next)
		for _, name := range path {
			used[name]++
		}
	}
	for _, name := range leaves {
		q := queues[name]
		q.Request = gpus(99)
		queues[name] = q
	}
	want := map[string]int64{}
	for name, s := range Deserve(gpus(24), queues) {
		want[name] = s.Deserved[gpu]
	}
	if diff := cmp.Diff(want, used); diff != "" {
		t.Errorf("served (-divided +one by one):\n%s", diff)
	}
}
