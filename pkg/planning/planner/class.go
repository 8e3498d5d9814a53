package planner

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// class is a class of members, and what a plan finds out about it.
type class struct {
	*podclass.Class
	// holders are those whose holds its members may use.
	holders []hold.Holder
	// reached tells, by node, whether it reaches the volumes of bound claims. suppliesLeft are the volumes for waiting
	// claims. Both are computed when first needed.
	reached      []bool
	suppliesLeft []*supply
	// devices bounds, by node, how many members find devices there, devicesLeft how many find free ones. They return nil
	// if nothing bounds them.
	devices, devicesLeft func() []int
	// counted is the storage class whose volumes are counted for members; see planState.countVolumes.
	counted string
	// required is the nodes it asks for; computed when first needed.
	required *nodeaffinity.RequiredNodeAffinity
	// view is its members, prepared for the filters when first needed. verdicts are what these said of nodes; used only in
	// simulations, and nil if the class is volatile.
	view     *whatif.View
	verdicts []verdict
	// rejected is the reason with which PreFilter plugins rejected it; rejectedForGood: they would in an empty cluster,
	// too.
	rejected        string
	rejectedForGood bool
	// rejectedBy is the plugin that did.
	rejectedBy string
}

func newClasses(group *podclass.Grouping) []*class {
	list := make([]*class, len(group.Classes))
	for i, of := range group.Classes {
		list[i] = &class{Class: of}
	}
	return list
}

func (c *class) isRejected() bool { return c.rejected != "" }

// asksForNode reports whether a node matches the node selector and node affinity of the class.
func (c *class) asksForNode(node *v1.Node) bool {
	if c.required == nil {
		c.required = new(nodeaffinity.GetRequiredNodeAffinity(c.Info.Pod))
	}
	match, _ := c.required.Match(node) // the filter, too, counts a parse error as no match
	return match
}

// takesSame reports whether members of two classes take the same of a node.
func (c *class) takesSame(other *class) bool {
	return maps.Equal(c.Demand.Request, other.Demand.Request) && slices.Equal(c.Demand.Ports, other.Demand.Ports) &&
		slices.Equal(c.holders, other.holders)
}

// podInfo returns the PodInfo of a pod of the class. It shares what the class computed once.
func (c *class) podInfo(pod *v1.Pod) *framework.PodInfo {
	info := *c.Info
	info.Pod = pod
	return &info
}

// members returns the pods of an attempt, including those placed already.
func members(a *gangstate.Attempt) (pods []*v1.Pod) {
	for _, need := range a.Gangs {
		pods = append(pods, need.Pending...)
		for _, placed := range need.Placed {
			pods = append(pods, placed.Pod)
		}
	}
	return pods
}
