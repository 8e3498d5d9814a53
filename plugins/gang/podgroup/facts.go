package podgroup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// minimum is what has to exist together: a number, and where roles bind the
// gang, a number of each.
type minimum struct {
	n     int
	roles map[string]int
}

// minimumOf returns the minimum of a spec, without the roles of an elastic gang.
func minimumOf(spec gang.Spec) minimum {
	if !spec.RolesBind() {
		return minimum{n: spec.Min}
	}
	return minimum{n: spec.Min, roles: spec.MinByRole}
}

// tally is a number of pods, and how many of them have each role.
type tally struct {
	n     int
	roles map[string]int
}

// add counts so many pods of a role, or of none.
func (t *tally) add(n int, role string) {
	t.n += n
	if role != "" {
		if t.roles == nil {
			t.roles = map[string]int{}
		}
		t.roles[role] += n
	}
}

// reaches reports whether the minimum is reached. A gang without one reaches nothing.
func (t tally) reaches(m minimum) bool {
	if m.n == 0 || t.n < m.n {
		return false
	}
	return len(t.lacks(m)) == 0
}

// lacks returns how many pods of each role are missing.
func (t tally) lacks(m minimum) map[string]int {
	lacks := map[string]int{}
	for role, n := range m.roles {
		if n > t.roles[role] {
			lacks[role] = n - t.roles[role]
		}
	}
	return lacks
}

// facts is what the pods of a gang show at one moment. Pods that are being
// deleted count for nothing, unless they ran to success: they are going, and how the containers
// of the others end means nothing for the gang.
type facts struct {
	key gang.Key
	// madeFor is the owner for which lockstep-controller made the PodGroup; empty where it did not.
	madeFor types.UID
	spec    gang.Spec
	minimum minimum
	policy  gang.MatchPolicy
	// stage is the stage that is to run now, from 1, of stages; 0 of 0 where the gang has none. later
	// is how many more members the later stages need.
	stage, stages, later int

	// members are those that can make up the minimum: they have not ended, or have
	// succeeded, and no scheduling gate keeps them back.
	members tally
	// bound are the members that have a node, or had one to the end.
	bound tally
	// up are the members that run, or ran to the end.
	up tally
	// all are the members and the pods that failed.
	all tally

	// unfinished are the pods that have not ended; waiting are those of them without a node.
	unfinished, waiting        int
	running, succeeded, failed int32
	// gated have scheduling gates; claimless lack ResourceClaims that are not made yet.
	gated, claimless int
	// refused: the scheduler has tried a waiting member and found no place.
	refused bool
	// expired: the wait time ran out on a waiting member.
	expired bool
	// refusal is why the scheduler does not schedule pods of the PodGroup; empty for nothing.
	refusal string
	// said is why members wait, from the status of one of them; nil for nothing.
	said *v1.PodCondition
	// occupiedBy is the controlling owner of the first member that has one.
	occupiedBy string
}

// observe counts the pods of a gang, each once, by UID. history has the pods that were seen
// before, and is updated with these.
func observe(key gang.Key, object gang.Object, pods []*v1.Pod, history *gang.History) facts {
	live := distinct(pods)
	history.See(live, object.Owner)
	live = slices.DeleteFunc(live, func(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil && !history.Includes(pod) })
	spec := specOf(key, object, live)
	f := facts{key: key, madeFor: object.Owner, spec: spec, policy: spec.Policy, refusal: spec.Refused}
	for _, pod := range live {
		switch {
		case !ended(pod):
			f.addUnfinished(pod)
		case !history.Includes(pod):
			continue
		case pod.Status.Phase == v1.PodSucceeded:
			f.succeeded++
			for _, t := range []*tally{&f.members, &f.bound, &f.up, &f.all} {
				t.add(1, roleOf(pod))
			}
		default:
			f.failed++
			f.all.add(1, roleOf(pod))
		}
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && f.occupiedBy == "" {
			f.occupiedBy = pod.Namespace + "/" + owner.Name
		}
	}
	f.addKept(history)
	now := spec.AtStage(spec.Stages.Reached(f.bound.n, f.members.n))
	f.minimum, f.later = minimumOf(now), spec.Min-now.Min
	f.stage, f.stages = now.Stage()
	return f
}

// lastStage reports whether no stage follows.
func (f *facts) lastStage() bool { return f.stage == f.stages }

