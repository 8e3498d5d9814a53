// Package dra makes objects of Dynamic Resource Allocation for tests: nodes with devices that are all alike, and pods
// in namespace ns that claim some.
package dra

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
)

const (
	// Driver is the driver of all devices, and the name of their class.
	Driver = "gpu.example.com"
	// Backed is the extended resource that the class backs.
	Backed = v1.ResourceName("example.com/gpu")
)

// Class returns the class of all devices.
func Class() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: Driver}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To(string(Backed))}}
}

// Slice returns the ResourceSlice of a node with so many devices.
func Slice(node string, count int) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: Driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	}
	for i := range count {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprint("gpu-", i)})
	}
	return slice
}

// Claim returns a claim that asks for so many devices, of any node.
func Claim(name string, count int) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(count)},
		}}}},
	}
}

// Held returns a claim with devices of a node, from the first of them on, that pods use.
func Held(claim *resourceapi.ResourceClaim, node string, first int, users ...string) *resourceapi.ResourceClaim {
	allocation := &resourceapi.AllocationResult{NodeSelector: st.MakeNodeSelector().In("metadata.name", []string{node}, st.NodeSelectorTypeMatchFields).Obj()}
	for i := range claim.Spec.Devices.Requests[0].Exactly.Count {
		allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "gpus", Driver: Driver, Pool: node, Device: fmt.Sprint("gpu-", first+int(i)),
		})
	}
	claim.Status.Allocation = allocation
	for _, user := range users {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: user, UID: types.UID(user)})
	}
	return claim
}

// Pod returns a pod with claims of these names.
func Pod(name string, claims ...string) *v1.Pod {
	p := st.MakePod().Namespace("ns").Name(name).UID(name).Req(map[v1.ResourceName]string{v1.ResourceCPU: "10m"}).Obj()
	for _, claim := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim, ResourceClaimName: ptr.To(claim)})
	}
	return p
}
