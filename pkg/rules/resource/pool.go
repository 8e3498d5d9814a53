package resource

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// at stands between a resource and its pool. No resource has it in its name.
const at = "@"

// NameInPool returns the name of a resource in a pool of nodes: code that adds up, divides and compares
// amounts takes it for a resource of its own. In the default pool it is the resource's own name.
func NameInPool(pool string, name v1.ResourceName) v1.ResourceName {
	if pool == v1alpha1.DefaultPool {
		return name
	}
	return name + at + v1.ResourceName(pool)
}

// Split returns the pool and the resource of a name that [NameInPool] made.
func Split(name v1.ResourceName) (pool string, resource v1.ResourceName) {
	plain, pool, other := strings.Cut(string(name), at)
	if !other {
		return v1alpha1.DefaultPool, name
	}
	return pool, v1.ResourceName(plain)
}

// Title returns a name that [NameInPool] made in the form that users read.
func Title(name v1.ResourceName) string {
	pool, resource := Split(name)
	if pool == v1alpha1.DefaultPool {
		return string(resource)
	}
	return string(resource) + " in pool " + pool
}

// In returns v as an amount of a pool. In the default pool it is v itself.
func (v Vector) In(pool string) Vector {
	if pool == v1alpha1.DefaultPool || v == nil {
		return v
	}
	in := make(Vector, len(v))
	for name, amount := range v {
		in[NameInPool(pool, name)] = amount
	}
	return in
}

// ByPool splits an amount of several pools by pool.
func (v Vector) ByPool() map[string]Vector {
	pools := map[string]Vector{}
	for name, amount := range v {
		pool, plain := Split(name)
		nested.Set(pools, pool, plain, amount)
	}
	return pools
}

// Sum adds up the amounts of all pools.
func (v Vector) Sum() Vector {
	sum := make(Vector, len(v))
	for name, amount := range v {
		_, plain := Split(name)
		sum.Add(Vector{plain: amount}, 1)
	}
	return sum
}
