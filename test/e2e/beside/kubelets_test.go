package beside_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/observe"
)

// writers is how many statuses are written at a time.
const writers = 16

// kubelets are those of all nodes. Each takes pods in the order in which they arrive, and refuses those for which it
// has no room beside the pods that it has taken.
type kubelets struct {
	client kubernetes.Interface

	mu     sync.Mutex
	taken  map[string]map[types.UID]bool // by node; each pod takes one of cpuOnNode
	judged map[types.UID]bool
	// refused counts the pods that were refused by their scheduler.
	refused map[string]int
	gangs   map[string]*gang
	writes  errgroup.Group
}

// gang is what is bound of a gang, and not refused.
type gang struct {
	bound map[types.UID]bool
	// since is when the gang began to be partial; zero if it is not. longest is the longest such time that is over.
	since   time.Time
	longest time.Duration
}

func newKubelets(client kubernetes.Interface) *kubelets {
	k := &kubelets{client: client, taken: map[string]map[types.UID]bool{}, judged: map[types.UID]bool{}, refused: map[string]int{}, gangs: map[string]*gang{}}
	k.writes.SetLimit(writers)
	return k
}

// run plays the kubelets until the test ends.
func (k *kubelets) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	follower := observe.Follower[*v1.Pod]{
		From: observe.Core(k.client, "pods", metav1.NamespaceAll, fields.Everything()),
		See:  func(before, after *v1.Pod) { k.see(ctx, before, after) },
	}
	var done sync.WaitGroup
	done.Go(func() { follower.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if err := k.writes.Wait(); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
}

func (k *kubelets) see(ctx context.Context, before, after *v1.Pod) {
	if after == nil {
		k.ends(before)
		return
	}
	if node := after.Spec.NodeName; node != "" && after.Status.Phase == v1.PodPending {
		if status, first := k.judge(after, node); first {
			k.writes.Go(func() error { return k.write(ctx, after, status) })
		}
	}
}

// judge returns the verdict on a pod that was bound; false if it was given before.
func (k *kubelets) judge(pod *v1.Pod, node string) (v1.PodStatus, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.judged[pod.UID] {
		return v1.PodStatus{}, false
	}
	k.judged[pod.UID] = true
	if k.taken[node] == nil {
		k.taken[node] = map[types.UID]bool{}
	}
	if used := len(k.taken[node]); used >= cpuOnNode {
		k.refused[pod.Spec.SchedulerName]++
		return v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: fmt.Sprintf(
			"Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: %d000, capacity: %d000", used, cpuOnNode)}, true
	}
	k.taken[node][pod.UID] = true
	k.note(pod, true)
	now := metav1.Now()
	return v1.PodStatus{Phase: v1.PodRunning, StartTime: &now,
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: now}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}}},
	}, true
}

func (k *kubelets) write(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	status.Conditions = append(slices.Clone(pod.Status.Conditions), status.Conditions...)
	pod = pod.DeepCopy()
	pod.Status = status
	pod.ResourceVersion = "" // nobody else writes the status of a pod that is bound
	if _, err := k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// ends takes in that a pod is gone.
func (k *kubelets) ends(pod *v1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.taken[pod.Spec.NodeName], pod.UID)
	k.note(pod, false)
}

// note takes in that a kubelet has taken a member of a gang, or that the member is gone. A gang of which one member was
// refused is partial until another was taken in its place.
func (k *kubelets) note(pod *v1.Pod, taken bool) {
	name := pod.Annotations[v1alpha1.GangNameAnnotation]
	if name == "" {
		return
	}
	g := k.gangs[name]
	if g == nil {
		g = &gang{bound: map[types.UID]bool{}}
		k.gangs[name] = g
	}
	if taken {
		g.bound[pod.UID] = true
	} else {
		delete(g.bound, pod.UID)
	}
	switch partial := len(g.bound) > 0 && len(g.bound) < members; {
	case partial && g.since.IsZero():
		g.since = time.Now()
	case !partial && !g.since.IsZero():
		g.longest, g.since = max(g.longest, time.Since(g.since)), time.Time{}
	}
}

// longestPartial returns the longest time for which any gang was partial, and how many were for longer than a release
// takes.
func (k *kubelets) longestPartial(release time.Duration) (longest time.Duration, repaired int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.gangs {
		partial := g.longest
		if !g.since.IsZero() {
			partial = max(partial, time.Since(g.since))
		}
		if longest = max(longest, partial); partial > release {
			repaired++
		}
	}
	return longest, repaired
}
