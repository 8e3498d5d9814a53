package fairshare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// withModels configures a pool for each of two models of GPUs.
func (d *Dispatcher) withModels(t *testing.T) {
	t.Helper()
	var pool []config.Pool
	for _, model := range []string{"x", "y"} {
		pool = append(pool, config.Pool{Name: model, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"model": model}}})
	}
	nodes, err := pools.New(pool)
	must.Succeed(t, err)
	d.share(nodes, nil)
}

func ofModel(name, model string, gpus int) *v1.Node {
	return st.MakeNode().Name(name).Label("model", model).Capacity(map[v1.ResourceName]string{gpu: fmt.Sprint(gpus)}).Obj()
}

func wants(p *v1.Pod, model string) *v1.Pod {
	p.Spec.NodeSelector = map[string]string{"model": model}
	return p
}

func (d *Dispatcher) seeAll(pods ...*v1.Pod) {
	for _, p := range pods {
		d.know(p)
		d.podSeen(p)
	}
}

// TestPoolThatComesLate: a job that has its turn stays in the pool that it is charged to when another pool
// gets its first node.
func TestPoolThatComesLate(t *testing.T) {
	capability := gpus(4).In("x")
	capability.Add(gpus(4).In("y"), 1)
	d := newDispatcher(t, 0, 9, queueing.Queue{Name: "a", Capability: capability})
	d.withModels(t)
	pl := &FairShare{dispatcher: d}
	d.nodeSeen(ofModel("ny", "y", 8))
	p := pod("p", "a", 3, "")
	d.seeAll(p)
	if why := d.comes(p); why != "" {
		t.Fatal(why)
	}
	d.nodeSeen(ofModel("nx", "x", 8))
	state := framework.NewCycleState()
	if _, status := pl.PreFilter(t.Context(), state, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	for pool, want := range map[string]bool{"x": false, "y": true} {
		info := framework.NewNodeInfo()
		info.SetNode(ofModel("n"+pool, pool, 8))
		if got := pl.Filter(t.Context(), state, p, info).IsSuccess(); got != want {
			t.Errorf("it may be placed in pool %s: %v, want %v", pool, got, want)
		}
	}
}

// TestSharesOfPools: each pool is divided by itself, for the queues that ask for it; reclaiming too.
func TestSharesOfPools(t *testing.T) {
	d := newDispatcher(t, 0, 9, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	d.withModels(t)
	d.nodeSeen(ofModel("nx", "x", 8))
	d.nodeSeen(ofModel("ny", "y", 8))
	var running []*v1.Pod
	for i := range 4 {
		running = append(running, wants(pod(fmt.Sprint("x", i), "a", 2, "nx"), "x"), wants(pod(fmt.Sprint("y", i), "b", 2, "ny"), "y"))
	}
	d.seeAll(running...)
	preemptor := wants(pod("b1", "b", 4, ""), "x")
	d.seeAll(preemptor)
	if got := d.book.Shares()["b"].Deserved["nvidia.com/gpu@x"]; got != 4 {
		t.Errorf("b deserves %d of x, want 4: it has no more than its share there, whatever it has of y", got)
	}
	if why := d.comes(preemptor); why != "" {
		t.Errorf("it waits: %s", why)
	}
	rounds := d.rounds(extensionpoints.Gang{Pods: []*v1.Pod{preemptor}, Min: 1})
	if len(rounds) != 3 {
		t.Fatalf("%d rounds, want two of reclaiming", len(rounds))
	}
	budget := rounds[1].Tiers[0].Budget(nil)
	var granted []string
	for _, p := range running {
		if rounds[1].Tiers[0].Permits(p) && budget.Take(&victim.Gang{ID: p.Name, Queue: rounds[1].Queue(p), Min: 1}, []victim.Pod{{UID: p.UID, Request: victim.Vector(resource.OfPod(p))}}) {
			granted = append(granted, p.Name)
		}
	}
	if diff := cmp.Diff([]string{"x0", "x1"}, granted); diff != "" {
		t.Errorf("reclaimed (-want +got):\n%s", diff)
	}
}

// TestEitherPool: a pod that may use several pools goes where its queue has room, and counts there.
func TestEitherPool(t *testing.T) {
	capability := gpus(4).In("x")
	capability.Add(gpus(4).In("y"), 1)
	d := newDispatcher(t, 0, 9, queueing.Queue{Name: "a", Capability: capability})
	d.withModels(t)
	pl := &FairShare{dispatcher: d}
	nodes := map[string]*v1.Node{"nx": ofModel("nx", "x", 8), "ny": ofModel("ny", "y", 8)}
	for _, n := range nodes {
		d.nodeSeen(n)
	}
	may := func(sentence string, p *v1.Pod, want ...string) {
		t.Helper()
		for _, asked := range []bool{false, true} {
			state := framework.NewCycleState()
			if asked {
				whatif.MarkSimulated(state)
			}
			_, status := pl.PreFilter(t.Context(), state, p, nil)
			var got []string
			for name, n := range nodes {
				info := framework.NewNodeInfo()
				info.SetNode(n)
				if status.IsSkip() || status.IsSuccess() && pl.Filter(t.Context(), state, p, info).IsSuccess() {
					got = append(got, name)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: nodes, asked what if: %v (-want +got):\n%s", sentence, asked, diff)
			}
		}
	}
	used := func() string {
		var list []string
		for _, bound := range []string{"x", "y"} {
			for over := int64(1); over < 9; over++ {
				if ceilings, _ := d.book.Ceilings(queueing.Job{Queue: "a", Options: []queueing.Needs{{"a": gpus(over).In(bound)}}}); ceilings != nil {
					list = append(list, fmt.Sprint(bound, 5-over))
					break
				}
			}
		}
		return strings.Join(list, " ")
	}
	made := pod("made", "a", 3, "")
	made.Status.NominatedNodeName = "ny"
	d.seeAll(made)
	may("room was made in the second", made, "ny")
	d.lose(made)
	first, second, third := pod("first", "a", 3, ""), pod("second", "a", 3, ""), pod("third", "a", 3, "")
	d.seeAll(first, second, third)
	if why := d.comes(first); why != "" {
		t.Fatal(why)
	}
	may("there is room in both", first, "nx", "ny")
	if why := d.comes(second); why != "" {
		t.Fatalf("there is room in the other pool: %s", why)
	}
	may("the first counts in one", second, "ny")
	may("and the second in the other", first, "nx")
	if why := d.comes(third); !strings.Contains(why, "4 nvidia.com/gpu in pool x") {
		t.Errorf("there is room in none, and it hears %q", why)
	}
	if got := used(); got != "x3 y3" {
		t.Errorf("used %s, want x3 y3", got)
	}
	d.reserve(second, "ny")
	d.reserve(first, "nx")
	d.unreserve(silent, first)
	d.reserve(first, "ny") // the scheduler knows why
	if got := d.calledNow(); got != "third" {
		t.Errorf("called %q, want third: there is room in x", got)
	}
	if got := used(); got != "x3 y4" { // more is possible
		t.Errorf("used %s, want x3 y4", got)
	}
	moved := ofModel("ny", "x", 8)
	d.nodeSeen(moved)
	d.lose(third)
	if got := used(); !strings.HasSuffix(got, "y0") {
		t.Errorf("used %s: what runs on a node is where that is", got)
	}
}
