package extensionpoints

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Gang is what must be placed together: the pending members of a gang, or a single pod.
type Gang struct {
	Namespace, Name string
	// Pods are the pending members, in the order in which they are entitled to a place;
	// Min of them must be placed.
	Pods []*v1.Pod
	Min  int
	// Priority is the lowest priority of the members.
	Priority int32
	// Beyond: its gang has its minimum without these pods.
	Beyond bool
}

// Predicate is the "if": it refuses a gang that cannot possibly fit, before any search.
// Users get the message.
type Predicate interface {
	GangPredicate(ctx context.Context, gang Gang, nodes []fwk.NodeInfo) *fwk.Status
}

// Purpose is what a search space is for.
type Purpose int

// Purposes.
const (
	// Allocate: nodes with room. All domains are wanted, best first. The gang is placed in
	// the tightest that takes its whole minimum, of equals in the first. Where none does, the
	// one in which most members find a place explains why not, and a NonStrict gang holds
	// what it can there. Domains in which arithmetic finds too little room are tried only if
	// they may take more members than others did; and all of them together get the effort
	// that a gang without domains would: with hundreds in which filters refuse what
	// arithmetic allows, the last are not tried.
	Allocate Purpose = iota
	// Evict: nodes on which room can be made. The best few are wanted, those that cost
	// least to enter first; the first in which room can be made is taken.
	Evict
)

// Domain is a set of nodes that must hold the whole gang.
type Domain struct {
	// Name is for messages.
	Name  string
	Nodes []string
}

// SearchSpace is the "where". The first plugin that returns any domain decides; those
// after it are not called. A status that is not a success ends the attempt.
type SearchSpace interface {
	GangSearchSpace(ctx context.Context, gang Gang, nodes []fwk.NodeInfo, purpose Purpose) ([]Domain, *fwk.Status)
}

// Round is one attempt at finding victims: which pods it may take, and in what order.
type Round struct {
	// Name is for metrics and messages: "preempt", "reclaim".
	Name string
	// Done is what happened to a victim, for messages: "preempted", "reclaimed for queue b".
	Done string
	// Queue returns the queue of a pod, for the order and the budget; nil for none.
	Queue func(*v1.Pod) string
	// MinRuntime returns how long the gang of a pod is left alone once it runs; where it is nil, or returns false, the
	// configuration of the plugin that looks for victims decides.
	MinRuntime func(*v1.Pod) (time.Duration, bool)
	Order      victim.Order
	// MakesWay reports whether a gang that holds places while it waits for more gives these back, whatever its priority;
	// nil for none.
	MakesWay func(hold.Holder) bool
	// Surplus: only single pods go, and what gangs can do without. No gang ends.
	Surplus bool
	// Tiers are tried on the pods where room is sought, one after the other. The first
	// that finds any pod that may be evicted decides, whether that is enough or not.
	Tiers []Tier
}

// Tier is which pods a round may take.
type Tier struct {
	// Permits reports whether a pod may be evicted.
	Permits func(*v1.Pod) bool
	// Gangs: a gang loses what it can do without, or is evicted as a whole. Otherwise its pods are
	// taken one by one.
	Gangs bool
	// Budget returns the budget of one search; nil for none. ending are the pods that are
	// ending already.
	Budget func(ending map[types.UID]bool) victim.Budget
}

// Preempt returns the round that makes room for a higher priority, where no plugin returns other rounds.
func Preempt(priority int32) Round {
	return Round{Name: "preempt", Done: "preempted", Order: victim.Preempt(), Tiers: []Tier{{
		Permits: func(pod *v1.Pod) bool { return corev1helpers.PodPriority(pod) < priority && !Critical(pod) },
		Gangs:   true,
	}}}
}

// Critical reports whether the system needs a pod (conformance).
func Critical(pod *v1.Pod) bool {
	return pod.Namespace == metav1.NamespaceSystem ||
		pod.Spec.PriorityClassName == scheduling.SystemClusterCritical ||
		pod.Spec.PriorityClassName == scheduling.SystemNodeCritical
}

// VictimRounds is the "from whom": it returns the rounds in which victims are looked for,
// until one makes room. The first plugin that returns any decides; without one it is
// [Preempt].
type VictimRounds interface {
	VictimRounds(ctx context.Context, preemptor Gang, need victim.Vector) []Round
}

// VictimSelector is the "who": it returns which of the candidates may be taken,
// in the order in which to take them, and so overrides the order of priority and return
// on investment among candidates that are otherwise equal in kind. It returns false to leave the choice
// to others. It is never called for, and cannot add, pods that are protected.
type VictimSelector interface {
	GangVictimSelector(ctx context.Context, preemptor Gang, need victim.Vector,
		candidates []victim.Gang) (ids []string, decided bool)
}
