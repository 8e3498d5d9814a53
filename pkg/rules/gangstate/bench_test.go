package gangstate

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// herd returns pods of gangs of the given size, with what users write on each of them, in the order
// in which controllers make them.
func herd(gangs, size int, changes ...func(*v1.Pod)) []*v1.Pod {
	var pods []*v1.Pod
	for g := range gangs {
		for m := range size {
			name := fmt.Sprintf("g%05d-%05d", g, m)
			pod := podOf(name, append([]func(*v1.Pod){of(fmt.Sprintf("g%05d", g)), needs(size), aged(-time.Duration(len(pods)) * time.Millisecond)}, changes...)...)
			pods = append(pods, pod)
		}
	}
	return pods
}

func benchGangs() *Gangs {
	return newOpen(gangspec.Defaults{WaitTime: 10 * time.Minute}, Backoff{Initial: time.Second, Max: time.Minute})
}

// seeAll shows pods, and gives all groups their turn.
func seeAll(s *Gangs, pods []*v1.Pod) {
	changed := sets.New[gangspec.Key]()
	for _, pod := range pods {
		for key := range s.ObservePod(pod, start).Changed {
			changed.Insert(key)
		}
	}
	for key := range changed {
		s.Lead(key.String(), start)
	}
}

// runAll takes all gangs through a round as the scheduler does, member by member.
func runAll(b *testing.B, s *Gangs, pods []*v1.Pod) {
	for _, pod := range pods {
		v := s.BeginCycle(pod)
		if v.Verdict == Lead {
			nodes := map[types.UID]string{}
			for _, need := range v.Attempt.Gangs {
				for _, pod := range need.Pending {
					nodes[pod.UID] = "n"
				}
			}
			s.Planned(v.Attempt, Outcome{Nodes: nodes, Complete: true}, start)
		}
		s.Reserved(pod.UID, "n", start)
		s.Permitted(pod.UID, start)
	}
	for _, pod := range pods {
		s.BoundTo(pod.UID, start)
		if s.members[pod.UID].state != Bound {
			b.Fatalf("pod %s is not bound", pod.Name)
		}
	}
}

// BenchmarkSee adds members one at a time. The time per member must not depend on
// the size of their gang.
func BenchmarkSee(b *testing.B) {
	for _, c := range []struct{ gangs, size int }{{1250, 8}, {2, 5000}, {1, 5000}, {1, 20000}} {
		pods := herd(c.gangs, c.size)
		for how, pods := range map[string][]*v1.Pod{"oldest first": pods, "newest first": reversed(pods)} {
			b.Run(fmt.Sprintf("%dx%d/%s", c.gangs, c.size, how), func(b *testing.B) {
				for b.Loop() {
					seeAll(benchGangs(), pods)
				}
				perMember(b, len(pods))
			})
		}
	}
}

func reversed(pods []*v1.Pod) []*v1.Pod {
	out := make([]*v1.Pod, len(pods))
	for i, pod := range pods {
		out[len(pods)-1-i] = pod
	}
	return out
}

func perMember(b *testing.B, members int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*members), "ns/member")
}

// BenchmarkRound takes gangs from the first See to the last binding, has all
// their members updated, and deletes them.
func BenchmarkRound(b *testing.B) {
	for _, c := range []struct{ gangs, size int }{{1250, 8}, {1, 5000}} {
		pods := herd(c.gangs, c.size)
		var bound []*v1.Pod
		for _, pod := range pods {
			bound = append(bound, edit(pod, on("n")))
		}
		b.Run(fmt.Sprintf("%dx%d", c.gangs, c.size), func(b *testing.B) {
			for b.Loop() {
				s := benchGangs()
				seeAll(s, pods)
				runAll(b, s, pods)
				seeAll(s, bound)
				for _, pod := range pods {
					s.PodEnded(pod.UID, start)
				}
			}
			perMember(b, len(pods))
		})
	}
}

// BenchmarkTimeout makes the wait time of a gang run out, and its members be marked, and revived.
func BenchmarkTimeout(b *testing.B) {
	pods := herd(1, 5000, says(waitKey, "5s"))
	var marked []*v1.Pod
	for _, pod := range pods {
		marked = append(marked, edit(pod, says("gang.scheduling.koordinator.sh/timeout", "true")))
	}
	b.Run("5000", func(b *testing.B) {
		for b.Loop() {
			s := benchGangs()
			seeAll(s, pods)
			s.Reserved(pods[0].UID, "n", start)
			s.Tick(start.Add(5*time.Second), elsewhere{}.makes)
			s.Unreserved(pods[0].UID, start)
			seeAll(s, marked)
			seeAll(s, pods)
		}
		perMember(b, len(pods))
	})
}

// BenchmarkUndescribed adds pods that came before their PodGroup, and say things
// that only matter together with it.
func BenchmarkUndescribed(b *testing.B) {
	pods := herd(1, 5000, mutely(minKey), says(modeKey, "NonStrict"))
	b.Run("5000", func(b *testing.B) {
		for b.Loop() {
			s := benchGangs()
			seeAll(s, pods)
			s.Describe(gangspec.Community, gangspec.Key{Namespace: "a", Name: "g00000"}, &gangspec.PodGroupDescription{Created: start, Min: 5000}, start)
			for _, pod := range pods {
				s.PodEnded(pod.UID, start)
			}
		}
		perMember(b, len(pods))
	})
}

// BenchmarkGroup is a group of many gangs that all name each other.
func BenchmarkGroup(b *testing.B) {
	for _, gangs := range []int{10, 100} {
		names := "["
		for g := range gangs {
			names += fmt.Sprintf(`"a/g%05d",`, g)
		}
		pods := herd(gangs, 8, says(groupsKey, names[:len(names)-1]+"]"))
		b.Run(fmt.Sprintf("%dx8", gangs), func(b *testing.B) {
			for b.Loop() {
				s := benchGangs()
				seeAll(s, pods)
				runAll(b, s, pods)
			}
			perMember(b, len(pods))
		})
	}
}

// BenchmarkQueue asks for the members of 1,000 incomplete gangs, as the queue does
// for every pod.
func BenchmarkQueue(b *testing.B) {
	pods := herd(1000, 8)
	s := benchGangs()
	for i, pod := range pods {
		if i%8 > 0 {
			s.ObservePod(pod, start)
		}
	}
	b.Run("1000x7 of 8", func(b *testing.B) {
		for b.Loop() {
			for _, pod := range pods {
				if _, refusal := s.Queue(pod); refusal == "" {
					b.Fatalf("pod %s is let through", pod.Name)
				}
			}
		}
		perMember(b, len(pods))
	})
}

// BenchmarkTick lets time pass while many gangs rest.
func BenchmarkTick(b *testing.B) {
	pods := herd(5000, 2)
	s := benchGangs()
	seeAll(s, pods)
	for _, pod := range pods {
		if v := s.BeginCycle(pod); v.Verdict == Lead {
			s.Planned(v.Attempt, Outcome{}, start)
		}
	}
	b.Run("5000 resting", func(b *testing.B) {
		for b.Loop() {
			s.Tick(start, elsewhere{}.makes)
		}
	})
}
