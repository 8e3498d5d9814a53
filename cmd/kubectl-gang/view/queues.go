package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// Queue is what a queue may have, and has.
type Queue struct {
	Name   string `json:"name"`
	Parent string `json:"parent,omitempty"`
	// Depth is how many queues are above it.
	Depth    int   `json:"depth"`
	Weight   int32 `json:"weight"`
	Priority int32 `json:"priority"`
	// Share is the largest of the parts of the cluster's resources that it uses, in percent.
	Share string `json:"share"`
	// Running and Pending are gangs, and pods in none.
	Running int32 `json:"runningGangs"`
	Pending int32 `json:"pendingGangs"`
	Closed  bool  `json:"closed"`
	// Reason and Message are why it serves pods, or does not.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Resources are its numbers; resources with a slash in their name, such as GPUs, are first.
	Resources []QueueResource `json:"resources"`
	Created   metav1.Time     `json:"created"`
}

// QueueResource is what a queue may have, and has, of a resource, over all pools of nodes.
type QueueResource struct {
	Name v1.ResourceName `json:"name"`
	// Deserved is its share as things are: never more than it requests. Allocated is what its pods use, Pending what
	// its waiting pods ask for.
	Deserved  resource.Quantity `json:"deserved"`
	Allocated resource.Quantity `json:"allocated"`
	Requested resource.Quantity `json:"requested"`
	Pending   resource.Quantity `json:"pending"`
	// Stated is what spec.deserved states, Guarantee its floor and Capability its ceiling, in the pool default; nil for
	// none.
	Stated     *resource.Quantity `json:"stated,omitempty"`
	Guarantee  *resource.Quantity `json:"guarantee,omitempty"`
	Capability *resource.Quantity `json:"capability,omitempty"`
}

// Queues lists queues as a tree: each is followed by those below it, siblings by name. Queues without a way to the
// top, because a parent is missing or below them, come last.
func Queues(queues []*v1alpha1.Queue) []Queue {
	children, known := map[string][]*v1alpha1.Queue{}, map[string]bool{}
	sorted := slices.SortedFunc(slices.Values(queues),
		func(a, b *v1alpha1.Queue) int { return gangspec.CompareNatural(a.Name, b.Name) })
	for _, q := range sorted {
		children[q.Spec.Parent] = append(children[q.Spec.Parent], q)
		known[q.Name] = true
	}
	rows, listed := make([]Queue, 0, len(queues)), map[string]bool{}
	var list func(q *v1alpha1.Queue, depth int)
	list = func(q *v1alpha1.Queue, depth int) {
		if listed[q.Name] {
			return
		}
		listed[q.Name] = true
		rows = append(rows, queue(q, depth))
		for _, child := range children[q.Name] {
			list(child, depth+1)
		}
	}
	isTop := func(q *v1alpha1.Queue) bool { return q.Spec.Parent == "" }
	isOrphan := func(q *v1alpha1.Queue) bool { return !known[q.Spec.Parent] }
	isAny := func(*v1alpha1.Queue) bool { return true }
	for _, begins := range []func(*v1alpha1.Queue) bool{isTop, isOrphan, isAny} {
		for _, q := range sorted {
			if begins(q) {
				list(q, 0)
			}
		}
	}
	return rows
}

func queue(q *v1alpha1.Queue, depth int) Queue {
	row := Queue{
		Name: q.Name, Parent: q.Spec.Parent, Depth: depth, Weight: q.Spec.Weight,
		Priority: q.Spec.Priority, Share: q.Status.Share,
		Running: q.Status.RunningGangs, Pending: q.Status.PendingGangs, Closed: q.Spec.Closed, Created: q.CreationTimestamp,
	}
	if ready := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.QueueReady); ready != nil {
		row.Reason, row.Message = ready.Reason, ready.Message
	}
	names := map[v1.ResourceName]bool{}
	for _, list := range []v1.ResourceList{q.Status.Deserved, q.Status.Allocated, q.Status.Requested,
		q.Spec.Deserved, q.Spec.Guarantee, q.Spec.Capability} {
		for name := range list {
			names[name] = true
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(names), compareResources) {
		row.Resources = append(row.Resources, queueResource(q, name))
	}
	return row
}

func queueResource(q *v1alpha1.Queue, name v1.ResourceName) QueueResource {
	r := QueueResource{Name: name, Deserved: q.Status.Deserved[name], Allocated: q.Status.Allocated[name],
		Requested: q.Status.Requested[name]}
	r.Pending = r.Requested.DeepCopy()
	r.Pending.Sub(r.Allocated)
	r.Stated, r.Guarantee, r.Capability = amountOf(q.Spec.Deserved, name), amountOf(q.Spec.Guarantee,
		name), amountOf(q.Spec.Capability, name)
	return r
}

// amountOf returns the amount of a resource; nil where a list does not name it.
func amountOf(list v1.ResourceList, name v1.ResourceName) *resource.Quantity {
	if amount, ok := list[name]; ok {
		return &amount
	}
	return nil
}

// IsExtended reports whether a resource is one that nodes advertise, such as nvidia.com/gpu, or the devices of a
// DeviceClass, and none of Kubernetes' own.
func IsExtended(name v1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourceapi.ResourceDeviceClassPrefix) {
		return true
	}
	prefix, _, found := strings.Cut(string(name), "/")
	return found && prefix != "kubernetes.io" && !strings.HasSuffix(prefix, ".kubernetes.io")
}

// compareResources orders by: 1. extended resources first; 2. name.
func compareResources(a, b v1.ResourceName) int {
	return cmp.Or(bools.Compare(IsExtended(b), IsExtended(a)), cmp.Compare(a, b))
}

// SortedResources returns the names in a list: those that nodes advertise, such as GPUs, first.
func SortedResources(list v1.ResourceList) []v1.ResourceName {
	return slices.SortedFunc(maps.Keys(list), compareResources)
}
