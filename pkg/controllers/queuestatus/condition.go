package queuestatus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// ready returns the condition that a queue serves pods. The reason why it does not is found in the
// order of the dispatcher's checks: its parents first.
func ready(q *v1alpha1.Queue, tree map[string]share.Queue, queues map[string]*v1alpha1.Queue,
	pool []config.Pool, offered sets.Set[v1.ResourceName]) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.QueueReady, Status: metav1.ConditionFalse, ObservedGeneration: q.Generation}
	path, err := share.Ancestors(tree, q.Name)
	switch {
	case err != nil:
		c.Reason, c.Message = v1alpha1.QueueReasonNoParent, share.TextNoWay(tree, q.Name, path, err)
		if errors.Is(err, share.ErrCycle) {
			c.Reason = v1alpha1.QueueReasonCycle
		} else if errors.Is(err, share.ErrDepth) {
			c.Reason = v1alpha1.QueueReasonTooDeep
		}
	case pools.Fault(q) != "":
		c.Reason = v1alpha1.QueueReasonInvalid
		c.Message = "nothing more is admitted: " + pools.Fault(q)
	case q.Spec.Closed:
		c.Reason = v1alpha1.QueueReasonClosed
		c.Message = "nothing more is admitted: set spec.closed to false to open the queue"
	case shut(chain(tree, q.Name), queues) != nil:
		above := shut(chain(tree, q.Name), queues)
		c.Reason = v1alpha1.QueueReasonClosed
		c.Message = fmt.Sprintf("nothing more is admitted: queue %q above it is closed", above.Name)
		if fault := pools.Fault(above); fault != "" {
			c.Reason = v1alpha1.QueueReasonInvalid
			c.Message = fmt.Sprintf("nothing more is admitted: queue %q above it: %s", above.Name, fault)
		}
	default:
		c.Status = metav1.ConditionTrue
		c.Reason = v1alpha1.QueueReasonServing
		c.Message = "the queue serves pods"
		if unknown := unknownResources(&q.Spec, offered); len(unknown) > 0 && len(offered) > 0 {
			c.Reason = v1alpha1.QueueReasonUnknownResource
			c.Message += "; no node has " + strings.Join(unknown, ", ") +
				": correct the name, unless such nodes are still to come"
		}
		if wrong := warnings(q.Spec.Pools, pool); wrong != "" {
			c.Message += "; " + wrong
		}
	}
	return c
}

// unknownResources returns the resources of which a queue states an amount and that are not among those that nodes
// have.
func unknownResources(spec *v1alpha1.QueueSpec, offered sets.Set[v1.ResourceName]) []string {
	stated := []v1.ResourceList{spec.Deserved, spec.Guarantee, spec.Capability}
	for _, p := range spec.Pools {
		stated = append(stated, p.Deserved, p.Guarantee, p.Capability)
	}
	unknown := sets.New[string]()
	for _, list := range stated {
		for name, amount := range list {
			if !offered.Has(name) && !amount.IsZero() {
				unknown.Insert(string(name))
			}
		}
	}
	return sets.List(unknown)
}

// warnings describes settings for pools that cannot hold, which the API server does not refuse;
// empty for none.
func warnings(said []v1alpha1.QueuePool, pool []config.Pool) string {
	var list []string
	for _, p := range said {
		if !slices.ContainsFunc(pool, func(one config.Pool) bool { return one.Name == p.Name }) {
			list = append(list,
				fmt.Sprintf("spec.pools[%s]: the scheduler's configuration has no such pool: correct the name, or add the pool "+
					"to the arguments of FairShare", p.Name))
		}
		for _, pair := range []struct {
			less, more     string
			lesser, larger v1.ResourceList
			holds          string
		}{
			{"guarantee", "deserved", p.Guarantee, p.Deserved, "guarantee"},
			{"guarantee", "capability", p.Guarantee, p.Capability, "capability"},
			{"deserved", "capability", p.Deserved, p.Capability, "capability"},
		} {
			for _, name := range slices.Sorted(maps.Keys(pair.lesser)) {
				less := pair.lesser[name]
				if more, said := pair.larger[name]; said && less.Cmp(more) > 0 {
					list = append(list, fmt.Sprintf(
						"spec.pools[%s]: %s of %s %s exceeds %s of %s; the %s applies: correct one of them",
						p.Name, pair.less, less.String(), name, pair.more, more.String(), pair.holds))
				}
			}
		}
	}
	return strings.Join(list, "; ")
}

// shut returns the first of some queues that admits nothing; nil for none.
func shut(names []string, queues map[string]*v1alpha1.Queue) *v1alpha1.Queue {
	for _, name := range names {
		if q := queues[name]; q != nil && (q.Spec.Closed || pools.Fault(q) != "") {
			return q
		}
	}
	return nil
}
