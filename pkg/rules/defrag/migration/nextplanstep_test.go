package migration

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// aPlan is one of these moves: which moves have to be done before each.
func aPlan(moves [][]int32, changes ...func(*v1alpha1.DefragmentationPlan)) *v1alpha1.DefragmentationPlan {
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "plan", UID: "uid-plan"}}
	p.Spec.Mode, p.Spec.Budget.MaxEvictions, p.Spec.HoldTime = v1alpha1.DefragmentationExecute, 2, &metav1.Duration{Duration: time.Minute}
	p.Status.Phase, p.Status.Goal = v1alpha1.DefragmentationPlanned, "gang ns/g"
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DefragmentationFound, Status: metav1.ConditionTrue, Reason: v1alpha1.DefragmentationReasonFound}}
	for _, after := range moves {
		p.Status.Moves = append(p.Status.Moves, v1alpha1.PlannedMove{Namespace: "ns", PodName: "p", After: after})
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func started(p *v1alpha1.DefragmentationPlan) {
	p.Status.Phase, p.Status.StartTime = v1alpha1.DefragmentationRunning, new(metav1.NewTime(begin))
}

// stage is how far a move has come, as its PodMigration says.
type stage struct {
	Phase                        v1alpha1.MigrationPhase
	Suspended, Reserved, Evicted bool
	// Evicting, Barred and Went are reasons for which it is not evicted.
	Evicting, Barred, Went bool
	Gone, Leaving          bool
	Why                    string
}

func (s stage) move() *Move {
	m := &v1alpha1.PodMigration{Spec: v1alpha1.PodMigrationSpec{Suspend: s.Suspended}, Status: v1alpha1.PodMigrationStatus{Phase: s.Phase}}
	add := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
	reason := v1alpha1.MigrationReasonWaiting
	switch {
	case s.Evicting:
		reason = v1alpha1.MigrationReasonEvicting
	case s.Barred:
		reason = v1alpha1.MigrationReasonDisruptionBudget
	case s.Went:
		reason = v1alpha1.MigrationReasonPodGone
	}
	add(v1alpha1.MigrationReserved, s.Reserved, "", "")
	add(v1alpha1.MigrationEvicted, s.Evicted, reason, "")
	if Ended(s.Phase) {
		add(v1alpha1.MigrationComplete, s.Phase == v1alpha1.MigrationSucceeded, "", s.Why)
	}
	return &Move{PodMigration: m, Gone: s.Gone, Leaving: s.Leaving}
}

// those are moves at these stages.
func those[S interface{ move() *Move }](stages map[int]S) map[int]*Move {
	moves := map[int]*Move{}
	for i, s := range stages {
		moves[i] = s.move()
	}
	return moves
}

func moving(phases ...v1alpha1.MigrationPhase) map[int]*Move {
	stages := map[int]stage{}
	for i, phase := range phases {
		stages[i] = stage{Phase: phase, Suspended: phase == v1alpha1.MigrationPending, Reserved: phase == v1alpha1.MigrationPending, Evicted: phase == v1alpha1.MigrationRunning || phase == v1alpha1.MigrationSucceeded}
	}
	return those(stages)
}

// TestNextPlan: no pod is evicted before all is reserved that can be, nor for a goal that is gone.
func TestNextPlan(t *testing.T) {
	const pending, running, succeeded, failed = v1alpha1.MigrationPending, v1alpha1.MigrationRunning, v1alpha1.MigrationSucceeded, v1alpha1.MigrationFailed
	two, chain := [][]int32{nil, nil}, [][]int32{nil, {0}}
	dry := func(p *v1alpha1.DefragmentationPlan) { p.Spec.Mode = v1alpha1.DefragmentationDryRun }
	approved := func(p *v1alpha1.DefragmentationPlan) { p.Spec.Approved = true }
	gone := func(p *v1alpha1.DefragmentationPlan) { p.DeletionTimestamp = new(metav1.NewTime(begin)) }
	unplanned := func(p *v1alpha1.DefragmentationPlan) {
		p.Status.Phase, p.Status.Conditions, p.Status.Moves = "", nil, nil
	}
	none := func(p *v1alpha1.DefragmentationPlan) {
		p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason, p.Status.Moves = metav1.ConditionFalse, v1alpha1.DefragmentationReasonNone, nil
	}
	nothing := func(p *v1alpha1.DefragmentationPlan) {
		p.Status.Conditions[0].Reason, p.Status.Moves = v1alpha1.DefragmentationReasonNothing, nil
	}
	shape := func(p *v1alpha1.DefragmentationPlan) {
		p.Spec.Goal.Shape, p.Status.Predicted = &v1alpha1.GangShape{Members: 1}, &v1alpha1.GangCapacity{Before: 1, After: 2}
	}
	held := func(p *v1alpha1.DefragmentationPlan) { p.Status.HeldTime = new(metav1.NewTime(begin)) }
	type changes = []func(*v1alpha1.DefragmentationPlan)
	available, used := []Hold{{Available: true}}, []Hold{{Used: true}}
	waits := those(map[int]stage{0: {Phase: running, Evicted: true}, 1: {Phase: pending, Reserved: true}}) // until 0 is done, whose successor would be like its own
	barred := those(map[int]stage{0: {Phase: running, Evicted: true}, 1: {Phase: running, Reserved: true, Barred: true}})
	for sentence, c := range map[string]struct {
		moves  [][]int32
		p      changes
		seen   PlanSeen
		after  time.Duration
		phase  v1alpha1.DefragmentationPhase
		reason string
		hold   bool
		make   []int
		resume []int
		cancel []int
		// suspend are those that were let go, and are not to go.
		suspend []int
		check   bool
		count   bool
		// achieved is how many gangs fit after it.
		achieved int32
	}{
		"moves are awaited":                         {p: changes{unplanned}, phase: v1alpha1.DefragmentationPending},
		"there are none":                            {p: changes{none}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonNone},
		"none are needed":                           {p: changes{nothing}, phase: v1alpha1.DefragmentationSucceeded, reason: v1alpha1.DefragmentationReasonNothing},
		"a dry run is looked at again":              {moves: two, p: changes{dry}, phase: v1alpha1.DefragmentationPlanned, check: true},
		"one that leads nowhere any more ends":      {moves: two, p: changes{dry}, seen: PlanSeen{Checked: true, Futile: "node a"}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"a dry run waits":                           {moves: two, p: changes{dry}, seen: PlanSeen{Checked: true}, phase: v1alpha1.DefragmentationPlanned, reason: v1alpha1.DefragmentationReasonAwaitingApproval},
		"until it is approved":                      {moves: two, p: changes{dry, approved}, seen: PlanSeen{Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving},
		"it is looked whether it is as it was":      {moves: two, p: changes{dry, approved}, phase: v1alpha1.DefragmentationPlanned, check: true},
		"nothing is begun if it is not":             {moves: two, p: changes{dry, approved}, seen: PlanSeen{Checked: true, Futile: "node a"}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"unless its goal runs by then":              {moves: two, p: changes{dry, approved}, seen: PlanSeen{Goal: Runs}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"or is gone":                                {moves: two, p: changes{dry}, seen: PlanSeen{Goal: Gone}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"all is reserved at once":                   {moves: two, p: changes{started}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true, make: []int{0, 1}},
		"one target is not, and nobody goes":        {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: pending, Suspended: true, Reserved: true}, 1: {Phase: pending, Suspended: true}})}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true},
		"not for ever":                              {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: pending, Suspended: true, Reserved: true}, 1: {Phase: pending, Suspended: true}})}, after: reserveWithin, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonMoveFailed},
		"what is freed has to be promised, too":     {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(pending, pending), Wants: 1}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true},
		"then moves begin":                          {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(pending, pending), Wants: 1, Holds: []Hold{{}}, Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, resume: []int{0, 1}},
		"it is looked before who else came":         {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(pending, pending)}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true, check: true},
		"if so, nobody is evicted":                  {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(pending, pending), Checked: true, Futile: "node a"}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"what was let go is not taken back":         {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: pending, Reserved: true}, 1: {Phase: pending, Reserved: true}}), Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"nor is it over where its goal has gone":    {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: pending, Reserved: true}, 1: {Phase: pending, Suspended: true, Reserved: true}}), Goal: Runs}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonOutdated, hold: true, cancel: []int{0, 1}},
		"a pod that went makes room as well":        {moves: chain, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: failed, Gone: true}, 1: {Phase: pending, Suspended: true, Reserved: true}}), Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, resume: []int{1}},
		"all moved but one that went":               {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: failed, Gone: true}, 1: {Phase: succeeded}})}, phase: v1alpha1.DefragmentationSucceeded, reason: v1alpha1.DefragmentationReasonDone},
		"all went, and their room is looked at":     {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: failed, Gone: true}, 1: {Phase: failed, Gone: true}})}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true, check: true},
		"of a shape it is counted what fits":        {moves: two, p: changes{started, shape}, seen: PlanSeen{Moves: moving(succeeded, succeeded)}, phase: v1alpha1.DefragmentationRunning, count: true},
		"and that is what is achieved":              {moves: two, p: changes{started, shape}, seen: PlanSeen{Moves: moving(succeeded, succeeded), Fits: new(int32(3))}, phase: v1alpha1.DefragmentationSucceeded, reason: v1alpha1.DefragmentationReasonDone, achieved: 3},
		"one went, and not all are reserved":        {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: running, Suspended: true, Reserved: true, Went: true}, 1: {Phase: pending, Suspended: true}})}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true},
		"all went, and the goal has got nodes":      {moves: two, p: changes{started, held}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: failed, Gone: true}, 1: {Phase: failed, Gone: true}}), Wants: 1, Holds: used, Goal: Runs}, phase: v1alpha1.DefragmentationSucceeded, reason: v1alpha1.DefragmentationReasonUsed},
		"so many at a time":                         {moves: [][]int32{nil, nil, nil}, p: changes{started}, seen: PlanSeen{Moves: moving(running, pending, pending), Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, resume: []int{1}},
		"each in its turn":                          {moves: chain, p: changes{started}, seen: PlanSeen{Moves: moving(running, pending)}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"which comes":                               {moves: chain, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, pending), Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, resume: []int{1}},
		"after the nodes were looked at again":      {moves: chain, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, pending)}, phase: v1alpha1.DefragmentationRunning, check: true},
		"if one takes no pods, nobody else goes":    {moves: chain, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, pending), Checked: true, Futile: "node a"}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonMoveFailed},
		"also while somebody is under way":          {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(running, pending), Checked: true, Futile: "node a"}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoveFailed, hold: true, cancel: []int{1}},
		"a goal made anew is planned for anew":      {moves: two, p: changes{dry}, seen: PlanSeen{Goal: Renewed}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"as long as nobody has gone for it":         {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(pending, pending), Goal: Renewed}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"then what was begun is finished":           {moves: chain, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, pending), Checked: true, Goal: Renewed}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, resume: []int{1}},
		"what may pass lets nobody go":              {moves: chain, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, pending), Doubt: "it is said to be full"}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"nor the first":                             {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(pending, pending), Wants: 1, Holds: []Hold{{}}, Doubt: "it is said to be full"}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true},
		"nor who was let go, and waits":             {moves: two, p: changes{started}, seen: PlanSeen{Moves: waits, Doubt: "it is said to be full"}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, suspend: []int{1}},
		"nor whom a budget does not let go":         {moves: two, p: changes{started}, seen: PlanSeen{Moves: barred, Doubt: "it is said to be full"}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, suspend: []int{1}},
		"also if its goal needs no room any more":   {moves: two, p: changes{started}, seen: PlanSeen{Moves: barred, Goal: Runs}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonOutdated, hold: true, cancel: []int{1}},
		"it is looked as long as one waits":         {moves: two, p: changes{started}, seen: PlanSeen{Moves: waits}, phase: v1alpha1.DefragmentationRunning, check: true},
		"who may go then":                           {moves: two, p: changes{started}, seen: PlanSeen{Moves: waits, Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"or not at all":                             {moves: two, p: changes{started}, seen: PlanSeen{Moves: waits, Checked: true, Futile: "node a"}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoveFailed, hold: true, cancel: []int{1}},
		"nor while its goal is gone":                {moves: two, p: changes{started}, seen: PlanSeen{Moves: waits, Goal: Gone}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true, suspend: []int{1}},
		"one that goes in a moment goes":            {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: running, Evicted: true}, 1: {Phase: pending, Reserved: true, Evicting: true}}), Doubt: "it is said to be full"}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"and begins no plan":                        {moves: two, p: changes{dry}, seen: PlanSeen{Doubt: "it is said to be full"}, phase: v1alpha1.DefragmentationPlanned},
		"it may be gone for a moment":               {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(running, pending), Goal: Gone}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"and not when nobody is under way":          {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, pending), Goal: Gone}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"a pod that is going makes room later":      {moves: chain, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: failed, Leaving: true}, 1: {Phase: pending, Suspended: true, Reserved: true}}), Checked: true}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"one that stays does not":                   {moves: chain, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: failed}, 1: {Phase: pending, Suspended: true, Reserved: true}}), Checked: true}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonMoveFailed},
		"one fails before anybody went":             {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(failed, pending)}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonMoveFailed},
		"one fails while another is under way":      {moves: [][]int32{nil, nil, nil}, p: changes{started}, seen: PlanSeen{Moves: moving(failed, running, pending)}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoveFailed, hold: true, cancel: []int{2}},
		"it ends with that one":                     {moves: [][]int32{nil, nil}, p: changes{started}, seen: PlanSeen{Moves: moving(failed, succeeded)}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonMoveFailed},
		"the goal runs meanwhile":                   {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, pending), Goal: Runs}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"it runs, and all that was in its way went": {moves: two, p: changes{started}, seen: PlanSeen{Moves: those(map[int]stage{0: {Phase: failed, Gone: true}, 1: {Phase: failed, Gone: true}}), Goal: Runs}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonOutdated},
		"it runs before the last has come":          {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, running), Goal: Runs}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonMoving, hold: true},
		"all are done, and it is held":              {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, succeeded), Wants: 1, Holds: available}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonHeld, hold: true},
		"for whoever has the name by then":          {moves: two, p: changes{started, held}, seen: PlanSeen{Moves: moving(succeeded, succeeded), Wants: 1, Holds: available, Goal: Gone}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonHeld, hold: true},
		"until it is used":                          {moves: two, p: changes{started, held}, seen: PlanSeen{Moves: moving(succeeded, succeeded), Wants: 1, Holds: used}, phase: v1alpha1.DefragmentationSucceeded, reason: v1alpha1.DefragmentationReasonUsed},
		"or until it is deleted":                    {moves: two, p: changes{started, held, gone}, seen: PlanSeen{Moves: moving(succeeded, succeeded), Wants: 1, Holds: available}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonCancelled},
		"or long enough":                            {moves: two, p: changes{started, held}, seen: PlanSeen{Moves: moving(succeeded, succeeded), Wants: 1, Holds: available}, after: time.Minute, phase: v1alpha1.DefragmentationSucceeded, reason: v1alpha1.DefragmentationReasonUnused},
		"where nobody waits, nothing is held":       {moves: two, p: changes{started}, seen: PlanSeen{Moves: moving(succeeded, succeeded)}, phase: v1alpha1.DefragmentationSucceeded, reason: v1alpha1.DefragmentationReasonDone},
		"it is deleted":                             {moves: two, p: changes{started, gone}, seen: PlanSeen{Moves: moving(pending, pending)}, phase: v1alpha1.DefragmentationFailed, reason: v1alpha1.DefragmentationReasonCancelled},
		"deleted, it awaits what is under way":      {moves: two, p: changes{started, gone}, seen: PlanSeen{Moves: moving(running, pending)}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonCancelled, hold: true, cancel: []int{1}},
		"what would be in the way is made later":    {moves: [][]int32{nil, {0}}, p: changes{started}, phase: v1alpha1.DefragmentationRunning, reason: v1alpha1.DefragmentationReasonReserving, hold: true, make: []int{0}},
		"what has ended leaves what is under way":   {moves: two, p: changes{func(p *v1alpha1.DefragmentationPlan) { p.Status.Phase = v1alpha1.DefragmentationFailed }}, seen: PlanSeen{Moves: moving(running, pending)}, phase: v1alpha1.DefragmentationFailed, cancel: []int{1}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.seen.Moves == nil {
				c.seen.Moves = map[int]*Move{}
			}
			got := NextPlan(aPlan(c.moves, c.p...), c.seen, begin.Add(c.after))
			reason := ""
			if complete := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.DefragmentationComplete); complete != nil {
				reason = complete.Reason
			}
			if got.Status.Phase != c.phase || reason != c.reason || got.Hold != c.hold {
				t.Errorf("%s, %q, hold %t; want %s, %q, %t", got.Status.Phase, reason, got.Hold, c.phase, c.reason, c.hold)
			}
			if !slices.Equal(got.Make, c.make) || !slices.Equal(got.Resume, c.resume) || !slices.Equal(got.Cancel, c.cancel) {
				t.Errorf("make %v, resume %v, cancel %v; want %v, %v, %v", got.Make, got.Resume, got.Cancel, c.make, c.resume, c.cancel)
			}
			if !slices.Equal(got.Suspend, c.suspend) {
				t.Errorf("suspend %v, want %v", got.Suspend, c.suspend)
			}
			if got.Check != c.check || got.Count != c.count {
				t.Errorf("check %t, count %t", got.Check, got.Count)
			}
			if a := got.Status.Achieved; c.achieved > 0 && (a == nil || a.After != c.achieved) {
				t.Errorf("achieved %v, want %d", a, c.achieved)
			}
			if PlanEnded(got.Status.Phase) != (got.Status.EndTime != nil || c.p != nil && got.Release) {
				t.Errorf("phase %s, end %v", got.Status.Phase, got.Status.EndTime)
			}
		})
	}
}

