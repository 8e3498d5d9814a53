package view

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

func TestQueues(t *testing.T) {
	queue := func(name, parent string) *v1alpha1.Queue {
		return &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.QueueSpec{Parent: parent}}
	}
	for sentence, c := range map[string]struct {
		queues []*v1alpha1.Queue
		want   string
	}{
		"none": {nil, ""},
		"children follow their parent, siblings are by name": {
			[]*v1alpha1.Queue{queue("team-10", "research"), queue("vision", "team-2"), queue("team-2", "research"), queue("research", ""), queue("interns", "")},
			"interns, research,  team-2,   vision,  team-10",
		},
		"a parent that is missing, and one that is below its child, hide nothing": {
			[]*v1alpha1.Queue{queue("x", "nowhere"), queue("below-x", "x"), queue("a", "b"), queue("b", "a"), queue("top", "")},
			"top, x,  below-x, a,  b",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var names []string
			for _, q := range Queues(c.queues) {
				names = append(names, strings.Repeat(" ", q.Depth)+q.Name)
			}
			if got := strings.Join(names, ", "); got != c.want {
				t.Errorf("queues %q, want %q", got, c.want)
			}
		})
	}
}

func TestQueueResources(t *testing.T) {
	list := func(cpu, gpus string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), gpu: resource.MustParse(gpus)}
	}
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "research"}}
	q.Spec.Capability = v1.ResourceList{gpu: resource.MustParse("16"), v1.ResourceMemory: resource.MustParse("1Gi")}
	q.Spec.Capability["deviceclass.resource.kubernetes.io/gpu.example.com"] = resource.MustParse("6")
	q.Spec.Guarantee = v1.ResourceList{gpu: resource.MustParse("4")}
	q.Status.Deserved, q.Status.Allocated, q.Status.Requested = list("8", "12"), list("500m", "10"), list("2", "14")
	var got []string
	for _, r := range Queues([]*v1alpha1.Queue{q})[0].Resources {
		limits := []string{"-", "-"}
		for i, amount := range []*resource.Quantity{r.Guarantee, r.Capability} {
			if amount != nil {
				limits[i] = amount.String()
			}
		}
		got = append(got, fmt.Sprintf("%s: deserves %s, has %s of %s, %s waits, from %s to %s", r.Name, r.Deserved.String(), r.Allocated.String(), r.Requested.String(), r.Pending.String(), limits[0], limits[1]))
	}
	want := []string{
		"deviceclass.resource.kubernetes.io/gpu.example.com: deserves 0, has 0 of 0, 0 waits, from - to 6",
		"nvidia.com/gpu: deserves 12, has 10 of 14, 4 waits, from 4 to 16",
		"cpu: deserves 8, has 500m of 2, 1500m waits, from - to -",
		"memory: deserves 0, has 0 of 0, 0 waits, from - to 1Gi",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if q.Status.Requested.Name(gpu, resource.DecimalSI).String() != "14" {
		t.Error("the queue was changed")
	}
}

