package resource

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The most of a resource that can be stated, in the unit in which it counts: no machine and no cluster
// has more. Whatever a user may write passes [Check] with one of them before it is counted, and what is read
// beyond them counts as not stated. So 9,000 pods or nodes, however large, add up to less than an int64 holds.
const (
	// MaxOfOne bounds what one pod asks for and what one node has: 10^12 CPUs, 10^15 bytes or devices.
	MaxOfOne int64 = 1e15
	// MaxOfAll bounds what is stated for a queue, a gang or a cluster: 10^15 CPUs, 10^18 bytes or devices.
	MaxOfAll int64 = 1e18
)

// Fault is an amount that nothing can have.
type Fault struct {
	// Field is where it is stated, the resource included: spec.deserved[cpu].
	Field string
	// Value is what is stated there; empty if the name of the resource is what is wrong.
	Value string
	// Want is what could be there.
	Want string
}

// Error returns the fault for users.
func (f *Fault) Error() string {
	if f.Value == "" {
		return fmt.Sprintf("%s: want %s", f.Field, f.Want)
	}
	return fmt.Sprintf("%s is %s: want %s", f.Field, f.Value, f.Want)
}

// Check returns what is wrong with the amounts of a field, the first by name; nil for nothing. Amounts are from
// 0 to most, those of anything but cpu, memory and ephemeral storage are whole, and resources have names that
// Kubernetes allows.
func Check(field string, list v1.ResourceList, most int64) *Fault {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		fault := &Fault{Field: fmt.Sprintf("%s[%s]", field, name)}
		switch {
		case len(validation.IsQualifiedName(string(name))) > 0:
			fault.Field, fault.Want = fmt.Sprintf("%s[%.80q]", field,
				name), "the name of a resource, such as cpu or example.com/device"
			return fault
		case quantity.Sign() < 0:
			fault.Want = "0 or more"
		case exceeds(name, &quantity, most):
			fault.Want = "at most " + limit(name, most).String()
		case !divides(name) && quantity.Sign() != 0 && quantity.CmpInt64(quantity.Value()) != 0:
			fault.Want = "a whole number"
		default:
			continue
		}
		fault.Value = Text(&quantity)
		return fault
	}
	return nil
}

// Text returns an amount as users read it. One with very many digits is only bounded: Kubernetes takes minutes to write
// a million.
func Text(quantity *resource.Quantity) string {
	const most = 1e100
	switch about := quantity.AsApproximateFloat64(); {
	case about > most:
		return "more than 1e100"
	case about < -most:
		return "less than -1e100"
	}
	return fmt.Sprintf("%.80s", quantity.String())
}

// CheckPod returns what is wrong with the amounts that a waiting pod asks for; nil for nothing. Such a pod
// cannot be scheduled, and counts nowhere. It is cheap for pods that ask for what a machine may have.
func CheckPod(pod *v1.Pod) *Fault {
	if pod.Spec.NodeName != "" || modest(&pod.Spec) {
		return nil
	}
	return CheckSpec("spec", pod)
}

// CheckSpec is [CheckPod] for any pod, with the path of its spec in the object that states it.
func CheckSpec(path string, pod *v1.Pod) *Fault {
	for _, list := range []struct {
		name       string
		containers []v1.Container
	}{{"initContainers", pod.Spec.InitContainers}, {"containers", pod.Spec.Containers}} {
		for i := range list.containers {
			field := fmt.Sprintf("%s.%s[%d].resources.requests", path, list.name, i)
			if fault := Check(field, list.containers[i].Resources.Requests, MaxOfOne); fault != nil {
				return fault
			}
		}
	}
	if all := pod.Spec.Resources; all != nil {
		if fault := Check(path+".resources.requests", all.Requests, MaxOfOne); fault != nil {
			return fault
		}
	}
	if fault := Check(path+".overhead", pod.Spec.Overhead, MaxOfOne); fault != nil {
		return fault
	}
	return Check("the sum of "+path+".containers[*].resources.requests", Requests(pod), MaxOfOne)
}

// modest reports whether all amounts of a pod are so far below the limit that their sum is, too.
func modest(spec *v1.PodSpec) bool {
	const parts = 1000
	if len(spec.Containers)+len(spec.InitContainers) >= parts {
		return false
	}
	small := func(list v1.ResourceList) bool {
		for name, quantity := range list {
			if quantity.Sign() < 0 || exceeds(name, &quantity, MaxOfOne/parts) {
				return false
			}
		}
		return true
	}
	for list := range requested(spec) {
		if !small(list) {
			return false
		}
	}
	return true
}

// requested returns the lists of what a spec requests.
func requested(spec *v1.PodSpec) iter.Seq[v1.ResourceList] {
	return func(yield func(v1.ResourceList) bool) {
		for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
			for i := range containers {
				if !yield(containers[i].Resources.Requests) {
					return
				}
			}
		}
		if !yield(spec.Overhead) || spec.Resources == nil {
			return
		}
		yield(spec.Resources.Requests)
	}
}

// Plus adds up amounts that may be more than anything has, for a bound or a message: what is beyond MaxOfAll
// counts as MaxOfAll. Such sums cannot be undone.
func Plus(a, b int64) int64 { return min(min(a, MaxOfAll)+min(b, MaxOfAll), MaxOfAll) }

// Times returns n times an amount, in the same way. Neither is negative.
func Times(amount, n int64) int64 {
	if n > 0 && amount > MaxOfAll/n {
		return MaxOfAll
	}
	return amount * n
}

// exceeds reports whether an amount is more than a limit in the unit in which the resource counts. Only amounts near
// the limit are compared exactly: that takes minutes for 1e1000000000.
func exceeds(name v1.ResourceName, quantity *resource.Quantity, most int64) bool {
	if name == v1.ResourceCPU {
		most /= 1000
	}
	switch about := quantity.AsApproximateFloat64(); {
	case quantity.Sign() <= 0, about < float64(most)/2:
		return false
	case about > float64(most)*2:
		return true
	}
	return quantity.CmpInt64(most) > 0
}

// limit returns a limit as users write it.
func limit(name v1.ResourceName, most int64) *resource.Quantity {
	if name == v1.ResourceCPU {
		return resource.NewMilliQuantity(most, resource.DecimalSI)
	}
	return resource.NewQuantity(most, resource.DecimalSI)
}

// divides reports whether parts of a unit of a resource can be asked for.
func divides(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
