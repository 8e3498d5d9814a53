package fairshare

import (
	order "cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// life is a pod as the API server has it, with how far the scheduler is with it.
type life struct {
	uid types.UID
	// versions are the versions that the API server had, the last one last.
	versions []*v1.Pod
	gone     bool
	// cycle is the copy that the scheduler works on; reserved reports whether it has a node.
	cycle    *v1.Pod
	reserved bool
}

func (l *life) now() *v1.Pod { return l.versions[len(l.versions)-1] }

// ends reports whether the pod asks for nothing any more.
func (l *life) ends() bool { return l.gone || l.now().Status.Phase == v1.PodSucceeded }

// ours reports whether a pod counts for a queue, foreign whether it only takes from what there is to be shared.
func (l *life) ours() bool {
	return !l.ends() && l.now().Spec.SchedulerName == profile && len(l.now().Spec.SchedulingGates) == 0 && !l.refused()
}

// refused reports whether the pod waits, and asks for what no pod can have.
func (l *life) refused() bool {
	return l.now().Spec.NodeName == "" && impossible(l.now().Spec.Containers[0].Resources.Requests)
}

func impossible(list v1.ResourceList) bool {
	amount := list[gpu]
	return amount.CmpInt64(1e15) > 0
}

func (l *life) foreign() bool {
	return !l.ends() && l.now().Spec.SchedulerName != profile && l.now().Spec.NodeName != ""
}

func (l *life) runs() bool { return l.now().Spec.NodeName != "" || l.reserved }

// asks counts without the code under test: what the container is to have, or what it has, whichever is more; nothing
// if no pod can have that.
func (l *life) asks() int64 {
	if impossible(l.now().Spec.Containers[0].Resources.Requests) {
		return 0
	}
	amount := l.now().Spec.Containers[0].Resources.Requests[gpu]
	most := amount.Value()
	for _, status := range l.now().Status.ContainerStatuses {
		has := status.Resources.Requests[gpu]
		most = max(most, has.Value())
	}
	return most
}

func (c *chaos) queue(l *life) string {
	return order.Or(l.now().Labels[v1alpha1.QueueLabel], c.gangs[l.now().Labels["gang"]], v1alpha1.DefaultQueue)
}

// node returns a node of some model, which may have a taint, or be cordoned.
func (c *chaos) node(name string) *v1.Node {
	n := st.MakeNode().Name(name).Label("model", []string{"x", "y", "z"}[c.IntN(3)]).Capacity(map[v1.ResourceName]string{gpu: fmt.Sprint(2 * c.Int64N(8))})
	if c.IntN(3) == 0 {
		n.Taints([]v1.Taint{{Key: "gangs", Effect: v1.TaintEffectNoSchedule}})
	}
	return n.Unschedulable(c.IntN(6) == 0).Obj()
}

// someNode returns the name of a node that may exist.
func (c *chaos) someNode() string { return fmt.Sprint("n", c.IntN(4)) }

// poolOf returns the pool of a node.
func (c *chaos) poolOf(n *v1.Node) string {
	if model := n.Labels["model"]; len(c.pools) > 0 && model != "z" {
		return model
	}
	return "default"
}

// poolsOf returns the pools that a pod may use, by a look at all nodes.
func (c *chaos) poolsOf(p *v1.Pod) []string {
	var pools []string
	for _, name := range []string{"x", "y", "default"} {
		for _, n := range c.nodes {
			if c.poolOf(n) == name && !n.Spec.Unschedulable && (len(n.Spec.Taints) == 0 || len(p.Spec.Tolerations) > 0) &&
				(p.Spec.NodeSelector == nil || p.Spec.NodeSelector["model"] == n.Labels["model"]) {
				pools = append(pools, name)
				break
			}
		}
	}
	switch named := p.Spec.NodeSelector["model"]; {
	case len(c.pools) == 0, len(pools) == 0 && (named == "" || named == "z"):
		return []string{"default"}
	case len(pools) == 0:
		return []string{named}
	}
	return pools
}

// on returns the node of a pod, or the one that is held for it or promised to it; empty for none.
func (c *chaos) on(l *life) string {
	switch one, held := c.d.holds.HoldOf(l.uid); {
	case l.now().Spec.NodeName != "":
		return l.now().Spec.NodeName
	case l.reserved:
		return l.cycle.Spec.NodeName
	case held:
		return one.Node
	default:
		return l.now().Status.NominatedNodeName
	}
}

// has returns what a pod has or asks for: on the node that it names at most what that has; in the pool of the node that
// is kept for it; or in all pools that it may use.
func (c *chaos) has(l *life) []queueing.Vector {
	switch n, named := c.nodes[c.on(l)], l.now().Spec.NodeName != ""; {
	case named && n == nil:
		return []queueing.Vector{{}}
	case named:
		most := n.Status.Allocatable[gpu]
		return []queueing.Vector{without(gpus(min(l.asks(), most.Value())).In(c.poolOf(n)))}
	case n != nil:
		return []queueing.Vector{without(gpus(l.asks())).In(c.poolOf(n))}
	}
	var list []queueing.Vector
	for _, p := range c.poolsOf(l.now()) {
		list = append(list, without(gpus(l.asks())).In(p))
	}
	return list
}

// total returns what is there to be shared.
func (c *chaos) total() queueing.Vector {
	total := queueing.Vector{}
	for name, n := range c.nodes {
		tolerated := len(n.Spec.Taints) == 0 || slices.ContainsFunc(c.lives, func(l *life) bool { return l.ours() && len(l.now().Spec.Tolerations) > 0 })
		free := n.Status.Allocatable[gpu]
		left := free.Value()
		if n.Spec.Unschedulable || !tolerated {
			used := int64(0)
			for _, l := range c.lives {
				if l.ours() && c.on(l) == name {
					used += l.asks()
				}
			}
			total.Add(gpus(min(left, used)).In(c.poolOf(n)), 1)
			continue
		}
		for _, l := range c.lives {
			if l.foreign() && l.now().Spec.NodeName == name {
				left -= l.asks()
			}
		}
		total.Add(gpus(max(0, left)).In(c.poolOf(n)), 1)
	}
	return total
}

// without returns a vector without amounts of 0.
func without(v queueing.Vector) queueing.Vector {
	out := queueing.Vector{}
	out.Add(v, 1)
	maps.DeleteFunc(out, func(name v1.ResourceName, amount int64) bool {
		return amount == 0 || strings.HasPrefix(string(name), "pods")
	})
	return out
}

// gangsOf knows gangs by a label, and its knowledge may be old.
type gangsOf struct {
	noGangs
	c *chaos
}

func (g gangsOf) PodGroups(_ string, key gangspec.Key) gangspec.PodGroups {
	return gangspec.PodGroups{{Queue: g.c.gangs[key.Name]}}
}

func (g gangsOf) Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool) {
	name := pod.Labels["gang"]
	if name == "" {
		return gangstate.PlacementRequest{Pods: []*v1.Pod{pod}}, true
	}
	want := gangstate.PlacementRequest{Job: name}
	for _, l := range g.c.lives[max(0, len(g.c.lives)-20):] {
		known := g.c.old(l)
		switch {
		case known.Labels["gang"] != name || g.c.IntN(3) > 0 && l.ends():
		case known.Spec.NodeName != "":
			want.Alone, want.Ready = true, true
		case !l.reserved:
			want.Pods = append(want.Pods, known)
		}
	}
	if want.Alone {
		want.Pods = []*v1.Pod{pod}
	}
	return want, true
}
