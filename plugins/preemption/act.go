package preemption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	stockpreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// act makes room: the places are held from now on; evictions and nominations follow on
// goroutines of their own, since they are calls to the API server.
func (pl *GangPreemption) act(ctx context.Context, d *demand, f *found) {
	holder := pl.holder(d)
	for uid, node := range f.plan.Nodes {
		pl.Holds.Nominate(holder, uid, node, d.priority, f.plan.Demand[uid])
	}
	outranked := pl.outrank(f)
	pl.Roster.Yield(ctx, pl.Holds.Among(f.outrank, maps.Values(f.plan.Nodes)))
	pl.Underway.begin(holder, f.victims)
	if len(f.victims) > 0 {
		preemptions.WithLabelValues(f.round).Inc()
	}
	victimsTotal.Add(float64(len(f.victims)))
	// The cycle's context ends with the cycle.
	go pl.carryOut(context.WithoutCancel(ctx), d, f, outranked)
}

// giveUp ends the nominations of a preemptor for which there is no room after all: a node
// that it was nominated to may be gone. What is left must not lie idle for it.
func (pl *GangPreemption) giveUp(ctx context.Context, d *demand) {
	if len(pl.Holds.NominationsOf(pl.holder(d))) == 0 {
		return
	}
	pl.Holds.DropNominations(pl.holder(d))
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
		defer cancel()
		pl.each(ctx, len(d.pods), func(i int) { pl.clear(ctx, d.pods[i]) })
	}()
}

// clear takes back the nomination in a pod's status.
func (pl *GangPreemption) clear(ctx context.Context, pod *v1.Pod) {
	if err := pl.denominate(ctx, pod.UID); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to take back a nomination", "pod", klog.KObj(pod))
	}
}

// outrank ends the nominations in whose place the preemptor comes, and lists the pods
// that had them.
func (pl *GangPreemption) outrank(f *found) []types.UID {
	taken := map[string]bool{}
	for _, node := range f.plan.Nodes {
		taken[node] = true
	}
	var pods []types.UID
	for _, holder := range f.outrank {
		nominations := pl.Holds.NominationsOf(holder)
		for _, one := range nominations {
			if taken[one.Node] {
				// One place less, and a gang cannot start: it gives up all of them.
				for _, each := range nominations {
					pods = append(pods, each.For)
				}
				pl.Holds.DropNominations(holder)
				break
			}
		}
	}
	return pods
}

// deadline bounds how long the calls of one preemption may take.
const deadline = 2 * time.Minute

// carryOut nominates and evicts. Nobody is evicted where one of the evictions would be
// refused or a nomination fails, and no further gang once the preemptor is gone. What was
// begun stays held for the preemptor, which looks again for what is left.
func (pl *GangPreemption) carryOut(ctx context.Context, d *demand, f *found, outranked []types.UID) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	logger := klog.FromContext(ctx)
	failed := pl.prepare(ctx, d, f, outranked)
	if len(failed) > 0 {
		pl.Holds.DropNominations(pl.holder(d))
		pl.Underway.end(pl.holder(d))
		pl.each(ctx, len(d.pods), func(i int) { pl.clear(ctx, d.pods[i]) })
	} else {
		failed = pl.evictAll(ctx, d, f)
	}
	if len(failed) > 0 {
		evictionErrors.Add(float64(len(failed)))
		logger.Error(failed[0], "Failed to make room; the preemptor will look again", "preemptor", d.String(), "errors", len(failed))
		time.Sleep(pauseAfterErrors)
	}
	if pl.Underway.victims(pl.holder(d)) == 0 {
		pl.activate(logger, d)
	}
}

// prepare does all that can be taken back.
func (pl *GangPreemption) prepare(ctx context.Context, d *demand, f *found, outranked []types.UID) []error {
	var errs collected
	pl.each(ctx, len(f.victims), func(i int) { errs.add(pl.rehearse(ctx, f.victims[i])) })
	if failed := errs.list(); len(failed) > 0 {
		return failed
	}
	pl.each(ctx, len(outranked), func(i int) { errs.add(pl.denominate(ctx, outranked[i])) })
	pl.each(ctx, len(d.pods), func(i int) { errs.add(pl.nominate(ctx, d, d.pods[i], f.plan.Nodes[d.pods[i].UID])) })
	return errs.list()
}

