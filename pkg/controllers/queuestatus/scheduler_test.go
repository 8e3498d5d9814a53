package queuestatus

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// life is a cluster over time, and the gangs of a scheduler that sees each change.
type life struct {
	*rand.Rand
	now    time.Time
	gangs  *gangstate.Gangs
	groups map[gangspec.Key]gangspec.PodGroups
	pods   map[types.UID]*v1.Pod
	made   int
}

// newLife returns a cluster with some PodGroups, and no pods.
func newLife(seed uint64) *life {
	l := &life{
		Rand: rand.New(rand.NewPCG(seed, 1)), now: now.Time, gangs: gangstate.New(gangspec.Defaults{}, gangstate.Backoff{}),
		groups: map[gangspec.Key]gangspec.PodGroups{}, pods: map[types.UID]*v1.Pod{},
	}
	for i := range 1 + l.IntN(3) {
		said := &gangspec.PodGroupDescription{Min: int32(1 + l.IntN(4)), Annotations: map[string]string{}}
		for _, choice := range [][]string{
			{v1alpha1.MinByRoleAnnotation, "", "", `{"r":1,"s":1}`, `{"r":2}`, `{"r":1,"s":3}`},
			{v1alpha1.ModeAnnotation, "", v1alpha1.ModeNonStrict},
			{v1alpha1.MatchPolicyAnnotation, "", "", "", v1alpha1.MatchOnlyWaiting, v1alpha1.MatchWaitingAndRunning},
			{v1alpha1.StagesAnnotation, "", "", "1,3", "2,2"},
			{v1alpha1.GroupsAnnotation, "", "", `["ns/g0","ns/g1"]`, `["ns/g1"]`, `["ns/g1","ns/g2"]`},
		} {
			if value := choice[1+l.IntN(len(choice)-1)]; value != "" {
				said.Annotations[choice[0]] = value
			}
		}
		key := gangspec.Key{Namespace: "ns", Name: fmt.Sprint("g", i)}
		l.groups[key] = gangspec.PodGroups{said}
		l.gangs.Describe(gangspec.Community, key, said, l.now)
	}
	l.gangs.Open(l.now)
	return l
}

// sorted returns the pods of which something is true, in a fixed order.
func (l *life) sorted(is func(*v1.Pod) bool) (pods []*v1.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		if is(l.pods[uid]) {
			pods = append(pods, l.pods[uid])
		}
	}
	return pods
}

// update changes a pod.
func (l *life) update(pod *v1.Pod, change func(*v1.Pod)) {
	pod = pod.DeepCopy()
	change(pod)
	if l.pods[pod.UID] = pod; objectstate.HasEnded(pod) {
		l.gangs.PodEnded(pod.UID, l.now)
	}
	l.gangs.ObservePod(pod, l.now)
}

// create makes a pod of a gang. Its amount is a power of two.
func (l *life) create() {
	cpu := resource.NewMilliQuantity(1<<l.made, resource.DecimalSI).String()
	pod := podOf(fmt.Sprint("p", string(rune('a'+l.made))), cpu, in([]string{"a", "b"}[l.IntN(2)]), at(fmt.Sprint("g", l.IntN(len(l.groups)))))
	pod.Labels[v1alpha1.RoleLabel] = []string{"r", "s", "t"}[l.IntN(3)]
	pod.CreationTimestamp, pod.Spec.Priority = metav1.NewTime(l.now), new(int32(l.IntN(2)))
	if l.IntN(10) == 0 {
		gated(pod)
	}
	l.made++
	l.update(pod, func(*v1.Pod) {})
}

// offered returns what the scheduler would offer with a pod.
func (l *life) offered(pod *v1.Pod) []*v1.Pod {
	want, undecided := l.gangs.Wants(pod)
	if at, _ := l.gangs.Progress(pod.UID); !undecided || !at.IsComplete || gangspec.IsUncounted(pod) {
		return nil
	}
	return want.Pods
}