func TestReservations(t *testing.T) {
	made := func(change func(*v1alpha1.Reservation)) *v1alpha1.Reservation {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "tonight", CreationTimestamp: epoch}}
		r.Spec.Replicas = 3
		r.Spec.TTL = &metav1.Duration{Duration: time.Hour}
		r.Spec.Owners = []v1alpha1.ReservationOwner{{PodGroup: "llm/tonight"}}
		change(r)
		return r
	}
	placed := func(r *v1alpha1.Reservation) {
		r.Status.Phase = v1alpha1.ReservationAvailable
		r.Status.Placements = []v1alpha1.ReservationPlacement{{Index: 0, NodeName: "n10"}, {Index: 1, NodeName: "n2", Spent: true}, {Index: 2, NodeName: "n10"}}
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReservationReady, Status: metav1.ConditionTrue, Reason: "Available"}, {Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionTrue, Reason: "Scheduled"}}
	}
	for sentence, c := range map[string]struct {
		reservation *v1alpha1.Reservation
		want        string
	}{
		"nobody has looked at it": {made(func(*v1alpha1.Reservation) {}), "Pending 0/3 on []; for gang llm/tonight; until 01:00; "},
		"what is spent is not held any more, and a node is named once": {
			made(placed), "Available 2/3 on [n10]; for gang llm/tonight; until 01:00; Available",
		},
		"it waits as the scheduler says": {
			made(func(r *v1alpha1.Reservation) {
				r.Status.Phase = v1alpha1.ReservationPending
				r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionFalse, Reason: "Unschedulable"}, {Type: v1alpha1.ReservationReady, Status: metav1.ConditionFalse, Reason: "Pending"}}
			}), "Pending 0/3 on []; for gang llm/tonight; until 01:00; Unschedulable",
		},
		"of one that has ended nothing is held": {
			made(func(r *v1alpha1.Reservation) { placed(r); r.Status.Phase = v1alpha1.ReservationFailed }), "Failed 0/3 on []; for gang llm/tonight; until 01:00; Available",
		},
		"for ever, and for many": {
			made(func(r *v1alpha1.Reservation) {
				r.Spec.TTL = &metav1.Duration{}
				r.Spec.Owners = []v1alpha1.ReservationOwner{
					{Controller: &v1alpha1.ReservationOwnerController{APIVersion: "batch/v1", Kind: "Job", Namespace: "llm", Name: "train"}},
					{Object: &v1alpha1.ReservationOwnerObject{Namespace: "llm", Name: "p"}},
					{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Namespace: "llm", PodGroup: "llm/y"},
				}
			}), "Pending 0/3 on []; for Job llm/train, pod llm/p, gang llm/y and pods with app=x in llm; until never; ",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := Reservations([]*v1alpha1.Reservation{c.reservation})[0]
			until := "never"
			if r.Expires != nil {
				until = r.Expires.UTC().Format("15:04")
			}
			got := fmt.Sprintf("%s %d/%d on %v; for %s; until %s; %s", r.Phase, r.Held, r.Replicas, r.Nodes, strings.Join(r.Owners, ", "), until, r.Reason)
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPlans(t *testing.T) {
	made := func(name string, phase v1alpha1.DefragmentationPhase, hours int) *v1alpha1.DefragmentationPlan {
		p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(hours) * time.Hour))}}
		p.Status.Phase = phase
		return p
	}
	planned := made("planned", v1alpha1.DefragmentationPlanned, 0)
	planned.Status.Predicted = &v1alpha1.GangCapacity{Before: 0, After: 2}
	planned.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DefragmentationComplete, Reason: "AwaitingApproval"}, {Type: v1alpha1.DefragmentationFound, Reason: "Found"}}
	done := made("done", v1alpha1.DefragmentationSucceeded, 3)
	done.Status.Predicted, done.Status.Achieved = planned.Status.Predicted, &v1alpha1.GangCapacity{Before: 0, After: 1}
	var got []string
	for _, p := range Plans([]*v1alpha1.DefragmentationPlan{made("failed", v1alpha1.DefragmentationFailed, 1), planned, done, made("new", "", 2)}) {
		before, after := "?", "?"
		if p.Before != nil && p.After != nil {
			before, after = fmt.Sprint(*p.Before), fmt.Sprint(*p.After)
		}
		got = append(got, fmt.Sprintf("%s %s %s-%s achieved=%t %s", p.Name, p.Phase, before, after, p.Achieved, p.Reason))
	}
	want := []string{"new Pending ?-? achieved=false ", "planned Planned 0-2 achieved=false AwaitingApproval", "done Succeeded 0-1 achieved=true ", "failed Failed ?-? achieved=false "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plans (-want +got):\n%s", diff)
	}
}

