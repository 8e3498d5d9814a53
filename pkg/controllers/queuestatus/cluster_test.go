package queuestatus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample/queuecases"
)

const ours = "lockstep-scheduler"

var now = metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))

// queueOf returns a queue by its name, and its parent if it has one.
func queueOf(name string, changes ...func(*v1alpha1.Queue)) *v1alpha1.Queue {
	name, parent, _ := strings.Cut(name, "<")
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}, Spec: v1alpha1.QueueSpec{Parent: parent, Weight: 1}}
	for _, change := range changes {
		change(q)
	}
	return q
}

// podOf returns a pod of namespace ns that asks for so much cpu.
func podOf(name, cpu string, changes ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       v1.PodSpec{SchedulerName: ours, Containers: []v1.Container{{Name: "main", Resources: asking(cpu)}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func asking(cpu string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
}

func in(queue string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = queue } }
func at(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels[v1alpha1.PodGroupXLabel] = name }
}
func least(n int) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[v1alpha1.MinAvailableAnnotation] = strconv.Itoa(n) }
}
func by(other string) func(*v1.Pod)      { return func(p *v1.Pod) { p.Spec.SchedulerName = other } }
func bound(p *v1.Pod)                    { p.Spec.NodeName = "node" }
func deleted(p *v1.Pod)                  { p.DeletionTimestamp = &metav1.Time{} }
func gated(p *v1.Pod)                    { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}} }
func phase(is v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = is } }

func says(reason string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: "why"}}
	}
}

func nodeOf(cpu string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("110"),
	}}}
}

// words formats statuses as "queue: deserved/allocated/requested of cpu, share, running+pending".
func words(statuses map[string]v1alpha1.QueueStatus) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(statuses)) {
		s := statuses[name]
		list = append(list, fmt.Sprintf("%s: %s/%s/%s %s %d+%d", name, s.Deserved.Cpu(), s.Allocated.Cpu(), s.Requested.Cpu(), s.Share, s.RunningGangs, s.PendingGangs))
	}
	return list
}

func mustReckon(t *testing.T, c *cluster, now metav1.Time) map[string]v1alpha1.QueueStatus {
	t.Helper()
	if c.devices == nil {
		c.devices = clusterdevices.NewCounts(nil)
	}
	statuses, err := c.statuses(now)
	must.Succeed(t, err)
	return statuses
}

