package defragmentation

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// fieldOwner is the field manager of what this package writes.
const fieldOwner = "lockstep-descheduler"

// write makes a plan for a demand.
func (r *round) write(ctx context.Context, d *demand, found *proposal) error {
	logger := klog.FromContext(ctx)
	for i, m := range found.moves {
		logger.Info("Planned a move", "for", d.name, "move", i, "pod", klog.KRef(m.Namespace, m.PodName), "from",
			m.SourceNode, "to", m.TargetNode, "why", m.Why)
	}
	if r.dryRun {
		logger.Info("A dry run: no plan is written", "for", d.name, "plan", found.words())
		return nil
	}
	p := &v1alpha1.DefragmentationPlan{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "for-" + d.slug() + "-"},
		Spec: v1alpha1.DefragmentationPlanSpec{
			Mode: v1alpha1.DefragmentationExecute, Goal: d.goal, SchedulerName: d.fw.ProfileName(),
			Budget: v1alpha1.DefragmentationBudget{MaxMoves: *r.args.MaxMoves, MaxGangs: r.args.MaxGangs,
				MaxEvictions: *r.args.MaxEvictions},
			HoldTime: &metav1.Duration{Duration: r.args.HoldTime.Duration},
		},
	}
	if r.args.NeedsApproval {
		p.Spec.Mode = v1alpha1.DefragmentationApproval
	}
	if err := r.scheduler.Client.Create(ctx, p, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("making a DefragmentationPlan for %s: %w", d.name, err)
	}
	logger.Info("Made a DefragmentationPlan", "name", p.Name, "for", d.name, "plan", found.words())
	return r.writeFound(ctx, p, found, v1alpha1.DefragmentationReasonFound, found.words())
}

// slug returns a name of the demand that object names may contain.
func (d *demand) slug() string {
	name := d.attempt.Gangs[0].Key.Name
	switch {
	case d.goal.Pod != nil:
		name = d.goal.Pod.Name
	case d.goal.Empty != nil:
		name = "emptying"
	}
	out := make([]byte, 0, len(name))
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' {
			out = append(out, c)
		}
	}
	return string(out[:min(len(out), 40)])
}

// claimsNote returns a note for users that plans neither count devices of ResourceClaims nor move the pods that have
// them; empty if none has any.
func (r *round) claimsNote() string {
	pods, err := r.anyProfile().SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return "" // a cache does not fail
	}
	n := 0
	for _, pod := range pods {
		if objectstate.OccupiesNode(pod) && deviceclaims.HasAny(pod) {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; devices of ResourceClaims are not counted, and pods that have some are not moved: %s",
		words.Count(n, "pod"))
}

// writeFound writes into a plan what was found, or that nothing was. The plan may have changed meanwhile, but not
// what is written here.
func (r *round) writeFound(ctx context.Context, p *v1alpha1.DefragmentationPlan, found *proposal,
	reason, message string) error {
	if r.dryRun {
		klog.FromContext(ctx).Info("A dry run: nothing is written into the plan", "name", p.Name, "reason",
			reason, "message", message)
		return nil
	}
	before := p.DeepCopy()
	is := metav1.ConditionFalse
	switch {
	case found != nil:
		is = metav1.ConditionTrue
		p.Status.Moves, p.Status.Places, p.Status.MoveCount = found.moves, found.places, int32(len(found.moves))
		p.Status.Restarts, p.Status.Predicted, p.Status.Phase = found.restarts, found.predicted,
			v1alpha1.DefragmentationPlanned
	case reason == v1alpha1.DefragmentationReasonNothing:
		is = metav1.ConditionTrue
	}
	p.Status.Goal = goalOf(p.Spec.Goal)
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DefragmentationFound, Status: is, Reason: reason,
		Message:            words.Clip(message+r.claimsNote(), migration.LongestMessage),
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
	if err := r.scheduler.Client.Status().Patch(ctx, p, client.MergeFrom(before),
		client.FieldOwner(fieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing what was found into plan %s: %w", p.Name, err)
	}
	return nil
}

// goalOf returns a goal in words.
func goalOf(goal v1alpha1.DefragmentationGoal) string {
	switch {
	case goal.PodGroup != "":
		return "gang " + goal.PodGroup
	case goal.Pod != nil:
		return "pod " + goal.Pod.Namespace + "/" + goal.Pod.Name
	case goal.Shape != nil:
		return nameOf(goal.Shape)
	case goal.Empty != nil && len(goal.Empty.Names) > 3:
		return fmt.Sprintf("empty %s and %d more", strings.Join(goal.Empty.Names[:2], ", "), len(goal.Empty.Names)-2)
	case goal.Empty != nil:
		return "empty " + strings.Join(goal.Empty.Names, ", ")
	}
	return ""
}