func (pl *GangPreemption) evictAll(ctx context.Context, d *demand, f *found) []error {
	if len(f.victims) == 0 {
		return nil
	}
	pl.tellPreemptor(d, f)
	var errs collected
	units, evicted := f.units(), &evictions{}
	pl.each(ctx, len(units), func(i int) { errs.add(pl.evict(ctx, d, f, units[i], evicted)) })
	pl.tellVictims(d, f, evicted)
	return errs.list()
}

// pauseAfterErrors is how long a preemptor is kept from trying again.
const pauseAfterErrors = time.Second

// rehearse asks whether an eviction would be refused.
func (pl *GangPreemption) rehearse(ctx context.Context, victim *v1.Pod) error {
	if victim.Spec.NodeName == "" {
		return nil // it is not on its node yet, and will be called back
	}
	err := pl.handle.ClientSet().CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{
		DryRun: []string{metav1.DryRunAll}, Preconditions: metav1.NewUIDPreconditions(string(victim.UID)),
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // or gone already
	}
	if refuses(err) {
		pl.Underway.refuse(victim.UID, pl.clock.Now())
	}
	return fmt.Errorf("asking to evict pod %s: %w", klog.KObj(victim), err)
}

// units divides the victims into what is evicted together, once begun: gangs that go
// whole, and single pods.
func (f *found) units() [][]*v1.Pod {
	byUID := map[types.UID]*v1.Pod{}
	for _, pod := range f.victims {
		byUID[pod.UID] = pod
	}
	var units [][]*v1.Pod
	for _, b := range f.selection.Bundles {
		if b.Kind != victim.Whole {
			continue
		}
		var unit []*v1.Pod
		for _, one := range b.Pods {
			unit = append(unit, byUID[one.UID])
			delete(byUID, one.UID)
		}
		units = append(units, unit)
	}
	for _, pod := range f.victims {
		if byUID[pod.UID] != nil {
			units = append(units, []*v1.Pod{pod})
		}
	}
	return units
}

// evictions are the pods that were evicted. It is safe for concurrent use.
type evictions struct{ done sync.Map }

func (e *evictions) any(pods []victim.Pod) bool {
	return slices.ContainsFunc(pods, func(p victim.Pod) bool { _, ok := e.done.Load(p.UID); return ok })
}

// evict evicts pods that go together. Of several, all are marked first: whoever comes
// after this process finishes what it has begun. Where nothing was begun the marks are
// taken back.
func (pl *GangPreemption) evict(ctx context.Context, d *demand, f *found, unit []*v1.Pod, evicted *evictions) error {
	if !pl.wanted(d) {
		pl.spare(unit)
		return nil
	}
	var errs collected
	if len(unit) > 1 {
		marked := make([]*v1.Pod, len(unit))
		pl.each(ctx, len(unit), func(i int) {
			var err error
			marked[i], err = pl.mark(ctx, unit[i])
			errs.add(err)
		})
		unit = marked
	}
	if errs.none() {
		pl.each(ctx, len(unit), func(i int) { errs.add(pl.evictPod(ctx, d, f, unit[i], evicted)) })
	} else {
		pl.spare(unit)
	}
	failed := errs.list()
	if len(failed) > 0 && !slices.ContainsFunc(unit, func(pod *v1.Pod) bool { _, ok := evicted.done.Load(pod.UID); return ok }) {
		pl.each(ctx, len(unit), func(i int) { pl.unmark(ctx, unit[i]) })
	}
	return errors.Join(failed...)
}

// spare notes that victims go on.
func (pl *GangPreemption) spare(pods []*v1.Pod) {
	for _, pod := range pods {
		pl.Underway.spared(pod.UID)
	}
}

