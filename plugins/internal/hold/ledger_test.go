package hold

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// model is the ledger without any sum: a list that is counted anew each time.
type model map[types.UID]Hold

func (m model) others(node string, there []types.UID, holders ...string) (Taken, bool) {
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
	holders   = []string{"a/x", "a/y", "b/x"}
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
				if got := ledger.Drop(h.For); got != had {
					t.Fatalf("seed %d, step %d: Drop answers %v, want %v", seed, step, got, had)
				}
			}
			compare(t, fmt.Sprintf("seed %d, step %d", seed, step), ledger, counted)
		}
		for uid := range counted {
			ledger.Drop(uid)
		}
		compare(t, "empty again", ledger, model{})
	}
}

func compare(t *testing.T, when string, ledger *Ledger, counted model) {
	t.Helper()
	if ledger.Len() != len(counted) {
		t.Fatalf("%s: %d holds, want %d", when, ledger.Len(), len(counted))
	}
	if diff := gocmp.Diff(counted.nodes(), ledger.Nodes(), sameTaken); diff != "" {
		t.Fatalf("%s: nodes (-want +got):\n%s", when, diff)
	}
	for _, reason := range reasons {
		if got, want := ledger.Count(reason), counted.count(reason); got != want {
			t.Fatalf("%s: %d for reason %s, want %d", when, got, reason, want)
		}
	}
	for mine := range 1 << len(holders) { // every set of holders
		var own []string
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

// TestOthersIsTheCallersOwn: what Others answers does not change with the ledger,
// nor the ledger with it.
func TestOthersIsTheCallersOwn(t *testing.T) {
	ledger := NewLedger()
	ledger.Put(Hold{For: "a", Holder: "x", Node: "n", Request: resource.Vector{v1.ResourceCPU: 1}, Ports: []Port{{Number: 80}}})
	got, _ := ledger.Others("n", slices.Values([]types.UID(nil)))
	got.Request[v1.ResourceCPU] = 7
	got.Ports[0].Number = 7
	want := Taken{Pods: 1, Request: resource.Vector{v1.ResourceCPU: 1}, Ports: []Port{{Number: 80}}}
	again, _ := ledger.Others("n", slices.Values([]types.UID(nil)))
	if diff := gocmp.Diff(want, again); diff != "" {
		t.Errorf("after the caller wrote to it (-want +got):\n%s", diff)
	}
	ledger.Put(Hold{For: "b", Holder: "x", Node: "n", Request: resource.Vector{v1.ResourceCPU: 1}})
	if diff := gocmp.Diff(want, again); diff != "" {
		t.Errorf("after the ledger changed (-want +got):\n%s", diff)
	}
}
