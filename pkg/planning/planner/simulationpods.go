package planner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
)

// Class is a set of members that scheduling cannot tell apart.
type Class struct {
	Pods   []*v1.Pod
	Demand ledger.Demand
	class  int
}

// Classes returns the classes of the attempt by gang, with the members of each.
func (r *Simulation) Classes() [][]Class {
	gangs := make([][]Class, len(r.problem.Gangs))
	for i, g := range r.problem.Gangs {
		at := map[int]int{}
		for _, member := range g.Members {
			class := r.w.classOf[member]
			if _, known := at[class]; !known {
				at[class] = len(gangs[i])
				gangs[i] = append(gangs[i], Class{Demand: r.w.classes[class].Demand, class: class})
			}
			gangs[i][at[class]].Pods = append(gangs[i][at[class]].Pods, r.w.pods[member])
		}
	}
	return gangs
}

// Usable reports whether members of a class could use a node if all pods on it were gone. Restrict must have been
// called with the node.
func (r *Simulation) Usable(c Class, node int) bool { return !r.never[c.class][node] }

// CheckPod returns success if another pod fits on a node, as its own cycle would find, and otherwise the reason.
func (r *Simulation) CheckPod(ctx context.Context, pod *v1.Pod, node int) *fwk.Status {
	view, status := r.View(ctx, pod)
	switch {
	case !status.IsSuccess():
		return status
	case !view.Allows(r.Node(node)):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonExcluded)
	}
	return r.Transaction.Fits(ctx, view, node)
}

// Add places a pod on a node in the simulation.
func (r *Simulation) Add(ctx context.Context, pod *v1.Pod, node int) error {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return fmt.Errorf("reading affinity of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if err := r.Transaction.Add(ctx, info, node); err != nil {
		return err
	}
	r.recount(node)
	return nil
}
