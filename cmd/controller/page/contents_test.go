package page

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func cpus(n string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(n)} }

func node(name, rack string, ready bool) *v1.Node {
	status := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[ready]
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.com/rack": rack}},
		Status:     v1.NodeStatus{Allocatable: cpus("8"), Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: status}, {Type: v1.NodeDiskPressure}}},
	}
}

// waiting returns a member of the gang train that does not fit.
func waiting(name, message string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Annotations: map[string]string{
			v1alpha1.GangNameAnnotation: "train", v1alpha1.MinAvailableAnnotation: "3",
		}},
		Spec: v1.PodSpec{SchedulerName: "lockstep-scheduler"},
		Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", Message: message},
		}},
	}
}

func TestContents(t *testing.T) {
	plan := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "tidy"}}
	plan.Status.Moves = []v1alpha1.PlannedMove{{Namespace: "team", PodName: "x", SourceNode: "n1", TargetNode: "n2"}}
	alone := waiting("alone", "no room")
	alone.Annotations = nil
	got := ContentsOf(Objects{
		Pods:  []*v1.Pod{waiting("w0", "short of 2 cpu"), waiting("w1", "short of 4 cpu"), waiting("w2", "short of 4 cpu"), alone},
		Nodes: []*v1.Node{node("n1", "r1", true), node("n2", "r1", false)},
		Plans: []*v1alpha1.DefragmentationPlan{plan},
	}, nil)
	if len(got.Gangs) != 1 || got.Gangs[0].Name != "train" || got.Gangs[0].Minimum != 3 {
		t.Fatalf("gangs are %+v, want train alone", got.Gangs)
	}
	wantWaits := []view.Wait{{Reason: "Unschedulable", Message: "short of 4 cpu", Pods: 2}, {Reason: "Unschedulable", Message: "short of 2 cpu", Pods: 1}}
	if diff := cmp.Diff(wantWaits, got.Gangs[0].Waits); diff != "" {
		t.Errorf("why it waits (-want +got):\n%s", diff)
	}
	if len(got.Plans) != 1 || len(got.Plans[0].Moving) != 1 || got.Plans[0].Moving[0].Pod != "x" {
		t.Errorf("plans are %+v, want one that moves x", got.Plans)
	}
	if room := got.Topology.FreeCapacity; room.Free != 8000 || room.Closed != 8000 {
		t.Errorf("%+v: the node that is not ready is not closed", room)
	}
}

// TestNothing: lists are empty, not null: the page counts them.
func TestNothing(t *testing.T) {
	e, err := encode(ContentsOf(Objects{}, nil))
	must.Succeed(t, err)
	for _, list := range []string{"gangs", "queues", "reservations", "plans", "migrations"} {
		if !strings.Contains(string(e.plain), `"`+list+`":[]`) {
			t.Errorf("%s are no empty list in %s", list, e.plain)
		}
	}
}
