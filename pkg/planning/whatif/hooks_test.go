package whatif

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// census is a plugin with hooks: in each cycle state it counts pods by node, and has no room for a
// kind of pod where one of it stands.
type census struct{}

type counted struct{ pods map[string]int }

func (c *counted) Clone() fwk.StateData {
	other := &counted{pods: map[string]int{}}
	for node, n := range c.pods {
		other.pods[node] = n
	}
	return other
}

const censusKey fwk.StateKey = "census"

func countOf(state fwk.CycleState) *counted {
	data, err := state.Read(censusKey)
	if err != nil {
		data = &counted{pods: map[string]int{}}
		state.Write(censusKey, data)
	}
	return data.(*counted)
}

func (census) SimulateAddTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	countOf(state).pods[node.Node().Name]++
	return nil
}

func (census) SimulateRemoveTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	countOf(state).pods[node.Node().Name]--
	return nil
}

func (census) SimulatePredicate(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	if countOf(state).pods[node.Node().Name] > 0 {
		return fwk.NewStatus(fwk.Unschedulable, "one has come")
	}
	return nil
}

func (census) SimulateAllocatable(_ context.Context, state fwk.CycleState, _ *v1.Pod) *fwk.Status {
	total := 0
	for _, n := range countOf(state).pods {
		total += n
	}
	if total >= 2 {
		return fwk.NewStatus(fwk.Unschedulable, "two have come")
	}
	return nil
}

// hooksWith returns the hooks of a profile with a plugin that implements some; nil for none.
func hooksWith(fw framework.Framework, plugin any) Hooks {
	hooks := HooksOf(extensionpoints.New(), fw)
	if hook, ok := plugin.(TaskAdder); ok {
		hooks.adders = append(hooks.adders, hook)
		hooks.addReactor(hook)
	}
	if hook, ok := plugin.(TaskRemover); ok {
		hooks.removers = append(hooks.removers, hook)
		hooks.addReactor(hook)
	}
	if hook, ok := plugin.(Predicate); ok {
		hooks.predicates = append(hooks.predicates, hook)
	}
	if hook, ok := plugin.(Allocatable); ok {
		hooks.allocatable = append(hooks.allocatable, hook)
	}
	return hooks
}

func TestHooksHaveTheirSay(t *testing.T) {
	s := newStage(t)
	s.set(sample.Bound(pod("plain", 0), "n0"))
	tx, err := Begin(s.fw, hooksWith(s.fw, census{}), false)
	must.Succeed(t, err)
	v := view(t, tx, pod("nothing", 0))
	n0, _ := tx.Index("n0")
	n1, _ := tx.Index("n1")
	if status := tx.Fits(t.Context(), v, n1); !status.IsSuccess() {
		t.Fatal(status)
	}
	must.Succeed(t, tx.Add(t.Context(), idle.PodInfo(t, pod("nothing", 1)), n1))
	if status := tx.Fits(t.Context(), v, n1); status.Message() != "one has come" {
		t.Errorf("a node that the hook refuses: %v", status)
	}
	late := view(t, tx, pod("nothing", 2)) // it gets what was before
	if status := tx.Fits(t.Context(), late, n1); status.Message() != "one has come" {
		t.Errorf("a view made later: %v", status)
	}
	if status := tx.Admits(t.Context(), v); !status.IsSuccess() {
		t.Errorf("one is admitted: %v", status)
	}
	must.Succeed(t, tx.Add(t.Context(), idle.PodInfo(t, pod("nothing", 3)), n0))
	if status := tx.Admits(t.Context(), v); status.Message() != "two have come" {
		t.Errorf("a third: %v", status)
	}
	must.Succeed(t, tx.Rollback(t.Context(), 0))
	for _, view := range []*View{v, late} {
		if status := tx.Fits(t.Context(), view, n1); !status.IsSuccess() {
			t.Errorf("all taken back: %v", status)
		}
	}
}

// licence is census as it would be if what it counts were not on any node: there is one in the whole cluster.
type licence struct{ census }

func (licence) SimulatePredicate(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.NodeInfo) *fwk.Status {
	for _, n := range countOf(state).pods {
		if n > 0 {
			return fwk.NewStatus(fwk.Unschedulable, "it is taken")
		}
	}
	return nil
}

