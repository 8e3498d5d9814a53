package gangstatus

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
)

// Phases that the community's documents define and its Go package no longer names.
const (
	// PreScheduling: the minimum exists and waits to be scheduled.
	PreScheduling schedulingv1alpha1.PodGroupPhase = "PreScheduling"
	// Scheduled: the minimum is bound and does not run yet.
	Scheduled schedulingv1alpha1.PodGroupPhase = "Scheduled"
)

// Next returns the status for the facts, given the present one.
func Next(pg *coscheduling.PodGroup, f StatusFacts, now metav1.Time) coscheduling.PodGroupStatus {
	was := pg.Status
	if f.JobFailed == "" && cleanedUp(was, f) {
		was.Running = 0
		return was
	}
	want := was
	want.Phase = phaseOf(was.Phase, f)
	want.Running, want.Succeeded, want.Failed = f.running, int32(f.Succeeded), int32(f.Failed)
	want.ScheduleStartTime = startOf(was, f, now)
	if was.OccupiedBy == "" {
		want.OccupiedBy = f.occupiedBy
	}
	want.Conditions = conditionsOf(pg, f, now)
	return want
}

// over reports whether a phase is an end. A gang leaves it only by new members.
func over(phase schedulingv1alpha1.PodGroupPhase) bool {
	return phase == schedulingv1alpha1.PodGroupFinished || phase == schedulingv1alpha1.PodGroupFailed
}

// cleanedUp reports whether pods of a gang that has ended are being removed, or all are gone. The
// result of the gang stands then.
func cleanedUp(was coscheduling.PodGroupStatus, f StatusFacts) bool {
	return over(was.Phase) && f.unfinished == 0 && (int32(f.Succeeded) < was.Succeeded || int32(f.Failed) < was.Failed ||
		f.All.N+f.Aside.N() == 0)
}

// phaseOf gives the phases the meaning that the community documents, first match
// first. It needs the present phase only to distinguish a gang that lost members
// from one that is just being bound.
func phaseOf(was schedulingv1alpha1.PodGroupPhase, f StatusFacts) schedulingv1alpha1.PodGroupPhase {
	complete := f.Members.Reaches(&f.Stage)
	stage, _ := f.Stage.Stage()
	switch {
	case f.JobFailed != "" && f.unfinished == 0:
		return schedulingv1alpha1.PodGroupFailed
	case f.Stage.Min == 0:
		return schedulingv1alpha1.PodGroupPending
	case f.unfinished == 0 && f.Up.Reaches(&f.Stage) && f.later() == 0:
		return schedulingv1alpha1.PodGroupFinished
	case !complete && f.Failed > len(f.RefusedByKubelet) && f.All.Reaches(&f.Stage):
		return schedulingv1alpha1.PodGroupFailed
	case f.Up.Reaches(&f.Stage):
		return schedulingv1alpha1.PodGroupRunning
	case f.Bound.Reaches(&f.Stage):
		return Scheduled
	case f.Bound.N > 0 && (!complete || hadMinimum(was) && stage <= 1):
		return schedulingv1alpha1.PodGroupUnknown
	case f.Bound.N > 0:
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
	case Scheduled, schedulingv1alpha1.PodGroupRunning, schedulingv1alpha1.PodGroupUnknown,
		schedulingv1alpha1.PodGroupFailed:
		return true
	default:
		return false
	}
}

// startOf returns when the gang first had its minimum and scheduling began. It is
// reset when all pods are gone, and set anew when a gang that had ended
// gets members again.
func startOf(was coscheduling.PodGroupStatus, f StatusFacts, now metav1.Time) metav1.Time {
	start := was.ScheduleStartTime
	void := f.All.N+f.Aside.N() == 0
	again := over(was.Phase) && f.unfinished > 0 && f.Bound.N == 0
	if void || again {
		start = metav1.Time{}
	}
	if start.IsZero() && f.Members.Reaches(&f.Stage) {
		start = now
	}
	return start
}

// Changes returns what differs, as the body of a merge patch.
func Changes(was, want coscheduling.PodGroupStatus) map[string]any {
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
		"running": {was.Running, want.Running}, "succeeded": {was.Succeeded,
			want.Succeeded}, "failed": {was.Failed, want.Failed},
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