// TestPlanKeepsWhyItStops: a plan that awaits what is under way says why it stops, and ends so. What it has called off
// itself is no failure.
func TestPlanKeepsWhyItStops(t *testing.T) {
	p := aPlan([][]int32{nil, nil}, started)
	stopping := NextPlan(p, PlanSeen{Moves: moving(v1alpha1.MigrationRunning, v1alpha1.MigrationPending), Checked: true, Futile: "node a is cordoned"}, begin)
	p.Status = stopping.Status
	p.Status.Moves[1].Phase = v1alpha1.MigrationFailed // it was cancelled, and its PodMigration is gone
	ended := NextPlan(p, PlanSeen{Moves: those(map[int]stage{0: {Phase: v1alpha1.MigrationSucceeded, Evicted: true}})}, begin).Status
	for name, status := range map[string]v1alpha1.DefragmentationPlanStatus{"while it is awaited": stopping.Status, "in the end": ended} {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.DefragmentationComplete)
		if c == nil || c.Reason != v1alpha1.DefragmentationReasonMoveFailed || c.Message != "node a is cordoned" {
			t.Errorf("%s it says %+v", name, c)
		}
	}
	if ended.Phase != v1alpha1.DefragmentationFailed {
		t.Errorf("in the end it is %s", ended.Phase)
	}
}

