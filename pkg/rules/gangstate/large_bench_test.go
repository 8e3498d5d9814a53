package gangstate

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// BenchmarkLargeGang takes the members of one gang through what happens to pods, one at a time. The time per member
// must not depend on how many there are.
func BenchmarkLargeGang(b *testing.B) {
	ofOwner := func(i int, p *v1.Pod) { owned(fmt.Sprintf("job-%d", i))(p) }
	ofLeader := func(i int, p *v1.Pod) {
		p.Labels[v1alpha1.LeaderWorkerSetNameLabel], p.Labels[v1alpha1.LeaderWorkerGroupLabel] = "serve", strconv.Itoa(i/4)
		p.Labels[v1alpha1.LeaderWorkerIndexLabel] = strconv.Itoa(i % 4)
	}
	inRack := func(_ int, p *v1.Pod) { p.Annotations[v1alpha1.RequiredTopologyAnnotation] = "rack" }
	for name, c := range map[string]struct {
		change func(i int, p *v1.Pod)
		min    int // 0: all
	}{
		"bare":             {change: func(int, *v1.Pod) {}},
		"each of an owner": {change: ofOwner},
		"in many groups":   {change: ofLeader},
		"beyond a minimum": {change: func(int, *v1.Pod) {}, min: 1},
		"in one rack":      {change: inRack, min: 1},
	} {
		for _, size := range []int{500, 5000} {
			pods := herd(1, size, func(p *v1.Pod) { p.Spec.Priority = new(int32(1)) })
			for i, pod := range pods {
				if c.change(i, pod); c.min > 0 {
					needs(c.min)(pod)
				}
			}
			bound := make([]*v1.Pod, size)
			for i, pod := range pods {
				bound[i] = edit(pod, on("n"))
			}
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				var took [4]time.Duration
				for b.Loop() {
					s, began := benchGangs(), time.Now()
					lap := func(i int) { took[i] += time.Since(began); began = time.Now() }
					seeAll(s, pods)
					lap(0)
					runAll(b, s, pods)
					lap(1)
					seeAll(s, bound)
					lap(2)
					for _, pod := range pods {
						s.PodEnded(pod.UID, start)
					}
					lap(3)
				}
				for i, unit := range []string{"ns/arrival", "ns/cycle", "ns/update", "ns/deletion"} {
					b.ReportMetric(float64(took[i].Nanoseconds())/float64(b.N*size), unit)
				}
			})
		}
	}
}
