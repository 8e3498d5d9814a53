// Package fleet makes the objects of a large cluster, and reads them as a cache does.
package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/controller/page"
)

const (
	gpu  = v1.ResourceName("nvidia.com/gpu")
	zone = "topology.kubernetes.io/zone"
	rack = "example.com/rack"
	// perRack is how many nodes a rack has, each with eight GPUs; two racks are a zone's.
	perRack = 20
	gpus    = 8
	// teams are the queues, below the one of all.
	teams = 6
)

// Fleet is what a cluster has. It is a client.Reader.
type Fleet struct {
	client.Reader // nil: nothing but List is called

	now time.Time

	mu      sync.Mutex
	objects page.Objects
}

// New makes a cluster of so many nodes and gangs of eight pods with a GPU each; one gang in five waits. Now is when it
// is seen.
func New(nodes, gangs int, now time.Time) *Fleet {
	f := &Fleet{now: now}
	o := &f.objects
	for i := range nodes {
		r := i / perRack
		n := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{zone: fmt.Sprintf("z%d", r/10), rack: fmt.Sprintf("r%d", r)}},
			Spec:       v1.NodeSpec{Unschedulable: i%37 == 5},
			Status:     v1.NodeStatus{Allocatable: amount(gpus), Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
		}
		o.Nodes = append(o.Nodes, n)
	}
	o.Queues = queues()
	for i := range gangs {
		f.add(i, fmt.Sprintf("train-%d", i), i%5 == 0)
	}
	o.Reservations = reservations(o.Nodes, now)
	o.Plans, o.Migrations = plan(now)
	return f
}

func amount(n int64) v1.ResourceList {
	return v1.ResourceList{gpu: *resource.NewQuantity(n, resource.DecimalSI)}
}

// Arrive adds a gang that waits.
func (f *Fleet) Arrive(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(0, name, true)
}

// add adds gang number i.
func (f *Fleet) add(i int, name string, waits bool) {
	const members = 8
	created := metav1.NewTime(f.now.Add(-time.Duration(i+1) * time.Minute))
	namespace := fmt.Sprintf("team-%d", i%teams)
	group := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: created, Annotations: map[string]string{v1alpha1.RequiredTopologyAnnotation: rack}}}
	group.Spec.MinMember = members
	f.objects.PodGroups = append(f.objects.PodGroups, group)
	for m := range members {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, m), UID: types.UID(fmt.Sprintf("%s-%d", name, m)), CreationTimestamp: created,
				Labels: map[string]string{"scheduling.x-k8s.io/pod-group": name, v1alpha1.QueueLabel: namespace},
			},
			Spec:   v1.PodSpec{SchedulerName: "lockstep-scheduler", Priority: new(int32(i % 3 * 100)), Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: amount(1)}}}},
			Status: v1.PodStatus{Phase: v1.PodPending},
		}
		if waits {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: fmt.Sprintf("gang %s/%s: no rack has room for 8 members, at most 5 fit; short of 3 nvidia.com/gpu", namespace, name)}}
		} else {
			p.Spec.NodeName, p.Status.Phase = f.objects.Nodes[(i*2+m/(4+4*(i%2)))%len(f.objects.Nodes)].Name, v1.PodRunning
		}
		f.objects.Pods = append(f.objects.Pods, p)
	}
}

func queues() []*v1alpha1.Queue {
	list := []*v1alpha1.Queue{{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.QueueSpec{Weight: 1}}}
	for i := range teams {
		list = append(list, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%d", i)}, Spec: v1alpha1.QueueSpec{Parent: "all", Weight: int32(i + 1)}})
	}
	for _, q := range list {
		q.Status.RunningGangs, q.Status.PendingGangs, q.Status.Share = 66, 17, "7%"
		q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.QueueReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "It serves pods."}}
	}
	return list
}

// Load sets what the queues deserve and have, at step 0 to 360 of an hour.
func (f *Fleet) Load(step int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]*v1alpha1.Queue, len(f.objects.Queues))
	total := int64(0)
	for i, before := range slices.Backward(f.objects.Queues) { // the one above all others is the first
		q := before.DeepCopy()
		deserved, has := int64(200+i*60), int64(min(step*(i+1), 150+i*70+step/(i+1)))
		if q.Spec.Parent == "" {
			deserved, has = 3200, total
		}
		total += has
		q.Status.Deserved, q.Status.Allocated, q.Status.Requested = amount(deserved), amount(has), amount(has+136)
		list[i] = q
	}
	f.objects.Queues = list
}

