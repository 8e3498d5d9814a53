package clusterdevices

import (
	"iter"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// poolID identifies a pool of devices.
type poolID struct{ driver, name string }

func poolOf(slice *resourceapi.ResourceSlice) poolID {
	return poolID{slice.Spec.Driver, slice.Spec.Pool.Name}
}

// generation says which slices of a pool count: those of the newest generation of which all are there. While none is
// whole, since its driver writes the slices one after the other, all of them count: what the pool has had is not gone.
// kube-scheduler allocates nothing from a pool until its newest generation is whole.
type generation struct {
	number int64
	whole  bool
}

// generationOf returns which slices of a pool count.
func generationOf(pool iter.Seq[*resourceapi.ResourceSlice]) (g generation) {
	there := map[int64]int64{}
	for slice := range pool {
		of := slice.Spec.Pool
		there[of.Generation]++
		if there[of.Generation] == of.ResourceSliceCount && (!g.whole || of.Generation > g.number) {
			g = generation{of.Generation, true}
		}
	}
	return g
}

func (g generation) includes(slice *resourceapi.ResourceSlice) bool {
	return !g.whole || slice.Spec.Pool.Generation == g.number
}

// Current returns those of all ResourceSlices that count.
func Current(all []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	pools := make(map[poolID][]*resourceapi.ResourceSlice, len(all))
	for _, slice := range all {
		pools[poolOf(slice)] = append(pools[poolOf(slice)], slice)
	}
	current := make([]*resourceapi.ResourceSlice, 0, len(all))
	for _, pool := range pools {
		g := generationOf(slices.Values(pool))
		for _, slice := range pool {
			if g.includes(slice) {
				current = append(current, slice)
			}
		}
	}
	return current
}
