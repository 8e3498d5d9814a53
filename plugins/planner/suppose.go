package planner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/holds"
)

// Class is members of an attempt that scheduling cannot tell apart.
type Class struct {
	Pods   []*v1.Pod
	Demand holds.Demand
	class  int
}

// Classes returns the classes of the attempt, by gang: of each as many members as there are.
func (r *Room) Classes() [][]Class {
	gangs := make([][]Class, len(r.problem.Gangs))
	for i, g := range r.problem.Gangs {
		at := map[int]int{}
		for _, member := range g.Members {
			class := r.w.classOf[member]
			if _, known := at[class]; !known {
				at[class] = len(gangs[i])
				gangs[i] = append(gangs[i], Class{Demand: r.w.classes[class].demand, class: class})
			}
			gangs[i][at[class]].Pods = append(gangs[i][at[class]].Pods, r.w.pods[member])
		}
	}
	return gangs
}

// Usable reports whether members of a class could use a node if all pods on it were gone. The nodes have to be
// restricted before.
func (r *Room) Usable(c Class, node int) bool { return !r.never[c.class][node] }

// Suppose returns success if another pod fits on a node, as its own cycle would find. Any other status gives the
// reason.
func (r *Room) Suppose(ctx context.Context, pod *v1.Pod, node int) *fwk.Status {
	view, status := r.w.tx.View(ctx, pod, func(state fwk.CycleState) { Ask(state) })
	switch {
	case !status.IsSuccess():
		return status
	case !view.Allows(r.Node(node)):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the pod may not be there by what it says itself")
	}
	return r.w.tx.Fits(ctx, view, node)
}

// Add supposes that a pod has come to a node.
func (r *Room) Add(ctx context.Context, pod *v1.Pod, node int) error {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return fmt.Errorf("reading affinity of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if err := r.w.tx.Add(ctx, info, node); err != nil {
		return err
	}
	r.recount(node)
	return nil
}
