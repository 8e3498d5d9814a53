package gpushare

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource/gpucards"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// place takes a pod through the part of a cycle that decides: assumed, reserved. want is
// its card; -1 for any.
func (s *stage) place(t testing.TB, pod *v1.Pod, node string, want int) {
	t.Helper()
	s.scheduler.Look(t)
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	must.Succeed(t, s.scheduler.Cache.AssumePod(klog.FromContext(s.ctx), pod))
	if status := s.Reserve(s.ctx, framework.NewCycleState(), pod, node); !status.IsSuccess() {
		t.Fatalf("reserving for %s: %v", pod.Name, status)
	}
	if r, ok := s.ledger.reservationOf(pod.UID); !ok || want >= 0 && r.card != want {
		t.Fatalf("%s got %+v, want card %d", pod.Name, r, want)
	}
	s.scheduler.Look(t)
}

func wantDeleted(t *testing.T, s *stage, names ...string) {
	t.Helper()
	var deleted []string
	await.Until(t, fmt.Sprintf("pods %v are evicted", names), func() bool {
		deleted = nil
		for _, action := range s.client.Actions() {
			if d, ok := action.(clienttesting.DeleteAction); ok && action.GetResource().Resource == "pods" {
				deleted = append(deleted, d.GetName())
			}
		}
		return len(deleted) >= len(names)
	})
	slices.Sort(deleted)
	same(t, "pods evicted", names, deleted)
}

// TestFilterAndScore filters and scores one node.
func TestFilterAndScore(t *testing.T) {
	sized := func(list string, total int) *v1.Node {
		n := bareNode("n", total)
		n.Annotations = map[string]string{v1alpha1.GPUCardsAnnotation: list}
		return n
	}
	for sentence, c := range map[string]struct {
		node   *v1.Node
		pods   []runtime.Object
		memory int
		want   *fwk.Status
		score  int64
	}{
		"a node without cards":             {node: st.MakeNode().Name("n").Obj(), memory: 1, want: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonSmall)},
		"a free card":                      {node: makeNode("n", 1), memory: 2048, score: 25},
		"a pod that fills a card":          {node: makeNode("n", 2), memory: 8192, score: 100},
		"a pod that fills up a card":       {node: makeNode("n", 2), pods: []runtime.Object{onCard("a", 4096, "n", "1")}, memory: 2048, score: 75},
		"a pod beside a full card":         {node: makeNode("n", 2), pods: []runtime.Object{onCard("a", 8192, "n", "0")}, memory: 2048, score: 25},
		"two halves are no whole":          {node: makeNode("n", 2), pods: []runtime.Object{onCard("a", 4096, "n", "0"), onCard("b", 4096, "n", "1")}, memory: 8192, want: fwk.NewStatus(fwk.Unschedulable, ErrReasonFull)},
		"no card is that large":            {node: makeNode("n", 2), memory: 8193, want: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonSmall)},
		"cards that differ":                {node: sized("[81920,16384]", 98304), memory: 16384, score: 100},
		"a node that does not say: one":    {node: bareNode("n", 16384), memory: 16384, score: 100},
		"cards that cannot be read":        {node: sized("[8192", 8192), memory: 1, want: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonUnreadable)},
		"cards that do not add up":         {node: sized("[8192]", 16384), memory: 1, want: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonUnreadable)},
		"a pod that is on an unknown card": {node: makeNode("n", 2), pods: []runtime.Object{onCard("a", 4096, "n", "2")}, memory: 4097, want: fwk.NewStatus(fwk.Unschedulable, ErrReasonFull)},
		"a pod that says nothing of a card": {
			node: makeNode("n", 2), pods: []runtime.Object{makePod("a", 4096).Node("n").Condition(v1.PodScheduled, v1.ConditionTrue, "").Obj()},
			memory: 4097, want: fwk.NewStatus(fwk.Unschedulable, ErrReasonFull),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, append(c.pods, c.node)...)
			pod, state := makePod("pod", c.memory).Obj(), framework.NewCycleState()
			if _, status := s.PreFilter(s.ctx, state, pod, nil); !status.IsSuccess() {
				t.Fatal(status)
			}
			info, err := s.snapshot.NodeInfos().Get("n")
			must.Succeed(t, err)
			got := s.Filter(s.ctx, state, pod, info)
			if got.Code() != c.want.Code() || got.Message() != c.want.Message() {
				t.Errorf("Filter answers %v, want %v", got, c.want)
			}
			if score, status := s.Score(s.ctx, state, pod, info); score != c.score || !status.IsSuccess() {
				t.Errorf("Score answers %d, %v, want %d", score, status, c.score)
			}
		})
	}
}

