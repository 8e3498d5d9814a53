package gang

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"

	"golang.org/x/time/rate"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/leading"
)

// teller tells users why gangs wait: in events, in the condition of the PodGroup,
// and in the PodScheduled condition of every pending member, so that an
// autoscaler sees the whole demand. It works beside the scheduling goroutine, at
// a bounded rate, and writes what changed only.
type teller struct {
	pl     *Gang
	groups pgclientset.Interface
	// leading is closed once this process schedules.
	leading leading.Signal
	limit   *rate.Limiter
	marks   workqueue.TypedRateLimitingInterface[mark]

	mu sync.Mutex
	// problems are still to be told, in the order in which they came; pending has them once
	// each. What is gone takes its problems along, so there are no more than what is there
	// has.
	problems []problem
	pending  map[problem]gang.Report
	// due are the gangs of which the explanation may have changed, and since when.
	due map[gang.Key]time.Time
	// told is what was last said of a gang.
	told map[gang.Key]string
	// members are the gangs whose members are still to be told.
	members workqueue.TypedInterface[gang.Key]
	// written is the version of a pod that was written to last.
	written map[types.UID]string
}

// problem is a bad value of a pod, or of a PodGroup, by its UID.
type problem struct {
	of         types.UID
	key, value string
}

// mark is a member to mark with the timeout annotation.
type mark struct {
	types.NamespacedName
	uid types.UID
}

func newTeller(pl *Gang, qps int32, leads leading.Signal) *teller {
	return &teller{
		pl: pl, leading: leads, limit: rate.NewLimiter(rate.Limit(qps), int(qps)),
		marks: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mark]()),
		due:   map[gang.Key]time.Time{}, told: map[gang.Key]string{}, pending: map[problem]gang.Report{},
		members: workqueue.NewTyped[gang.Key](), written: map[types.UID]string{},
	}
}

// note takes in what there is to tell.
func (t *teller) note(e gang.Effects) {
	for _, pod := range e.Expire {
		t.marks.Add(mark{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID})
	}
	if len(e.Changed)+len(e.Problems) == 0 {
		return
	}
	now := t.pl.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range e.Problems {
		p := problem{of: r.Object, key: r.Problem.Key, value: r.Problem.Value}
		if r.Pod != nil {
			p.of = r.Pod.UID
		}
		if _, known := t.pending[p]; !known {
			t.problems = append(t.problems, p)
		}
		t.pending[p] = r
	}
	for _, key := range e.Changed {
		if _, ok := t.due[key]; !ok {
			t.due[key] = now
		}
	}
}

// problemsAtOnce is how many problems are told at a time: the recorder of events drops what
// comes faster than it writes.
const problemsAtOnce = 100

// takeProblems takes problems to tell.
func (t *teller) takeProblems() []gang.Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []gang.Report
	n := 0
	for ; n < len(t.problems) && len(list) < problemsAtOnce; n++ {
		if r, ok := t.pending[t.problems[n]]; ok {
			list = append(list, r)
			delete(t.pending, t.problems[n])
		}
	}
	t.problems = t.problems[n:]
	return list
}

// forgetProblems drops what was not told of a pod, or a PodGroup, that is gone.
func (t *teller) forgetProblems(of types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = slices.DeleteFunc(t.problems, func(p problem) bool {
		if p.of == of {
			delete(t.pending, p)
		}
		return p.of == of
	})
}

func (t *teller) problem(r gang.Report) {
	if r.Pod != nil {
		t.pl.handle.EventRecorder().Eventf(r.Pod, nil, v1.EventTypeWarning, EventBadValue, reading(r.Problem), "%s", r.Problem.String())
		return
	}
	t.pl.handle.EventRecorder().Eventf(groupRef(r.Gang, r.Object), nil, v1.EventTypeWarning, EventBadValue, reading(r.Problem), "%s", r.Problem.String())
}

// Pauses before the users of a gang are told that it waits: it may only be
// gathering, or the next event may help.
const (
	incompletePause    = 5 * time.Second
	unschedulablePause = time.Second
	tellEvery          = 250 * time.Millisecond
)

