package clusterdevices

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

// class returns a class that backs a resource with the devices that a selector selects.
func class(name, resource, selector string, age time.Duration) *resourceapi.DeviceClass {
	c := dra.Class()
	c.Name, c.Spec.ExtendedResourceName = name, &resource
	c.CreationTimestamp = metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age))
	if selector != "" {
		c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
	}
	return c
}

func TestCounts(t *testing.T) {
	slice := func(change func(*resourceapi.ResourceSlice)) *resourceapi.ResourceSlice {
		s := dra.Slice("n", 3)
		if change != nil {
			change(s)
		}
		return s
	}
	part := func(name string) func(*resourceapi.ResourceSlice) {
		return func(s *resourceapi.ResourceSlice) { s.Name, s.Spec.Pool.ResourceSliceCount = name, 2 }
	}
	renewed := func(name string, count int64) func(*resourceapi.ResourceSlice) {
		return func(s *resourceapi.ResourceSlice) {
			s.Name, s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = name, 2, count
		}
	}
	all := class("all", "example.com/gpu", "", 0)
	for sentence, c := range map[string]struct {
		slices  []*resourceapi.ResourceSlice
		classes []*resourceapi.DeviceClass
		own     string
		want    string
	}{
		"the devices of the node count": {slices: []*resourceapi.ResourceSlice{slice(nil)}, classes: []*resourceapi.DeviceClass{all}, want: "3"},
		"those that the class selects": {
			slices:  []*resourceapi.ResourceSlice{slice(nil)},
			classes: []*resourceapi.DeviceClass{class("some", "example.com/gpu", "device.driver == 'other.example.com'", 0)}, want: "0",
		},
		"a selector that cannot be evaluated selects none": {
			slices:  []*resourceapi.ResourceSlice{slice(nil)},
			classes: []*resourceapi.DeviceClass{class("some", "example.com/gpu", "device.attributes['x.example.com'].y > 1", 0)}, want: "0",
		},
		"without a class": {slices: []*resourceapi.ResourceSlice{slice(nil)}, want: ""},
		"of another node": {
			slices:  []*resourceapi.ResourceSlice{slice(func(s *resourceapi.ResourceSlice) { s.Spec.NodeName = new("m") })},
			classes: []*resourceapi.DeviceClass{all}, want: "",
		},
		"of all nodes": {
			slices:  []*resourceapi.ResourceSlice{slice(func(s *resourceapi.ResourceSlice) { s.Spec.NodeName, s.Spec.AllNodes = nil, new(true) })},
			classes: []*resourceapi.DeviceClass{all}, want: "",
		},
		"the newest generation of a pool": {
			slices: []*resourceapi.ResourceSlice{slice(nil), slice(func(s *resourceapi.ResourceSlice) {
				s.Name, s.Spec.Pool.Generation, s.Spec.Devices = "newer", 2, s.Spec.Devices[:1]
			})},
			classes: []*resourceapi.DeviceClass{all}, want: "1",
		},
		"all slices of a generation": {
			slices:  []*resourceapi.ResourceSlice{slice(part("n")), slice(part("more"))},
			classes: []*resourceapi.DeviceClass{all}, want: "6",
		},
		"what is there, before all slices are":            {slices: []*resourceapi.ResourceSlice{slice(part("n"))}, classes: []*resourceapi.DeviceClass{all}, want: "3"},
		"a whole generation, until the next one is whole": {slices: []*resourceapi.ResourceSlice{slice(nil), slice(renewed("part", 2))}, classes: []*resourceapi.DeviceClass{all}, want: "3"},
		"a generation that has left the node":             {slices: []*resourceapi.ResourceSlice{slice(nil), slice(func(s *resourceapi.ResourceSlice) { renewed("m", 1)(s); s.Spec.NodeName = new("m") })}, classes: []*resourceapi.DeviceClass{all}, want: "0"},
		"other pools have their own generation":           {slices: []*resourceapi.ResourceSlice{slice(nil), slice(func(s *resourceapi.ResourceSlice) { renewed("m", 1)(s); s.Spec.Pool.Name = "other" })}, classes: []*resourceapi.DeviceClass{all}, want: "6"},
		"those of several classes for one resource, each once": {
			slices: []*resourceapi.ResourceSlice{slice(nil)},
			classes: []*resourceapi.DeviceClass{
				class("a", "example.com/gpu", "false", time.Hour), class("b", "example.com/gpu", "true", 0), class("c", "example.com/gpu", "true", 0),
			}, want: "3",
		},
		"not as another resource":          {slices: []*resourceapi.ResourceSlice{slice(nil)}, classes: []*resourceapi.DeviceClass{class("other", "example.com/other", "", 0)}, want: ""},
		"what the node says itself stands": {slices: []*resourceapi.ResourceSlice{slice(nil)}, classes: []*resourceapi.DeviceClass{all}, own: "8", want: "8"},
	} {
		t.Run(sentence, func(t *testing.T) {
			counts := NewCounts(nil)
			for _, slice := range c.slices {
				counts.SetSlice(slice)
			}
			for _, class := range c.classes {
				counts.SetClass(class)
			}
			node := st.MakeNode().Name("n").Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
			if c.own != "" {
				node.Status.Allocatable[dra.Backed] = st.MakeNode().Capacity(map[v1.ResourceName]string{dra.Backed: c.own}).Obj().Status.Allocatable[dra.Backed]
			}
			before := fmt.Sprint(node.Status.Allocatable)
			got := ""
			if amount, ok := counts.WithDevices(node).Status.Allocatable[dra.Backed]; ok {
				got = amount.String()
			}
			if got == "" && c.want == "0" {
				got = "0"
			}
			if got != c.want {
				t.Errorf("the node has %q, want %q", got, c.want)
			}
			if now := fmt.Sprint(node.Status.Allocatable); now != before {
				t.Errorf("the node itself has %s now, want %s", now, before)
			}
		})
	}
}