// TestPlanStory: whatever happens to the moves of a plan, and whenever its controller crashes, no move begins out of
// its turn, no more than are allowed are under way, and the plan ends with nothing held.
func TestPlanStory(t *testing.T) {
	for seed := range uint64(300) {
		w := &planWorld{T: t, random: rand.New(rand.NewPCG(seed, 1)), now: begin, moves: map[int]*stage{}, seen: PlanSeen{Wants: 1}}
		w.play()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type planWorld struct {
	*testing.T
	random *rand.Rand
	p      *v1alpha1.DefragmentationPlan
	moves  map[int]*stage
	seen   PlanSeen // but for the moves
	now    time.Time
}

func (w *planWorld) play() {
	var moves [][]int32
	for i := range 1 + w.random.IntN(5) {
		var after []int32
		for before := range i {
			if w.random.IntN(3) == 0 {
				after = append(after, int32(before))
			}
		}
		moves = append(moves, after)
	}
	w.p = aPlan(moves)
	for range 300 {
		w.step()
		w.happen(w.random.IntN(12) == 0)
		w.now = w.now.Add(time.Duration(w.random.IntN(5000)) * time.Millisecond)
	}
	for range 200 { // all comes to rest
		w.step()
		w.happen(false)
		w.now = w.now.Add(5 * time.Second)
	}
	if !PlanEnded(w.p.Status.Phase) || len(w.seen.Holds) > 0 {
		w.Errorf("it has not ended: %s, %d holds", w.p.Status.Phase, len(w.seen.Holds))
	}
	for i, m := range w.moves {
		if !Ended(m.Phase) {
			w.Errorf("move %d has not ended: %v", i, *m)
		}
	}
}

func (w *planWorld) step() {
	w.seen.Moves = those(w.moves)
	got := NextPlan(w.p, w.seen, w.now)
	if got.Check && w.random.IntN(4) == 0 {
		seen := w.seen
		seen.Doubt = "its queue is full"
		if got = NextPlan(w.p, seen, w.now); len(got.Resume) > 0 {
			w.Error("moves begin for a goal that is said not to start")
		}
		for i, m := range seen.Moves {
			if m.mayBegin() && !m.mayBeEvicted() && !slices.Contains(got.Suspend, i) {
				w.Errorf("move %d goes on for a goal that is said not to start", i)
			}
		}
	}
	if got.Check {
		seen := w.seen
		if seen.Checked = true; w.random.IntN(8) == 0 {
			seen.Futile = "node a"
		}
		if got = NextPlan(w.p, seen, w.now); len(got.Resume) > 0 && seen.Futile != "" {
			w.Error("moves begin that lead nowhere")
		}
	} else if len(got.Resume) > 0 && slices.ContainsFunc(slices.Collect(maps.Values(w.moves)), func(m *stage) bool { return m.Evicted }) {
		w.Error("a move begins, and nobody has looked at the nodes since the first")
	}
	if PlanEnded(w.p.Status.Phase) && got.Status.Phase != w.p.Status.Phase {
		w.Errorf("an end that is final became %s", got.Status.Phase)
	}
	changed := !slices.Equal(w.p.Status.Conditions, got.Status.Conditions) || w.p.Status.Phase != got.Status.Phase
	w.p.Status = got.Status
	if changed || w.random.IntN(3) == 0 { // what was written is read first, or it has crashed
		return
	}
	for _, i := range got.Make {
		w.moves[i] = &stage{Phase: v1alpha1.MigrationPending, Suspended: true}
	}
	for _, i := range got.Resume {
		for _, before := range w.p.Status.Moves[i].After {
			if m := w.moves[int(before)]; m.Phase != v1alpha1.MigrationSucceeded && !m.Gone {
				w.Errorf("move %d begins before move %d is done", i, before)
			}
		}
		w.moves[i].Suspended = false
	}
	for _, i := range got.Suspend {
		if w.seen.Moves[i].mayBeEvicted() {
			w.Errorf("move %d is suspended, and had begun", i)
		}
		w.moves[i].Suspended = true
		w.moves[i].Phase, w.moves[i].Barred = v1alpha1.MigrationPending, false
	}
	for _, i := range got.Cancel {
		if w.seen.Moves[i].mayBeEvicted() {
			w.Errorf("move %d is cancelled, and had begun", i)
		}
		w.moves[i].Phase = v1alpha1.MigrationFailed
	}
	if got.Hold && len(w.seen.Holds) == 0 {
		w.seen.Holds = []Hold{{}}
	}
	if got.Release {
		w.seen.Holds = nil
	}
	busy := 0
	for _, m := range w.moves {
		if !m.Suspended && !Ended(m.Phase) {
			busy++
		}
	}
	if busy > int(w.p.Spec.Budget.MaxEvictions) {
		w.Errorf("%d moves are under way", busy)
	}
}

// happen has a move come on, or fail.
func (w *planWorld) happen(fails bool) {
	for i := range w.p.Status.Moves {
		m := w.moves[i]
		if m == nil || w.random.IntN(2) == 0 {
			continue
		}
		m.Gone, m.Leaving = m.Gone || m.Leaving, false
		if Ended(m.Phase) {
			continue
		}
		switch {
		case fails && !m.move().mayBeEvicted() && w.random.IntN(2) == 0: // somebody deletes the pod
			m.Phase, m.Leaving = v1alpha1.MigrationFailed, true
			return
		case fails:
			m.Phase, m.Why = v1alpha1.MigrationFailed, "chance"
			return
		case !m.Reserved:
			m.Reserved = true
		case m.Suspended:
		case m.Phase == v1alpha1.MigrationPending:
			if len(w.seen.Holds) < w.seen.Wants {
				w.Errorf("a pod goes, and nothing is promised to the goal")
			}
			m.Phase, m.Barred = v1alpha1.MigrationRunning, w.random.IntN(3) == 0
			m.Evicted = !m.Barred
		case m.Barred:
			m.Barred, m.Evicted = false, true
		default:
			m.Phase = v1alpha1.MigrationSucceeded
		}
	}
	if done := len(w.moves) == len(w.p.Status.Moves); done && w.random.IntN(5) == 0 {
		for i := range w.seen.Holds {
			w.seen.Holds[i].Available = true
		}
	}
}
