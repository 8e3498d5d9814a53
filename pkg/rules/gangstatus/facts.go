package gangstatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/waitreason"
)

// StatusFacts are the facts of a gang, and what else the status of its PodGroup follows from.
type StatusFacts struct {
	gangstate.Facts

	Key gangspec.Key
	// madeFor is the owner for which lockstep-controller made the PodGroup; empty where it did not.
	madeFor types.UID
	// unfinished are the pods that have not ended; waiting are those of them without a node, and staying those that are
	// neither marked as disruption targets nor being deleted.
	unfinished, waiting, staying int
	running                      int32
	// byDefault are the waiting members that name the scheduler which pods have by default.
	byDefault int
	// refused: the scheduler has tried a waiting member and found no place.
	refused bool
	// expired: the wait time ran out on a waiting member.
	expired bool
	// said is why members wait, from the status of one of them; nil for nothing.
	said *v1.PodCondition
	// OwnerEnded: what made its pods has ended, and makes no more. FactsOf leaves it to its caller.
	OwnerEnded bool
	// JobFailed says that the Job which made its pods has failed; empty if it has not. FactsOf leaves it to its caller.
	JobFailed string
	// occupiedBy is the controlling owner of the first member that has one.
	occupiedBy string
}

// Resume returns the history of a gang for a process that has seen none of its pods before: if one of them is left that
// was there when the gang was complete, as many members ran to success as the status of its PodGroup says. What is gone
// of the object that the PodGroup was made for is counted off its minimum instead.
func Resume(pg *coscheduling.PodGroup, pods []*v1.Pod) *gangstate.History {
	complete := pg.Status.ScheduleStartTime
	isLeft := func(pod *v1.Pod) bool {
		return !objectstate.HasEnded(pod) && pod.DeletionTimestamp == nil && !complete.Before(&pod.CreationTimestamp) &&
			gangspec.OriginOf(pod).Controller != gangspec.MadeFor(pg)
	}
	if !slices.ContainsFunc(pods, isLeft) {
		return &gangstate.History{}
	}
	return gangstate.RecordedHistory(gangspec.ReadWithStatus(pg))
}

// FactsOf returns the facts of a gang for its status. Its parameters are those of [gangstate.Observe].
func FactsOf(key gangspec.Key, object *gangspec.PodGroupDescription, pods []*v1.Pod,
	history *gangstate.History) StatusFacts {
	f := StatusFacts{Key: key, Facts: gangstate.Observe(key, object, pods, history)}
	if object != nil {
		f.madeFor = object.Owner
	}
	for _, pod := range f.Pods {
		if !objectstate.HasEnded(pod) {
			f.addUnfinished(pod)
		} else if !history.Includes(pod) {
			continue
		}
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && f.occupiedBy == "" {
			f.occupiedBy = pod.Namespace + "/" + owner.Name
		}
	}
	return f
}

// hasOtherPods reports whether a gang that was evicted has other pods than those that are being evicted: from then on
// its condition says what it lacks. It is not back before it has its minimum, see [gangstate.Facts.IsBack].
func (f *StatusFacts) hasOtherPods() bool { return f.staying > 0 }

// later is how many more members the later stages need.
func (f *StatusFacts) later() int { return f.Spec.Min - f.Stage.Min }

func (f *StatusFacts) addUnfinished(pod *v1.Pod) {
	f.unfinished++
	if target := objectstate.PodCondition(pod, v1.DisruptionTarget); pod.DeletionTimestamp == nil &&
		(target == nil || target.Status != v1.ConditionTrue) {
		f.staying++
	}
	if pod.Spec.NodeName == "" {
		f.waiting++
		if pod.Spec.SchedulerName == v1.DefaultSchedulerName {
			f.byDefault++
		}
		if _, ok := pod.Annotations[v1alpha1.TimeoutAnnotation]; ok {
			f.expired = true
		}
		f.refused = f.refused || f.expired
		if said := objectstate.WaitCondition(pod); said != nil && said.Reason != "" {
			f.refused = f.refused || waitreason.FoundNoPlace(said.Reason)
			if !gangspec.IsUncounted(pod) {
				f.said = withoutSchedulersWords(said)
			}
		}
	}
	if pod.Status.Phase == v1.PodRunning {
		f.running++
	}
}

// withoutSchedulersWords returns the condition of a member with what the scheduler says of its gang alone. On the
// member that was tried for all, kube-scheduler writes "0/8 nodes are available: gang ... . preemption: ...".
func withoutSchedulersWords(said *v1.PodCondition) *v1.PodCondition {
	_, message, wrapped := strings.Cut(said.Message, " nodes are available: ")
	if !wrapped || !strings.HasPrefix(message, "gang ") {
		return said
	}
	plain := said.DeepCopy()
	plain.Message, _, _ = strings.Cut(message, ". preemption: ")
	plain.Message = strings.TrimSuffix(plain.Message, ".")
	return plain
}
