package clusterdevices

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

func counters(amounts map[string]int64) map[string]resourceapi.Counter {
	all := map[string]resourceapi.Counter{}
	for name, amount := range amounts {
		all[name] = resourceapi.Counter{Value: *resource.NewQuantity(amount, resource.DecimalSI)}
	}
	return all
}

// profiles are how a card may be divided: at which of its 8 slices of memory, of how many, with how many of its 14
// processors.
var profiles = []struct {
	name                 string
	starts               []int
	memory, multiprocess int64
}{
	{"1g", []int{0, 1, 2, 3, 4, 5, 6}, 1, 2}, {"1g-more", []int{0, 2, 4, 6}, 2, 2}, {"3g", []int{0, 4}, 4, 6}, {"4g", []int{0}, 4, 8},
	{"whole", []int{0}, 8, 14},
}

// cards returns the slices of a node with cards that can be divided: the counters of each, and its partitions.
func cards(node string, count int) []*resourceapi.ResourceSlice {
	pool := resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(1 + count)}
	shared := dra.Slice(node, 0)
	shared.Name, shared.Spec.Pool = node+"-counters", pool
	all := []*resourceapi.ResourceSlice{shared}
	for card := range count {
		set := fmt.Sprint("card-", card)
		has := map[string]int64{"processors": 14}
		for i := range 8 {
			has[fmt.Sprint("memory-", i)] = 1
		}
		shared.Spec.SharedCounters = append(shared.Spec.SharedCounters, resourceapi.CounterSet{Name: set, Counters: counters(has)})
		parts := dra.Slice(node, 0)
		parts.Name, parts.Spec.Pool = node+"-"+set, pool
		for _, profile := range profiles {
			for _, start := range profile.starts {
				takes := map[string]int64{"processors": profile.multiprocess}
				for i := range profile.memory {
					takes[fmt.Sprint("memory-", int64(start)+i)] = 1
				}
				parts.Spec.Devices = append(parts.Spec.Devices, resourceapi.Device{
					Name:             fmt.Sprintf("%s-%s-%d", set, profile.name, start),
					Attributes:       map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": {StringValue: new(profile.name)}},
					ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: counters(takes)}},
				})
			}
		}
		all = append(all, parts)
	}
	return all
}

// TestPartitions: of devices that exclude each other a node has as many as can be had at once.
func TestPartitions(t *testing.T) {
	of := func(profile string) string {
		return fmt.Sprintf("device.attributes['%s'].profile == '%s'", dra.Driver, profile)
	}
	for sentence, c := range map[string]struct {
		selector string
		cards    int
		with     func([]*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice
		want     int64
	}{
		"the smallest use up all processors, not all memory": {selector: of("1g"), cards: 1, want: 7},
		"or all memory":                   {selector: of("1g-more"), cards: 1, want: 4},
		"two halves":                      {selector: of("3g"), cards: 1, want: 2},
		"one that takes more than half":   {selector: of("4g"), cards: 1, want: 1},
		"whole cards":                     {selector: of("whole"), cards: 3, want: 3},
		"any partition is the smallest":   {cards: 1, want: 7},
		"each card has its own counters":  {cards: 8, want: 56},
		"without counters there are none": {cards: 1, want: 0, with: func(all []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice { return all[1:] }},
		"others count beside them": {cards: 1, want: 9, with: func(all []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
			other := dra.Slice("n", 2)
			other.Spec.Pool.Name = "other"
			return append(all, other)
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			counts := NewCounts(nil)
			all := cards("n", c.cards)
			if c.with != nil {
				all = c.with(all)
			}
			counts.Replace(all, []*resourceapi.DeviceClass{class("part", string(dra.Backed), c.selector, 0)})
			if got := backed(counts); got != c.want {
				t.Errorf("the node has %d, want %d", got, c.want)
			}
		})
	}
}

// backed returns how many devices node n has.
func backed(counts *Counts) int64 {
	amount := counts.WithDevices(st.MakeNode().Name("n").Obj()).Status.Allocatable[dra.Backed]
	return amount.Value()
}

// TestCountersChange: the nodes of a pool are counted again when its counters come, change and go, wherever these are.
func TestCountersChange(t *testing.T) {
	all := cards("n", 1)
	everywhere, half := all[0], all[0].DeepCopy()
	for _, slice := range []*resourceapi.ResourceSlice{everywhere, half} {
		slice.Spec.NodeName, slice.Spec.AllNodes = nil, new(true)
	}
	half.Spec.SharedCounters[0].Counters["processors"] = counters(map[string]int64{"": 6})[""]
	counts := NewCounts(nil)
	counts.Replace(all[1:], []*resourceapi.DeviceClass{dra.Class()})
	for _, step := range []struct {
		do   string
		call func() []string
		want int64
	}{
		{"counters come", func() []string { return counts.SetSlice(everywhere) }, 7},
		{"there are less", func() []string { return counts.SetSlice(half) }, 3},
		{"they go", func() []string { return counts.DropSlice(half.Name) }, 0},
	} {
		if nodes := step.call(); !slices.Equal(nodes, []string{"n"}) {
			t.Errorf("%s: nodes %v have other devices, want n", step.do, nodes)
		}
		if got := backed(counts); got != step.want {
			t.Errorf("%s: the node has %d, want %d", step.do, got, step.want)
		}
	}
	if unlimited := counts.Unlimited(); unlimited[v1.ResourceName(dra.Backed)] {
		t.Error("counters that all nodes reach are no devices that all nodes reach")
	}
}

// TestAtOnce: whatever the order of partitions, as many can be had at once, and of one counter no more.
func TestAtOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		several := random.IntN(3)
		has := map[counter]resource.Quantity{}
		for c := range 1 + several {
			amount := resource.NewQuantity(random.Int64N(12), resource.DecimalSI)
			if random.IntN(2) == 0 {
				amount.AsDec() // as what is read of "100Ti": copies share it
			}
			has[counter{"card", fmt.Sprint(c)}] = *amount
		}
		var all []partition
		for i := range random.IntN(9) {
			takes := map[string]int64{}
			for c := range 1 + several {
				takes[fmt.Sprint(c)] = random.Int64N(7)
			}
			all = append(all, partitionOf(&resourceapi.Device{Name: fmt.Sprint("p", i), ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "card", Counters: counters(takes)}}}))
		}
		got, most := atOnce(all, has), mostOf(all, has)
		if got > most || got < most && several == 0 || most > 0 && got == 0 {
			t.Fatalf("of %v and %v %d can be had at once, want %d", has, all, got, most)
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if again := atOnce(all, has); again != got {
			t.Fatalf("of %v and %v in another order %d can be had at once, and before %d", has, all, again, got)
		}
	}
}

// mostOf tries all sets of partitions.
func mostOf(all []partition, has map[counter]resource.Quantity) (most int64) {
	for set := range uint(1) << len(all) {
		sum, fits := map[counter]int64{}, true
		for i, p := range all {
			for _, t := range p.takes {
				if set&(1<<i) != 0 {
					sum[t.from] += t.amount.Value()
				}
			}
		}
		for of, amount := range sum {
			there := has[of]
			fits = fits && amount <= there.Value()
		}
		if fits {
			most = max(most, int64(bits.OnesCount(set)))
		}
	}
	return most
}