// run tells, from when this process schedules until it ends.
func (t *teller) run(ctx context.Context) {
	if !t.leading.Wait(ctx) {
		return
	}
	go t.runMarks(ctx)
	go t.runMembers(ctx)
	t.leading.Every(ctx, t.pl.clock, tellEvery, func() {
		for _, report := range t.takeProblems() {
			t.problem(report)
		}
		for _, key := range t.dueNow() {
			if err := t.gang(ctx, key); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to tell why a gang waits; trying again", "gang", key)
				t.again(key)
			}
		}
	})
}

// dueNow takes the gangs whose pause is over.
func (t *teller) dueNow() []gang.Key {
	now := t.pl.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []gang.Key
	for key, since := range t.due {
		if now.Sub(since) >= unschedulablePause {
			keys = append(keys, key)
			delete(t.due, key)
		}
	}
	return keys
}

func (t *teller) again(key gang.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.due[key]; !ok {
		t.due[key] = t.pl.clock.Now()
	}
}

// explanation is what is to be said of a gang now.
func (t *teller) explanation(key gang.Key) (gang.Explanation, bool) {
	e, ok := t.pl.explain(key)
	if !ok || e.Running || len(e.Pending) == 0 || e.Reason != "" && e.Reason != v1alpha1.ReasonUnschedulable {
		return e, ok
	}
	for _, pod := range e.Pending { // some may be beyond what is kept
		if reason, message := t.pl.roster.Keeps(pod); reason != "" {
			e.Reason, e.Message = reason, message // it does not get so far as to be placed
			break
		}
	}
	return e, ok
}

// gang tells of one gang what has changed.
func (t *teller) gang(ctx context.Context, key gang.Key) error {
	e, ok := t.explanation(key)
	if !ok || e.Reason == "" {
		t.forget(key)
		return nil
	}
	if gathers := e.Reason == v1alpha1.ReasonGangIncomplete || e.Reason == v1alpha1.ReasonGangUndefined; gathers && t.pl.clock.Since(youngest(e.Pending)) < incompletePause {
		t.again(key)
		return nil
	}
	if t.isNews(e) {
		if err := t.news(ctx, e); err != nil {
			t.forget(key)
			return err
		}
	}
	t.members.Add(key)
	return nil
}

// news tells what is new in an event and in the PodGroup's condition.
func (t *teller) news(ctx context.Context, e gang.Explanation) error {
	if err := t.wait(ctx); err != nil {
		return err
	}
	t.event(e)
	if !e.HasObject {
		return nil
	}
	return t.condition(ctx, e)
}

// runMembers tells the members of gangs, one member of each gang in turn, so
// that a big gang does not keep a small one waiting.
func (t *teller) runMembers(ctx context.Context) {
	for {
		key, down := t.members.Get()
		if down {
			return
		}
		more, err := t.nextMember(ctx, key)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to tell a member why its gang waits; trying again", "gang", key)
			t.again(key)
		}
		t.members.Done(key)
		if more {
			t.members.Add(key)
		}
	}
}

// nextMember tells the first pending member that does not say it yet. It answers
// whether there may be more.
func (t *teller) nextMember(ctx context.Context, key gang.Key) (bool, error) {
	e, ok := t.explanation(key)
	if !ok || e.Reason == "" {
		return false, nil
	}
	for _, pod := range e.Pending {
		if !says(pod, e) && !t.justTold(pod) {
			return true, t.pod(ctx, pod.UID, e)
		}
	}
	return false, nil
}

// justTold reports whether this version of a pod was written to already; the next
// will come by the informer.
func (t *teller) justTold(pod *v1.Pod) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written[pod.UID] == pod.ResourceVersion
}

func (t *teller) wait(ctx context.Context) error {
	if err := t.limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the rate limit: %w", err)
	}
	return nil
}

func youngest(pods []*v1.Pod) time.Time {
	var last time.Time
	for _, pod := range pods {
		if created := pod.CreationTimestamp.Time; created.After(last) {
			last = created
		}
	}
	return last
}

func (t *teller) isNews(e gang.Explanation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := e.Reason + e.Message
	if t.told[e.Gang] == text {
		return false
	}
	t.told[e.Gang] = text
	return true
}

func (t *teller) forget(key gang.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, key)
}

func (t *teller) forgetPod(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.written, uid)
}

