package queuestatus

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// BenchmarkStatuses computes the status of 1,000 queues with 40,000 pods on 5,000 nodes.
func BenchmarkStatuses(b *testing.B) {
	const scheduler = "lockstep-scheduler"
	c := &cluster{devices: clusterdevices.NewCounts(nil), rules: share.Rules{Stated: true, Weighted: true}, schedulers: map[string]bool{scheduler: true}}
	for i := range 1000 {
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("q", i)}, Spec: v1alpha1.QueueSpec{Weight: int32(1 + i%7)}}
		if i > 9 {
			q.Spec.Parent = fmt.Sprint("q", i%10)
		}
		c.queues = append(c.queues, q)
	}
	for i := range 5000 {
		c.nodes = append(c.nodes, st.MakeNode().Name(fmt.Sprint("n", i)).Capacity(map[v1.ResourceName]string{"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi"}).Obj())
	}
	for i := range 40000 {
		p := st.MakePod().Namespace("default").Name(fmt.Sprint("p", i)).UID(fmt.Sprint(i)).SchedulerName(scheduler).
			Label(v1alpha1.QueueLabel, fmt.Sprint("q", i%1000)).Label(v1alpha1.PodGroupLabel, fmt.Sprint("g", i/8)).Annotation(v1alpha1.MinAvailableAnnotation, "8").
			Req(map[v1.ResourceName]string{"nvidia.com/gpu": "1", "cpu": "4", "memory": "32Gi"})
		if i%4 > 0 {
			p.Node(fmt.Sprint("n", i%5000))
		}
		c.pods = append(c.pods, p.Obj())
	}
	for b.Loop() {
		if _, err := c.statuses(metav1.Time{}); err != nil {
			b.Fatal(err)
		}
	}
}