// TestCountsBehindTheNameOfAClass: a class that names no resource counts as the one with a name made from its own.
func TestCountsBehindTheNameOfAClass(t *testing.T) {
	counts := NewCounts(nil)
	counts.SetSlice(dra.Slice("n", 3))
	unnamed := dra.Class()
	unnamed.Name, unnamed.Spec.ExtendedResourceName = "unnamed", nil
	if _, nodes := counts.SetClass(unnamed); !slices.Equal(nodes, []string{"n"}) {
		t.Errorf("with the class nodes %v have other devices, want n", nodes)
	}
	counts.SetClass(dra.Class())
	has := counts.WithDevices(st.MakeNode().Name("n").Obj()).Status.Allocatable
	for _, name := range []string{string(dra.Backed), resourceapi.ResourceDeviceClassPrefix + "unnamed"} {
		if amount := has[v1.ResourceName(name)]; amount.Value() != 3 {
			t.Errorf("the node has %s of %s, want 3", amount.String(), name)
		}
	}
	if amount, ok := has[v1.ResourceName(resourceapi.ResourceDeviceClassPrefix+dra.Driver)]; ok {
		t.Errorf("the node has %s of the name made from that of a class which names another", amount.String())
	}
}

// TestNames: whatever the name by which devices are asked for, they count as one resource: the configured one, else the
// one that their class names, else the one made from the name of the class.
func TestNames(t *testing.T) {
	const mapped, derived = v1.ResourceName("nvidia.com/gpu"), v1.ResourceName(resourceapi.ResourceDeviceClassPrefix + dra.Driver)
	unnamed := dra.Class()
	unnamed.Spec.ExtendedResourceName = nil
	for sentence, c := range map[string]struct {
		configured map[string]v1.ResourceName
		class      *resourceapi.DeviceClass
		want       v1.ResourceName
		renamed    bool
	}{
		"no class":                            {want: derived},
		"a class that names no resource":      {class: unnamed, want: derived},
		"a class that names one":              {class: dra.Class(), want: dra.Backed, renamed: true},
		"no class, for which one is said":     {configured: map[string]v1.ResourceName{dra.Driver: mapped}, want: mapped},
		"a class for which one is said":       {configured: map[string]v1.ResourceName{dra.Driver: mapped}, class: unnamed, want: mapped, renamed: true},
		"a class that names one, for another": {configured: map[string]v1.ResourceName{dra.Driver: mapped}, class: dra.Class(), want: mapped, renamed: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			counts := NewCounts(c.configured)
			if c.class != nil {
				if renamed, _ := counts.SetClass(c.class); renamed != c.renamed {
					t.Errorf("devices count otherwise with the class: %v, want %v", renamed, c.renamed)
				}
			}
			if got := counts.ResourceOf(dra.Driver); got != c.want {
				t.Errorf("devices count as %s, want %s", got, c.want)
			}
			asked := resource.Vector{derived: 1, v1.ResourceCPU: 5}
			want := resource.Vector{c.want: 1, v1.ResourceCPU: 5}
			if c.class == nil {
				want = asked // nothing makes devices of it
			} else if c.class.Spec.ExtendedResourceName != nil {
				asked[dra.Backed], want[c.want] = 2, 3
			}
			if diff := cmp.Diff(want, counts.Renamed(asked)); diff != "" {
				t.Errorf("what is asked for (-want +got):\n%s", diff)
			}
			node := st.MakeNode().Name("n").Capacity(map[v1.ResourceName]string{derived: "4"}).Obj()
			if c.class != nil {
				amount := counts.WithDevices(node).Status.Allocatable[c.want]
				if amount.Value() != 4 {
					t.Errorf("a node with 4 by a device plugin has %s, want 4", amount.String())
				}
			}
		})
	}
}