// TestPodsThatRequestNone: every extension point ignores them.
func TestPodsThatRequestNone(t *testing.T) {
	s := newStage(t, bareNode("n", 1))
	for sentence, pod := range map[string]*v1.Pod{
		"no GPU memory":        st.MakePod().Name("p").UID("p").Node("n").Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj(),
		"none of it":           makePod("p", 0).Node("n").Obj(),
		"no containers at all": {ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			state := framework.NewCycleState()
			_, preFilter := s.PreFilter(s.ctx, state, pod, nil)
			_, preFlight := s.PreBindPreFlight(s.ctx, state, pod, "n")
			signature, signed := s.SignPod(s.ctx, pod)
			same(t, "codes", []fwk.Code{fwk.Skip, fwk.Skip, fwk.Skip, fwk.Success, fwk.Success, fwk.Success}, []fwk.Code{
				preFilter.Code(), s.PreScore(s.ctx, state, pod, nil).Code(), preFlight.Code(),
				s.Reserve(s.ctx, state, pod, "n").Code(), s.PreBind(s.ctx, state, pod, "n").Code(), signed.Code(),
			})
			if len(signature) > 0 || len(s.ledger.reservationsOn("n")) > 0 {
				t.Errorf("signature %v, ledger %v", signature, s.ledger.reservationsOn("n"))
			}
		})
	}
	if got := requested(st.MakePod().InitReq(map[v1.ResourceName]string{v1alpha1.GPUMemoryResource: "7"}).Req(map[v1.ResourceName]string{v1alpha1.GPUMemoryResource: "5"}).Obj()); got != 7 {
		t.Errorf("a pod that begins with 7 and goes on with 5 requests %d, want 7", got)
	}
	if got, _ := s.SignPod(s.ctx, makePod("a", 5).Obj()); len(got) != 1 || got[0].Value != int64(5) {
		t.Errorf("the signature of a pod of 5 MiB is %v", got)
	}
}

