package migration

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

var begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func aMigration(changes ...func(*v1alpha1.PodMigration)) *v1alpha1.PodMigration {
	m := &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "uid-m"},
		Spec:       v1alpha1.PodMigrationSpec{PodName: "p", PodUID: "uid-p", SourceNode: "from", TargetNode: "to", Timeout: &metav1.Duration{Duration: time.Minute}},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func running() *Pod { return &Pod{UID: "uid-p", Node: "from", Controlled: true} }

func available(changes ...func(*Reservation)) *Reservation {
	r := &Reservation{Ours: true, Open: true, Observed: true, Phase: v1alpha1.ReservationAvailable, Node: "to"}
	for _, change := range changes {
		change(r)
	}
	return r
}

func used(by v1alpha1.ReservationConsumer) func(*Reservation) {
	return func(r *Reservation) {
		r.Phase, r.Users = v1alpha1.ReservationSucceeded, []v1alpha1.ReservationConsumer{by}
	}
}

var successor = v1alpha1.ReservationConsumer{Namespace: "ns", Name: "p-2", UID: "uid-p-2"}

func suspended(m *v1alpha1.PodMigration) { m.Spec.Suspend = true }
func deleted(m *v1alpha1.PodMigration)   { m.DeletionTimestamp = new(metav1.NewTime(begin)) }

func phase(p v1alpha1.MigrationPhase) func(*v1alpha1.PodMigration) {
	return func(m *v1alpha1.PodMigration) {
		m.Status.Phase, m.Status.Reservation, m.Status.StartTime = p, "migration-uid-m", new(metav1.NewTime(begin))
	}
}

func condition(kind string, is metav1.ConditionStatus, reason string, at time.Time) func(*v1alpha1.PodMigration) {
	return func(m *v1alpha1.PodMigration) {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: is, Reason: reason, LastTransitionTime: metav1.NewTime(at)})
	}
}

