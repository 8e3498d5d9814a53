package planner

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// shapeFilters are the filters that read nothing of a pod beyond its shape.
var shapeFilters = map[string]bool{
	names.NodeResourcesFit: true, names.NodeAffinity: true, names.NodeName: true, names.NodePorts: true,
	names.NodeUnschedulable: true, names.TaintToleration: true,
}

// opaque reports whether the plugin that refused a node may read more of a pod than its shape.
func opaque(status *fwk.Status) bool {
	return !shapeFilters[status.Plugin()] && !slices.Equal(status.Reasons(), []string{ledger.ErrReasonHeld})
}

// ShapeOf returns the shape of an attempt whose only pod kube-scheduler found no node for; zero if something outside
// the shape may have decided that.
func (p *Planner) ShapeOf(ctx context.Context, a *gangstate.Attempt,
	statuses fwk.NodeToStatusReader) (turns.Shape, error) {
	nodes, err := p.fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return turns.Shape{}, fmt.Errorf("listing nodes of the snapshot: %w", err)
	}
	for _, info := range nodes {
		if opaque(statuses.Get(info.Node().Name)) {
			return turns.Shape{}, nil
		}
	}
	group, err := p.groupingFor(ctx, a)
	if err != nil {
		return turns.Shape{}, err
	}
	w := &planState{Planner: p}
	problem, err := w.addMembers(a, group)
	if err != nil {
		return turns.Shape{}, err
	}
	return w.shape(a, problem), nil
}

// shapeSeed is the seed of shape keys, which are compared within a process.
var shapeSeed = maphash.MakeSeed()

// shape returns what a failed attempt asked for; zero if something outside the shape may have decided the failure.
func (w *planState) shape(a *gangstate.Attempt, problem placement.Problem) turns.Shape {
	if w.coupled || w.opaque || slices.ContainsFunc(w.classes, (*class).isRejected) || w.notAdmitted != "" ||
		len(w.pods) == 0 {
		return turns.Shape{}
	}
	out := podclass.NewHash(shapeSeed)
	out.Text(a.Shared())
	for i, g := range problem.Gangs {
		need := &a.Gangs[i]
		if (g.Required != "" || len(placement.Sliced(g.Levels)) > 0) && len(need.Placed) > 0 {
			return turns.Shape{} // it must be where those are
		}
		if need.Floor != nil {
			return turns.Shape{} // its minResources may be why it failed
		}
		if g.Min > 0 {
			out.Text(g.Required, need.Queue)
			for _, level := range g.Levels {
				out.Text(level.Key)
				out.Number(int64(level.Slice))
			}
		}
	}
	if len(w.classes) == 1 && len(problem.Gangs) == 1 {
		w.constraints(out, 0)
		return turns.Shape{Key: out.Sum(), Members: problem.Gangs[0].Min, Request: w.classes[0].Demand.Request}
	}
	// Attempts with different members are comparable only if they are identical.
	for _, g := range problem.Gangs {
		out.Number(int64(g.Min))
		for _, role := range slices.Sorted(maps.Keys(g.MinByRole)) {
			out.Text(role)
			out.Number(int64(g.MinByRole[role]))
		}
		for _, member := range g.Members {
			out.Number(int64(w.classOf[member]))
			out.Text(w.pods[member].Labels[v1alpha1.RoleLabel])
		}
	}
	for class := range w.classes {
		w.constraints(out, class)
		out.Resources(w.classes[class].Demand.Request.List())
	}
	return turns.Shape{Key: out.Sum(), Members: 1}
}

// constraints writes what of a class decides which nodes it may use, and which pods may be evicted for it, except its
// requests and priority.
func (w *planState) constraints(out podclass.Hash, class int) {
	pod := w.classes[class].Info.Pod
	spec := &pod.Spec
	out.Placing(pod)
	if spec.PreemptionPolicy != nil {
		out.Text(string(*spec.PreemptionPolicy))
	}
	for i := range spec.Volumes {
		if source := &spec.Volumes[i].VolumeSource; source.PersistentVolumeClaim != nil || source.Ephemeral != nil {
			out.Object(source)
		}
	}
	if len(spec.ResourceClaims) > 0 {
		out.Object(spec.ResourceClaims)
	}
	out.Holders(w.classes[class].Granted)
	for _, port := range w.classes[class].Demand.Ports {
		out.Text(port.IP, port.Protocol)
		out.Number(int64(port.Number))
	}
	for _, name := range slices.Sorted(maps.Keys(w.classes[class].Demand.Request)) {
		out.Text(string(name))
	}
}
