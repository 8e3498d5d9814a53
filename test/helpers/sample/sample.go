// Package sample makes nodes and pods for tests.
package sample

import (
	"fmt"
	"strconv"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

const (
	// GPU is the resource that nodes have little of.
	GPU = v1.ResourceName("nvidia.com/gpu")
	// Profile is the name of the scheduler that pods ask for.
	Profile = "lockstep-scheduler"
)

// Node returns a node with so many GPUs, and room for 110 pods with a few CPUs each.
func Node(name string, gpus int) *st.NodeWrapper {
	return st.MakeNode().Name(name).Label(v1.LabelHostname, name).Capacity(map[v1.ResourceName]string{
		GPU: strconv.Itoa(gpus), v1.ResourceCPU: "64", v1.ResourceMemory: "512Gi", v1.ResourcePods: "110",
	})
}

// Pod returns a pod of namespace default. Its UID is its name.
func Pod(name string) *st.PodWrapper {
	return st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName(Profile)
}

// Member returns member i of a gang, which names the minimum of the gang; with a minimum of 0 it is in no gang.
func Member(gang string, i, minimum int) *st.PodWrapper {
	pod := Pod(fmt.Sprint(gang, "-", i))
	if minimum > 0 {
		pod.Annotation(v1alpha1.GangNameAnnotation, gang).Annotation(v1alpha1.MinAvailableAnnotation, strconv.Itoa(minimum))
	}
	return pod
}

// GPUs is a request for so many GPUs.
func GPUs(n int) map[v1.ResourceName]string { return map[v1.ResourceName]string{GPU: strconv.Itoa(n)} }

// Bound returns a pod as it is on a node.
func Bound(pod *v1.Pod, node string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	return pod
}

// WaitingPod is a pod at Permit, and counts how often it was called off.
type WaitingPod struct {
	fwk.WaitingPod
	CalledOff atomic.Int32
}

// Preempt calls the pod off.
func (w *WaitingPod) Preempt(string, string) bool {
	w.CalledOff.Add(1)
	return true
}
