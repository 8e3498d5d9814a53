package gpushare

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource/gpucards"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestPutBackOnItsCard is story 3 of topology-aware preemption: two cards of 8 GB, a pod of
// 4 GB on each, and a pod that needs 8 GB on one card. Packed anew, the pod that is put back
// would go beside the other, and no pod would seem to be in the way.
func TestPutBackOnItsCard(t *testing.T) {
	recorded := func(t *testing.T) *stage {
		return newStage(t, makeNode("n", 2), onCard("a", 4096, "n", "0"), onCard("b", 4096, "n", "1"))
	}
	reserved := func(t *testing.T) *stage {
		s := newStage(t, makeNode("n", 2))
		for i, name := range []string{"a", "b"} {
			pod := makePod(name, 4096).Node("n").Obj()
			s.ledger.put(pod.UID, reservation{node: "n", card: i, memory: 4096})
			must.Succeed(t, s.scheduler.Cache.AssumePod(klog.FromContext(s.ctx), pod))
		}
		s.scheduler.Look(t)
		return s
	}
	for sentence, stand := range map[string]func(t *testing.T) *stage{
		"cards are recorded on the pods":       recorded,
		"cards are reserved, and not recorded": reserved,
	} {
		t.Run(sentence, func(t *testing.T) {
			s := stand(t)
			tx := s.begin(t, false)
			early := view(t, tx, makePod("preemptor", 8192).Obj())
			a := on(t, tx, 0, "a")
			wantFits(t, tx, early, 0, false, "before anything changes")
			must.Succeed(t, tx.Remove(s.ctx, a, 0))
			wantFits(t, tx, early, 0, true, "without a")
			wantFits(t, tx, view(t, tx, makePod("twin", 8192).Obj()), 0, true, "without a")
			must.Succeed(t, tx.Restore(s.ctx, a, 0))
			late := view(t, tx, makePod("latecomer", 8192).Obj())
			for _, v := range []*whatif.View{early, late} {
				wantFits(t, tx, v, 0, false, "with a put back")
				same(t, v.Pod.Name+" sees a back on card 0", gpucards.Free{4096, 4096}, s.seen(tx, v, 0))
			}
			must.Succeed(t, tx.Remove(s.ctx, on(t, tx, 0, "b"), 0))
			wantFits(t, tx, early, 0, true, "without b")
			same(t, "a is still on card 0", gpucards.Free{4096, 8192}, s.seen(tx, early, 0))
		})
	}
}

// TestViewsAgree takes random steps in a transaction. After each, a view that got all steps one by one
// sees what a view sees that gets them afterwards; and what is taken back or
// put back leaves every card as it was.
func TestViewsAgree(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		objects := []runtime.Object{makeNode("n0", 2), makeNode("n1", 3)}
		for i := range 5 {
			name, node := fmt.Sprint("p", i), fmt.Sprint("n", i%2)
			pod := onCard(name, 1000*(1+rng.IntN(4)), node, fmt.Sprint(rng.IntN(3))) // card 2 of n0 is none
			switch rng.IntN(4) {
			case 0: // bound by another scheduler
				pod.Annotations = nil
			case 1: // just bound, which its status does not show yet
				pod.Annotations, pod.Status.Conditions = nil, nil
			}
			objects = append(objects, pod)
		}
		s := newStage(t, objects...)
		tx := s.begin(t, false)
		early := view(t, tx, makePod("early", 1).Obj())
		w := &walk{stage: s, rng: rng, tx: tx, early: early}
		for range 25 {
			w.step(t)
			late := view(t, tx, makePod("late", 1).Obj())
			for node := range tx.Len() {
				same(t, fmt.Sprintf("seed %d: node %d as the late view sees it, after %s", seed, node, w.last), s.seen(tx, early, node), s.seen(tx, late, node))
			}
			if t.Failed() {
				return
			}
		}
	}
}

// walk is a random walk through a transaction.
type walk struct {
	*stage
	rng   *rand.Rand
	tx    *whatif.Transaction
	early *whatif.View
	last  string
	added int
	gone  []gone
}

// gone is a pod that was removed, with how its node looked before.
type gone struct {
	info   fwk.PodInfo
	node   int
	before gpucards.Free
	at     int // version of the node right after
}