// TestUnlimited: a resource has no limit while any of its devices are in reach of several nodes, or of several claims.
func TestUnlimited(t *testing.T) {
	networked, multiple := dra.Slice("n", 1), dra.Slice("n", 2)
	networked.Name, networked.Spec.NodeName, networked.Spec.AllNodes = "networked", nil, new(true)
	renewed := dra.Slice("n", 0)
	renewed.Name, renewed.Spec.Pool.Generation = "renewed", 2
	multiple.Name, multiple.Spec.Pool.Generation, multiple.Spec.Devices[1].AllowMultipleAllocations = "multiple", 2, new(true)
	counts := NewCounts(nil)
	for _, step := range []struct {
		do   string
		call func()
		want bool
	}{
		{"devices of a node", func() { counts.SetClass(dra.Class()); counts.SetSlice(dra.Slice("n", 2)) }, false},
		{"one that all nodes reach", func() { counts.SetSlice(networked) }, true},
		{"which no class selects", func() { counts.SetClass(class(dra.Driver, string(dra.Backed), "false", 0)) }, false},
		{"which one selects", func() { counts.SetClass(dra.Class()) }, true},
		{"its pool is renewed without it", func() { counts.SetSlice(renewed) }, false},
		{"and again as before", func() { counts.DropSlice("renewed") }, true},
		{"it is gone", func() { counts.DropSlice("networked") }, false},
		{"one for several claims", func() { counts.SetSlice(multiple) }, true},
	} {
		step.call()
		if got := counts.Unlimited(); got[dra.Backed] != step.want || len(got) > 1 {
			t.Errorf("%s: without limit are %v, want %s: %v", step.do, got, dra.Backed, step.want)
		}
	}
}

