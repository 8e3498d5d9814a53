package planner

import (
	"fmt"
	"hash/maphash"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
)

// plain are the filters that look at nothing of a pod but what a shape has.
var plain = map[string]bool{
	names.NodeResourcesFit: true, names.NodeAffinity: true, names.NodeName: true, names.NodePorts: true,
	names.NodeUnschedulable: true, names.TaintToleration: true,
}

// opaque reports whether a node was refused by a plugin that may look at more of a pod than a
// shape has.
func opaque(status *fwk.Status) bool {
	return !plain[status.Plugin()] && !slices.Equal(status.Reasons(), []string{holds.ErrReasonHeld})
}

// ShapeOf returns what an attempt asked for whose only pod kube-scheduler found no node for;
// zero where something else may have decided that.
func (p *Planner) ShapeOf(a *gang.Attempt, statuses fwk.NodeToStatusReader) (gang.Shape, error) {
	nodes, err := p.fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return gang.Shape{}, fmt.Errorf("listing nodes of the snapshot: %w", err)
	}
	for _, info := range nodes {
		if opaque(statuses.Get(info.Node().Name)) {
			return gang.Shape{}, nil
		}
	}
	w, group, problem := &world{}, newGrouping(p.storage), placement.Problem{}
	group.granters = p.points.granters
	for _, need := range a.Gangs {
		g := placement.Gang{Min: need.Min, MinByRole: need.MinByRole, Required: need.Spec.RequiredTopology, Levels: Levels(&need.Spec.Layout)}
		for _, pod := range need.Pending {
			use(group.uses, pod)
			class, err := group.add(pod)
			if err != nil {
				return gang.Shape{}, err
			}
			g.Members = append(g.Members, len(w.pods))
			w.pods, w.classOf = append(w.pods, pod), append(w.classOf, class)
		}
		problem.Gangs = append(problem.Gangs, g)
	}
	w.classes = group.classes
	w.coupled = slices.ContainsFunc(w.classes, (*class).interdependent)
	return w.shape(a, problem), nil
}

// shapes is the seed of the keys of shapes, which are compared within a process.
var shapes = maphash.MakeSeed()

// shape returns what an attempt that failed asked for; zero where something else may have
// decided that it failed.
func (w *world) shape(a *gang.Attempt, problem placement.Problem) gang.Shape {
	if w.coupled || w.opaque || len(w.rejected) > 0 || w.denied != "" || len(w.pods) == 0 {
		return gang.Shape{}
	}
	var h maphash.Hash
	h.SetSeed(shapes)
	out := hashWriter{&h}
	for i, g := range problem.Gangs {
		need := &a.Gangs[i]
		sliced := slices.ContainsFunc(g.Levels, func(level placement.Level) bool { return level.Slice > 0 })
		if (g.Required != "" || sliced) && len(need.Placed) > 0 {
			return gang.Shape{} // it has to be where those are
		}
		if need.Floor != nil {
			return gang.Shape{} // it may have failed for what it asks for beside its members
		}
		if g.Min > 0 {
			out.text(g.Required, need.Queue)
			for _, level := range g.Levels {
				out.text(level.Key)
				out.number(int64(level.Slice))
			}
		}
	}
	if len(w.classes) == 1 && len(problem.Gangs) == 1 {
		w.constraints(out, 0)
		return gang.Shape{Key: h.Sum64(), Members: problem.Gangs[0].Min, Request: w.classes[0].demand.Request}
	}
	// Members that differ compare only if they are the very same.
	for _, g := range problem.Gangs {
		out.number(int64(g.Min))
		for _, role := range sortedKeys(g.MinByRole) {
			out.text(role)
			out.number(int64(g.MinByRole[role]))
		}
		for _, member := range g.Members {
			out.number(int64(w.classOf[member]))
			out.text(w.pods[member].Labels[v1alpha1.RoleLabel])
		}
	}
	for class := range w.classes {
		w.constraints(out, class)
		out.resources(w.classes[class].demand.Request.List())
	}
	return gang.Shape{Key: h.Sum64(), Members: 1}
}

// constraints writes what of a class decides which nodes it may use, and which pods may be
// evicted for it, except its requests and its priority.
func (w *world) constraints(out hashWriter, class int) {
	pod := w.classes[class].info.Pod
	spec := &pod.Spec
	out.text(pod.Namespace, spec.SchedulerName, pod.Labels[v1alpha1.QueueLabel])
	if spec.PreemptionPolicy != nil {
		out.text(string(*spec.PreemptionPolicy))
	}
	out.placing(pod)
	out.holders(w.classes[class].granted)
	for _, port := range w.classes[class].demand.Ports {
		out.text(port.IP, port.Protocol)
		out.number(int64(port.Number))
	}
	for _, name := range sortedKeys(w.classes[class].demand.Request) {
		out.text(string(name))
	}
}

// placing writes what of a pod chooses nodes, beside what it requests.
func (w hashWriter) placing(pod *v1.Pod) {
	spec := &pod.Spec
	w.text(spec.NodeName)
	w.sorted(spec.NodeSelector)
	w.tolerations(spec.Tolerations)
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		w.object(spec.Affinity.NodeAffinity)
	}
	w.volumes(spec.Volumes)
	if len(spec.ResourceClaims) > 0 {
		w.object(spec.ResourceClaims)
	}
	if spec.OS != nil {
		w.text(string(spec.OS.Name))
	}
	if spec.RuntimeClassName != nil {
		w.text(*spec.RuntimeClassName)
	}
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
