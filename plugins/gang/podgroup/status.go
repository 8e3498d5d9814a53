package podgroup

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// Phases that the community's documents define and its Go package no longer names.
const (
	// PreScheduling: the minimum exists and waits to be scheduled.
	PreScheduling schedulingv1alpha1.PodGroupPhase = "PreScheduling"
	// Scheduled: the minimum is bound and does not run yet.
	Scheduled schedulingv1alpha1.PodGroupPhase = "Scheduled"
)

// PodGroup is a PodGroup as our CRD has it: the community's, and conditions, which
// the community's own Go type would lose.
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   schedulingv1alpha1.PodGroupSpec `json:"spec"`
	Status status                          `json:"status"`
}

type status struct {
	schedulingv1alpha1.PodGroupStatus `json:",inline"`

	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodGroupList is what the API server lists.
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []PodGroup `json:"items"`
}

// kind is the community's PodGroup.
var kind = schedulingv1alpha1.SchemeGroupVersion.WithKind("PodGroup")

// AddToScheme makes the clients of a scheme read PodGroups as this package does.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(kind, &PodGroup{})
	scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &PodGroupList{})
	metav1.AddToGroupVersion(scheme, kind.GroupVersion())
}

// DeepCopyObject implements runtime.Object.
func (pg *PodGroup) DeepCopyObject() runtime.Object { return pg.deepCopy() }

func (pg *PodGroup) deepCopy() *PodGroup {
	out := &PodGroup{TypeMeta: pg.TypeMeta}
	pg.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	pg.Spec.DeepCopyInto(&out.Spec)
	pg.Status.PodGroupStatus.DeepCopyInto(&out.Status.PodGroupStatus)
	out.Status.Conditions = slices.Clone(pg.Status.Conditions)
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *PodGroupList) DeepCopyObject() runtime.Object {
	out := &PodGroupList{TypeMeta: l.TypeMeta, Items: make([]PodGroup, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].deepCopy()
	}
	return out
}

// wishes returns what the PodGroup defines of its gang.
func (pg *PodGroup) wishes() gang.Object {
	return gang.Object{Owner: gang.MadeFor(pg), Min: pg.Spec.MinMember, RoundSeconds: pg.Spec.ScheduleTimeoutSeconds, Annotations: pg.Annotations}
}

// next returns the status for the facts, given the present one.
func (pg *PodGroup) next(f facts, now metav1.Time) status {
	was := pg.Status
	if cleanedUp(was, f) {
		was.Running = 0
		return was
	}
	want := was
	want.Phase = phaseOf(was.Phase, f)
	want.Running, want.Succeeded, want.Failed = f.running, f.succeeded, f.failed
	want.ScheduleStartTime = startOf(was, f, now)
	if was.OccupiedBy == "" {
		want.OccupiedBy = f.occupiedBy
	}
	want.Conditions = pg.conditions(f, now)
	return want
}

// over reports whether a phase is an end. A gang leaves it only by new members.
func over(phase schedulingv1alpha1.PodGroupPhase) bool {
	return phase == schedulingv1alpha1.PodGroupFinished || phase == schedulingv1alpha1.PodGroupFailed
}

// cleanedUp reports whether pods of a gang that has ended are being removed. The
// result of the gang stands then.
func cleanedUp(was status, f facts) bool {
	return over(was.Phase) && f.unfinished == 0 && (f.succeeded < was.Succeeded || f.failed < was.Failed)
}

// phaseOf gives the phases the meaning that the community documents, first match
// first. It needs the present phase only to distinguish a gang that lost members
// from one that is just being bound.
func phaseOf(was schedulingv1alpha1.PodGroupPhase, f facts) schedulingv1alpha1.PodGroupPhase {
	complete := f.members.reaches(f.minimum)
	switch {
	case f.minimum.n == 0:
		return schedulingv1alpha1.PodGroupPending
	case f.unfinished == 0 && f.up.reaches(f.minimum) && f.lastStage():
		return schedulingv1alpha1.PodGroupFinished
	case !complete && f.failed > 0 && f.all.reaches(f.minimum):
		return schedulingv1alpha1.PodGroupFailed
	case f.up.reaches(f.minimum):
		return schedulingv1alpha1.PodGroupRunning
	case f.bound.reaches(f.minimum):
		return Scheduled
	case f.bound.n > 0 && (!complete || hadMinimum(was) && f.stage <= 1):
		return schedulingv1alpha1.PodGroupUnknown
	case f.bound.n > 0:
		return schedulingv1alpha1.PodGroupScheduling
	case complete && !f.refused:
		return PreScheduling
	default:
		return schedulingv1alpha1.PodGroupPending
	}
}

// hadMinimum reports whether only a gang whose minimum was bound, or that had lost part of it,
// reaches a phase.
func hadMinimum(phase schedulingv1alpha1.PodGroupPhase) bool {
	switch phase {
	case Scheduled, schedulingv1alpha1.PodGroupRunning, schedulingv1alpha1.PodGroupUnknown, schedulingv1alpha1.PodGroupFailed:
		return true
	default:
		return false
	}
}

// startOf returns when the gang first had its minimum and scheduling began. It is
// reset when all pods are gone, and set anew when a gang that had ended
// gets members again.
func startOf(was status, f facts, now metav1.Time) metav1.Time {
	start := was.ScheduleStartTime
	void := f.all.n+f.gated+f.claimless == 0
	again := over(was.Phase) && f.unfinished > 0 && f.bound.n == 0
	if void || again {
		start = metav1.Time{}
	}
	if start.IsZero() && f.members.reaches(f.minimum) {
		start = now
	}
	return start
}

// changes returns what differs, as the body of a merge patch.
func changes(was, want status) map[string]any {
	fields := map[string]any{}
	if was.Phase != want.Phase {
		fields["phase"] = want.Phase
	}
	if was.OccupiedBy != want.OccupiedBy {
		fields["occupiedBy"] = want.OccupiedBy
	}
	if !was.ScheduleStartTime.Equal(&want.ScheduleStartTime) {
		fields["scheduleStartTime"] = want.ScheduleStartTime // null where it is zero
	}
	for name, n := range map[string][2]int32{
		"running": {was.Running, want.Running}, "succeeded": {was.Succeeded, want.Succeeded}, "failed": {was.Failed, want.Failed},
	} {
		if n[0] != n[1] || was.Phase == "" { // 0 is written once, for clients that print it
			fields[name] = n[1]
		}
	}
	if !equality.Semantic.DeepEqual(was.Conditions, want.Conditions) {
		fields["conditions"] = want.Conditions
	}
	return fields
}