func (pl *GangPreemption) evictPod(ctx context.Context, d *demand, f *found, pod *v1.Pod, evicted *evictions) error {
	executor := stockpreemption.NewExecutor(&explained{Handle: pl.handle, note: f.note(d), uid: pod.UID}, feature.Features{})
	stays, err := executor.PreemptPod(ctx, onNode{pod.Spec.NodeName}, preemptor{d}, pod, Name)
	switch {
	case err == nil:
		evicted.done.Store(pod.UID, true)
		if stays {
			pl.Underway.spared(pod.UID) // no deletion will tell
		}
		return nil
	case refuses(err):
		pl.Underway.refuse(pod.UID, pl.clock.Now())
	default:
		pl.Underway.spared(pod.UID)
	}
	return fmt.Errorf("evicting pod %s: %w", klog.KObj(pod), err)
}

// wanted tells whether enough of the preemptor's pods are there to be placed.
func (pl *GangPreemption) wanted(d *demand) bool {
	there := 0
	for _, pod := range d.pods {
		if now, ok := pl.podByUID(pod.UID); ok && now.DeletionTimestamp == nil {
			there++
		}
	}
	return there >= d.attempt.Members()
}

// each runs calls to the API server, some at a time.
func (pl *GangPreemption) each(ctx context.Context, n int, do func(int)) {
	parallelize.NewParallelizer(parallelize.DefaultParallelism).Until(ctx, n, do, Name)
}

// collected are errors of calls that run beside each other.
type collected struct {
	mu   sync.Mutex
	errs []error
}

func (c *collected) add(err error) {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	}
}

func (c *collected) none() bool { return len(c.list()) == 0 }

func (c *collected) list() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.errs)
}

// nominate tells a member's status where it will go. The leader's, kube-scheduler does.
func (pl *GangPreemption) nominate(ctx context.Context, d *demand, pod *v1.Pod, node string) error {
	if node == "" || pod.UID == d.leader.UID || pod.Status.NominatedNodeName == node {
		return nil
	}
	return pl.patchNomination(ctx, pod.Namespace, pod.Name, pod.UID, node)
}

// denominate takes it back, also where it was written a moment ago and no event has told
// of it yet. A newer one stands.
func (pl *GangPreemption) denominate(ctx context.Context, uid types.UID) error {
	pod, ok := pl.podByUID(uid)
	if !ok || pl.Holds.Promised(uid) {
		return nil
	}
	return pl.patchNomination(ctx, pod.Namespace, pod.Name, uid, "")
}

func (pl *GangPreemption) patchNomination(ctx context.Context, namespace, name string, uid types.UID, node string) error {
	var value any
	if node != "" {
		value = node
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": map[string]any{"nominatedNodeName": value}})
	if err != nil {
		return fmt.Errorf("nominating pod %s/%s: %w", namespace, name, err)
	}
	_, err = pl.handle.ClientSet().CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("nominating pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// preemptor is a demand as kube-scheduler's executor wants it.
type preemptor struct{ d *demand }

func (p preemptor) GetName() string       { return p.d.leader.Name }
func (p preemptor) GetNamespace() string  { return p.d.leader.Namespace }
func (p preemptor) UID() types.UID        { return p.d.leader.UID }
func (p preemptor) SchedulerName() string { return p.d.leader.Spec.SchedulerName }
func (p preemptor) Obj() runtime.Object   { return p.d.leader }
func (p preemptor) Priority() int32       { return p.d.priority }
func (p preemptor) Type() string          { return "pod" }

func (p preemptor) Pods() map[string]*v1.Pod {
	return map[string]*v1.Pod{p.d.leader.Name: p.d.leader}
}

// onNode is a candidate of kube-scheduler's executor, which asks it for its name only.
type onNode struct{ name string }

func (c onNode) Victims() *extenderv1.Victims { return &extenderv1.Victims{} }
func (c onNode) Name() string                 { return c.name }
func (c onNode) NumPodGroupDisruptions() int  { return 0 }

var _ stockpreemption.Candidate = onNode{}
var _ fwk.Handle = &explained{}
