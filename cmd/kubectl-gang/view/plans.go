package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// Plan is a DefragmentationPlan, and how far it has come.
type Plan struct {
	Name     string `json:"name"`
	Phase    string `json:"phase"`
	Mode     string `json:"mode"`
	Approved bool   `json:"approved"`
	// Goal is what it is for, in words.
	Goal string `json:"goal"`
	// Moves is how many pods are to move, Moved how many have; Restarts, how many pods start anew by it.
	Moves    int32 `json:"moves"`
	Moved    int32 `json:"moved"`
	Restarts int32 `json:"restarts"`
	// Before and After are how many gangs of the shape fit: as predicted, or once it has been counted, as achieved. Nil
	// where that is not known.
	Before *int32 `json:"before,omitempty"`
	After  *int32 `json:"after,omitempty"`
	// Achieved is whether they have been counted.
	Achieved bool `json:"achieved"`
	// Reason and Message are those of the condition Complete, or of Found before there are moves.
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Created metav1.Time `json:"created"`
}

// Move is a pod that a plan moves.
type Move struct {
	// Number counts from 0.
	Number    int    `json:"number"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Gang is the name of the gang of the pod; empty for none.
	Gang string `json:"gang,omitempty"`
	From string `json:"from"`
	To   string `json:"to"`
	// After are the numbers of the moves that make the room for it.
	After []int32 `json:"after,omitempty"`
	// Phase is the phase of its PodMigration; empty before there is one.
	Phase string `json:"phase,omitempty"`
	Why   string `json:"why"`
}

// Plans lists plans: those that have not ended first, then the latest first.
func Plans(plans []*v1alpha1.DefragmentationPlan) []Plan {
	rows := make([]Plan, 0, len(plans))
	for _, p := range plans {
		rows = append(rows, plan(p))
	}
	slices.SortFunc(rows, func(a, b Plan) int {
		return cmp.Or(bools.Compare(a.ended(), b.ended()), b.Created.Compare(a.Created.Time),
			gangspec.CompareNatural(a.Name, b.Name))
	})
	return rows
}

func (p *Plan) ended() bool { return migration.PlanEnded(v1alpha1.DefragmentationPhase(p.Phase)) }

func plan(p *v1alpha1.DefragmentationPlan) Plan {
	s := &p.Status
	row := Plan{
		Name: p.Name, Phase: string(cmp.Or(s.Phase, v1alpha1.DefragmentationPending)), Mode: string(modeOf(p)),
		Approved: p.Spec.Approved, Goal: s.Goal,
		Moves: s.MoveCount, Moved: s.MovedCount, Restarts: s.Restarts, Created: p.CreationTimestamp,
	}
	for _, capacity := range []*v1alpha1.GangCapacity{s.Predicted, s.Achieved} {
		if capacity != nil {
			row.Before, row.After, row.Achieved = &capacity.Before, &capacity.After, capacity == s.Achieved
		}
	}
	for _, of := range []string{v1alpha1.DefragmentationFound, v1alpha1.DefragmentationComplete} {
		if c := meta.FindStatusCondition(s.Conditions, of); c != nil {
			row.Reason, row.Message = c.Reason, c.Message
		}
	}
	return row
}

// modeOf returns the mode of a plan, by its present name.
func modeOf(p *v1alpha1.DefragmentationPlan) v1alpha1.DefragmentationMode {
	if p.Spec.Mode == v1alpha1.DefragmentationDryRun {
		return v1alpha1.DefragmentationApproval
	}
	return p.Spec.Mode
}

// Moves lists what a plan moves, in its order.
func Moves(p *v1alpha1.DefragmentationPlan) []Move {
	rows := make([]Move, 0, len(p.Status.Moves))
	for i, m := range p.Status.Moves {
		rows = append(rows, Move{
			Number: i, Namespace: m.Namespace, Pod: m.PodName, Gang: m.PodGroup, From: m.SourceNode, To: m.TargetNode,
			After: m.After, Phase: string(m.Phase), Why: m.Why,
		})
	}
	return rows
}

// ErrApproved is why a plan need not be approved.
var ErrApproved = errors.New("it is carried out already")

// Approvable returns why a plan cannot be approved; nil where it can. Once a plan can be, none of its moves will
// change.
func Approvable(p *v1alpha1.DefragmentationPlan) error {
	switch phase := p.Status.Phase; {
	case p.Spec.Approved:
		return fmt.Errorf("DefragmentationPlan %q has been approved: %w", p.Name, ErrApproved)
	case p.Spec.Mode == v1alpha1.DefragmentationExecute:
		return fmt.Errorf("DefragmentationPlan %q has the mode Execute: %w", p.Name, ErrApproved)
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("DefragmentationPlan %q is being deleted", p.Name)
	case phase == "" || phase == v1alpha1.DefragmentationPending:
		return fmt.Errorf("DefragmentationPlan %q has no moves yet: approve it when lockstep-descheduler has found them, "+
			"and you have seen them", p.Name)
	case phase != v1alpha1.DefragmentationPlanned:
		return fmt.Errorf("DefragmentationPlan %q is %s: only a plan that is Planned can be approved", p.Name, phase)
	}
	return nil
}
