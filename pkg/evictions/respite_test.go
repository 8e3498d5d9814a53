package evictions

import (
	"cmp"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// TestRespite: gangs that began to run, or lost pods, not long ago are left alone, with their surplus.
func TestRespite(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	since := func(pods []*v1.Pod, ages ...time.Duration) []*v1.Pod {
		for i, pod := range pods {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ages[i]))}}
		}
		return pods
	}
	const length, young, old = 10 * time.Minute, time.Minute, time.Hour
	single, fresh := since(members("s", 1, 0, "n0"), young), since(members("g", 3, 2, "n0"), young, young, young)
	grown, mended := since(members("g", 3, 2, "n0"), old, young, old), since(members("g", 2, 2, "n0"), old, young)
	broken := since(members("g", 1, 2, "n0"), young)
	partner := since(members("h", 1, 1, "n1"), old)
	key := gangspec.Key{Namespace: "default", Name: "g"}
	pair := []gangstate.RunningGang{runs("g", 2, fresh...), runs("h", 1, partner...)}
	lost := runs("g", 2, broken...)
	lost.BrokenSince = now.Add(-old)
	mends := lost
	mends.BrokenSince = now.Add(-time.Second)
	partial := runs("g", 2, fresh...)
	partial.MinByRole, partial.BrokenSince = map[string]int{"driver": 1}, now.Add(-old)
	for sentence, c := range map[string]struct {
		pods    []*v1.Pod
		runs    known
		evicted time.Duration // before now; 0 for never
		by      string        // the holder; empty for another than the preemptor
		over    bool          // what was decided for the preemptor does not stand any more
		inQueue time.Duration // the queue's minRuntime
		stays   string
		want    []string
		spared  time.Duration // from now; 0 for none
	}{
		"a pod that began to run":                                   {pods: single, inQueue: length, want: []string{"pod:s-0: 1 of s-0!"}, spared: length - young},
		"a gang, with what it has beyond its minimum":               {pods: fresh, inQueue: length, runs: known{key: {runs("g", 2, fresh...)}}, want: []string{"g: 2 of g-0! g-1! g-2!"}, spared: length - young},
		"not in a queue that says nothing":                          {pods: fresh, runs: known{key: {runs("g", 2, fresh...)}}, want: []string{"g: 2 of g-0 g-1 g-2"}},
		"not what only grew":                                        {pods: grown, inQueue: length, runs: known{key: {runs("g", 2, grown...)}}, want: []string{"g: 2 of g-0 g-1 g-2"}},
		"a gang that was mended":                                    {pods: mended, inQueue: length, runs: known{key: {runs("g", 2, mended...)}}, want: []string{"g: 2 of g-0! g-1!"}, spared: length - young},
		"not what is left of a broken one":                          {pods: broken, inQueue: length, runs: known{key: {lost}}, want: []string{"g: 2 of g-0"}},
		"nor of one that lacks a role":                              {pods: fresh, inQueue: length, runs: known{key: {partial}}, want: []string{"g: 2 of g-0 g-1 g-2"}},
		"nor after an eviction":                                     {pods: broken, evicted: young, runs: known{key: {lost}}, want: []string{"g: 2 of g-0"}},
		"but of one in repair":                                      {pods: broken, evicted: young, runs: known{key: {mends}}, want: []string{"g: 1 of g-0!"}, spared: 5*time.Minute - young},
		"those that start together are left alone together":         {pods: append(fresh, partner...), inQueue: length, runs: known{key: pair, pair[1].Key: pair}, want: []string{"g: 3 of g/g-0! g/g-1! g/g-2! h/h-0!"}, spared: length - young},
		"after an eviction":                                         {pods: grown, evicted: young, runs: known{key: {runs("g", 2, grown...)}}, want: []string{"g: 2 of g-0! g-1! g-2!"}, spared: 5*time.Minute - young},
		"not from whom they were evicted for, which needs the rest": {pods: grown, evicted: young, by: "p", runs: known{key: {runs("g", 2, grown...)}}, want: []string{"g: 2 of g-0 g-1 g-2"}},
		"from it, too, once that is over":                           {pods: grown, evicted: young, by: "p", over: true, runs: known{key: {runs("g", 2, grown...)}}, want: []string{"g: 2 of g-0! g-1! g-2!"}, spared: 5*time.Minute - young},
		"not long after it":                                         {pods: grown, evicted: old, runs: known{key: {runs("g", 2, grown...)}}, want: []string{"g: 2 of g-0 g-1 g-2"}},
		"one that may not go anyhow is not spared":                  {pods: single, inQueue: length, stays: "s-0", want: []string{"pod:s-0: 1 of s-0!"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			underway := NewActivePreemptions()
			if c.evicted > 0 {
				underway.AddVictims(known{}, preemptionOf(cmp.Or(c.by, "x")), members("g", 4, 2, "n2")[3:])
				underway.RecordEnd("g-3", now.Add(-c.evicted))
			}
			if c.over {
				underway.ConcludeDecisions(hold.Holder{Group: "p"})
			}
			candidates := &Candidates{
				Nodes: nodesWith(c.pods), Gangs: c.runs, Now: now, Grace: time.Minute,
				Request:    func(fwk.PodInfo) victim.Vector { return victim.Vector{v1.ResourceCPU: 1} },
				Protection: Protection{MinRuntime: func(*v1.Pod) time.Duration { return c.inQueue }, Cooldown: 5 * time.Minute, Evicted: func(of Owner) time.Time { return underway.LastEvicted(of, hold.Holder{Group: "p"}) }},
			}
			gangs := candidates.GangsOn([]int{0, 1}, func(pod *v1.Pod) bool { return pod.Name != c.stays }, true)
			if diff := gocmp.Diff(c.want, words(gangs)); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
			want := time.Time{}
			if c.spared > 0 {
				want = now.Add(c.spared)
			}
			if got := candidates.ProtectedUntil(); !got.Equal(want) {
				t.Errorf("spared until %s, want %s", got, want)
			}
		})
	}
}