func TestStatuses(t *testing.T) {
	for sentence, tc := range map[string]struct {
		queues []string
		pods   []*v1.Pod
		want   []string
	}{
		"nothing is there": {[]string{"a"}, nil, []string{"a: 0/0/0 0% 0+0"}},
		"what waits is requested, what has a node is allocated too": {
			[]string{"a"}, []*v1.Pod{podOf("1", "1", in("a"), bound), podOf("2", "500m", in("a"))}, []string{"a: 1500m/1/1500m 12.5% 1+1"},
		},
		"by weight of what there is": {
			[]string{"a", "b"}, []*v1.Pod{podOf("1", "8", in("a")), podOf("2", "9", in("b"))}, []string{"a: 4/0/8 0% 0+1", "b: 4/0/9 0% 0+1"},
		},
		"the default queue has a share without being there": {
			[]string{"a"}, []*v1.Pod{podOf("1", "8", in("a")), podOf("2", "8")}, []string{"a: 4/0/8 0% 0+1"},
		},
		"and a status where it is": {[]string{"default"}, []*v1.Pod{podOf("1", "2", bound)}, []string{"default: 2/2/2 25% 1+0"}},
		"queues below are included": {
			[]string{"a", "b<a", "c<b"}, []*v1.Pod{podOf("1", "1", in("a"), bound), podOf("2", "1", in("b")), podOf("3", "2", in("c"), bound)},
			[]string{"a: 4/3/4 37.5% 2+1", "b: 3/2/3 25% 1+1", "c: 2/2/2 25% 1+0"},
		},
		"a gang counts once, also above its queues": {
			[]string{"a", "b<a", "c<a"}, []*v1.Pod{podOf("1", "1", in("b"), at("g"), least(3), bound), podOf("2", "1", in("c"), at("g"), least(3)), podOf("3", "1", in("c"), at("g"), least(3))},
			[]string{"a: 3/1/3 12.5% 1+0", "b: 1/1/1 12.5% 1+0", "c: 2/0/2 0% 0+1"},
		},
		"others' pods are taken off the total": {
			[]string{"a"}, []*v1.Pod{podOf("1", "4", by("other"), bound), podOf("2", "2", by("other")), podOf("3", "9", by("other"), bound, phase(v1.PodFailed)), podOf("4", "5", in("a")), podOf("5", "1", in("a"), bound)},
			[]string{"a: 4/1/6 25% 1+1"},
		},
		"ended and gated pods do not count": {
			[]string{"a"}, []*v1.Pod{podOf("1", "1", in("a"), bound, phase(v1.PodSucceeded)), podOf("2", "1", in("a"), gated), podOf("3", "1", in("a"), bound, phase(v1.PodFailed))},
			[]string{"a: 0/0/0 0% 0+0"},
		},
		"what is being deleted counts while it has a node": {
			[]string{"a"}, []*v1.Pod{podOf("1", "1", in("a"), deleted), podOf("2", "2", in("a"), bound, deleted)},
			[]string{"a: 2/2/2 25% 1+0"},
		},
		"what no pod can have does not count": {
			[]string{"a"}, []*v1.Pod{podOf("1", "1", in("a"), bound), podOf("2", "1e30", in("a")), podOf("3", "1e30", in("a"), bound)},
			[]string{"a: 1/1/1 12.5% 2+0"},
		},
		"a queue that is not there counts for none": {[]string{"a"}, []*v1.Pod{podOf("1", "1", in("b"), bound)}, []string{"a: 0/0/0 0% 0+0"}},
		"without a parent numbers add up, nothing is deserved": {
			[]string{"a<x", "b<a"}, []*v1.Pod{podOf("1", "1", in("b"), bound)}, []string{"a: 0/1/1 12.5% 1+0", "b: 0/1/1 12.5% 1+0"},
		},
		"in a circle too": {
			[]string{"a<b", "b<a"}, []*v1.Pod{podOf("1", "1", in("b"), bound)}, []string{"a: 0/1/1 12.5% 1+0", "b: 0/1/1 12.5% 1+0"},
		},
		"a gang of which the scheduler says that it is not complete has no share yet": {
			[]string{"a"}, []*v1.Pod{
				podOf("1", "1", in("a"), at("g"), least(2), says(v1alpha1.ReasonGangIncomplete)), podOf("2", "1", in("a"), at("g"), least(2), says(v1alpha1.ReasonGangIncomplete)),
				podOf("3", "1", in("a"), at("h"), least(1), says(v1alpha1.ReasonTimedOut)), podOf("4", "2", in("a"), at("i"), least(1), says(v1alpha1.ReasonUnschedulable)),
			}, []string{"a: 2/0/5 0% 0+3"},
		},
		"what runs has, whatever it said": {[]string{"a"}, []*v1.Pod{podOf("1", "1", in("a"), at("g"), bound, says(v1alpha1.ReasonGangIncomplete))}, []string{"a: 1/1/1 12.5% 1+0"}},
		"init containers and overhead": {
			[]string{"a"}, []*v1.Pod{podOf("1", "1", in("a"), bound, func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{{Name: "first", Resources: asking("2")}}
				p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
			})}, []string{"a: 2500m/2500m/2500m 31.3% 1+0"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			second := nodeOf("2")
			second.Name = "second"
			c := &cluster{rules: share.Rules{Stated: true, Weighted: true}, pods: tc.pods, nodes: []*v1.Node{nodeOf("6"), second}, schedulers: map[string]bool{ours: true}}
			for _, name := range tc.queues {
				c.queues = append(c.queues, queueOf(name))
			}
			statuses := mustReckon(t, c, now)
			if diff := cmp.Diff(tc.want, words(statuses)); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			for i, p := range c.pods { // the same from what the cache keeps
				c.pods[i] = strip(t, strip(t, p))
			}
			if again := mustReckon(t, c, now); !equality.Semantic.DeepEqual(statuses, again) {
				t.Errorf("of stripped pods:\n%s", cmp.Diff(words(statuses), words(again)))
			}
		})
	}
}

