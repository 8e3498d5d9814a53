package fairshare

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/test/helpers/cputime"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// enough is a cluster in which any pods make room if they are so many.
type enough struct{ gone, need int }

func (e *enough) Remove(pods []victim.Pod) error  { e.gone += len(pods); return nil }
func (e *enough) Restore(pods []victim.Pod) error { e.gone -= len(pods); return nil }
func (e *enough) MayFit() bool                    { return e.gone >= e.need }
func (e *enough) Fits() (bool, error)             { return e.MayFit(), nil }

// BenchmarkReclaim measures what a search for victims costs for a gang of 64 that reclaims from 100 queues, which use
// the GPUs of so many nodes, without what the nodes cost. Its time must grow with the pods.
func BenchmarkReclaim(b *testing.B) {
	const members, queues = 64, 100
	for _, nodes := range []int{1000, 5000, 10000} {
		running := 8 * nodes
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			list := []queueing.Queue{{Name: "claims"}}
			for i := range queues {
				if i%10 == 0 {
					list = append(list, queueing.Queue{Name: fmt.Sprint("team", i/10), Weight: int64(1 + i/10%3)})
				}
				list = append(list, queueing.Queue{Name: fmt.Sprint("q", i), Parent: fmt.Sprint("team", i/10), Weight: int64(1 + i%7)})
			}
			d := newDispatcher(b, int64(running), 8, list...)
			pods := make([]*v1.Pod, running)
			for i := range pods {
				pods[i] = pod(fmt.Sprint("p", i), fmt.Sprint("q", i%queues), 1, "all")
				d.seeAll(pods[i])
			}
			preemptor := extensionpoints.Gang{Min: members}
			for i := range members {
				preemptor.Pods = append(preemptor.Pods, pod(fmt.Sprint("c", i), "claims", 1, ""))
				d.seeAll(preemptor.Pods[i])
			}
			b.ReportAllocs()
			report := cputime.Start(b)
			for b.Loop() {
				round := d.rounds(preemptor)[1]
				var gangs []victim.Gang
				for _, p := range pods {
					if round.Tiers[0].Permits(p) {
						gangs = append(gangs, victim.Gang{ID: p.Name, Queue: round.Queue(p), Min: 1,
							Pods: []victim.Pod{{UID: p.UID, Request: gpus(1), Local: true}}})
					}
				}
				problem := victim.Problem{Need: gpus(members), Gangs: gangs, Order: round.Order,
					Budget: func() victim.Budget { return round.Tiers[0].Budget(map[types.UID]bool{}) }}
				chosen, ok, err := problem.Select(&enough{need: members})
				must.Succeed(b, err)
				if !ok || len(chosen.Pods()) != members {
					b.Fatalf("chose %d victims, %v, want %d", len(chosen.Pods()), ok, members)
				}
			}
			report()
		})
	}
}
