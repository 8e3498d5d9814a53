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

// generation is the newest generation of a pool: how many of its slices are there, and how many it says that it has.
// As for kube-scheduler, slices of older generations do not count, and no device can be allocated before all of the
// newest are there.
type generation struct{ number, slices, want int64 }

// newest returns the newest generation among all slices of a pool.
func newest(pool iter.Seq[*resourceapi.ResourceSlice]) (g generation) {
	for slice := range pool {
		switch of := slice.Spec.Pool; {
		case g.slices == 0, of.Generation > g.number:
			g = generation{of.Generation, 1, of.ResourceSliceCount}
		case of.Generation == g.number:
			g.slices++
		}
	}
	return g
}

func (g generation) includes(slice *resourceapi.ResourceSlice) bool {
	return slice.Spec.Pool.Generation == g.number
}

func (g generation) complete() bool { return g.slices == g.want }