// TestReserve packs cards, takes them back, records them, and starts anew from what was recorded.
func TestReserve(t *testing.T) {
	pods := []*v1.Pod{makePod("a", 4096).Obj(), makePod("b", 6144).Obj(), makePod("c", 2048).Obj(), makePod("d", 2048).Obj()}
	objects := []runtime.Object{makeNode("n", 2)}
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	s := newStage(t, objects...)
	for i, want := range []int{0, 1, 1, 0} {
		s.place(t, pods[i], "n", want)
	}
	same(t, "free with all reserved", gpucards.Free{2048, 0}, s.now(t, "n"))
	reserve := func(pod *v1.Pod) *fwk.Status { return s.Reserve(s.ctx, framework.NewCycleState(), pod, "n") }
	if status := reserve(pods[1]); !status.IsSuccess() {
		t.Errorf("a pod is in its own way: %v", status)
	}
	if status := reserve(makePod("e", 4096).Obj()); status.Code() != fwk.Error {
		t.Errorf("a pod too many got a card: %v", status)
	}
	s.Unreserve(s.ctx, framework.NewCycleState(), pods[3], "other")
	if _, ok := s.ledger.reservationOf("d"); !ok {
		t.Error("a card was given back on another node than it is on")
	}
	if status := reserve(makePod("late", 2048).Obj()); !status.IsSuccess() {
		t.Error(status)
	}
	// The snapshot does not have the pod yet.
	if status := reserve(makePod("later", 2048).Obj()); status.Code() != fwk.Error {
		t.Errorf("a card was given away twice in one snapshot: %v", status)
	}
	for range 2 { // it may be called more than once
		s.Unreserve(s.ctx, framework.NewCycleState(), makePod("late", 2048).Obj(), "n")
	}
	if status := reserve(makePod("later", 2048).Obj()); !status.IsSuccess() {
		t.Errorf("what was given back is not free: %v", status)
	}
	s.Unreserve(s.ctx, framework.NewCycleState(), makePod("later", 2048).Obj(), "n")

	again := []runtime.Object{makeNode("n", 2)}
	for _, pod := range pods {
		if status := s.PreBind(s.ctx, framework.NewCycleState(), pod, "n"); !status.IsSuccess() {
			t.Fatal(status)
		}
		bound, err := s.client.CoreV1().Pods("ns").Get(s.ctx, pod.Name, metav1.GetOptions{})
		must.Succeed(t, err)
		bound.Spec.NodeName = "n"
		again = append(again, bound)
	}
	restarted := newStage(t, again...)
	same(t, "free after a restart", gpucards.Free{2048, 0}, restarted.now(t, "n"))
	same(t, "told after a restart", nil, restarted.told())
	if status := s.PreBind(s.ctx, framework.NewCycleState(), makePod("unknown", 1).Obj(), "n"); status.Code() != fwk.Error {
		t.Errorf("a card that was not reserved was recorded: %v", status)
	}
	if status := s.PreBind(s.ctx, framework.NewCycleState(), pods[0], "m"); status.Code() != fwk.Error {
		t.Errorf("a card of another node was recorded: %v", status)
	}
}