// TestHooksHearOfNominatedPods: to a plugin that judges nodes by pods on others, pods of equal or higher priority
// matter wherever they are nominated to.
func TestHooksHearOfNominatedPods(t *testing.T) {
	s := newStage(t)
	s.set(sample.Bound(pod("plain", 0), "n0"))
	nominated := pod("nothing", 1)
	s.nominate(t, nominated, 5, "n0")
	hooks := hooksWith(s.fw, licence{})
	for _, test := range []struct {
		name     string
		priority int32
		own      []types.UID
		removed  bool
		want     string
	}{
		{name: "lower priority", priority: 4, want: "it is taken"},
		{name: "equal priority", priority: 5, want: "it is taken"},
		{name: "higher priority", priority: 6},
		{name: "the transaction is about it", priority: 4, own: []types.UID{nominated.UID}},
		{name: "another goes", priority: 4, removed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			tx, err := Begin(s.fw, hooks, false)
			must.Succeed(t, err)
			tx.MarkOwn(test.own...)
			p := pod("nothing", 2)
			p.Spec.Priority = &test.priority
			v := view(t, tx, p)
			if test.removed {
				n0, _ := tx.Index("n0")
				must.Succeed(t, tx.Remove(t.Context(), tx.Node(n0).GetPods()[0], n0))
			}
			for _, name := range []string{"n0", "n1"} {
				n, _ := tx.Index(name)
				if status := tx.Fits(t.Context(), v, n); status.Message() != test.want {
					t.Errorf("%s: %v, want %q", name, status, test.want)
				}
			}
		})
	}
}

// quiet is census as it would be if it judged nodes by what is on them only.
type quiet struct{ census }

func (quiet) SimulatesNodeLocally() {}

// TestLocalViews: whether pods elsewhere matter to a node depends on which pods keep the pod away from where, and on
// the hooks.
func TestLocalViews(t *testing.T) {
	repels := func(topology string) *v1.Pod {
		p := st.PodWrapper{Pod: *sample.Bound(pod("nothing", 0), "n0")}
		return p.PodAntiAffinityIn("kind", topology, []string{"gpu"}, st.PodAntiAffinityWithRequiredReq).Obj()
	}
	for sentence, c := range map[string]struct {
		kind   string
		others []*v1.Pod
		plugin any
		local  bool
	}{
		"nobody matters":                      {kind: "gpu", local: true},
		"one keeps others away":               {kind: "plain", others: []*v1.Pod{repels(zone)}, local: true},
		"one keeps it away from a zone":       {kind: "gpu", others: []*v1.Pod{repels(zone)}},
		"one has its claim":                   {kind: "single", others: []*v1.Pod{sample.Bound(pod("single", 0), "n0")}},
		"a plugin with hooks":                 {kind: "gpu", plugin: census{}},
		"one that judges nodes by themselves": {kind: "gpu", plugin: quiet{}, local: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			s.set(c.others...)
			tx, err := Begin(s.fw, hooksWith(s.fw, c.plugin), false)
			must.Succeed(t, err)
			v := view(t, tx, pod(c.kind, 9))
			if got := v.Local(); got != c.local {
				t.Errorf("local: %v, want %v; plugins %q", got, c.local, v.beyond)
			}
		})
	}
}

// TestSettled: a plugin's final verdict on a node is not final where pods elsewhere matter to it.
func TestSettled(t *testing.T) {
	s := newStage(t)
	repels := st.PodWrapper{Pod: *sample.Bound(pod("nothing", 0), "n0")}
	s.set(repels.PodAntiAffinityIn("kind", zone, []string{"gpu"}, st.PodAntiAffinityWithRequiredReq).Obj())
	tx, err := Begin(s.fw, hooksWith(s.fw, nil), false)
	must.Succeed(t, err)
	v := view(t, tx, pod("gpu", 9))
	for plugin, want := range map[string]bool{names.TaintToleration: true, names.InterPodAffinity: false, names.PodTopologySpread: true} {
		if got := v.Settled(fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithPlugin(plugin)); got != want {
			t.Errorf("what %s says is settled: %v, want %v", plugin, got, want)
		}
		if v.Settled(fwk.NewStatus(fwk.Unschedulable).WithPlugin(plugin)) {
			t.Errorf("that %s has no room is settled", plugin)
		}
	}
}

// moment is what a transaction should come to.
type moment struct {
	mark     Mark
	standing []*v1.Pod
	gone     map[types.UID]*v1.Pod
	added    map[types.UID]string
}

