package queuestatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// TestTooLarge: 8 CPUs, and two queues. a may have 4; b asks for 8.
func TestTooLarge(t *testing.T) {
	naming := func(gangs string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations[v1alpha1.GroupsAnnotation] = gangs }
	}
	grouped := naming(`["ns/g","ns/h"]`)
	as := func(role string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[v1alpha1.RoleLabel] = role } }
	three := func(changes ...func(*v1.Pod)) (pods []*v1.Pod) {
		for _, name := range []string{"1", "2", "3"} {
			pods = append(pods, podOf(name, "2", append(changes, in("a"))...))
		}
		return pods
	}
	for sentence, c := range map[string]struct {
		group gangspec.PodGroupDescription
		pods  []*v1.Pod
		want  []string
	}{
		"a pod above the ceiling has no share":            {pods: []*v1.Pod{podOf("1", "5", in("a"))}, want: []string{"a: 0/0/5 0% 0+1", "b: 8/0/8 0% 0+1"}},
		"nor has a gang":                                  {gangspec.PodGroupDescription{Min: 3}, three(at("g")), []string{"a: 0/0/6 0% 0+1", "b: 8/0/8 0% 0+1"}},
		"a gang whose minimum is below it has":            {gangspec.PodGroupDescription{Min: 2}, three(at("g")), []string{"a: 4/0/6 0% 0+1", "b: 4/0/8 0% 0+1"}},
		"a NonStrict gang, which holds a part of it, has": {gangspec.PodGroupDescription{Min: 3, Annotations: map[string]string{v1alpha1.ModeAnnotation: v1alpha1.ModeNonStrict}}, three(at("g")), []string{"a: 4/0/6 0% 0+1", "b: 4/0/8 0% 0+1"}},
		"gangs that start together are above it together": {gangspec.PodGroupDescription{Min: 1}, []*v1.Pod{podOf("1", "3", in("a"), at("g"), grouped), podOf("2", "3", in("a"), at("h"), grouped)}, []string{"a: 0/0/6 0% 0+2", "b: 8/0/8 0% 0+1"}},
		"so are those that name each other in a row":      {gangspec.PodGroupDescription{Min: 1}, []*v1.Pod{podOf("1", "2", in("a"), at("g"), naming(`["ns/h"]`)), podOf("2", "2", in("a"), at("h"), naming(`["ns/g","ns/i"]`)), podOf("3", "2", in("a"), at("i"), least(1), naming(`["ns/h"]`))}, []string{"a: 0/0/6 0% 0+3", "b: 8/0/8 0% 0+1"}},
		"of each role what the minimum needs":             {gangspec.PodGroupDescription{Min: 2, Annotations: map[string]string{v1alpha1.MinByRoleAnnotation: `{"r":1,"s":1}`}}, []*v1.Pod{podOf("1", "1", in("a"), at("g"), as("r")), podOf("2", "1", in("a"), at("g"), as("r")), podOf("3", "4", in("a"), at("g"), as("s"))}, []string{"a: 0/0/6 0% 0+1", "b: 8/0/8 0% 0+1"}},
		"unless part of them has begun":                   {gangspec.PodGroupDescription{Min: 2}, []*v1.Pod{podOf("1", "1", in("a"), at("g"), grouped, bound), podOf("2", "3", in("a"), at("g"), grouped), podOf("3", "3", in("a"), at("h"), grouped), podOf("4", "3", in("a"), at("h"), grouped)}, []string{"a: 4/1/10 12.5% 1+1", "b: 4/0/8 0% 0+1"}},
		"unless members have succeeded that are gone":     {gangspec.PodGroupDescription{Min: 3, Succeeded: 1}, three(at("g")), []string{"a: 4/0/6 0% 0+1", "b: 4/0/8 0% 0+1"}},
		"members beyond a minimum that runs are single":   {gangspec.PodGroupDescription{Min: 1}, append(three(at("g")), podOf("0", "1", in("a"), at("g"), bound)), []string{"a: 4/1/7 12.5% 1+0", "b: 4/0/8 0% 0+1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			ceiling := func(q *v1alpha1.Queue) {
				q.Spec.Capability = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}
			}
			k := &cluster{rules: share.Rules{Stated: true, Weighted: true}, pods: append(c.pods, podOf("b", "8", in("b"))), nodes: []*v1.Node{nodeOf("8")}, schedulers: map[string]bool{ours: true},
				queues: []*v1alpha1.Queue{queueOf("a", ceiling), queueOf("b")}, groups: map[gangspec.Key]gangspec.PodGroups{{Namespace: "ns", Name: "g"}: {&c.group}, {Namespace: "ns", Name: "h"}: {&c.group}}}
			for i, pod := range k.pods {
				k.pods[i] = strip(t, pod)
			}
			if diff := cmp.Diff(c.want, words(mustReckon(t, k, now))); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsOfABasicPodGroup: they are in no gang, so each of them counts as one.
func TestPodsOfABasicPodGroup(t *testing.T) {
	native := func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("g")} }
	c := &cluster{
		nodes: []*v1.Node{nodeOf("8")}, schedulers: map[string]bool{ours: true}, queues: []*v1alpha1.Queue{queueOf("a")},
		groups: map[gangspec.Key]gangspec.PodGroups{{Namespace: "ns", Name: "g"}: {nil, &gangspec.PodGroupDescription{Basic: true}}},
		pods:   []*v1.Pod{podOf("1", "1", in("a"), native, bound), podOf("2", "1", in("a"), native), podOf("3", "1", in("a"), native)},
	}
	if got := mustReckon(t, c, now)["a"]; got.RunningGangs != 1 || got.PendingGangs != 2 {
		t.Errorf("%d run and %d wait, want 1 and 2", got.RunningGangs, got.PendingGangs)
	}
}
