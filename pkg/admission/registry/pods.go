package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// watch starts the watches of members, and of what describes them.
func (r *Registry) watch(ctx context.Context, handle fwk.Handle) error {
	var err error
	if r.podsByGang, err = indexPods(handle.SharedInformerFactory().Core().V1().Pods().Informer()); err != nil {
		return err
	}
	synced, err := r.watches.ListenToPods(handle.SharedInformerFactory(), watches.Gangs, watches.PodListener{
		Seen: func(old, pod *v1.Pod) { r.podSeen(ctx, old, pod) },
		Gone: func(pod *v1.Pod) { r.podGone(ctx, pod) },
	})
	if err != nil {
		return err
	}
	r.synced = append(r.synced, synced)
	if err := r.watchSucceeded(ctx, handle); err != nil {
		return err
	}
	return r.watchGroups(ctx, handle)
}

func (r *Registry) podSeen(ctx context.Context, old, pod *v1.Pod) {
	r.explainToOthers(ctx, old, pod)
	p := r.all()[pod.Spec.SchedulerName]
	if p == nil {
		return
	}
	outside, moved := r.InNoGang(pod), old != nil && gangspec.Moved(old, pod)
	r.singleSeen(old, pod, outside)
	p.tellIgnored(ctx, old, pod)
	if outside {
		p.tellNative(ctx, pod)
		p.tellOutside(ctx, old, pod)
	}
	switch {
	case outside && moved:
		p.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.Leave(pod, now) })
	case outside:
		return
	default:
		p.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
			if r.InNoGang(pod) { // asked under the lock: what comes later is dissolved after this
				return s.Leave(pod, now)
			}
			return s.ObservePod(pod, now)
		})
	}
	if moved {
		r.holds.DropNomination(pod.UID) // room was made for the gang that it left
	}
	if pod.Spec.NodeName != "" {
		r.holds.PodBound(pod.UID, pod.Spec.NodeName) // also what its plan has just given back
	}
}

// singleSeen tells the waiting room of a pod that has a node or has changed, and of one that is in a gang now.
func (r *Registry) singleSeen(old, pod *v1.Pod, outside bool) {
	switch {
	case !outside && old != nil && r.InNoGang(old), pod.Spec.NodeName != "":
		r.room.ForgetSingle(pod)
	case old != nil && !objectstate.AsksForTheSame(old, pod):
		r.room.RenewSingle(pod)
	}
}

// tellOutside reports what cannot be used of the keys of a pod that is in no gang: of the pod of a Reservation with one
// replica, too.
func (p *Profile) tellOutside(ctx context.Context, old, pod *v1.Pod) {
	if pod.Spec.NodeName != "" || old != nil && gangspec.SameKeys(old, pod) {
		return
	}
	var reports []gangstate.Report
	for _, problem := range gangspec.ProblemsOutside(pod, p.defaults) {
		reports = append(reports, gangstate.Report{Pod: pod, Problem: problem})
	}
	p.report(ctx, reports)
}

// tellIgnored reports the keys that a pod without a node has got and that have no effect on it.
func (p *Profile) tellIgnored(ctx context.Context, old, pod *v1.Pod) {
	if pod.Spec.NodeName != "" || old != nil && maps.Equal(old.Annotations, pod.Annotations) &&
		maps.Equal(old.Labels, pod.Labels) {
		return
	}
	var told []gangspec.KeyProblem
	if old != nil {
		told = gangspec.IgnoredKeys(keys.Pod, old)
	}
	key, _, _ := gangspec.KeyOf(pod)
	var reports []gangstate.Report
	for _, problem := range gangspec.IgnoredKeys(keys.Pod, pod) {
		if !slices.Contains(told, problem) {
			reports = append(reports, gangstate.Report{Gang: key, Pod: pod, Problem: problem})
		}
	}
	p.report(ctx, reports)
}

// report has problems reported to the users of pods.
func (p *Profile) report(ctx context.Context, problems []gangstate.Report) {
	if len(problems) > 0 {
		p.adapter.Act(ctx, gangstate.Effects{Problems: problems})
	}
}

func (r *Registry) podGone(ctx context.Context, pod *v1.Pod) {
	r.explainToOthers(ctx, pod, nil)
	p := r.all()[pod.Spec.SchedulerName]
	if p == nil {
		return
	}
	p.adapter.Gone(pod.UID)
	r.room.ForgetSingle(pod)
	p.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects { return s.PodEnded(pod.UID, now) })
	r.holds.DropNomination(pod.UID) // also what its plan has just given back
}

// watchSucceeded watches members with phase Succeeded: kube-scheduler's own
// informer leaves out pods that have ended, and does not show how they did. Only
// what matters to the gang is kept of them.
func (r *Registry) watchSucceeded(ctx context.Context, handle fwk.Handle) error {
	selector := fields.OneTermEqualSelector("status.phase", string(v1.PodSucceeded)).String()
	informer := coreinformers.NewFilteredPodInformer(handle.ClientSet(), metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.FieldSelector = selector })
	if err := informer.SetTransform(keepMembership); err != nil {
		return fmt.Errorf("watching pods that succeeded: %w", err)
	}
	registration, err := informer.AddEventHandler(r.watches.Own("pods that succeeded",
		v1.SchemeGroupVersion.WithResource("pods"), selector, informer, r.succeeded(ctx)))
	if err != nil {
		return fmt.Errorf("watching pods that succeeded: %w", err)
	}
	r.synced = append(r.synced, registration.HasSynced)
	go informer.RunWithContext(ctx)
	return nil
}

// succeeded returns handlers that pass on members with phase Succeeded.
func (r *Registry) succeeded(ctx context.Context) cache.ResourceEventHandlerFuncs {
	pass := func(object any, f func(s *gangstate.Gangs, pod *v1.Pod, now time.Time) gangstate.Effects) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if pod, ok := object.(*v1.Pod); ok {
			r.input(ctx, pod.Spec.SchedulerName, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
				return f(s, pod, now)
			})
		}
	}
	add := func(object any) {
		if !r.InNoGang(object.(*v1.Pod)) {
			pass(object, (*gangstate.Gangs).ObservePod)
		}
	}
	forget := func(object any) { pass(object, (*gangstate.Gangs).ForgetSucceeded) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc: add, DeleteFunc: forget,
		UpdateFunc: func(old, object any) {
			switch before, now := old.(*v1.Pod), object.(*v1.Pod); {
			case before.UID != now.UID:
				forget(before) // it was another pod of its name
			case r.InNoGang(now) && gangspec.Moved(before, now):
				pass(now, (*gangstate.Gangs).Leave)
			}
			add(object) // it may be in another gang
		},
	}
}

func keepMembership(object any) (any, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	kept := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			OwnerReferences:   pod.OwnerReferences,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Finalizers: pod.Finalizers,
		},
		Spec: v1.PodSpec{NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName,
			SchedulingGroup: pod.Spec.SchedulingGroup},
		Status: v1.PodStatus{Phase: pod.Status.Phase},
	}
	if _, _, member := gangspec.KeyOf(pod); member {
		kept.Labels, kept.Annotations = pod.Labels, pod.Annotations
		if end := gangspec.EndOf(pod); !end.IsZero() {
			kept.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
				Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(end)}}}}
		}
	}
	return kept, nil
}