// addKept adds the pods that succeeded in this life of the gang and were deleted since, unless the minimum was lowered by them.
func (f *facts) addKept(history *gang.History) {
	n, roles := history.Kept()
	f.succeeded += int32(n)
	for _, t := range []*tally{&f.members, &f.bound, &f.up, &f.all} {
		plain := n
		for role, n := range roles {
			t.add(n, role)
			plain -= n
		}
		t.add(plain, "")
	}
}

func roleOf(pod *v1.Pod) string { return pod.Labels[v1alpha1.RoleLabel] }

func (f *facts) addUnfinished(pod *v1.Pod) {
	f.unfinished++
	if pod.Spec.NodeName == "" {
		f.waiting++
		if _, ok := pod.Annotations[v1alpha1.TimeoutAnnotation]; ok {
			f.expired = true
		}
		f.refused = f.refused || f.expired || refused(pod)
		switch {
		case len(pod.Spec.SchedulingGates) > 0:
			f.gated++
			return
		case gang.LacksClaims(pod):
			f.claimless++
			return
		}
	}
	f.members.add(1, roleOf(pod))
	f.all.add(1, roleOf(pod))
	if pod.Spec.NodeName == "" {
		f.listen(waitsFor(pod))
	}
	if pod.Spec.NodeName != "" {
		f.bound.add(1, roleOf(pod))
	}
	if pod.Status.Phase == v1.PodRunning {
		f.running++
		f.up.add(1, roleOf(pod))
	}
}

// refused reports whether the scheduler has written that there is no place for a pod.
func refused(pod *v1.Pod) bool {
	c := waitsFor(pod)
	if c == nil {
		return false
	}
	switch c.Reason {
	case v1alpha1.ReasonUnschedulable, v1alpha1.ReasonMemberRejected, v1alpha1.ReasonAwaitingReservation:
		return true
	default:
		return false
	}
}

// waitsFor returns why a pod has no node, from its status; nil where it does not show that.
func waitsFor(pod *v1.Pod) *v1.PodCondition {
	c := conditionOf(pod, v1.PodScheduled)
	if c == nil || c.Status != v1.ConditionFalse || c.Reason == "" {
		return nil
	}
	return c
}

func conditionOf(pod *v1.Pod, of v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

// listen notes why a member waits. On the gang's leader kube-scheduler's message is worded differently from the plugin's message for
// the gang: the plugin's has precedence.
func (f *facts) listen(said *v1.PodCondition) {
	ofGang := func(c *v1.PodCondition) bool { return strings.HasPrefix(c.Message, fmt.Sprintf("gang %q", f.key)) }
	if said != nil && (f.said == nil || !ofGang(f.said) && ofGang(said)) {
		f.said = said
	}
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// distinct leaves out repetitions and pods that are being deleted and have not succeeded, and sorts the
// rest by: 1. priority, high first; 2. creation, old first; 3. name; 4. UID. It is
// the scheduler's order of members.
func distinct(pods []*v1.Pod) []*v1.Pod {
	seen := make(map[types.UID]bool, len(pods))
	live := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		if going := pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodSucceeded; !going && !seen[pod.UID] {
			seen[pod.UID] = true
			live = append(live, pod)
		}
	}
	slices.SortFunc(live, func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(priorityOf(b), priorityOf(a)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID),
		)
	})
	return live
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority != nil {
		return *pod.Spec.Priority
	}
	return 0
}

// specOf reads the gang's spec as the scheduler does: the first member that
// states a usable minimum adds to the PodGroup, failing that the first that
// states anything. Ended members count only where there are no others.
func specOf(key gang.Key, object gang.Object, live []*v1.Pod) gang.Spec {
	asked := slices.DeleteFunc(slices.Clone(live), ended)
	if len(asked) == 0 {
		asked = live
	}
	var definer, fallback *gang.Fields
	for _, pod := range asked {
		fields := gang.Fields{Annotations: pod.Annotations, Labels: pod.Labels}
		if !fields.Describes() {
			continue
		}
		if fallback == nil {
			fallback = &fields
		}
		if ok, _ := fields.Defines(); ok {
			definer = &fields
			break
		}
	}
	var fields gang.Fields
	if definer = cmp.Or(definer, fallback); definer != nil {
		fields = *definer
	}
	// The scheduler uses the wait time, and reports the problems.
	spec, _ := gang.Parse(key, &object, fields, gang.Defaults{})
	return spec
}