func (w *walk) step(t *testing.T) {
	t.Helper()
	node := w.rng.IntN(w.tx.Len())
	pods := w.tx.Node(node).GetPods()
	switch n := w.rng.IntN(6); {
	case n < 2:
		w.added++
		pod := makePod(fmt.Sprint("new", w.added), 1000*(1+w.rng.IntN(5))).Obj()
		if w.rng.IntN(3) == 0 { // left over from an attempt that failed
			pod.Annotations = onCard("", 1, "", "0").Annotations
		}
		w.last = "adding " + pod.Name
		must.Succeed(t, w.tx.Add(w.ctx, idle.PodInfo(t, pod), node))
	case n < 4 && len(pods) > 0:
		g := gone{info: pods[w.rng.IntN(len(pods))], node: node, before: w.seen(w.tx, w.early, node)}
		w.last = "removing " + g.info.GetPod().Name
		must.Succeed(t, w.tx.Remove(w.ctx, g.info, node))
		g.at = w.tx.Version(node)
		w.gone = append(w.gone, g)
	case n < 5 && len(w.gone) > 0:
		g := w.gone[len(w.gone)-1]
		w.gone = w.gone[:len(w.gone)-1]
		w.last = "restoring " + g.info.GetPod().Name
		unchanged := w.tx.Version(g.node) == g.at
		must.Succeed(t, w.tx.Restore(w.ctx, g.info, g.node))
		if unchanged {
			same(t, w.last+" leaves the cards as they were", g.before, w.seen(w.tx, w.early, g.node))
		}
	default:
		w.last = "going back"
		mark, before := w.tx.Checkpoint(), w.seen(w.tx, w.early, node)
		for i := range w.rng.IntN(3) {
			must.Succeed(t, w.tx.Add(w.ctx, idle.PodInfo(t, makePod(fmt.Sprint("tried", i), 1000*(1+w.rng.IntN(5))).Obj()), node))
		}
		if pods := w.tx.Node(node).GetPods(); len(pods) > 0 {
			must.Succeed(t, w.tx.Remove(w.ctx, pods[w.rng.IntN(len(pods))], node))
		}
		must.Succeed(t, w.tx.Rollback(w.ctx, mark))
		same(t, w.last+" leaves the cards as they were", before, w.seen(w.tx, w.early, node))
	}
}

// TestPlansAreKept places pods in a transaction on copies, in one on the snapshot itself,
// and for good, in the same order: they get the same cards.
func TestPlansAreKept(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 4))
		objects := []runtime.Object{makeNode("n", 1+rng.IntN(4))}
		for i := range rng.IntN(4) {
			objects = append(objects, onCard(fmt.Sprint("p", i), 1000*(1+rng.IntN(4)), "n", "0"))
		}
		s := newStage(t, objects...)
		copies, snapshot := s.begin(t, false), s.begin(t, true)
		v := view(t, copies, makePod("any", 1000).Obj())
		var inOrder []*v1.Pod
		for i := range 8 {
			pod := makePod(fmt.Sprint("new", i), 1000*(1+rng.IntN(5))).Obj()
			asked := view(t, copies, pod)
			if !copies.Fits(s.ctx, asked, 0).IsSuccess() {
				continue
			}
			must.Succeed(t, copies.Add(s.ctx, idle.PodInfo(t, pod), 0))
			inOrder = append(inOrder, pod)
			for _, p := range inOrder {
				must.Succeed(t, snapshot.Add(s.ctx, idle.PodInfo(t, p), 0))
			}
			same(t, fmt.Sprintf("seed %d: on the snapshot", seed), s.seen(copies, v, 0), s.now(t, "n"))
			must.Succeed(t, snapshot.Rollback(s.ctx, 0))
		}
		planned := s.seen(copies, v, 0)
		for _, p := range inOrder {
			s.place(t, p, "n", -1)
		}
		same(t, fmt.Sprintf("seed %d: for good", seed), planned, s.now(t, "n"))
	}
}