// TestCountsTellWhatChanges: each change returns the nodes that it may matter to.
func TestCountsTellWhatChanges(t *testing.T) {
	counts := NewCounts(nil)
	node := st.MakeNode().Name("n").Obj()
	has := func() int64 {
		amount := counts.WithDevices(node).Status.Allocatable[dra.Backed]
		return amount.Value()
	}
	elsewhere := dra.Slice("n", 2)
	elsewhere.Spec.NodeName = new("m")
	half := func(node string, generation int64) *resourceapi.ResourceSlice {
		s := dra.Slice(node, 2)
		s.Spec.Pool = resourceapi.ResourcePool{Name: "both", Generation: generation, ResourceSliceCount: 2}
		return s
	}
	renamed := dra.Class()
	renamed.Spec.ExtendedResourceName = new("example.com/other")
	set := func(class *resourceapi.DeviceClass) []string { _, nodes := counts.SetClass(class); return nodes }
	drop := func(name string) []string { _, nodes := counts.DropClass(name); return nodes }
	for _, step := range []struct {
		do    string
		nodes []string
		has   int64
		call  func() []string
	}{
		{"a class without devices", nil, 0, func() []string { return set(dra.Class()) }},
		{"a slice", []string{"n"}, 2, func() []string { return counts.SetSlice(dra.Slice("n", 2)) }},
		{"the same again", nil, 2, func() []string { return counts.SetSlice(dra.Slice("n", 2)) }},
		{"more of it", []string{"n"}, 5, func() []string { return counts.SetSlice(dra.Slice("n", 5)) }},
		{"the class names another resource", []string{"n"}, 0, func() []string { return set(renamed) }},
		{"and the one from before", []string{"n"}, 5, func() []string { return set(dra.Class()) }},
		{"the same again", nil, 5, func() []string { return set(dra.Class()) }},
		{"the slice goes to another node", []string{"m", "n"}, 0, func() []string { return counts.SetSlice(elsewhere) }},
		{"and comes back", []string{"m", "n"}, 2, func() []string { return counts.SetSlice(dra.Slice("n", 2)) }},
		{"the class goes", []string{"n"}, 0, func() []string { return drop(dra.Driver) }},
		{"it is gone", nil, 0, func() []string { return drop(dra.Driver) }},
		{"it comes", []string{"n"}, 2, func() []string { return set(dra.Class()) }},
		{"the slice goes", []string{"n"}, 0, func() []string { return counts.DropSlice("n") }},
		{"it is gone", nil, 0, func() []string { return counts.DropSlice("n") }},
		{"one of two slices of a pool", []string{"n"}, 2, func() []string { return counts.SetSlice(half("n", 0)) }},
		{"the other, of another node", []string{"m", "n"}, 2, func() []string { return counts.SetSlice(half("m", 0)) }},
		{"the next generation of that", []string{"m", "n"}, 2, func() []string { return counts.SetSlice(half("m", 1)) }},
		{"and of this", []string{"m", "n"}, 2, func() []string { return counts.SetSlice(half("n", 1)) }},
	} {
		if nodes := step.call(); !slices.Equal(nodes, step.nodes) {
			t.Errorf("%s: nodes %v, want %v", step.do, nodes, step.nodes)
		}
		if has() != step.has {
			t.Errorf("%s: the node has %d, want %d", step.do, has(), step.has)
		}
	}
}

// TestReplace: what is no longer listed is gone.
func TestReplace(t *testing.T) {
	counts, node := NewCounts(nil), st.MakeNode().Name("n").Obj()
	more := dra.Slice("n", 3)
	more.Name, more.Spec.Pool.Name = "more", "more"
	for _, c := range []struct {
		slices  []*resourceapi.ResourceSlice
		classes []*resourceapi.DeviceClass
		want    int64
	}{
		{[]*resourceapi.ResourceSlice{dra.Slice("n", 2), more}, []*resourceapi.DeviceClass{dra.Class()}, 5},
		{[]*resourceapi.ResourceSlice{more}, []*resourceapi.DeviceClass{dra.Class()}, 3},
		{[]*resourceapi.ResourceSlice{more}, nil, 0},
		{nil, []*resourceapi.DeviceClass{dra.Class()}, 0},
		{[]*resourceapi.ResourceSlice{dra.Slice("n", 2)}, []*resourceapi.DeviceClass{dra.Class()}, 2},
	} {
		counts.Replace(c.slices, c.classes)
		if amount := counts.WithDevices(node).Status.Allocatable[dra.Backed]; amount.Value() != c.want {
			t.Errorf("with %d slices and %d classes the node has %s, want %d", len(c.slices), len(c.classes), amount.String(), c.want)
		}
	}
}