// TestNext: the pod is evicted only while its target is held, and nothing is reserved for longer than that is of use.
func TestNext(t *testing.T) {
	reserved := condition(v1alpha1.MigrationReserved, metav1.ConditionTrue, v1alpha1.MigrationReasonReserved, begin)
	evicting := condition(v1alpha1.MigrationEvicted, metav1.ConditionUnknown, v1alpha1.MigrationReasonEvicting, begin)
	barred := condition(v1alpha1.MigrationEvicted, metav1.ConditionUnknown, v1alpha1.MigrationReasonDisruptionBudget, begin)
	evictingLate := condition(v1alpha1.MigrationEvicted, metav1.ConditionUnknown, v1alpha1.MigrationReasonEvicting, begin.Add(time.Minute))
	unreservedLate := condition(v1alpha1.MigrationReserved, metav1.ConditionFalse, v1alpha1.MigrationReasonReserving, begin.Add(time.Minute))
	started := func(m *v1alpha1.PodMigration) { m.Status.StartTime = new(metav1.NewTime(begin)) }
	isRunning, isPending := phase(v1alpha1.MigrationRunning), phase(v1alpha1.MigrationPending)
	gone := func(m *v1alpha1.PodMigration) { m.Status.GoneTime = new(metav1.NewTime(begin)) }
	bare := func(m *v1alpha1.PodMigration) { m.Spec.AllowBarePod = true }
	known := func(m *v1alpha1.PodMigration) {
		m.Status.Successors = &v1alpha1.MigrationSuccessors{Controller: &v1alpha1.ReservationOwnerController{Name: "c"}}
	}
	went := condition(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonPodGone, begin)
	evicted := condition(v1alpha1.MigrationEvicted, metav1.ConditionTrue, v1alpha1.MigrationReasonEvicted, begin)
	ending := &Pod{UID: "uid-p", Node: "from", Ending: true, Grace: time.Hour}
	arrived := func(m *v1alpha1.PodMigration) {
		m.Status.Successor = &v1alpha1.MigrationSuccessor{Name: "p-2", UID: "uid-p-2"}
	}
	closed := func(r *Reservation) { r.Open = false }
	unseen := func(r *Reservation) { r.Observed = false }
	type changes = []func(*v1alpha1.PodMigration)
	for sentence, c := range map[string]struct {
		m     changes
		pod   *Pod
		rsv   *Reservation
		alike string
		// cordoned: the target takes no pods.
		cordoned bool
		barren   bool
		by       *Successor
		after    time.Duration
		phase    v1alpha1.MigrationPhase
		reason   string // of the condition Complete
		action   Action
	}{
		"the target is reserved first":             {pod: running(), phase: v1alpha1.MigrationPending, action: Reserve},
		"while that has no place, the pod stays":   {m: changes{isPending}, pod: running(), rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), phase: v1alpha1.MigrationPending},
		"not for ever":                             {m: changes{isPending}, pod: running(), rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), after: time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoRoom},
		"but while it is suspended":                {m: changes{suspended}, pod: running(), rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), after: time.Hour, phase: v1alpha1.MigrationPending},
		"also once it was begun":                   {m: changes{isPending, started, suspended}, pod: running(), rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), after: time.Hour, phase: v1alpha1.MigrationPending},
		"its time begins when the place is lost":   {m: changes{isPending, started, reserved}, pod: running(), rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), after: time.Hour, phase: v1alpha1.MigrationPending},
		"and ends later":                           {m: changes{isPending, started, unreservedLate}, pod: running(), rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), after: 2*time.Minute - 1, phase: v1alpha1.MigrationPending},
		"but it ends":                              {m: changes{isPending, started, unreservedLate}, pod: running(), rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), after: 2 * time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoRoom},
		"the target is held, and cordoned":         {m: changes{isPending, started, reserved, evicting}, pod: running(), rsv: available(), cordoned: true, after: time.Hour, phase: v1alpha1.MigrationPending},
		"for too long":                             {m: changes{isPending, started, unreservedLate}, pod: running(), rsv: available(), cordoned: true, after: 2 * time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoRoom},
		"cordoned while a budget keeps the pod":    {m: changes{isRunning, started, reserved, barred}, pod: running(), rsv: available(), cordoned: true, after: time.Second, phase: v1alpha1.MigrationRunning},
		"until the time for that is over":          {m: changes{isRunning, started, reserved, barred}, pod: running(), rsv: available(), cordoned: true, after: time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoRoom},
		"the pod is gone":                          {phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"another pod has its name":                 {pod: &Pod{UID: "other", Node: "from", Controlled: true}, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"it is on another node":                    {pod: &Pod{UID: "uid-p", Node: "else", Controlled: true}, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"it is being deleted":                      {pod: &Pod{UID: "uid-p", Node: "from", Controlled: true, Ending: true}, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"it has ended":                             {pod: &Pod{UID: "uid-p", Node: "from", Controlled: true, Ended: true}, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"nobody would make it again":               {pod: &Pod{UID: "uid-p", Node: "from"}, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoController},
		"somebody does":                            {m: changes{bare}, pod: &Pod{UID: "uid-p", Node: "from"}, phase: v1alpha1.MigrationPending, action: Reserve},
		"the Reservation is another's":             {m: changes{isPending}, pod: running(), rsv: available(func(r *Reservation) { r.Ours = false }), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"it was deleted":                           {m: changes{isPending, reserved}, pod: running(), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"it has expired":                           {m: changes{isPending, reserved}, pod: running(), rsv: available(func(r *Reservation) { r.Phase = v1alpha1.ReservationFailed }), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"it is on another node than asked for":     {m: changes{isPending}, pod: running(), rsv: available(func(r *Reservation) { r.Node = "else" }), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"somebody used it":                         {m: changes{isPending, reserved}, pod: running(), rsv: available(used(successor)), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"suspended when open, it is closed again":  {m: changes{isPending, reserved, suspended}, pod: running(), rsv: available(), phase: v1alpha1.MigrationPending, action: Close},
		"suspended, nothing happens":               {m: changes{isPending, reserved, suspended}, pod: running(), rsv: available(func(r *Reservation) { r.Open = false }), phase: v1alpha1.MigrationPending},
		"it is opened to the successor first":      {m: changes{isPending, reserved}, pod: running(), rsv: available(func(r *Reservation) { r.Open = false }), phase: v1alpha1.MigrationPending, action: Open},
		"and that is said":                         {m: changes{isPending, reserved}, pod: running(), rsv: available(), phase: v1alpha1.MigrationPending},
		"the scheduler has to know":                {m: changes{isPending, reserved, evicting}, pod: running(), rsv: available(unseen), after: time.Minute - 1, phase: v1alpha1.MigrationPending},
		"a scheduler that is down may not come":    {m: changes{isPending, reserved, evicting}, pod: running(), rsv: available(unseen), after: time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoRoom},
		"once it knows, it is done":                {m: changes{isPending, reserved, evicting}, pod: running(), rsv: available(), phase: v1alpha1.MigrationRunning, action: Evict},
		"and done again after a crash":             {m: changes{isRunning, reserved, evicting}, pod: running(), rsv: available(), after: time.Second, phase: v1alpha1.MigrationRunning, action: Evict},
		"not if the target is lost":                {m: changes{isRunning, reserved, evicting}, pod: running(), rsv: available(func(r *Reservation) { r.Phase = v1alpha1.ReservationPending }), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"nor if it is gone":                        {m: changes{isRunning, reserved, evicting}, pod: running(), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"the pod takes its time":                   {m: changes{isRunning, reserved}, pod: &Pod{UID: "uid-p", Node: "from", Ending: true, Grace: time.Hour}, rsv: available(), after: time.Minute, phase: v1alpha1.MigrationRunning},
		"its successor is awaited":                 {m: changes{isRunning, reserved}, rsv: available(), after: time.Second, phase: v1alpha1.MigrationRunning},
		"not for ever either":                      {m: changes{isRunning, reserved, gone}, rsv: available(), after: time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoSuccessor},
		"unless nobody makes one any more":         {m: changes{isRunning, reserved, known}, rsv: available(), barren: true, after: time.Second, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"but who has come has come":                {m: changes{isRunning, reserved, known}, rsv: available(used(successor)), barren: true, phase: v1alpha1.MigrationSucceeded, reason: v1alpha1.MigrationReasonMoved},
		"the pod that has its name may use it":     {m: changes{isRunning, reserved, bare}, pod: &Pod{UID: "uid-p-2"}, rsv: available(func(r *Reservation) { r.Open = false }), phase: v1alpha1.MigrationRunning, action: Open},
		"its successor has got another node":       {m: changes{isRunning, reserved, known}, rsv: available(), by: &Successor{Name: "p-2", Node: "else"}, after: time.Second, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"it is back on the source":                 {m: changes{isRunning, reserved, known}, rsv: available(), by: &Successor{Name: "p-2", Node: "from"}, after: time.Second, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonNoSuccessor},
		"not while the pod still ends":             {m: changes{isRunning, reserved, evicted, known}, pod: ending, rsv: available(), by: &Successor{Name: "p-2", Node: "else"}, after: time.Second, phase: v1alpha1.MigrationRunning},
		"it is on the target by other means":       {m: changes{isRunning, reserved, known}, rsv: available(), by: &Successor{Name: "p-2", Node: "to"}, phase: v1alpha1.MigrationSucceeded, reason: v1alpha1.MigrationReasonMoved},
		"the successor has come":                   {m: changes{isRunning, reserved}, rsv: available(used(successor)), phase: v1alpha1.MigrationSucceeded, reason: v1alpha1.MigrationReasonMoved},
		"its node has no room before the pod ends": {m: changes{isRunning, reserved}, pod: ending, rsv: available(used(successor)), phase: v1alpha1.MigrationRunning},
		"nor where the Reservation is gone by now": {m: changes{isRunning, reserved, arrived}, pod: ending, phase: v1alpha1.MigrationRunning},
		"once that has ended it has":               {m: changes{isRunning, reserved, arrived}, phase: v1alpha1.MigrationSucceeded, reason: v1alpha1.MigrationReasonMoved},
		"also where its successor has its name":    {m: changes{isRunning, reserved, arrived}, pod: &Pod{UID: "uid-p-2", Node: "to"}, phase: v1alpha1.MigrationSucceeded, reason: v1alpha1.MigrationReasonMoved},
		"one that stays, successor or not":         {m: changes{isRunning, reserved, evicted, arrived}, pod: ending, after: time.Hour + time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodStays},
		"it has come, and has ended":               {m: changes{isRunning, reserved}, rsv: available(func(r *Reservation) { r.Phase = v1alpha1.ReservationSucceeded }), phase: v1alpha1.MigrationSucceeded, reason: v1alpha1.MigrationReasonMoved},
		"somebody else came while it ran":          {m: changes{isRunning, reserved, evicting}, pod: running(), rsv: available(used(successor)), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"a pod that does not end":                  {m: changes{isRunning, reserved, evicted}, pod: ending, rsv: available(), after: time.Hour + time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodStays},
		"the node is lost before it came":          {m: changes{isRunning, reserved}, rsv: available(func(r *Reservation) { r.Phase = v1alpha1.ReservationPending }), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonReservationLost},
		"it is cancelled":                          {m: changes{isPending, reserved, deleted}, pod: running(), rsv: available(), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonCancelled},
		"what has ended does nothing more":         {m: changes{phase(v1alpha1.MigrationFailed)}, pod: running(), rsv: available(func(r *Reservation) { r.Ours = false }), phase: v1alpha1.MigrationFailed},
		"it stays as it has ended":                 {m: changes{phase(v1alpha1.MigrationSucceeded), deleted}, phase: v1alpha1.MigrationSucceeded},
		"a budget does not allow the eviction yet": {m: changes{isRunning, reserved, barred}, pod: running(), rsv: available(), after: time.Second, phase: v1alpha1.MigrationRunning, action: Evict},
		"a budget never allows it":                 {m: changes{isRunning, reserved, barred}, pod: running(), rsv: available(), after: time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonDisruptionBudget},
		"nor while it is suspended":                {m: changes{isRunning, reserved, barred, suspended}, pod: running(), rsv: available(), after: time.Second, phase: v1alpha1.MigrationPending, action: Close},
		"the eviction does not come through":       {m: changes{isRunning, reserved, evicting}, pod: running(), rsv: available(), after: time.Minute, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonRefused},
		"one at a time of those that are alike":    {m: changes{isPending, reserved, known}, pod: running(), rsv: available(closed), alike: "other", phase: v1alpha1.MigrationPending},
		"the one whose turn it is goes on":         {m: changes{isPending, reserved, known}, pod: running(), rsv: available(), alike: "other", phase: v1alpha1.MigrationPending},
		"an operator starts its gang anew":         {m: changes{isPending, reserved, known, suspended}, rsv: available(closed), phase: v1alpha1.MigrationRunning},
		"its successor is let in":                  {m: changes{isRunning, reserved, known, suspended, went}, rsv: available(closed), alike: "other", phase: v1alpha1.MigrationRunning, action: Open},
		"who may have come by then":                {m: changes{isPending, reserved, known}, rsv: available(used(successor)), phase: v1alpha1.MigrationRunning},
		"also while the pod takes its time":        {m: changes{isRunning, reserved, known, suspended, went}, pod: ending, rsv: available(closed), phase: v1alpha1.MigrationRunning, action: Open},
		"if there is none, the room is free":       {m: changes{isRunning, reserved, known, went, gone}, rsv: available(), after: awaitGone, phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"the time for it begins when it goes":      {m: changes{isRunning, reserved, evictingLate}, pod: running(), rsv: available(), after: 90 * time.Second, phase: v1alpha1.MigrationRunning, action: Evict},
		"and comes":                                {m: changes{isRunning, reserved, known, went}, rsv: available(used(successor)), phase: v1alpha1.MigrationSucceeded, reason: v1alpha1.MigrationReasonMoved},
		"one that has come to its end has none":    {m: changes{isPending, reserved, known}, pod: &Pod{UID: "uid-p", Node: "from", Controlled: true, Ended: true}, rsv: available(closed), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"nor one whose target is not reserved yet": {m: changes{isPending, known}, rsv: available(func(r *Reservation) { r.Phase, r.Node = v1alpha1.ReservationPending, "" }), phase: v1alpha1.MigrationFailed, reason: v1alpha1.MigrationReasonPodGone},
		"a pod that has ended by itself is moved":  {m: changes{isRunning, reserved}, pod: &Pod{UID: "uid-p", Node: "from", Ended: true}, rsv: available(), phase: v1alpha1.MigrationRunning},
	} {
		t.Run(sentence, func(t *testing.T) {
			seen := Seen{Pod: c.pod, Reservation: c.rsv, Alike: c.alike, Barren: c.barren, Successor: c.by}
			if c.cordoned {
				seen.Unusable = "node to is cordoned"
			}
			got := Next(aMigration(c.m...), seen, begin.Add(c.after))
			if got.Status.Phase != c.phase || got.Action != c.action {
				t.Errorf("phase %s, action %d; want %s, %d", got.Status.Phase, got.Action, c.phase, c.action)
			}
			reason := ""
			if complete := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.MigrationComplete); complete != nil {
				reason = complete.Reason
			}
			if e := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.MigrationEvicted); e != nil && e.Status == metav1.ConditionTrue && strings.Contains(sentence, "anew") {
				t.Error("it says that the pod has been evicted, and nobody did")
			}
			if reason != c.reason || (c.reason != "") != (got.Status.EndTime != nil) {
				t.Errorf("reason %q, end %v; want %q", reason, got.Status.EndTime, c.reason)
			}
		})
	}
}

// TestStory: whatever happens in any order, an eviction follows only a Reservation that is held, and the end comes
// and is final.
func TestStory(t *testing.T) {
	for seed := range uint64(2000) {
		story(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestWent: the time that a pod that goes by itself may take to end counts from when it is seen to go, however long
// it had waited for its turn before.
func TestWent(t *testing.T) {
	long := condition(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonSuspended, begin)
	reserved := condition(v1alpha1.MigrationReserved, metav1.ConditionTrue, v1alpha1.MigrationReasonReserved, begin)
	m := aMigration(phase(v1alpha1.MigrationPending), suspended, reserved, long)
	m.Status.Successors = &v1alpha1.MigrationSuccessors{MatchLabels: map[string]string{"rank": "1"}}
	seen := Seen{Pod: &Pod{UID: "uid-p", Node: "from", Controlled: true, Ending: true, Grace: 30 * time.Second}, Reservation: available()}
	now := begin.Add(time.Hour)
	for range 3 {
		step := Next(m, seen, now)
		m.Status = step.Status
		now = now.Add(10 * time.Second)
	}
	if m.Status.Phase != v1alpha1.MigrationRunning {
		t.Errorf("%s: %v", m.Status.Phase, m.Status.Conditions)
	}
}

// TestWords: the message for users names the object, and what to do.
func TestWords(t *testing.T) {
	step := Next(aMigration(), Seen{Pod: &Pod{UID: "uid-p", Node: "from"}}, begin)
	c := meta.FindStatusCondition(step.Status.Conditions, v1alpha1.MigrationComplete)
	if c == nil || !strings.Contains(c.Message, "pod p has no controller") || !strings.Contains(c.Message, "spec.allowBarePod") {
		t.Errorf("it says %v", c)
	}
}