// TestPreemption lets kube-scheduler's own preemption find the only possible victim.
func TestPreemption(t *testing.T) {
	preemptor := makePod("preemptor", 8192).Obj()
	a, b := onCard("a", 4096, "n", "0"), onCard("b", 4096, "n", "1")
	other := onCard("other", 4096, "m", "0")
	low, lower := int32(5), int32(1)
	a.Spec.Priority, b.Spec.Priority, other.Spec.Priority = &lower, &low, &low
	s := newStage(t, makeNode("n", 2), makeNode("m", 1), a, b, other, preemptor)
	state := framework.NewCycleState()
	if _, status, _ := s.fw.RunPreFilterPlugins(s.ctx, state, preemptor); !status.IsSuccess() {
		t.Fatal(status)
	}
	statuses := framework.NewDefaultNodeToStatus()
	nodes, err := s.snapshot.NodeInfos().List()
	must.Succeed(t, err)
	for _, info := range nodes {
		status := s.fw.RunFilterPlugins(s.ctx, state, preemptor, info)
		if status.IsSuccess() {
			t.Fatalf("%s takes the preemptor", info.Node().Name)
		}
		statuses.Set(info.Node().Name, status)
	}
	result, status := s.fw.RunPostFilterPlugins(s.ctx, state, preemptor, statuses)
	if !status.IsSuccess() || result.NominatedNodeName != "n" {
		t.Errorf("preemption answers %v, nominates %+v; want n, where the least important pod is in the way", status, result)
	}
	wantDeleted(t, s, "a")
}

// TestWithoutMemory: the plugin ignores what-ifs about pods that request no GPU memory.
func TestWithoutMemory(t *testing.T) {
	s := newStage(t, makeNode("n", 1), onCard("a", 8192, "n", "0"))
	tx := s.begin(t, false)
	plain := st.MakePod().Namespace("ns").Name("plain").UID("plain").Obj()
	v := view(t, tx, plain)
	must.Succeed(t, tx.Remove(s.ctx, on(t, tx, 0, "a"), 0))
	must.Succeed(t, tx.Add(s.ctx, idle.PodInfo(t, makePod("b", 8192).Obj()), 0))
	wantFits(t, tx, v, 0, true, "on a full card")
	if cycleOf(v.State) != nil {
		t.Error("the plugin keeps a state for a pod that requests no GPU memory")
	}
	gpu := view(t, tx, makePod("c", 1).Obj())
	must.Succeed(t, tx.Add(s.ctx, idle.PodInfo(t, plain), 0))
	wantFits(t, tx, gpu, 0, false, "on a full card")
}

// TestOrderIsKept: a node reorders its pods when it loses one. Pods without a card still keep
// their order when one of them is put back.
func TestOrderIsKept(t *testing.T) {
	s := newStage(t, makeNode("n", 2))
	for i, memory := range []int{1000, 4000, 3000, 5000} {
		must.Succeed(t, s.scheduler.Cache.AddPod(klog.FromContext(s.ctx), makePod(fmt.Sprint("p", i), memory).Node("n").Obj()))
	}
	s.scheduler.Look(t)
	tx := s.begin(t, false)
	v := view(t, tx, makePod("any", 1).Obj())
	before := s.seen(tx, v, 0)
	first := on(t, tx, 0, "p0")
	must.Succeed(t, tx.Remove(s.ctx, first, 0))
	same(t, "free without the first", gpucards.Free{1192, 3192}, s.seen(tx, v, 0))
	must.Succeed(t, tx.Restore(s.ctx, first, 0))
	same(t, "free with the first put back", before, s.seen(tx, v, 0))
}

// TestPlacedAnew: a pod that a what-if places gets what Reserve would choose, whatever annotation a
// failed attempt has left on it.
func TestPlacedAnew(t *testing.T) {
	s := newStage(t, makeNode("n", 2))
	pod := makePod("new", 4096).Annotation(v1alpha1.GPUCardAnnotation, "1").Obj()
	tx := s.begin(t, false)
	v := view(t, tx, makePod("any", 1).Obj())
	must.Succeed(t, tx.Add(s.ctx, idle.PodInfo(t, pod), 0))
	same(t, "free with the pod in a what-if", gpucards.Free{4096, 8192}, s.seen(tx, v, 0))
	s.place(t, pod, "n", 0)
}