// event tells the PodGroup, or where there is none the first member.
func (t *teller) event(e gang.Explanation) {
	if e.HasObject {
		t.pl.handle.EventRecorder().Eventf(groupRef(e.Gang, e.Object), nil, v1.EventTypeWarning, e.Reason, actionScheduling, "%s", clip(e.Message))
	} else if len(e.Pending) > 0 {
		t.pl.handle.EventRecorder().Eventf(e.Pending[0], nil, v1.EventTypeWarning, e.Reason, actionScheduling, "%s", clip(e.Message))
	}
}

// condition tells the PodGroup's status. A PodGroup CRD without conditions drops
// it, which does no harm.
func (t *teller) condition(ctx context.Context, e gang.Explanation) error {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
		"metadata": map[string]any{"name": e.Gang.Name, "namespace": e.Gang.Namespace},
		"status": map[string]any{"conditions": []metav1.Condition{{
			Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse, Reason: e.Reason, Message: e.Message,
			LastTransitionTime: metav1.NewTime(t.pl.clock.Now()),
		}}},
	})
	if err != nil {
		return fmt.Errorf("writing condition of PodGroup %s: %w", e.Gang, err)
	}
	force := true
	_, err = t.groups.SchedulingV1alpha1().PodGroups(e.Gang.Namespace).Patch(ctx, e.Gang.Name, types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing condition of PodGroup %s: %w", e.Gang, err)
	}
	return nil
}

// fieldManager owns what the scheduler writes on PodGroups.
const fieldManager = "lockstep-scheduler"

// pod tells a pending member, unless it says so already. The leader's condition
// is written by kube-scheduler itself, with the same text in it. The patch is
// refused if the pod has changed since, so that a pod that was just bound is not
// said to be pending.
func (t *teller) pod(ctx context.Context, uid types.UID, e gang.Explanation) error {
	pod, pending := t.pl.pending(uid)
	if !pending || says(pod, e) {
		return nil
	}
	if err := t.wait(ctx); err != nil {
		return err
	}
	if pod, pending = t.pl.pending(uid); !pending || says(pod, e) {
		return nil
	}
	status := pod.Status.DeepCopy()
	condition := &v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: e.Reason, Message: e.Message,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.PodScheduled),
	}
	podutil.UpdatePodCondition(status, condition)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []v1.PodCondition{*condition}},
	})
	if err != nil {
		return fmt.Errorf("writing condition of pod %s: %w", klog.KObj(pod), err)
	}
	t.mu.Lock()
	t.written[pod.UID] = pod.ResourceVersion
	t.mu.Unlock()
	_, err = t.pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		t.again(e.Gang) // it changed; what it says now will come by the informer
		return nil
	case err != nil:
		return fmt.Errorf("writing condition of pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

// says reports whether the pod's condition carries the explanation, and not one that only
// begins like it. On the pod that was tried, kube-scheduler puts words before it, and more
// sentences after it.
func says(pod *v1.Pod, e gang.Explanation) bool {
	_, current := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
	if current == nil || current.Status != v1.ConditionFalse {
		return false
	}
	_, rest, found := strings.Cut(current.Message, e.Message)
	return found && (rest == "" || strings.HasPrefix(rest, "."))
}

// runMarks writes the timeout annotations.
func (t *teller) runMarks(ctx context.Context) {
	go func() {
		<-ctx.Done()
		t.marks.ShutDown()
		t.members.ShutDown()
	}()
	for {
		m, down := t.marks.Get()
		if down {
			return
		}
		if err := t.mark(ctx, m); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to mark a member whose gang timed out; trying again", "pod", m.NamespacedName)
			t.marks.AddRateLimited(m)
		} else {
			t.marks.Forget(m)
		}
		t.marks.Done(m)
	}
}

func (t *teller) mark(ctx context.Context, m mark) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         m.uid, // the API server refuses the patch for a pod of the same name
		"annotations": map[string]string{v1alpha1.TimeoutAnnotation: "true"},
	}})
	if err != nil {
		return fmt.Errorf("marking pod %s: %w", m.NamespacedName, err)
	}
	pod, err := t.pl.handle.ClientSet().CoreV1().Pods(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it is gone
	}
	if err != nil {
		return fmt.Errorf("marking pod %s: %w", m.NamespacedName, err)
	}
	t.pl.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, EventTimedOut, actionScheduling,
		"the gang did not reach its minimum in time; remove the annotation %s to have the pod scheduled again", v1alpha1.TimeoutAnnotation)
	return nil
}