// TestRecord: one patch, for exactly this pod.
func TestRecord(t *testing.T) {
	pod := makePod("a", 4096).Obj()
	s := newStage(t, makeNode("n", 1), pod)
	s.place(t, pod, "n", 0)
	if status := s.PreBind(s.ctx, framework.NewCycleState(), pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	var patches []clienttesting.PatchAction
	for _, action := range s.client.Actions() {
		if p, ok := action.(clienttesting.PatchAction); ok {
			patches = append(patches, p)
		}
	}
	if len(patches) != 1 || patches[0].GetSubresource() != "" || patches[0].GetName() != "a" {
		t.Fatalf("patches %v, want one of pod a", patches)
	}
	var got map[string]any
	must.Succeed(t, json.Unmarshal(patches[0].GetPatch(), &got))
	same(t, "patch", map[string]any{"metadata": map[string]any{
		"uid": "a", "annotations": map[string]any{v1alpha1.GPUCardAnnotation: "0", v1alpha1.GPUCardMemoryAnnotation: "4096"},
	}}, got)
}

// TestFailedAttempt: a pod with the annotation of a failed attempt is on the card
// that was reserved since, and on none while it waits.
func TestFailedAttempt(t *testing.T) {
	pod := makePod("a", 4096).Condition(v1.PodScheduled, v1.ConditionFalse, "").
		Annotation(v1alpha1.GPUCardAnnotation, "1").Annotation(v1alpha1.GPUCardMemoryAnnotation, "4096").Obj()
	s := newStage(t, makeNode("n", 2), pod)
	same(t, "while it waits", gpucards.Free{8192, 8192}, s.now(t, "n"))
	s.place(t, pod, "n", 0)
	same(t, "reserved", gpucards.Free{4096, 8192}, s.now(t, "n"))
	s.ledger.release("a", "n") // unreserved, and still in the cache
	same(t, "unreserved", gpucards.Free{4096, 8192}, s.now(t, "n"))
	same(t, "told", nil, s.told())
}

// TestNativePodGroups: their cycles only rehearse.
func TestNativePodGroups(t *testing.T) {
	s := newStage(t, makeNode("n", 1))
	pod, state := makePod("a", 4096).Obj(), framework.NewCycleState()
	state.SetPodGroupSchedulingCycle(framework.NewCycleState())
	if status := s.Reserve(s.ctx, state, pod, "n"); !status.IsSuccess() || len(s.ledger.reservationsOn("n")) > 0 {
		t.Errorf("a rehearsal reserved %v, %v", s.ledger.reservationsOn("n"), status)
	}
	s.ledger.put("a", reservation{node: "n", memory: 4096})
	s.Unreserve(s.ctx, state, pod, "n")
	if len(s.ledger.reservationsOn("n")) != 1 {
		t.Error("a rehearsal gave back what is reserved")
	}
}

// TestBadValues: each is reported once, with the key, the value and what is used instead, and
// never makes a card be sold twice.
func TestBadValues(t *testing.T) {
	half := func(cardValue string, change func(*v1.Pod)) *v1.Pod {
		pod := onCard("a", 4096, "n", cardValue)
		if change != nil {
			change(pod)
		}
		return pod
	}
	memory := func(value string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Annotations[v1alpha1.GPUCardMemoryAnnotation] = value }
	}
	every := func(value string) []string {
		return []string{`Warning BadGPUCardValue scheduling.lockstep.dev/gpu-card: invalid value ` + value + `, want a card of its node, which are 0 to 1; the pod's 4096 MiB count against every card of node n until fixed`}
	}
	less := func(value string) []string {
		return []string{`Warning BadGPUCardValue scheduling.lockstep.dev/gpu-card-memory: "` + value + `" is not the 4096 MiB that the pod requests; using 4096`}
	}
	for sentence, c := range map[string]struct {
		pods []runtime.Object
		want gpucards.Free
		told []string
	}{
		"a word":               {[]runtime.Object{half("first", nil)}, gpucards.Free{4096, 4096}, every(`"first"`)},
		"out of range":         {[]runtime.Object{half("2", nil)}, gpucards.Free{4096, 4096}, every(`"2"`)},
		"below nothing":        {[]runtime.Object{half("-1", nil)}, gpucards.Free{4096, 4096}, every(`"-1"`)},
		"empty":                {[]runtime.Object{half("", nil)}, gpucards.Free{4096, 4096}, every(`""`)},
		"long":                 {[]runtime.Object{half(strings.Repeat("x", 9000), nil)}, gpucards.Free{4096, 4096}, every(`"` + strings.Repeat("x", 197) + `..."`)},
		"a memory of words":    {[]runtime.Object{half("0", memory("4Gi"))}, gpucards.Free{4096, 8192}, less("4Gi")},
		"less than nothing":    {[]runtime.Object{half("0", memory("-4096"))}, gpucards.Free{4096, 8192}, less("-4096")},
		"less than requested":  {[]runtime.Object{half("0", memory("1"))}, gpucards.Free{4096, 8192}, less("1")},
		"no memory said":       {[]runtime.Object{half("0", func(p *v1.Pod) { delete(p.Annotations, v1alpha1.GPUCardMemoryAnnotation) })}, gpucards.Free{4096, 8192}, nil},
		"a pod without a card": {[]runtime.Object{half("0", func(p *v1.Pod) { p.Annotations = nil })}, gpucards.Free{4096, 4096}, []string{"Warning BadGPUCardValue scheduling.lockstep.dev/gpu-card: annotation missing on pod bound to node n; its 4096 MiB count against every card of the node"}},
		"a card that is oversold": {
			[]runtime.Object{half("0", nil), onCard("b", 8192, "n", "0")}, gpucards.Free{-4096, 8192},
			[]string{"Warning BadGPUCardValue scheduling.lockstep.dev/gpu-card: pods have 12288 MiB of card 0, which has 8192; it takes no more until some of them are gone"},
		},
		"a card that is oversold beyond counting": {
			[]runtime.Object{onCard("a", math.MaxInt64, "n", "0"), onCard("b", math.MaxInt64, "n", "0")}, gpucards.Free{math.MinInt64, 8192},
			[]string{"Warning BadGPUCardValue scheduling.lockstep.dev/gpu-card: pods have 9223372036854775807 MiB of card 0, which has 8192; it takes no more until some of them are gone"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, append(c.pods, makeNode("n", 2))...)
			for range 3 { // as many cycles
				same(t, "free", c.want, s.now(t, "n"))
			}
			same(t, "told", c.told, s.told())
		})
	}
}

