package gatedqueue

import (
	"context"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// settling is a gate that settles the place of a pod in the queue when it lets the pod through, as the gate of gangs
// does: the pod's label has the place.
type settling struct {
	gate
	places map[types.UID]int
}

func (g settling) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	status := g.gate.PreEnqueue(ctx, pod)
	if status.IsSuccess() {
		g.places[pod.UID], _ = strconv.Atoi(pod.Labels["place"])
	}
	return status
}

// less orders by priority, then by the place that was settled, then by when pods came.
func (g settling) less(a, b fwk.QueuedEntityInfo) bool {
	place := func(e fwk.QueuedEntityInfo) int { return g.places[e.(*framework.QueuedPodInfo).Pod.UID] }
	switch {
	case a.GetPriority() != b.GetPriority():
		return a.GetPriority() > b.GetPriority()
	case place(a) != place(b):
		return place(a) < place(b)
	}
	return a.GetTimestamp().Before(b.GetTimestamp())
}

// TestFirstOfThoseThatEnter: pods that are activated together enter in the order of the queue, the first one first: the
// scheduler takes it as soon as it is there. The place of some is settled only by the gate, and others count from when
// they came here.
func TestFirstOfThoseThatEnter(t *testing.T) {
	g := settling{gate: gate{}, places: map[types.UID]int{}}
	r := &recorder{}
	l := &Queue{SchedulingQueue: r, gates: map[string][]fwk.PreEnqueuePlugin{"gated": {g}}, less: g.less, pods: map[types.UID]gatedPod{}}
	pods, want := map[string]*v1.Pod{}, make([]string, 64)
	for i := range want {
		name := strconv.Itoa(i)
		one := pod(name).Priority(int32(i%2)).Label("place", strconv.Itoa((99-i)/32)).Obj()
		if i%4 < 2 {
			delete(one.Labels, "place")
		}
		g.gate[one.UID] = true
		l.Add(t.Context(), one)
		pods["ns/"+name] = one
	}
	clear(g.gate)
	want = want[:0]
	for _, priority := range []int{1, 0} {
		for _, place := range []string{"", "1", "2", "3"} {
			for i := range len(pods) {
				if one := pods["ns/"+strconv.Itoa(i)]; i%2 == priority && one.Labels["place"] == place {
					want = append(want, "add "+one.Name)
				}
			}
		}
	}
	l.Activate(klog.Background(), pods)
	if diff := cmp.Diff(want, r.calls); diff != "" {
		t.Errorf("calls to the queue (-want +got):\n%s", diff)
	}
}

// BenchmarkActivate makes many pods enter the queue together.
func BenchmarkActivate(b *testing.B) {
	metrics.Register()
	logger, ctx := klog.Background(), b.Context()
	for _, n := range []int{1, 5000} {
		b.Run("pods="+strconv.Itoa(n), func(b *testing.B) {
			g := settling{gate: gate{}, places: map[types.UID]int{}}
			pods := map[string]*v1.Pod{}
			for i := range n {
				one := pod(strconv.Itoa(i)).Label("place", strconv.Itoa(n-i)).Obj()
				pods["ns/"+one.Name] = one
			}
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				l := &Queue{SchedulingQueue: queue.NewTestQueue(ctx, g.less), gates: map[string][]fwk.PreEnqueuePlugin{"gated": {g}}, less: g.less, pods: map[types.UID]gatedPod{}}
				for _, one := range pods {
					g.gate[one.UID] = true
					l.Add(ctx, one)
				}
				clear(g.gate)
				b.StartTimer()
				l.Activate(logger, pods)
			}
		})
	}
}
