package queuestatus

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// TestEvictedGang: 8 CPUs, and two queues. A gang of queue a had 4 when it was evicted a minute ago; b asks for 8.
func TestEvictedGang(t *testing.T) {
	incomplete := says(v1alpha1.ReasonGangIncomplete)
	for sentence, c := range map[string]struct {
		hold time.Duration
		pods []*v1.Pod
		want []string
	}{
		"it has no pods":                 {time.Hour, nil, []string{"a: 4/0/4 0% 0+0", "b: 4/0/8 0% 0+1"}},
		"half of its pods has not ended": {time.Hour, []*v1.Pod{podOf("1", "2", in("a"), at("g"), bound)}, []string{"a: 4/2/4 25% 1+0", "b: 4/0/8 0% 0+1"}},
		"half of it is there again":      {time.Hour, []*v1.Pod{podOf("1", "2", in("a"), at("g"), incomplete)}, []string{"a: 4/0/4 0% 0+1", "b: 4/0/8 0% 0+1"}},
		"all of it is":                   {time.Hour, []*v1.Pod{podOf("1", "2", in("a"), at("g")), podOf("2", "2", in("a"), at("g"))}, []string{"a: 4/0/4 0% 0+1", "b: 4/0/8 0% 0+1"}},
		"half of it is, and time is up":  {time.Minute, []*v1.Pod{podOf("1", "2", in("a"), at("g"), incomplete)}, []string{"a: 0/0/2 0% 0+1", "b: 8/0/8 0% 0+1"}},
		"its time is up":                 {time.Minute, nil, []string{"a: 0/0/0 0% 0+0", "b: 8/0/8 0% 0+1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			evicted := evictionrecord.Record{At: now.Add(-time.Minute), Demand: evictionrecord.Demand{Scheduler: ours, Queue: "a", Requests: resource.Vector{v1.ResourceCPU: 4000}.ByPool()}}
			k := &cluster{rules: share.Rules{Stated: true, Weighted: true}, pods: append(c.pods, podOf("b", "8", in("b"))), nodes: []*v1.Node{nodeOf("8")}, schedulers: map[string]bool{ours: true},
				queues: []*v1alpha1.Queue{queueOf("a"), queueOf("b")}, evicted: map[gangspec.Key]evictionrecord.Record{{Namespace: "ns", Name: "g"}: evicted}, evictedHold: c.hold}
			if diff := cmp.Diff(c.want, words(mustReckon(t, k, now))); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
		})
	}
}
