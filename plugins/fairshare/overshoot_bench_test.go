package fairshare

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// BenchmarkOvershooting finds the jobs beyond the share of a queue that runs 10,000 single pods, once per claim.
func BenchmarkOvershooting(b *testing.B) {
	const running = 10000
	d := newDispatcher(b, running, 8, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	for i := range running {
		p := pod(fmt.Sprint("p", i), "a", 1, "all")
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(int64(i), 0)}}
		d.seeAll(p)
	}
	preemptor := pod("q", "b", 1, "")
	d.seeAll(preemptor)
	claim := d.claim(extensionpoints.Gang{Pods: []*v1.Pod{preemptor}, Min: 1}, queueing.Needs{"b": gpus(1)})
	for b.Loop() {
		if len(d.overshooting(claim, nil)) == 0 {
			b.Fatal("no job overshoots")
		}
	}
}