// at returns the same at a mark, to change by itself.
func (m moment) at(mark Mark) moment {
	return moment{mark: mark, standing: slices.Clone(m.standing), gone: maps.Clone(m.gone), added: maps.Clone(m.added)}
}

// TestRemovals: whatever is removed, added and put back, a node is what it would be with the pods that
// stand there, and the transaction knows what it came to.
func TestRemovals(t *testing.T) {
	for _, kinds := range [][]string{independent[:4], {"spread", "gpu"}, {"apart", "zones-apart", "near"}} {
		t.Run(strings.Join(kinds, " "), func(t *testing.T) { testRemovals(t, kinds) })
	}
}

func testRemovals(t *testing.T, kinds []string) {
	t.Helper()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newStage(t)
		var running []*v1.Pod
		for i := range 12 {
			running = append(running, sample.Bound(pod(kinds[r.IntN(len(kinds))], i), s.nodes[r.IntN(len(s.nodes))].Name))
		}
		s.set(running...)
		before := s.facts(t)
		tx, at := s.begin(t, false)
		v := view(t, tx, pod(kinds[0], 99))
		infos := map[types.UID]fwk.PodInfo{}
		for node := range tx.Len() {
			for _, info := range tx.Node(node).GetPods() {
				infos[info.GetPod().UID] = info
			}
		}
		now := moment{standing: slices.Clone(running), gone: map[types.UID]*v1.Pod{}, added: map[types.UID]string{}}
		marks := []moment{now.at(tx.Checkpoint())}
		for i := range 30 {
			switch r.IntN(5) {
			case 0, 1:
				p := running[r.IntN(len(running))]
				if now.gone[p.UID] == nil {
					must.Succeed(t, tx.Remove(t.Context(), infos[p.UID], at[p.Spec.NodeName]))
					now.gone[p.UID] = p
					now.standing = slices.DeleteFunc(slices.Clone(now.standing), func(q *v1.Pod) bool { return q.UID == p.UID })
				} else {
					must.Succeed(t, tx.Restore(t.Context(), infos[p.UID], at[p.Spec.NodeName]))
					delete(now.gone, p.UID)
					now.standing = append(slices.Clone(now.standing), p)
				}
			case 2:
				p, name := pod(kinds[0], 100+i), s.nodes[r.IntN(len(s.nodes))].Name
				must.Succeed(t, tx.Add(t.Context(), idle.PodInfo(t, p), at[name]))
				now.standing = append(slices.Clone(now.standing), sample.Bound(p, name))
				now.added[p.UID] = name
			case 3:
				marks = append(marks, now.at(tx.Checkpoint()))
			case 4:
				last := marks[r.IntN(len(marks))]
				if last.mark <= tx.Checkpoint() {
					must.Succeed(t, tx.Rollback(t.Context(), last.mark))
					now = last.at(last.mark)
					marks = slices.DeleteFunc(marks, func(m moment) bool { return m.mark > last.mark })
				}
			}
		}
		got := fits(t, tx, v)
		outcome, err := tx.commit(t.Context())
		must.Succeed(t, err)
		s.mustBe(t, "after a commit", before)
		var evict []types.UID
		for _, p := range outcome.Evict {
			evict = append(evict, p.UID)
		}
		var want []types.UID
		for uid := range now.gone {
			want = append(want, uid)
		}
		slices.Sort(want)
		if diff := gocmp.Diff([]any{want, now.added}, []any{evict, outcome.Place}); diff != "" {
			t.Fatalf("seed %d: it came to (-want +got):\n%s", seed, diff)
		}
		s.set(now.standing...)
		fresh, _ := s.begin(t, false)
		if diff := gocmp.Diff(fits(t, fresh, view(t, fresh, pod(kinds[0], 99))), got); diff != "" {
			t.Fatalf("seed %d: nodes that fit (-want +got):\n%s", seed, diff)
		}
	}
}

// TestRemovalInTheSnapshotIsRefused: there is no way to take a pod out of it and back.
func TestRemovalInTheSnapshotIsRefused(t *testing.T) {
	s := newStage(t)
	s.set(sample.Bound(pod("plain", 0), "n0"))
	tx, at := s.begin(t, true)
	if err := tx.Remove(t.Context(), tx.Node(at["n0"]).GetPods()[0], at["n0"]); err == nil {
		t.Error("a pod was removed from the snapshot itself")
	}
}
