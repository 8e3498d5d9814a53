package preemption

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/cputime"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// BenchmarkSearchLabelsOfTheirOwn measures a search for a preemptor whose members have one label, or one each by which
// nothing selects. The time must be the same.
func BenchmarkSearchLabelsOfTheirOwn(b *testing.B) {
	for _, c := range []struct{ members, gpus, nodes, low int }{
		{100, 10, 100, 100}, // for 1,000 victims
		{512, 1, 2000, 512}, // for 512 victims
	} {
		for _, own := range []bool{false, true} {
			b.Run(fmt.Sprintf("members=%d/victims=%d/nodes=%d/own=%v", c.members, c.members*c.gpus, c.nodes, own), func(b *testing.B) {
				nodes, pods := singles(c.nodes, c.gpus)
				for i, pod := range pods {
					if i >= c.low*c.gpus {
						pod.Spec.Priority = new(int32(1000))
					}
				}
				preemptor := members("p", c.members, c.members, 100, c.gpus)
				for i, pod := range preemptor {
					pod.Labels = map[string]string{"name": "p"}
					if own {
						pod.Labels["name"] = fmt.Sprint("p", i)
					}
				}
				s := newStage(b, nodes, pods)
				d := s.demand(b, gangspec.Spec{}, preemptor...)
				b.ReportAllocs()
				report := cputime.Start(b)
				for b.Loop() {
					f, err := s.search(s.ctx, d)
					must.Succeed(b, err)
					if f == nil || len(f.victims) != c.members*c.gpus {
						b.Fatalf("found %+v, want %d victims", f, c.members*c.gpus)
					}
				}
				report()
			})
		}
	}
}

// allowance is a budget of so many pods.
type allowance struct{ left int }

func (a *allowance) Take(_ *victim.Gang, pods []victim.Pod) bool {
	if len(pods) > a.left {
		return false
	}
	a.left -= len(pods)
	return true
}

func (a *allowance) Return(_ *victim.Gang, pods []victim.Pod) { a.left += len(pods) }

// BenchmarkSearchOverBudget measures a search that finds no victims because others may not lose as many as a pod needs:
// one of 8 GPUs, on nodes that are full of pods of one.
func BenchmarkSearchOverBudget(b *testing.B) {
	for _, c := range []struct{ nodes, left int }{{100, 1}, {100, 7}, {1000, 1}, {1000, 7}} {
		b.Run(fmt.Sprintf("nodes=%d/left=%d", c.nodes, c.left), func(b *testing.B) {
			nodes, pods := singles(c.nodes, 8)
			s := newStage(b, nodes, pods)
			d := s.demand(b, gangspec.Spec{}, member("p", 0, 1, 100, 8, ""))
			round := extensionpoints.Round{Name: "reclaim", Done: "reclaimed", Order: victim.Preempt(), Tiers: []extensionpoints.Tier{{
				Permits: func(*v1.Pod) bool { return true },
				Budget:  func(map[types.UID]bool) victim.Budget { return &allowance{c.left} },
			}}}
			d.startTimer(s.clock, time.Hour)
			report := cputime.Start(b)
			for b.Loop() {
				d.overBudget = false
				f, err := s.searchRound(s.ctx, d, nil, nil, &round)
				if err != nil || f != nil || !d.overBudget {
					b.Fatalf("found %+v, %v, over the budget: %v", f, err, d.overBudget)
				}
			}
			report()
		})
	}
}