// TestBadCards: the invalid description of a node's cards is reported once, and once more when it changes.
func TestBadCards(t *testing.T) {
	node := makeNode("n", 1)
	node.Annotations[v1alpha1.GPUCardsAnnotation] = "[1"
	s := newStage(t, node)
	text := func(value, want string) []string {
		return []string{"Warning BadGPUCardValue scheduling.lockstep.dev/gpu-cards: invalid value " + value + ", want " + want + "; node accepts no pods requesting scheduling.lockstep.dev/gpu-memory until fixed"}
	}
	ask := func(value string) *fwk.Status {
		changed := node.DeepCopy()
		changed.Annotations[v1alpha1.GPUCardsAnnotation] = value
		info := framework.NewNodeInfo()
		info.SetNode(changed)
		state := framework.NewCycleState()
		state.Write(cycleKey, &cycle{memory: 1})
		return s.Filter(s.ctx, state, makePod("p", 1).Obj(), info)
	}
	for range 3 {
		ask("[1")
	}
	same(t, "told", text(`"[1"`, "a JSON list of 1 to 256 amounts of memory in MiB"), s.told())
	ask("[1,2]")
	ask("[1,2]")
	same(t, "told of another value", text(`"[1,2]"`, "a list whose sum is the 8192 MiB that the node has allocatable"), s.told())
	if status := ask("[8192]"); !status.IsSuccess() {
		t.Errorf("a node that was repaired is refused: %v", status)
	}
	same(t, "told of a good value", nil, s.told())
}

// TestForgets: pods and nodes that are gone leave nothing behind, and an edit of the card of
// a bound pod is accepted.
func TestForgets(t *testing.T) {
	pod := makePod("a", 4096).Obj()
	s := newStage(t, makeNode("n", 2), pod)
	s.place(t, pod, "n", 0)
	s.now(t, "n")
	bound := onCard("a", 4096, "n", "0")
	s.ledger.isNews("a", "key", "value")
	s.ledger.isNews("n", "key", "value")
	s.ledger.podChanged(bound)
	if _, ok := s.ledger.reservationOf("a"); !ok {
		t.Error("a pod that is bound was forgotten: a snapshot may have it without its annotation")
	}
	s.ledger.podChanged(makePod("a", 4096).Annotation(v1alpha1.GPUCardAnnotation, "1").Obj())
	if _, ok := s.ledger.reservationOf("a"); !ok {
		t.Error("what a pod carries that is not bound was believed")
	}
	s.ledger.podChanged(onCard("a", 4096, "n", "1"))
	if _, ok := s.ledger.reservationOf("a"); ok {
		t.Error("the card of a bound pod was edited, and the ledger has it still")
	}
	s.ledger.put("a", reservation{node: "n", memory: 4096})
	must.Succeed(t, s.client.CoreV1().Pods("ns").Delete(s.ctx, "a", metav1.DeleteOptions{}))
	must.Succeed(t, s.client.CoreV1().Nodes().Delete(s.ctx, "n", metav1.DeleteOptions{}))
	s.forgets(t)
}

