package clusterdevices

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// counter is one of the counters of a pool, from which its devices take.
type counter struct{ set, name string }

// partition is a device that takes from counters: it excludes others that need the same.
type partition struct {
	name string
	// takes are sorted by set and name.
	takes []taken
}

// taken is what a partition takes from a counter.
type taken struct {
	from   counter
	amount resource.Quantity
}

func partitionOf(device *resourceapi.Device) partition {
	p := partition{name: device.Name}
	for _, set := range device.ConsumesCounters {
		for name, takes := range set.Counters {
			p.takes = append(p.takes, taken{counter{set.CounterSet, name}, takes.Value})
		}
	}
	slices.SortFunc(p.takes, func(a, b taken) int {
		return cmp.Or(cmp.Compare(a.from.set, b.from.set), cmp.Compare(a.from.name, b.from.name))
	})
	return p
}

// size returns the sum of the parts that a partition takes of counters.
func (p partition) size(counters map[counter]resource.Quantity) (sum float64) {
	for _, t := range p.takes {
		if has := counters[t.from]; !has.IsZero() {
			sum += t.amount.AsApproximateFloat64() / has.AsApproximateFloat64()
		}
	}
	return sum
}

// atOnce returns how many partitions of a pool can be had at once, if the smallest are taken first. Where all take from
// one counter, there is no way to have more.
func atOnce(partitions []partition, counters map[counter]resource.Quantity) (count int64) {
	sizes := make(map[string]float64, len(partitions))
	for _, p := range partitions {
		sizes[p.name] = p.size(counters)
	}
	// By 1. size; 2. name.
	sorted := slices.SortedFunc(slices.Values(partitions), func(a, b partition) int {
		return cmp.Or(cmp.Compare(sizes[a.name], sizes[b.name]), cmp.Compare(a.name, b.name))
	})
	left := maps.Clone(counters)
	lacks := func(t taken) bool { has := left[t.from]; return has.Cmp(t.amount) < 0 }
	for _, p := range sorted {
		if slices.ContainsFunc(p.takes, lacks) {
			continue
		}
		count++
		for _, t := range p.takes {
			has := left[t.from].DeepCopy() // a large amount is a pointer to that of the slice
			has.Sub(t.amount)
			left[t.from] = has
		}
	}
	return count
}