// TestStatusesOfPools: what is shared, what a queue has and requests in each pool; and what no pod can use.
func TestStatusesOfPools(t *testing.T) {
	of := func(name, model string, taints ...v1.Taint) *v1.Node {
		n := nodeOf("8")
		n.Name, n.Labels, n.Spec.Taints = name, map[string]string{"model": model}, taints
		return n
	}
	gangs := v1.Taint{Key: "gangs", Effect: v1.TaintEffectNoSchedule}
	wants := func(model string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"model": model} }
	}
	tolerates := func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "gangs", Operator: v1.TolerationOpExists}} }
	on := func(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }
	for sentence, tc := range map[string]struct {
		pools []string
		nodes []*v1.Node
		pods  []*v1.Pod
		want  []string
	}{
		"a taint that nobody tolerates": {
			nodes: []*v1.Node{of("1", "x"), of("2", "x", gangs)}, pods: []*v1.Pod{podOf("1", "9", in("a")), podOf("2", "9", in("b"))}, want: []string{"a: 4/0/9 []", "b: 4/0/9 []"},
		},
		"and one that somebody does": {
			nodes: []*v1.Node{of("1", "x"), of("2", "x", gangs)}, pods: []*v1.Pod{podOf("1", "9", in("a")), podOf("2", "9", in("b"), tolerates)}, want: []string{"a: 8/0/9 []", "b: 8/0/9 []"},
		},
		"each model is shared by itself": {
			pools: []string{"x", "y"}, nodes: []*v1.Node{of("1", "x"), of("2", "y")},
			pods: []*v1.Pod{podOf("1", "9", in("a"), wants("x")), podOf("2", "9", in("b"), wants("x")), podOf("3", "9", in("b"), wants("y"))},
			want: []string{"a: 4/0/9 [x 4/0/9]", "b: 12/0/18 [x 4/0/9 y 8/0/9]"},
		},
		"what runs is in the pool of its node, what waits in the first that it may use": {
			pools: []string{"x", "y"}, nodes: []*v1.Node{of("1", "x"), of("2", "y"), of("3", "z")},
			pods: []*v1.Pod{podOf("1", "2", in("a"), on("2")), podOf("2", "3", in("a")), podOf("3", "1", in("b"), on("3")), podOf("4", "1", by("other"), on("1"))},
			want: []string{"a: 5/2/5 [default 3/0/0 x 3/0/3 y 5/2/2]", "b: 1/1/1 [default 1/1/1]"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := &cluster{schedulers: map[string]bool{ours: true}, rules: share.Rules{Weighted: true, Stated: true}, nodes: tc.nodes, queues: []*v1alpha1.Queue{queueOf("a"), queueOf("b")}}
			for _, name := range tc.pools {
				c.pools = append(c.pools, config.Pool{Name: name, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"model": name}}})
			}
			for _, pod := range tc.pods {
				c.pods = append(c.pods, strip(t, pod))
			}
			for i, node := range c.nodes {
				stripped, err := cachetransform.Node(node)
				must.Succeed(t, err)
				c.nodes[i] = stripped.(*v1.Node)
			}
			statuses := mustReckon(t, c, now)
			var got []string
			for _, name := range slices.Sorted(maps.Keys(statuses)) {
				s := statuses[name]
				var pools []string
				for _, p := range s.Pools {
					pools = append(pools, fmt.Sprintf("%s %s/%s/%s", p.Name, p.Deserved.Cpu(), p.Allocated.Cpu(), p.Requested.Cpu()))
				}
				got = append(got, fmt.Sprintf("%s: %s/%s/%s %v", name, s.Deserved.Cpu(), s.Allocated.Cpu(), s.Requested.Cpu(), pools))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
		})
	}
}

