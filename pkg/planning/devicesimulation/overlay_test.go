package devicesimulation

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestShared: devices that several nodes reach matter to pods whose claims may get some of them.
func TestShared(t *testing.T) {
	fabric := dra.Slice("n0", 1)
	fabric.Name, fabric.Spec.Pool.Name, fabric.Spec.NodeName, fabric.Spec.AllNodes, fabric.Spec.Driver = "fabric", "fabric", nil, new(true), "nic.example.com"
	counters := fabric.DeepCopy()
	counters.Name, counters.Spec.Devices = "counters", nil
	counters.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "memory"}}
	nics := dra.Class()
	nics.Name = "nics"
	nics.Spec.ExtendedResourceName = new("example.com/nic")
	nics.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "nic.example.com"`}}}
	gpus := dra.Class()
	gpus.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + dra.Driver + `"`}}}
	gpu, nic, either, none := dra.Claim("gpu", 1), dra.Claim("nic", 1), dra.Claim("either", 1), dra.Claim("none", 1)
	nic.Spec.Devices.Requests[0].Exactly.DeviceClassName = nics.Name
	none.Spec.Devices.Requests[0].Exactly.DeviceClassName = "unknown"
	either.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "either", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "gpu", DeviceClassName: gpus.Name, Count: 1}, {Name: "nic", DeviceClassName: nics.Name, Count: 1},
	}}}
	extended := func(name v1.ResourceName) *v1.Pod {
		return st.MakePod().Namespace("ns").Name("p").Req(map[v1.ResourceName]string{name: "1"}).Obj()
	}
	for sentence, c := range map[string]struct {
		pod    *v1.Pod
		shared []runtime.Object
		want   bool
	}{
		"a claim for devices of a node":                {dra.Pod("p", gpu.Name), []runtime.Object{fabric}, false},
		"a claim for such devices":                     {dra.Pod("p", nic.Name), []runtime.Object{fabric}, true},
		"there are none":                               {dra.Pod("p", nic.Name), nil, false},
		"a claim for one or the other":                 {dra.Pod("p", either.Name), []runtime.Object{fabric}, true},
		"claims for both":                              {dra.Pod("p", gpu.Name, nic.Name), []runtime.Object{fabric}, true},
		"an extended resource of a node":               {extended(dra.Backed), []runtime.Object{fabric}, false},
		"an extended resource for such devices":        {extended("example.com/nic"), []runtime.Object{fabric}, true},
		"it is not known what devices have in common":  {dra.Pod("p", gpu.Name), []runtime.Object{counters}, true},
		"a class that is not there selects no devices": {dra.Pod("p", none.Name), []runtime.Object{fabric}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := idle.New(t, idle.Options{Objects: append([]runtime.Object{dra.Slice("n0", 2), gpus, nics, gpu, nic, either, none}, c.shared...)})
			s.Start()
			simulator, err := New(s.Context, s.Framework)
			must.Succeed(t, err)
			if got, err := simulator.Overlay().Shared(c.pod); err != nil || got != c.want {
				t.Errorf("%t, %v; want %t", got, err, c.want)
			}
		})
	}
}

// TestBoundsOfGenerations: devices of a node are counted in the newest whole generation of their pool.
func TestBoundsOfGenerations(t *testing.T) {
	renewed := func(name string, count int, slices int64) *resourceapi.ResourceSlice {
		s := dra.Slice("n0", count)
		s.Name, s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = name, 1, slices
		return s
	}
	for sentence, c := range map[string]struct {
		newer []runtime.Object
		want  int
	}{
		"one generation":                  {nil, 4},
		"a newer one with other devices":  {[]runtime.Object{renewed("newer", 3, 1)}, 3},
		"of which a slice is to come yet": {[]runtime.Object{renewed("newer", 3, 2)}, 4},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := idle.New(t, idle.Options{Objects: append([]runtime.Object{dra.Slice("n0", 4), dra.Class()}, c.newer...)})
			s.Start()
			simulator, err := New(s.Context, s.Framework)
			must.Succeed(t, err)
			all, free, bounded := simulator.Overlay().Bounds(dra.Driver)
			if all["n0"] != c.want || free["n0"] != c.want || !bounded {
				t.Errorf("%d devices, of which %d are free; bounded: %t; want %d", all["n0"], free["n0"], bounded, c.want)
			}
		})
	}
}