// forgets waits until nothing is known of any pod or node.
func (s *stage) forgets(t *testing.T) {
	t.Helper()
	await.NoError(t, "all is forgotten", func() error {
		s.ledger.mu.RLock()
		defer s.ledger.mu.RUnlock()
		if len(s.ledger.pods)+len(s.ledger.byNode)+len(s.ledger.layouts)+len(s.ledger.told) > 0 {
			return fmt.Errorf("still known: pods %v, by node %v, layouts %v, told %v", s.ledger.pods, s.ledger.byNode, s.ledger.layouts, s.ledger.told)
		}
		return nil
	})
}

func TestHints(t *testing.T) {
	s := newStage(t)
	pod := makePod("p", 8192).Obj()
	small, large, more := bareNode("n", 8191), bareNode("n", 8192), makeNode("n", 2)
	halves := bareNode("n", 8192)
	halves.Annotations = map[string]string{v1alpha1.GPUCardsAnnotation: "[4096,4096]"}
	labeled := large.DeepCopy()
	labeled.Labels = map[string]string{"a": "b"}
	for sentence, c := range map[string]struct {
		hint          fwk.QueueingHintFn
		before, after any
		want          fwk.QueueingHint
	}{
		"a pod with GPU memory goes":        {s.afterPodDelete, onCard("a", 1, "n", "0"), nil, fwk.Queue},
		"a pod without goes":                {s.afterPodDelete, st.MakePod().Name("a").Node("n").Obj(), nil, fwk.QueueSkip},
		"a node with a card large enough":   {s.afterNodeChange, nil, large, fwk.Queue},
		"a node with a card that is small":  {s.afterNodeChange, nil, small, fwk.QueueSkip},
		"a node with two halves":            {s.afterNodeChange, nil, halves, fwk.QueueSkip},
		"a node without cards":              {s.afterNodeChange, nil, st.MakeNode().Name("n").Obj(), fwk.QueueSkip},
		"a node gets a larger card":         {s.afterNodeChange, small, large, fwk.Queue},
		"a node turns out to have one card": {s.afterNodeChange, halves, large, fwk.Queue},
		"a node gets another card":          {s.afterNodeChange, large, more, fwk.Queue},
		"a node gets a label":               {s.afterNodeChange, large, labeled, fwk.QueueSkip},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got, err := c.hint(klog.FromContext(s.ctx), pod, c.before, c.after); got != c.want || err != nil {
				t.Errorf("the hint is %v, error %v, want %v", got, err, c.want)
			}
		})
	}
}

// TestNodeMadeAgain: a node that was deleted and recreated while the watch was interrupted comes as
// an update with another UID. What was known of the old node does not hold for it.
func TestNodeMadeAgain(t *testing.T) {
	node := st.MakeNode().Name("n").UID("old").Obj()
	s := newStage(t, node)
	s.ledger.layout(node, 8)
	again := node.DeepCopy()
	again.UID = "new"
	if _, err := s.client.CoreV1().Nodes().Update(s.ctx, again, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.forgets(t)
}

// TestRecordedWithTheBinding: where the binder writes annotations, the card is recorded by the call that binds the pod,
// and by no other one.
func TestRecordedWithTheBinding(t *testing.T) {
	pod := makePod("a", 4096).Obj()
	s := newStage(t, makeNode("n", 1), pod)
	s.notes = func() bool { return true }
	state := framework.NewCycleState()
	if status := s.Reserve(s.ctx, state, pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	same(t, "annotations of the binding", map[string]string{v1alpha1.GPUCardAnnotation: "0", v1alpha1.GPUCardMemoryAnnotation: "4096"}, binding.Annotations(state))
	if _, status := s.PreBindPreFlight(s.ctx, state, pod, "n"); status.Code() != fwk.Skip {
		t.Errorf("before binding: %v, want nothing to do", status)
	}
}