// strip keeps what the cache keeps.
func strip(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	stripped, err := cachetransform.Pod(pod)
	must.Succeed(t, err)
	return stripped.(*v1.Pod)
}

func TestQueueOf(t *testing.T) {
	c := &cluster{byNamespace: map[string]string{"ns": "of-namespace"}, groups: map[gangspec.Key]gangspec.PodGroups{{Namespace: "ns", Name: "g"}: {{Queue: "of-group"}}}}
	elsewhere := func(p *v1.Pod) { p.Namespace = "other" }
	for sentence, tc := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"the label is first":              {podOf("p", "1", in("own"), at("g")), "own"},
		"then the PodGroup":               {podOf("p", "1", at("g")), "of-group"},
		"a native one, too":               {podOf("p", "1", func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("g")} }), "of-group"},
		"not one of another namespace":    {podOf("p", "1", at("g"), elsewhere), "default"},
		"then the namespace":              {podOf("p", "1", at("h")), "of-namespace"},
		"an empty label names no queue":   {podOf("p", "1", in("")), "of-namespace"},
		"default is for all that is left": {podOf("p", "1", elsewhere), "default"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := c.queueOf(tc.pod); got != tc.want {
				t.Errorf("queue %q, want %q", got, tc.want)
			}
			if got := c.queueOf(strip(t, tc.pod)); got != tc.want {
				t.Errorf("stripped: queue %q, want %q", got, tc.want)
			}
		})
	}
}

// TestQueueOfPodGroups: queues are counted as in the scheduler.
func TestQueueOfPodGroups(t *testing.T) {
	for sentence, tc := range queuecases.Cases() {
		c := &cluster{byNamespace: map[string]string{queuecases.Namespace: queuecases.OfNamespace}, groups: map[gangspec.Key]gangspec.PodGroups{}}
		if group := tc.Community; group != nil {
			c.addGroup(group)
		}
		if group := tc.Native; group != nil {
			c.addGroup(group)
		}
		if got := c.queueOf(strip(t, tc.Pod)); got != tc.Want {
			t.Errorf("%s: queue %q, want %q", sentence, got, tc.Want)
		}
	}
}

// inPools sets the guarantee and the capability of a queue in a pool.
func inPools(name, guarantee, capability string) func(*v1alpha1.Queue) {
	return func(q *v1alpha1.Queue) {
		q.Spec.Pools = append(q.Spec.Pools, v1alpha1.QueuePool{Name: name, Guarantee: v1.ResourceList{"cpu": resource.MustParse(guarantee)}, Capability: v1.ResourceList{"cpu": resource.MustParse(capability)}})
	}
}

// deserving sets what a queue deserves of a resource.
func deserving(name v1.ResourceName, amount string) func(*v1alpha1.Queue) {
	return func(q *v1alpha1.Queue) { q.Spec.Deserved = v1.ResourceList{name: resource.MustParse(amount)} }
}

// lineOf returns n queues, each above the one before it.
func lineOf(n int) (queues []*v1alpha1.Queue) {
	for i := range n {
		queues = append(queues, queueOf(fmt.Sprintf("q%d<q%d", i, i+1)))
	}
	queues[n-1].Spec.Parent = ""
	return queues
}

