package resource

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Vector is an amount of each resource. A resource that is not in it is 0.
type Vector map[v1.ResourceName]int64

// Add adds n times other to v. Adding and taking away is exact in any order, whatever the amounts are: what was
// added and taken away again leaves 0.
func (v Vector) Add(other Vector, n int64) {
	for name, amount := range other {
		v[name] += amount * n
	}
}

// AddTo adds n times an amount to that of a key, and removes the key if nothing is left.
func AddTo[M ~map[K]Vector, K comparable](sums M, key K, amount Vector, n int64) {
	if sums[key] == nil {
		sums[key] = Vector{}
	}
	if sums[key].Add(amount, n); sums[key].Zero() {
		delete(sums, key)
	}
}

// Zero reports whether v has no amount other than 0.
func (v Vector) Zero() bool {
	for _, amount := range v {
		if amount != 0 {
			return false
		}
	}
	return true
}

// String lists the amounts as users write them: "500m cpu, 16 nvidia.com/gpu", sorted by name; with
// the pool, where that is not the default one: "8 cpu in pool a".
func (v Vector) String() string {
	names := make([]v1.ResourceName, 0, len(v))
	for name, amount := range v {
		if amount != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	parts := make([]string, len(names))
	for i, name := range names {
		amount := quantity(name, v[name])
		parts[i] = fmt.Sprintf("%s %s", amount.String(), Title(name))
	}
	return strings.Join(parts, ", ")
}

func quantity(name v1.ResourceName, amount int64) resource.Quantity {
	_, name = Split(name)
	switch {
	case name == v1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case divides(name):
		return *resource.NewQuantity(amount, resource.BinarySI)
	default:
		return *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

// InUnits returns an amount of a resource in its base unit: cpu in cores.
func InUnits(name v1.ResourceName, amount int64) float64 {
	if name == v1.ResourceCPU {
		return float64(amount) / 1000
	}
	return float64(amount)
}

// FromList reads a list of resources as kube-scheduler does: cpu in thousandths, anything else in
// whole units, rounded up. An amount that nothing can have, see [MaxOfAll], is left out.
func FromList(list v1.ResourceList) Vector { return read(list, MaxOfAll) }

// OfPod returns what kube-scheduler counts for a pod; see [Requests]. An amount that no pod can have, see
// [MaxOfOne], is left out: it is on no node, but in the spec of a running pod.
func OfPod(pod *v1.Pod) Vector { return OfOne(Requests(pod)) }

// OfOne is [OfPod] for the requests of a pod.
func OfOne(requests v1.ResourceList) Vector { return read(requests, MaxOfOne) }

// OfNode returns what a node has for pods, without amounts that no node can have.
func OfNode(node *v1.Node) Vector { return read(node.Status.Allocatable, MaxOfOne) }

func read(list v1.ResourceList, most int64) Vector {
	v := make(Vector, len(list))
	for name, quantity := range list {
		switch {
		case quantity.Sign() < 0, exceeds(name, &quantity, most):
		case name == v1.ResourceCPU:
			v[name] = quantity.MilliValue()
		default:
			v[name] = quantity.Value()
		}
	}
	return v
}

// List returns v as the API writes it, without amounts of 0. Equal vectors give equal lists.
func (v Vector) List() v1.ResourceList {
	list := v1.ResourceList{}
	for name, amount := range v {
		if amount != 0 {
			list[name] = quantity(name, amount)
		}
	}
	return list
}
