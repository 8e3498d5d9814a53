package preemption

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/status"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// Reasons of events.
const (
	// EventPreempting is on the preemptor's leader: which pods it evicts, and why.
	EventPreempting = "Preempting"
	// EventGangPreempted is on the PodGroup of a gang that is evicted whole.
	EventGangPreempted = "GangPreempted"
	// EventEvicted is on what made the pods of a gang that is evicted whole: who makes them again.
	EventEvicted = "Evicted"
	// EventGangShrunk is on the PodGroup of a gang that loses pods beyond its minimum.
	EventGangShrunk = "GangShrunk"
)

// preempting returns the event that says how many pods of how many gangs are evicted, and where, with an optional
// remark.
func preempting(d *demand, f *found, remark string) status.Event {
	whole, single, surplus := 0, 0, 0
	for _, one := range f.losses() {
		switch {
		case one.Kind == victim.Safe:
			surplus++
		case len(one.Gang.Pods) == 1:
			single++
		default:
			whole++
		}
	}
	var gone []string
	if whole > 0 {
		gone = append(gone, words.Count(whole, "whole gang"))
	}
	if single > 0 {
		gone = append(gone, words.Count(single, "single pod"))
	}
	if surplus > 0 {
		gone = append(gone, "surplus pods of "+words.Count(surplus, "gang"))
	}
	note := fmt.Sprintf("evicting %d pods in %s to place %d members, which need %s: %s", len(f.victims), f.domain,
		len(f.plan.Nodes), d.need, strings.Join(gone, ", "))
	if remark != "" {
		note += "; " + remark
	}
	return status.Event{On: d.leader, Type: v1.EventTypeNormal, Reason: EventPreempting,
		Action: evictions.ActionPreempting, Note: note}
}

// evicted returns the event on what made the pods of a gang that goes whole, with the record of its eviction.
func evicted(p *evictions.Preemption, namespace string, owner *metav1.OwnerReference, record evictionrecord.Record,
	note string) status.Event {
	return status.Event{On: &v1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: namespace,
		Name: owner.Name, UID: owner.UID}, Related: p.Leader, Type: v1.EventTypeNormal, Reason: EventEvicted,
		Action: evictions.ActionPreempting, Note: note,
		Annotations: map[string]string{v1alpha1.EvictedAnnotation: record.Annotation()}}
}

// gangLost returns the event that says what a gang loses, and to which preemptor.
func gangLost(p *evictions.Preemption, kind victim.Kind, text string, of gangstate.RunningGang) status.Event {
	reason := EventGangShrunk
	if kind == victim.Whole {
		reason = EventGangPreempted
	}
	return status.Event{On: status.PodGroupReference(of.Object.Kind.APIVersion(), of.Key.Namespace, of.Key.Name,
		of.Object.UID), Related: p.Leader, Type: v1.EventTypeNormal,
		Reason: reason, Action: evictions.ActionPreempting,
		Note: fmt.Sprintf("%s by %s, which needs %s", text, p.Preemptor, p.Need)}
}
