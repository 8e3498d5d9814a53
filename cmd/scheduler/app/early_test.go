package app

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/plugins/reservepods"
)

// somePods returns pods, some of which have no node, and some of which have ended.
func somePods(random *rand.Rand) (pods []*v1.Pod) {
	for i := range random.IntN(30) {
		pod := st.MakePod().Namespace("ns").Name(fmt.Sprint("p", i)).UID(fmt.Sprint("u", i)).Req(map[v1.ResourceName]string{v1.ResourceCPU: fmt.Sprint(1 + random.IntN(4))})
		if random.IntN(5) > 0 {
			pod.Node(fmt.Sprint("n", random.IntN(4)))
		}
		pod.ResourceVersion(fmt.Sprint(random.IntN(3)))
		if random.IntN(6) == 0 {
			pod.Phase(v1.PodSucceeded)
		}
		pods = append(pods, pod.Obj())
	}
	return pods
}

// handle does what the scheduler's handler does with what was listed.
func handle(t *testing.T, logger klog.Logger, c cache.Cache, pods []*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if pod.Spec.NodeName != "" && pod.Status.Phase != v1.PodSucceeded {
			if err := c.AddPod(logger, pod); err != nil {
				t.Errorf("adding %s: %v", pod.Name, err)
			}
		}
	}
}

// list calls the listener of a page of a list.
func list(e *early, pods []*v1.Pod, begin, next string, err error) {
	l := e.Listen(metav1.ListOptions{FieldSelector: reservepods.Selector, Continue: begin})
	for _, pod := range pods {
		l.Listed(pod)
	}
	l.Ended(&v1.PodList{ListMeta: metav1.ListMeta{Continue: next}}, err)
}

type held struct {
	CPU  int64
	Pods map[types.UID]string
}

// inCache returns what is on which node.
func inCache(c cache.Cache) map[string]held {
	nodes := map[string]held{}
	for name, node := range c.Dump().Nodes {
		h := held{CPU: node.GetRequested().GetMilliCPU(), Pods: map[types.UID]string{}}
		for _, pod := range node.GetPods() {
			h.Pods[pod.GetPod().UID] = pod.GetPod().ResourceVersion
		}
		if len(h.Pods) > 0 {
			nodes[name] = h
		}
	}
	return nodes
}

// TestEarly: once the handler has got all pods, the cache has what it would have had without early: also where a list
// failed first, and where the pod that the handler gets is a newer one.
func TestEarly(t *testing.T) {
	metrics.Register()
	logger, ctx := ktesting.NewTestContext(t)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		plain, e := cache.New(ctx, nil, false, false), newEarly()
		e.Cache = cache.New(ctx, nil, false, false)
		if random.IntN(2) == 0 { // the first list breaks off, on its first page or its second
			if random.IntN(2) == 0 {
				list(e, somePods(random), "", "more", nil)
				list(e, somePods(random), "more", "", errors.New("it broke off"))
			} else {
				list(e, somePods(random), "", "", errors.New("it broke off"))
			}
			if diff := cmp.Diff(map[string]held{}, inCache(e)); diff != "" {
				t.Fatalf("seed %d: of a list that failed stays (-want +got):\n%s", seed, diff)
			}
		}
		if random.IntN(2) == 0 { // the rest is never asked for
			list(e, somePods(random), "", "more", nil)
		}
		pods := somePods(random)
		half := random.IntN(len(pods) + 1)
		list(e, pods[:half], "", "more", nil)
		list(e, pods[half:], "more", "", nil)
		list(e, somePods(random), "", "", nil) // a second list has no listener
		var running []*v1.Pod
		for _, pod := range pods {
			if pod.Status.Phase != v1.PodSucceeded {
				running = append(running, pod)
			}
		}
		if diff := cmp.Diff(running, e.listed); diff != "" || !e.complete {
			t.Fatalf("seed %d: what was listed (-want +got), complete %t:\n%s", seed, e.complete, diff)
		}
		handle(t, logger, plain, pods)
		if diff := cmp.Diff(inCache(plain), inCache(e)); diff != "" {
			t.Fatalf("seed %d: before the handler (-want +got):\n%s", seed, diff)
		}
		told := make([]*v1.Pod, len(pods))
		for i, pod := range pods {
			if told[i] = pod; pod.Spec.NodeName != "" && random.IntN(8) == 0 {
				told[i] = pod.DeepCopy()
				told[i].ResourceVersion = "9"
			}
		}
		plain = cache.New(ctx, nil, false, false)
		handle(t, logger, plain, told)
		handle(t, logger, e, told)
		if diff := cmp.Diff(inCache(plain), inCache(e)); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		if len(e.pods) > 0 {
			t.Errorf("seed %d: %d pods are still expected", seed, len(e.pods))
		}
	}
}
