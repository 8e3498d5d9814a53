package resource

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Vector is an amount of each resource. A resource that is not in it is 0.
type Vector map[v1.ResourceName]int64

// Add adds n times other to v.
func (v Vector) Add(other Vector, n int64) {
	for name, amount := range other {
		v[name] = saturate(v[name], amount, n)
	}
}

// saturate returns a + b*n, kept inside int64.
func saturate(a, b, n int64) int64 {
	product := b * n
	if sum := a + product; fits(b, n, product) && (sum > a) == (product > 0) {
		return sum
	}
	exact := new(big.Int).Mul(big.NewInt(b), big.NewInt(n))
	exact.Add(exact, big.NewInt(a))
	switch {
	case exact.IsInt64():
		return exact.Int64()
	case exact.Sign() > 0:
		return math.MaxInt64
	default:
		return math.MinInt64
	}
}

// fits reports whether a product did not overflow.
func fits(b, n, product int64) bool {
	return n == 0 || product/n == b && (n != -1 || b != math.MinInt64)
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
	slices.SortFunc(names, func(a, b v1.ResourceName) int { return cmp.Compare(a, b) })
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
	case name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage, strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(amount, resource.BinarySI)
	default:
		return *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

// FromList reads a list of resources as kube-scheduler does: cpu in thousandths, anything else in
// whole units, rounded up. An amount too large for an int64 is the largest one.
func FromList(list v1.ResourceList) Vector {
	v := make(Vector, len(list))
	for name, quantity := range list {
		switch {
		case name == v1.ResourceCPU && quantity.CmpInt64(math.MaxInt64/1000) >= 0, quantity.CmpInt64(math.MaxInt64) >= 0:
			v[name] = math.MaxInt64
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