func reservations(nodes []*v1.Node, now time.Time) []*v1alpha1.Reservation {
	var list []*v1alpha1.Reservation
	for i := range 12 {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("next-%d", i), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
		r.Spec.Replicas, r.Status.OwnerCount = 2, 2
		r.Spec.Owners = []v1alpha1.ReservationOwner{{PodGroup: "train-next", Namespace: "team-1"}}
		r.Status.Phase, r.Status.Allocatable, r.Status.Allocated = v1alpha1.ReservationAvailable, amount(8), amount(2)
		for n := range 2 {
			r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{NodeName: nodes[(i*53+n)%len(nodes)].Name, Allocatable: amount(4), Allocated: amount(1)})
		}
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReservationReady, Status: metav1.ConditionTrue, Reason: "Available", Message: "2 of 2 placements are held."}}
		list = append(list, r)
	}
	return list
}

func plan(now time.Time) ([]*v1alpha1.DefragmentationPlan, []*v1alpha1.PodMigration) {
	created := metav1.NewTime(now.Add(-20 * time.Minute))
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "room-for-64", CreationTimestamp: created}}
	p.Spec.Mode = v1alpha1.DefragmentationExecute
	p.Status.Phase, p.Status.Goal, p.Status.MoveCount, p.Status.MovedCount, p.Status.Restarts = v1alpha1.DefragmentationRunning, "one gang of 64 pods with 8 GPUs in a rack", 3, 1, 3
	p.Status.Predicted = &v1alpha1.GangCapacity{Before: 0, After: 1}
	var migrations []*v1alpha1.PodMigration
	for i, phase := range []v1alpha1.MigrationPhase{v1alpha1.MigrationSucceeded, v1alpha1.MigrationRunning, v1alpha1.MigrationPending} {
		pod, from, to := fmt.Sprintf("serve-%d", i), fmt.Sprintf("node-%d", i), fmt.Sprintf("node-%d", 100+i)
		p.Status.Moves = append(p.Status.Moves, v1alpha1.PlannedMove{Namespace: "serving", PodName: pod, SourceNode: from, TargetNode: to, Phase: phase, Why: "rack r0 has the least to move"})
		m := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "serving", Name: p.Name + "-" + pod, CreationTimestamp: created}}
		m.Spec.PodName, m.Spec.SourceNode, m.Spec.TargetNode, m.Status.Phase = pod, from, to, phase
		migrations = append(migrations, m)
	}
	return []*v1alpha1.DefragmentationPlan{p}, migrations
}

// List implements client.Reader.
func (f *Fleet) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch l := list.(type) {
	case *v1.PodList:
		l.Items = values(f.objects.Pods)
	case *v1.NodeList:
		l.Items = values(f.objects.Nodes)
	case *v1.NamespaceList, *resourcev1.ResourceSliceList, *resourcev1.DeviceClassList, *resourcev1.ResourceClaimList,
		*resourcev1.ResourceClaimTemplateList:
	case *coscheduling.PodGroupList:
		l.Items = values(f.objects.PodGroups)
	case *v1alpha1.QueueList:
		l.Items = values(f.objects.Queues)
	case *v1alpha1.ReservationList:
		l.Items = values(f.objects.Reservations)
	case *v1alpha1.DefragmentationPlanList:
		l.Items = values(f.objects.Plans)
	case *v1alpha1.PodMigrationList:
		l.Items = values(f.objects.Migrations)
	case *schedulingv1beta1.PodGroupList:
		return &meta.NoKindMatchError{}
	default:
		return fmt.Errorf("listing a %s: there is none here", strings.TrimPrefix(fmt.Sprintf("%T", list), "*"))
	}
	return nil
}

func values[T any](pointers []*T) []T {
	list := make([]T, len(pointers))
	for i, p := range pointers {
		list[i] = *p
	}
	return list
}
