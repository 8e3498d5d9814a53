// Package gangpoint has the gang extension points: interfaces that a plugin of a profile
// may implement beside those of kube-scheduler, and is then asked for whole gangs. (Seed of
// the names and of their meaning: Volcano's gang-aware preemption design, section 2.)
//
// Plugins are asked on the scheduling goroutine, in the order of the profile's
// configuration. They see the cluster as it is in the running cycle, and change nothing.
package gangpoint

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// Gang is what is to be placed: the pending members of a gang, or a pod by itself.
type Gang struct {
	Namespace, Name string
	// Pods are the pending members, in the order in which they are entitled to a place;
	// Min of them have to be placed.
	Pods []*v1.Pod
	Min  int
	// Priority is the lowest of the members'.
	Priority int32
}

// Predicate is the "if": it refuses a gang that cannot possibly fit, before anything is
// searched. The message is told to users.
type Predicate interface {
	GangPredicate(ctx context.Context, gang Gang, nodes []fwk.NodeInfo) *fwk.Status
}

// Purpose is what a search space is for.
type Purpose int

// Purposes.
const (
	// Allocate: nodes with room. All domains are wanted, best first.
	Allocate Purpose = iota
	// Evict: nodes on which room can be made. The best few are wanted, those that cost
	// least to enter first; the first in which room can be made is taken.
	Evict
)

// Domain is nodes inside which the whole gang has to be placed.
type Domain struct {
	// Name is for messages.
	Name  string
	Nodes []string
}

// SearchSpace is the "where". The first plugin that answers any domain decides; those
// after it are not asked. A status that is not a success ends the attempt.
type SearchSpace interface {
	GangSearchSpace(ctx context.Context, gang Gang, nodes []fwk.NodeInfo, purpose Purpose) ([]Domain, *fwk.Status)
}

// Round is one attempt at finding victims: whom it may take, and in what order.
type Round struct {
	// Name is for messages: "preempt", "reclaim".
	Name string
	// Permits tells whether a pod may be evicted. Pods that the system needs never are.
	Permits func(*v1.Pod) bool
	// Queue names the queue of a pod, for the order and the budget; nil for none.
	Queue func(*v1.Pod) string
	Order victim.Order
	// Budget makes the budget of one search; nil for none. It is told which pods are
	// ending already.
	Budget func(ending map[types.UID]bool) victim.Budget
}

// VictimRounds is the "from whom": it answers the rounds in which victims are looked for,
// until one makes room. The first plugin that answers any decides; without one, pods of a
// lower priority may be taken.
type VictimRounds interface {
	VictimRounds(ctx context.Context, preemptor Gang, need victim.Vector) []Round
}

// VictimSelector is the "who": it leaves of the candidates those gangs that may be taken,
// in the order in which they are to be, and so overrides the order of priority and return
// on investment among what is otherwise equal in kind. It answers false to leave the choice
// to others. It is never asked for, and cannot add, pods that are protected.
type VictimSelector interface {
	GangVictimSelector(ctx context.Context, preemptor Gang, need victim.Vector, candidates []victim.Gang) (ids []string, decided bool)
}