// step changes something.
func (l *life) step() {
	l.now = l.now.Add(time.Duration(1+l.IntN(3)) * time.Second)
	waiting := l.sorted(objectstate.AwaitsNode)
	running := l.sorted(objectstate.OccupiesNode)
	switch do := l.IntN(8); {
	case do < 3 && l.made < 14:
		l.create()
	case do < 6 && len(waiting) > 0:
		placed := l.offered(waiting[l.IntN(len(waiting))])
		if l.IntN(6) == 0 { // the scheduler is killed meanwhile
			placed = placed[:min(len(placed), 1)]
		}
		for _, pod := range placed {
			l.update(pod, func(p *v1.Pod) {
				bound(p)
				p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(l.now)}}
			})
		}
	case do == 6 && len(running) > 0:
		pod := running[l.IntN(len(running))]
		key, _, _ := gangspec.KeyOf(pod)
		staged := l.groups[key].Object().Annotations[v1alpha1.StagesAnnotation] != ""
		if staged || slices.ContainsFunc(waiting, func(other *v1.Pod) bool { return l.wasThere(other, pod) }) {
			return // only memory tells that this one ran with all that had to, and not without others that were there
		}
		delete(l.pods, pod.UID)
		l.gangs.PodEnded(pod.UID, l.now)
	case do == 7 && len(running) > 0:
		l.update(running[l.IntN(len(running))], func(p *v1.Pod) {
			p.Status.Phase = v1.PodSucceeded
			p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(l.now)}}}}
		})
	}
}

// wasThere reports whether a pod was there when the first of another one's gang was bound.
func (l *life) wasThere(pod, other *v1.Pod) bool {
	gang := other.Labels[v1alpha1.PodGroupXLabel]
	return pod.Labels[v1alpha1.PodGroupXLabel] == gang && slices.ContainsFunc(l.sorted(objectstate.OccupiesNode), func(p *v1.Pod) bool {
		return p.Labels[v1alpha1.PodGroupXLabel] == gang && !gangstate.BoundAt(p).Before(pod.CreationTimestamp.Time)
	})
}

// say writes why gangs wait: for members, exactly if they cannot be tried.
func (l *life) say(t *testing.T) {
	t.Helper()
	for _, key := range l.gangs.Keys() {
		e, _ := l.gangs.Explain(key)
		for _, pod := range e.Pending {
			if at, _ := l.gangs.Progress(pod.UID); v1alpha1.AsksForNothing(e.Reason) == at.IsComplete {
				t.Fatalf("gang %s has the reason %q, and all that is placed together is there: %t", key, e.Reason, at.IsComplete)
			}
			l.update(l.pods[pod.UID], says(e.Reason))
		}
	}
}

// TestDeservesWhatTheSchedulerOffers: where there is enough for all, each queue deserves what its pods have and what
// the scheduler offers of those that wait. The sum says which pods these are.
func TestDeservesWhatTheSchedulerOffers(t *testing.T) {
	for seed := range uint64(3000) {
		l := newLife(seed)
		for range 5 + l.IntN(25) {
			l.step()
		}
		if l.IntN(2) == 0 {
			l.say(t)
		}
		want, c := map[string]int64{"a": 0, "b": 0}, &cluster{
			rules: share.Rules{Stated: true, Weighted: true}, nodes: []*v1.Node{nodeOf("1000")}, schedulers: map[string]bool{ours: true},
			queues: []*v1alpha1.Queue{queueOf("a"), queueOf("b")}, groups: l.groups, pods: l.sorted(func(*v1.Pod) bool { return true }),
		}
		asks := map[types.UID]*v1.Pod{}
		for _, pod := range c.pods {
			switch {
			case objectstate.OccupiesNode(pod):
				asks[pod.UID] = pod
			case objectstate.AwaitsNode(pod):
				for _, one := range l.offered(pod) {
					asks[one.UID] = one
				}
			}
		}
		for _, pod := range asks {
			want[pod.Labels[v1alpha1.QueueLabel]] += pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		}
		for name, status := range mustReckon(t, c, metav1.NewTime(l.now)) {
			if got := status.Deserved.Cpu().MilliValue(); got != want[name] {
				t.Fatalf("seed %d: queue %s deserves pods %b, want %b", seed, name, got, want[name])
			}
		}
	}
}