func TestReady(t *testing.T) {
	closed := func(q *v1alpha1.Queue) { q.Spec.Closed = true }
	for sentence, tc := range map[string]struct {
		queues          []*v1alpha1.Queue // of the first
		reason, message string
	}{
		"a queue serves":             {[]*v1alpha1.Queue{queueOf("a")}, v1alpha1.QueueReasonServing, "the queue serves pods"},
		"also below the default one": {[]*v1alpha1.Queue{queueOf("a<default")}, v1alpha1.QueueReasonServing, "the queue serves pods"},
		"and below a closed one":     {[]*v1alpha1.Queue{queueOf("a<b"), queueOf("b", closed)}, v1alpha1.QueueReasonClosed, `nothing more is admitted: queue "b" above it is closed`},
		"it is closed":               {[]*v1alpha1.Queue{queueOf("a", closed)}, v1alpha1.QueueReasonClosed, "nothing more is admitted: set spec.closed to false to open the queue"},
		"its parent is missing":      {[]*v1alpha1.Queue{queueOf("a<b", closed)}, v1alpha1.QueueReasonNoParent, `queue "b", the parent of "a", does not exist: create it, or change spec.parent of "a"`},
		"its parent's parent":        {[]*v1alpha1.Queue{queueOf("a<b"), queueOf("b<c")}, v1alpha1.QueueReasonNoParent, `queue "c", the parent of "b", does not exist: create it, or change spec.parent of "b"`},
		"it is its own ancestor":     {[]*v1alpha1.Queue{queueOf("b<a"), queueOf("a<b")}, v1alpha1.QueueReasonCycle, `a queue cannot be an ancestor of itself: change spec.parent of one of "a", "b"`},
		"pools that are there":       {[]*v1alpha1.Queue{queueOf("a", inPools("large", "1", "1"))}, v1alpha1.QueueReasonServing, "the queue serves pods"},
		"a pool that is not":         {[]*v1alpha1.Queue{queueOf("a", inPools("larg", "1", "1"))}, v1alpha1.QueueReasonServing, "the queue serves pods; spec.pools[larg]: the scheduler's configuration has no such pool: correct the name, or add the pool to the arguments of FairShare"},
		"amounts that do not go together": {[]*v1alpha1.Queue{queueOf("a", inPools("large", "8", "4"))}, v1alpha1.QueueReasonServing,
			"the queue serves pods; spec.pools[large]: guarantee of 8 cpu exceeds capability of 4; the capability applies: correct one of them"},
		"a resource that no node has": {[]*v1alpha1.Queue{queueOf("a", deserving("example.com/gpus", "1"))}, v1alpha1.QueueReasonUnknownResource,
			"the queue serves pods; no node has example.com/gpus: correct the name, unless such nodes are still to come"},
		"it states what cannot be": {[]*v1alpha1.Queue{queueOf("a", deserving("cpu", "1e30"))}, v1alpha1.QueueReasonInvalid, "nothing more is admitted: spec.deserved[cpu] is 1e30: want at most 1P"},
		"a resource that cannot be": {[]*v1alpha1.Queue{queueOf("a", deserving("\x1b[31mred", "1"))}, v1alpha1.QueueReasonInvalid,
			`nothing more is admitted: spec.deserved["\x1b[31mred"]: want the name of a resource, such as cpu or example.com/device`},
		"in a pool":         {[]*v1alpha1.Queue{queueOf("a", inPools("large", "-1", "1"))}, v1alpha1.QueueReasonInvalid, "nothing more is admitted: spec.pools[large].guarantee[cpu] is -1: want 0 or more"},
		"one above it does": {[]*v1alpha1.Queue{queueOf("a<b"), queueOf("b", deserving("cpu", "-1"))}, v1alpha1.QueueReasonInvalid, `nothing more is admitted: queue "b" above it: spec.deserved[cpu] is -1: want 0 or more`},
		"the last level":    {lineOf(16), v1alpha1.QueueReasonServing, "the queue serves pods"},
		"it is too deep": {lineOf(17), v1alpha1.QueueReasonTooDeep,
			`there are more than 16 levels of queues from "q0" up to the top, or no end of them: change spec.parent of "q0", or of a queue above it`},
		"it is below such, not of them": {[]*v1alpha1.Queue{queueOf("d<b"), queueOf("b<a"), queueOf("a<b")}, v1alpha1.QueueReasonCycle, `a queue cannot be an ancestor of itself: change spec.parent of one of "a", "b"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := &cluster{queues: tc.queues, nodes: []*v1.Node{nodeOf("8")}, pools: []config.Pool{{Name: "large", NodeSelector: &metav1.LabelSelector{}}}}
			got := mustReckon(t, c, now)[tc.queues[0].Name].Conditions
			want := []metav1.Condition{{
				Type: v1alpha1.QueueReady, Status: metav1.ConditionFalse, Reason: tc.reason, Message: tc.message, ObservedGeneration: 3, LastTransitionTime: now,
			}}
			if tc.reason == v1alpha1.QueueReasonServing || tc.reason == v1alpha1.QueueReasonUnknownResource {
				want[0].Status = metav1.ConditionTrue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// A written status reads back as the same status, at any later time.
func TestStatusStands(t *testing.T) {
	q := queueOf("a", func(q *v1alpha1.Queue) {
		q.Status.Conditions = []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue}}
	})
	c := &cluster{
		rules:  share.Rules{Stated: true, Weighted: true},
		queues: []*v1alpha1.Queue{q}, nodes: []*v1.Node{nodeOf("8")}, schedulers: map[string]bool{ours: true},
		pods: []*v1.Pod{podOf("1", "1000m", in("a"), bound)},
	}
	q.Status = mustReckon(t, c, now)["a"]
	if len(q.Status.Conditions) != 2 || meta.FindStatusCondition(q.Status.Conditions, "Other") == nil {
		t.Errorf("conditions %v, want that of somebody else kept", q.Status.Conditions)
	}
	q.Status.Allocated = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	c.pods = []*v1.Pod{podOf("2", "0.5", in("a"), bound, at("g")), podOf("3", "500m", in("a"), bound, at("g"))}
	if again := mustReckon(t, c, metav1.NewTime(now.Add(time.Hour)))["a"]; !equality.Semantic.DeepEqual(q.Status, again) {
		t.Errorf("status (-was +is):\n%s", cmp.Diff(q.Status, again))
	}
}

// TestReservedCounts: what a Reservation holds and what it looks for count in the queue of its template, and are no
// gangs.
func TestReservedCounts(t *testing.T) {
	reserved := func(change func(*v1alpha1.Reservation)) []*v1.Pod {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r", CreationTimestamp: now}}
		r.Spec.Replicas = 3
		r.Spec.Template.Labels = map[string]string{v1alpha1.QueueLabel: "a", v1alpha1.PodGroupXLabel: "of-the-job"}
		r.Spec.Template.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}
		change(r)
		return reservationstate.CountedPods(r, now.Time)
	}
	placed := func(r *v1alpha1.Reservation) {
		for i := range int32(2) {
			r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{Index: i, NodeName: "node", Allocatable: asking("1").Requests})
		}
	}
	for sentence, c := range map[string]struct {
		change func(*v1alpha1.Reservation)
		want   string
	}{
		"nothing is held yet":  {func(*v1alpha1.Reservation) {}, "a: 3/0/3 0% 0+0"},
		"two of three":         {placed, "a: 3/2/3 25% 0+0"},
		"an owner uses a part": {func(r *v1alpha1.Reservation) { placed(r); r.Status.Placements[0].Allocated = asking("400m").Requests }, "a: 2600m/1600m/2600m 20% 0+0"},
		"one is spent":         {func(r *v1alpha1.Reservation) { placed(r); r.Status.Placements[0].Spent = true }, "a: 2/1/2 12.5% 0+0"},
		"its time is to come":  {func(r *v1alpha1.Reservation) { r.Spec.StartTime = new(metav1.NewTime(now.Add(time.Hour))) }, "a: 0/0/0 0% 0+0"},
		"it has ended":         {func(r *v1alpha1.Reservation) { placed(r); r.Status.Phase = v1alpha1.ReservationFailed }, "a: 0/0/0 0% 0+0"},
		"its time is over":     {func(r *v1alpha1.Reservation) { placed(r); r.Spec.Expires = &now }, "a: 0/0/0 0% 0+0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			k := &cluster{queues: []*v1alpha1.Queue{queueOf("a")}, nodes: []*v1.Node{nodeOf("8")}, reserved: reserved(c.change), schedulers: map[string]bool{ours: true}, rules: share.Rules{Weighted: true, Stated: true}}
			if got := words(mustReckon(t, k, now)); len(got) != 1 || got[0] != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestMoveCountsOnce: what is held for a pod that moves counts nothing as long as the pod counts.
func TestMoveCountsOnce(t *testing.T) {
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{
		Name: "r", UID: "r", CreationTimestamp: now, Annotations: map[string]string{v1alpha1.InPlaceOfAnnotation: "moves"},
	}}
	r.Spec.Template.Labels = map[string]string{v1alpha1.QueueLabel: "a"}
	r.Status.Placements = []v1alpha1.ReservationPlacement{{NodeName: "node", Allocatable: asking("1").Requests}}
	moves, other := podOf("moves", "1", in("a"), bound), podOf("other", "1", in("a"), bound)
	other.Annotations = map[string]string{v1alpha1.InPlaceOfAnnotation: "moves"} // which means nothing on an actual pod
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"it is there": {[]*v1.Pod{moves, other}, "a: 2/2/2 25% 2+0"},
		"it is gone":  {[]*v1.Pod{other}, "a: 2/2/2 25% 1+0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			k := &cluster{queues: []*v1alpha1.Queue{queueOf("a")}, nodes: []*v1.Node{nodeOf("8")}, pods: c.pods, reserved: reservationstate.CountedPods(r, now.Time), schedulers: map[string]bool{ours: true}, rules: share.Rules{Weighted: true, Stated: true}}
			if got := words(mustReckon(t, k, now)); len(got) != 1 || got[0] != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestNativesLeft: where a scheduler leaves the gangs of native PodGroups to kube-scheduler's own plugins, each of
// their pods asks for itself.
func TestNativesLeft(t *testing.T) {
	member := func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")} }
	gang, basic := &gangspec.PodGroupDescription{Min: 3, Queue: "b"}, &gangspec.PodGroupDescription{Basic: true, Min: 1, Queue: "b"}
	for sentence, c := range map[string]struct {
		left bool
		says *gangspec.PodGroupDescription
		want []string
	}{
		"an incomplete gang asks for nothing":    {false, gang, []string{"a: 0/0/1 0% 0+1", "b: 0/0/1 0% 0+1"}},
		"its pods ask, each for itself":          {true, gang, []string{"a: 1/0/1 0% 0+1", "b: 1/0/1 0% 0+1"}},
		"pods with the basic policy":             {false, basic, []string{"a: 1/0/1 0% 0+1", "b: 1/0/1 0% 0+1"}},
		"which it does not matter who schedules": {true, basic, []string{"a: 1/0/1 0% 0+1", "b: 1/0/1 0% 0+1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			k := &cluster{
				queues: []*v1alpha1.Queue{queueOf("a"), queueOf("b")}, nodes: []*v1.Node{nodeOf("8")},
				schedulers: map[string]bool{ours: true}, leaveNative: map[string]bool{ours: c.left}, rules: share.Rules{Weighted: true},
				pods:   []*v1.Pod{strip(t, podOf("named", "1", in("a"), member)), strip(t, podOf("unnamed", "1", member))},
				groups: map[gangspec.Key]gangspec.PodGroups{{Namespace: "ns", Name: "train"}: {gangspec.Native: c.says}},
			}
			if diff := cmp.Diff(c.want, words(mustReckon(t, k, now))); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
		})
	}
}