func TestApprovable(t *testing.T) {
	for sentence, c := range map[string]struct {
		phase  v1alpha1.DefragmentationPhase
		change func(*v1alpha1.DefragmentationPlan)
		ok     bool
		needs  bool // no approval
	}{
		"its moves are known":       {phase: v1alpha1.DefragmentationPlanned, ok: true},
		"nobody has looked at it":   {phase: ""},
		"moves are sought":          {phase: v1alpha1.DefragmentationPending},
		"it has failed":             {phase: v1alpha1.DefragmentationFailed},
		"it is approved":            {phase: v1alpha1.DefragmentationRunning, change: func(p *v1alpha1.DefragmentationPlan) { p.Spec.Approved = true }, needs: true},
		"it needs none":             {phase: v1alpha1.DefragmentationRunning, change: func(p *v1alpha1.DefragmentationPlan) { p.Spec.Mode = v1alpha1.DefragmentationExecute }, needs: true},
		"it is being deleted":       {phase: v1alpha1.DefragmentationPlanned, change: func(p *v1alpha1.DefragmentationPlan) { p.DeletionTimestamp = &epoch }},
		"it runs without approval?": {phase: v1alpha1.DefragmentationRunning},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := &v1alpha1.DefragmentationPlan{Spec: v1alpha1.DefragmentationPlanSpec{Mode: v1alpha1.DefragmentationDryRun}}
			p.Status.Phase = c.phase
			if c.change != nil {
				c.change(p)
			}
			if err := Approvable(p); (err == nil) != c.ok || errors.Is(err, ErrApproved) != c.needs {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestWaits: gangs have the reasons of their waiting members; the most frequent is first, and reasons after the
// fourth are left out.
func TestWaits(t *testing.T) {
	says := func(reason, message string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "Other"}, {Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}}
		}
	}
	going := func(p *v1.Pod) { p.DeletionTimestamp = &epoch }
	failed := func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }
	got := Waits(GangsIn{Natives: []*schedulingv1beta1.PodGroup{nativeGroup("basic", true)}, Pods: []*v1.Pod{
		pod("team", "x", 0, "", says("Unschedulable", "b")), pod("team", "x", 1, "", says("Unschedulable", "a")), pod("team", "x", 2, "", says("Unschedulable", "b")),
		pod("team", "x", 3, "a1", says("Unschedulable", "has a node")), pod("team", "x", 4, "", says("Unschedulable", "goes"), going),
		pod("team", "x", 5, "", says("Unschedulable", "failed"), failed), pod("team", "x", 6, "", says("Unschedulable", "in no gang"), without),
		pod("team", "y", 0, "", says("e", "")), pod("team", "y", 1, "", says("d", "")), pod("team", "y", 2, "", says("c", "")), pod("team", "y", 3, "", says("b", "")), pod("team", "y", 4, "", says("a", "")),
		pod("other", "z", 0, ""), pod("team", "x", 7, "", says("Unschedulable", "alone"), without, native("basic")),
	}})
	want := map[gangspec.Key][]Wait{
		{Namespace: "team", Name: "x"}: {{"Unschedulable", "b", 2}, {"Unschedulable", "a", 1}},
		{Namespace: "team", Name: "y"}: {{"a", "", 1}, {"b", "", 1}, {"c", "", 1}, {"d", "", 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("why gangs wait (-want +got):\n%s", diff)
	}
}

// TestMigrations: the latest first, each with the step that it has come to.
func TestMigrations(t *testing.T) {
	m := func(name string, after time.Duration, steps ...string) *v1alpha1.PodMigration {
		m := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(after))}}
		m.Spec = v1alpha1.PodMigrationSpec{PodName: "p", PodGroup: "g", SourceNode: "a1", TargetNode: "a2", Suspend: len(steps) == 0}
		for _, step := range steps {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: step, Reason: "By" + step, Message: "as said"})
		}
		return m
	}
	done := m("done", 0, v1alpha1.MigrationComplete, v1alpha1.MigrationEvicted, v1alpha1.MigrationReserved)
	done.Status.Phase, done.Status.Successor = v1alpha1.MigrationSucceeded, &v1alpha1.MigrationSuccessor{Name: "q"}
	row := func(of *v1alpha1.PodMigration, phase, reason, message, successor string) Migration {
		return Migration{
			Namespace: "team", Name: of.Name, Pod: "p", Gang: "g", From: "a1", To: "a2", Phase: phase, Suspended: of.Spec.Suspend,
			Successor: successor, Reason: reason, Message: message, Created: of.CreationTimestamp,
		}
	}
	begun, later := m("begun", time.Second, v1alpha1.MigrationReserved), m("m10", time.Minute)
	want := []Migration{row(m("m2", time.Minute), "Pending", "", "", ""), row(later, "Pending", "", "", ""), row(begun, "Pending", "ByReserved", "as said", ""), row(done, "Succeeded", "ByComplete", "as said", "q")}
	if diff := cmp.Diff(want, Migrations([]*v1alpha1.PodMigration{done, later, begun, m("m2", time.Minute)})); diff != "" {
		t.Errorf("migrations (-want +got):\n%s", diff)
	}
}
