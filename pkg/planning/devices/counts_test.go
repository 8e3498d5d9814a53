package devices

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

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
			slices:  []*resourceapi.ResourceSlice{slice(nil), slice(func(s *resourceapi.ResourceSlice) { s.Name = "more" })},
			classes: []*resourceapi.DeviceClass{all}, want: "6",
		},
		"of classes for one resource the newest": {
			slices:  []*resourceapi.ResourceSlice{slice(nil)},
			classes: []*resourceapi.DeviceClass{class("a", "example.com/gpu", "false", time.Hour), class("b", "example.com/gpu", "true", 0)}, want: "3",
		},
		"of classes as old the first by name": {
			slices:  []*resourceapi.ResourceSlice{slice(nil)},
			classes: []*resourceapi.DeviceClass{class("b", "example.com/gpu", "true", 0), class("a", "example.com/gpu", "false", 0)}, want: "0",
		},
		"what the node says itself stands": {slices: []*resourceapi.ResourceSlice{slice(nil)}, classes: []*resourceapi.DeviceClass{all}, own: "8", want: "8"},
	} {
		t.Run(sentence, func(t *testing.T) {
			counts := NewCounts()
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

// TestCountsBehindTheNameOfAClass: each class backs a resource with a name made from its own, whether it names one or
// not.
func TestCountsBehindTheNameOfAClass(t *testing.T) {
	counts := NewCounts()
	counts.SetSlice(dra.Slice("n", 3))
	unnamed := dra.Class()
	unnamed.Name, unnamed.Spec.ExtendedResourceName = "unnamed", nil
	if nodes := counts.SetClass(unnamed); !slices.Equal(nodes, []string{"n"}) {
		t.Errorf("with the class nodes %v have other devices, want n", nodes)
	}
	counts.SetClass(dra.Class())
	has := counts.WithDevices(st.MakeNode().Name("n").Obj()).Status.Allocatable
	for _, name := range []string{string(dra.Backed), resourceapi.ResourceDeviceClassPrefix + dra.Driver, resourceapi.ResourceDeviceClassPrefix + "unnamed"} {
		if amount := has[v1.ResourceName(name)]; amount.Value() != 3 {
			t.Errorf("the node has %s of %s, want 3", amount.String(), name)
		}
	}
}

// TestCountsTellWhatChanges: each change returns the nodes that it may matter to.
func TestCountsTellWhatChanges(t *testing.T) {
	counts := NewCounts()
	node := st.MakeNode().Name("n").Obj()
	has := func() int64 {
		amount := counts.WithDevices(node).Status.Allocatable[dra.Backed]
		return amount.Value()
	}
	elsewhere := dra.Slice("n", 2)
	elsewhere.Spec.NodeName = new("m")
	renamed := dra.Class()
	renamed.Spec.ExtendedResourceName = new("example.com/other")
	for _, step := range []struct {
		do    string
		nodes []string
		has   int64
		call  func() []string
	}{
		{"a class without devices", nil, 0, func() []string { return counts.SetClass(dra.Class()) }},
		{"a slice", []string{"n"}, 2, func() []string { return counts.SetSlice(dra.Slice("n", 2)) }},
		{"the same again", nil, 2, func() []string { return counts.SetSlice(dra.Slice("n", 2)) }},
		{"more of it", []string{"n"}, 5, func() []string { return counts.SetSlice(dra.Slice("n", 5)) }},
		{"the class names another resource", []string{"n"}, 0, func() []string { return counts.SetClass(renamed) }},
		{"and the one from before", []string{"n"}, 5, func() []string { return counts.SetClass(dra.Class()) }},
		{"the same again", nil, 5, func() []string { return counts.SetClass(dra.Class()) }},
		{"the slice goes to another node", []string{"n", "m"}, 0, func() []string { return counts.SetSlice(elsewhere) }},
		{"and comes back", []string{"m", "n"}, 2, func() []string { return counts.SetSlice(dra.Slice("n", 2)) }},
		{"the class goes", []string{"n"}, 0, func() []string { return counts.DropClass(dra.Driver) }},
		{"it is gone", nil, 0, func() []string { return counts.DropClass(dra.Driver) }},
		{"it comes", []string{"n"}, 2, func() []string { return counts.SetClass(dra.Class()) }},
		{"the slice goes", []string{"n"}, 0, func() []string { return counts.DropSlice("n") }},
		{"it is gone", nil, 0, func() []string { return counts.DropSlice("n") }},
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
	counts, node := NewCounts(), st.MakeNode().Name("n").Obj()
	more := dra.Slice("n", 3)
	more.Name = "more"
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
