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
		"children divide what exists, not what their parent states": {
			4, byName(Queue{Name: "p", Deserved: gpus(10)}, Queue{Name: "batch", Parent: "p", Deserved: gpus(0), Request: gpus(4)}, Queue{Name: "team", Parent: "p", Deserved: gpus(4), Request: gpus(4)}),
			"batch:0 p:8 team:4",
		},
		"by weight, too": {
			4, byName(Queue{Name: "p", Deserved: gpus(10)}, Queue{Name: "p1", Parent: "p", Request: gpus(4)}, Queue{Name: "p2", Parent: "p", Request: gpus(4)}),
			"p:8 p1:2 p2:2",
		},
		"of what two parents state the part that exists": {
			6, byName(
				Queue{Name: "p", Deserved: gpus(10), Weight: 2}, Queue{Name: "p1", Parent: "p", Request: gpus(4)}, Queue{Name: "p2", Parent: "p", Request: gpus(4)},
				Queue{Name: "q", Deserved: gpus(10)}, Queue{Name: "q1", Parent: "q", Request: gpus(9)}),
			"p:8 p1:2 p2:2 q:9 q1:2",
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

// TestDeserveWhatExists: in random trees, whatever is stated, the queues of a parent that share by weight deserve no
// more together than what exists of what the parent deserves, and they are contested if all ask for more than the
// parent can have. What exists is handed out unit by unit.
func TestDeserveWhatExists(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 3))
		queues, children := map[string]Queue{}, map[string][]string{}
		for i := range 1 + r.IntN(7) {
			q := Queue{Name: fmt.Sprint("q", i), Weight: 1 + r.Int64N(3)}
			if i > 0 && r.IntN(3) > 0 {
				q.Parent = fmt.Sprint("q", r.IntN(i))
			}
			if r.IntN(2) == 0 {
				q.Deserved = gpus(r.Int64N(20))
			}
			queues[q.Name] = q
			children[q.Parent] = append(children[q.Parent], q.Name)
		}
		asks := map[string]int64{}
		for i := len(queues) - 1; i >= 0; i-- { // children come after their parents
			q := queues[fmt.Sprint("q", i)]
			if len(children[q.Name]) == 0 {
				q.Request = gpus(r.Int64N(12))
				queues[q.Name] = q
				asks[q.Name] = q.Request[gpu]
			}
			asks[q.Parent] += asks[q.Name]
		}
		exists := map[string]int64{"": r.Int64N(20)} // of what they deserve
		lent := maps.Clone(exists)                   // and what others lend them
		shares := Deserve(gpus(exists[""]), queues)
		for i := -1; i < len(queues); i++ {
			parent := ""
			if i >= 0 {
				parent = fmt.Sprint("q", i)
			}
			weighted := int64(0)
			owed, asked := make([]Claim, len(children[parent])), make([]Claim, len(children[parent]))
			for j, name := range children[parent] {
				deserved, fair := shares[name].Deserved[gpu], shares[name].Fair[gpu]
				owed[j] = Claim{Weight: queues[name].Weight, Most: deserved}
				asked[j] = Claim{Weight: queues[name].Weight, Least: deserved, Most: asks[name]}
				if amount, stated := queues[name].Deserved[gpu]; !stated {
					weighted += deserved
				} else if want := min(amount, asks[name]); deserved != want {
					t.Errorf("seed %d: %s deserves %d, want %d as stated", seed, name, deserved, want)
				}
				if fair < deserved || fair > asks[name] {
					t.Errorf("seed %d: %s may have %d, it deserves %d and asks for %d", seed, name, fair, deserved, asks[name])
				}
			}
			if weighted > exists[parent] {
				t.Errorf("seed %d: below %q %d are deserved by weight, %d exist", seed, parent, weighted, exists[parent])
			}
			first, all := naive(lent[parent], owed), naive(lent[parent], asked)
			for j, name := range children[parent] {
				exists[name], lent[name] = first[j], max(first[j], all[j])
				if over := shares[name].Contested[gpu]; over != (asks[parent] > lent[parent]) {
					t.Errorf("seed %d: %s is contested: %v; %d are asked for of %d", seed, name, over, asks[parent], lent[parent])
				}
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

// line returns n queues, each below the one before it.
func line(n int) map[string]Queue {
	queues := map[string]Queue{}
	for i := range n {
		q := Queue{Name: fmt.Sprint("q", i), Weight: 1, Request: gpus(1)}
		if i > 0 {
			q.Parent = fmt.Sprint("q", i-1)
		}
		queues[q.Name] = q
	}
	return queues
}

// TestDepth: in a line of queues the first MaxDepth serve, and no queue costs more than as many look-ups, however long
// the line or the cycle is.
func TestDepth(t *testing.T) {
	queues := line(500)
	for i := range 500 {
		path, err := Ancestors(queues, fmt.Sprint("q", i))
		if tooDeep := i >= MaxDepth; errors.Is(err, ErrDepth) != tooDeep || (err != nil) != tooDeep || len(path) > MaxDepth {
			t.Fatalf("queue %d of a line: %v, %v", i, path, err)
		}
	}
	if shares := Deserve(gpus(100), queues); len(shares) != MaxDepth || shares["q0"].Deserved[gpu] != MaxDepth {
		t.Errorf("%d queues of the line have shares, and the first deserves %v", len(shares), shares["q0"].Deserved)
	}
	first := queues["q0"]
	first.Parent = "q499"
	queues["q0"] = first
	if path, err := Ancestors(queues, "q7"); !errors.Is(err, ErrDepth) || len(path) != MaxDepth {
		t.Errorf("in a cycle of 500: %v, %v", path, err)
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
