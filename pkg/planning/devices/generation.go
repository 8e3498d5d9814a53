package devices

import (
	"iter"

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
