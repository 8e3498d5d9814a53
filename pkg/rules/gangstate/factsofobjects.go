package gangstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// Facts is what a gang is, by its PodGroup and all its pods as they are at one moment. It is what the scheduler derives
// from the same objects, change by change.
//
// Pods that are being deleted count for nothing, unless they ran to success: they are going, and how the containers of
// the others end means nothing for the gang.
type Facts struct {
	// Pods are the pods that are not being deleted, or ran to success, each once, in the order of members.
	Pods []*v1.Pod
	// Spec is what the gang asks for. Stage is that with the minimum of the stage that is to run now.
	Spec, Stage gangspec.Spec

	// Members are the pods that can make up the minimum: they have not ended, or have succeeded. Aside are those that do
	// not count for now.
	Members gangspec.Count
	Aside   gangspec.UncountedPods
	// Bound are the members that have a node, or had one to the end.
	Bound gangspec.Count
	// Up are the members that run, or ran to the end.
	Up gangspec.Count
	// All are the members and the pods that failed, except those in whose place there is another.
	All gangspec.Count
	// Succeeded are the members that ran to success, also those that are gone; Failed are the pods that failed.
	Succeeded, Failed int
	// oldestBound is when the oldest of the members was created that have a node and have not ended; zero if none has.
	oldestBound time.Time
	// Lead is the member whose priority is that of the gang, the highest: of those without a node, by which the gang is
	// ordered, or else of those that have one; nil if none is unfinished.
	Lead *v1.Pod
	// Held is how many members without a node have one nominated. Nodes are those of members that have not ended.
	Held  int
	Nodes sets.Set[string]
	// RefusedByKubelet are those of the pods that failed that kubelets refused: see KubeletRefusal.
	RefusedByKubelet []*v1.Pod
}

// Observe returns what a gang is. object is its PodGroup; nil if it has none. history has the pods that were seen
// before, and is updated with these. What depends on the scheduler's configuration is left out, and so are the
// problems: the scheduler reports them.
func Observe(key gangspec.Key, object *gangspec.PodGroupDescription, pods []*v1.Pod, history *History) Facts {
	var owner types.UID
	if object != nil {
		owner = object.Owner
	}
	members, describers := inOrder(pods)
	f := Facts{Nodes: sets.Set[string]{}}
	for _, m := range members {
		if m.pod.DeletionTimestamp == nil || m.pod.Status.Phase == v1.PodSucceeded {
			f.Pods = append(f.Pods, m.pod)
		}
	}
	history.See(f.Pods, owner)
	f.Pods = slices.DeleteFunc(f.Pods, func(pod *v1.Pod) bool {
		return pod.DeletionTimestamp != nil && !history.Includes(pod)
	})
	var definer *v1.Pod
	if m := definerOf(describers, object); m != nil {
		definer = m.pod
	}
	f.Spec, _ = gangspec.Parse(key, object, definer, gangspec.Defaults{})
	f.count(history)
	f.Stage = f.Spec.AtStage(f.Spec.Stages.Reached(f.Bound.N, f.Members.N))
	return f
}

// IsBack reports whether a gang that was evicted then has its minimum again, and nothing of what was evicted runs on.
// Members that have succeeded count, and those that had no node when it was evicted.
func (f *Facts) IsBack(evicted time.Time) bool {
	return f.Members.Reaches(&f.Stage) && (f.oldestBound.IsZero() || !f.oldestBound.Before(evicted))
}

// inOrder returns pods as members, each once, in their order, and those that say something of their gang in the order
// in which they may define it. Pods that have ended define it only if there are no others.
func inOrder(pods []*v1.Pod) (members, describers []*member) {
	known, unfinished := make(map[types.UID]bool, len(pods)), false
	for _, pod := range pods {
		if !known[pod.UID] {
			known[pod.UID] = true
			members = append(members, newMember(pod))
			unfinished = unfinished || !objectstate.HasEnded(pod)
		}
	}
	slices.SortFunc(members, compareMembers)
	for _, m := range members {
		if describes, _ := m.listen(); describes && !(unfinished && objectstate.HasEnded(m.pod)) {
			describers = append(describers, m)
		}
	}
	slices.SortStableFunc(describers, compareDescribers)
	return members, describers
}

func (f *Facts) count(history *History) {
	var succeeded gangspec.Count
	filled := map[seat]bool{}
	for _, pod := range f.Pods {
		if at := seatOf(pod); at.Series != "" && !objectstate.HasEnded(pod) {
			filled[at] = true
		}
	}
	for _, pod := range f.Pods {
		role := gangspec.RoleOf(pod)
		switch {
		case history.replaces(gangspec.OriginOf(pod)): // it goes
		case !objectstate.HasEnded(pod):
			f.countUnfinished(pod, role)
		case !history.Includes(pod):
		case pod.Status.Phase == v1.PodSucceeded:
			succeeded.Add(1, role)
		default:
			if f.Failed++; !filled[seatOf(pod)] {
				f.All.Add(1, role)
			}
			if KubeletRefusal(pod) != "" {
				f.RefusedByKubelet = append(f.RefusedByKubelet, pod)
			}
		}
	}
	succeeded.AddAll(history.Gone(), 1)
	f.Succeeded = succeeded.N
	for _, c := range []*gangspec.Count{&f.Members, &f.Bound, &f.Up, &f.All} {
		c.AddAll(succeeded, 1)
	}
}

// seat is the number of a pod among those of its controller, which makes another with that number for one that failed.
type seat struct {
	controller types.UID
	gangspec.Index
}

func seatOf(pod *v1.Pod) seat { return seat{gangspec.OriginOf(pod).Controller, gangspec.IndexOf(pod)} }

func (f *Facts) countUnfinished(pod *v1.Pod, role string) {
	placed := pod.Spec.NodeName != ""
	if f.Lead == nil || !placed && f.Lead.Spec.NodeName != "" { // they come in order of their priorities
		f.Lead = pod
	}
	if !placed && f.Aside.Add(pod, resource.CheckPod(pod)) {
		return
	}
	f.Members.Add(1, role)
	f.All.Add(1, role)
	if placed {
		f.Bound.Add(1, role)
		f.Nodes.Insert(pod.Spec.NodeName)
		f.oldestBound = times.Earlier(f.oldestBound, pod.CreationTimestamp.Time)
	} else if pod.Status.NominatedNodeName != "" {
		f.Held++
	}
	if pod.Status.Phase == v1.PodRunning {
		f.Up.Add(1, role)
	}
}
