package heldcapacity

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// TestBlockedInTurns: of many pods that are to be tried again a few are at a time, the first in rank at once; each
// has its turn, although those before it come again and again, and none is forgotten.
func TestBlockedInTurns(t *testing.T) {
	const count = 20 * maxAtOnce
	var b blocked
	nodes := make([]string, manyNodes+1)
	for i := range nodes {
		nodes[i] = fmt.Sprint("node-", i)
	}
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pods[i] = st.MakePod().Name(fmt.Sprint(i)).UID(fmt.Sprint(i)).Priority(int32(count - i)).Obj()
		b.addPod(pods[i], nodes)
	}
	seen := map[types.UID]int{}
	for turn := range 2 * count / maxAtOnce {
		b.ended("elsewhere")
		taken := b.takeRetries()
		if len(taken) > maxAtOnce || len(taken) == 0 {
			t.Fatalf("%d pods at once, want 1 to %d", len(taken), maxAtOnce)
		}
		if taken[0].UID != "0" {
			t.Fatalf("turn %d begins with %s, want the first in rank", turn, taken[0].UID)
		}
		for _, pod := range taken {
			seen[pod.UID]++
			b.addPod(pod, nodes) // it fails again
		}
	}
	for _, pod := range pods {
		if seen[pod.UID] == 0 {
			t.Fatalf("pod %s had no turn; %d of %d had", pod.UID, len(seen), count)
		}
	}
	left := map[types.UID]bool{}
	b.retryAll()
	for taken := b.takeRetries(); len(taken) > 0; taken = b.takeRetries() {
		for _, pod := range taken {
			if left[pod.UID] {
				t.Fatalf("pod %s has two turns, and nothing ended", pod.UID)
			}
			left[pod.UID] = true
		}
	}
	if len(left) != count {
		t.Errorf("%d pods were left, want %d", len(left), count)
	}
}

// TestDevicesFreed: free devices help pods that may need some, however many nodes refused them, and no others.
func TestDevicesFreed(t *testing.T) {
	claims := st.MakePod().Name("claims").UID("claims").PodResourceClaims(v1.PodResourceClaim{Name: "gpu"}).Obj()
	many := make([]string, manyNodes+1)
	var b blocked
	b.addPod(claims, many)
	b.addPod(makePod("gpu"), []string{"n"})
	b.addPod(st.MakePod().Name("cpu").UID("cpu").Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj(), many)
	b.devicesFreed()
	got := sets.New[string]()
	for _, pod := range b.takeRetries() {
		got.Insert(pod.Name)
	}
	if !got.Equal(sets.New("claims", "gpu")) {
		t.Errorf("tried again: %v, want claims and gpu", got.UnsortedList())
	}
}

// TestForgotten: of pods that are gone, or have a node, nothing is kept.
func TestForgotten(t *testing.T) {
	var b blocked
	b.addPod(makePod("gpu"), []string{"n"})
	b.forget(makePod("gpu").UID)
	b.forget("unknown")
	if len(b.pods)+len(b.waiting) > 0 {
		t.Errorf("kept: %v, %v", b.pods, b.waiting)
	}
	if b.ended("n"); len(b.takeRetries()) > 0 {
		t.Error("it is tried again")
	}
}
