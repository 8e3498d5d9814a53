package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// server has pods, and takes in patches of their status as an API server does. The reader sees what it has once that is
// shown.
type server struct {
	mu sync.Mutex
	// stored and seen are pods by name.
	stored, seen map[string]*v1.Pod
	// fail is what the next writes end in, and refuse what those to a pod of a name do.
	fail   []error
	refuse map[string]error
	// wrote is "pod: reason: message", in order.
	wrote []string
	// refused is when writes were refused.
	refused []time.Time
}

func newServer(names ...string) *server {
	s := &server{stored: map[string]*v1.Pod{}, seen: map[string]*v1.Pod{}}
	for _, name := range names {
		s.stored[name] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid of " + name), ResourceVersion: "1"}}
	}
	s.show()
	return s
}

// show makes the reader see everything.
func (s *server) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = map[string]*v1.Pod{}
	for name, pod := range s.stored {
		s.seen[name] = pod
	}
}

// touch changes a pod.
func (s *server) touch(name string, change func(*v1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(name, change)
}

func (s *server) change(name string, change func(*v1.Pod)) {
	pod := s.stored[name].DeepCopy()
	change(pod)
	version, _ := strconv.Atoi(pod.ResourceVersion)
	pod.ResourceVersion = strconv.Itoa(version + 1)
	s.stored[name] = pod
}

// pods returns what the reader sees.
func (s *server) pods(names ...string) (list []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if pod := s.seen[name]; pod != nil {
			list = append(list, pod)
		}
	}
	return list
}

func (s *server) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrote)
}

func (s *server) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fail) > 0 {
		err := s.fail[0]
		s.fail = s.fail[1:]
		return true, nil, err
	}
	patch := action.(clienttesting.PatchAction)
	if err := s.refuse[patch.GetName()]; err != nil {
		s.refused = append(s.refused, time.Now())
		return true, nil, err
	}
	resource := v1.Resource("pods")
	pod := s.stored[patch.GetName()]
	if pod == nil {
		return true, nil, apierrors.NewNotFound(resource, patch.GetName())
	}
	var body v1.Pod
	if err := json.Unmarshal(patch.GetPatch(), &body); err != nil {
		return true, nil, err
	}
	if body.UID != pod.UID || body.ResourceVersion != pod.ResourceVersion {
		return true, nil, apierrors.NewConflict(resource, pod.Name, errors.New("it has changed"))
	}
	condition := body.Status.Conditions[0]
	s.change(pod.Name, func(p *v1.Pod) { p.Status.Conditions = body.Status.Conditions })
	s.wrote = append(s.wrote, fmt.Sprintf("%s: %s: %s", pod.Name, condition.Reason, condition.Message))
	return true, s.stored[pod.Name], nil
}

// queue makes a queue to a server.
func queue(s *server, qps int32, say func(string) PendingCondition) *ConditionQueue[string] {
	begun := make(chan struct{})
	close(begun)
	return queueOf(New(begun), s, qps, say)
}

func queueOf(w *Writer, s *server, qps int32, say func(string) PendingCondition) *ConditionQueue[string] {
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", s.patch)
	return NewConditionQueue(w, client, qps, say)
}

// shared is a value that the test sets and a queue reads, or the other way round.
type shared[T any] struct {
	mu    sync.Mutex
	value T
}

func (v *shared[T]) get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}

func (v *shared[T]) set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = value
}

func expect(t *testing.T, sentence string, s *server, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, s.written()); diff != "" {
		t.Errorf("%s: writes (-want +got):\n%s", sentence, diff)
	}
}

// expectAll expects writes in any order: those that are under way at the same time end in any.
func expectAll(t *testing.T, sentence string, s *server, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(s.written()))); diff != "" {
		t.Errorf("%s: writes (-want +got):\n%s", sentence, diff)
	}
}

// gives makes pods say that they wait for a reason, in some words.
func (s *server) gives(reason, message string, names ...string) {
	for _, name := range names {
		s.touch(name, func(pod *v1.Pod) {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}}
		})
	}
	s.show()
}

// run runs a queue in a bubble, until the test ends.
func run(t *testing.T, test func(t *testing.T, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		test(t, ctx)
		cancel()
		synctest.Wait()
	})
}

// TestWrites: each pod is written to once; what it has already is not written.
func TestWrites(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a", "b", "c", "d", "e", "f", "g", "h")
		s.gives(v1.PodReasonUnschedulable, "no room", "b")
		s.gives(v1.PodReasonUnschedulable, "0/3 nodes are available: no room. preemption: nobody.", "c")
		s.gives(v1.PodReasonUnschedulable, "no room for two", "d")
		s.gives("Before", "it took too long; no room", "e")
		s.gives("Before", "no room", "f")
		s.gives(v1.PodReasonUnschedulable, "no room. 0/3 nodes are available", "g")
		s.gives("Before", "no room. 0/3 nodes are available", "h")
		l := queue(s, 1000, func(string) PendingCondition {
			return PendingCondition{Reason: v1.PodReasonUnschedulable, Message: "no room", Pods: s.pods("a", "b", "c", "d", "e", "f", "g", "h")}
		})
		go l.Run(ctx)
		l.Tell("job")
		want := []string{"a: Unschedulable: no room", "c: Unschedulable: no room", "d: Unschedulable: no room", "e: Unschedulable: no room", "f: Unschedulable: no room", "h: Unschedulable: no room"}
		expectAll(t, "who does not say it", s, want...)
		s.show()
		l.Tell("job")
		expectAll(t, "all say it", s, want...)
	})
}

// TestBeforeItLeads: nothing is written before the process schedules.
func TestBeforeItLeads(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s, begin := newServer("a"), make(chan struct{})
		l := queueOf(New(leadership.Signal(begin)), s, 10, func(string) PendingCondition { return PendingCondition{Reason: "Why", Message: "m", Pods: s.pods("a")} })
		go l.Run(ctx)
		l.Tell("job")
		time.Sleep(time.Hour)
		expect(t, "another process schedules", s)
		close(begin)
		expect(t, "this one does", s, "a: Why: m")
	})
}

// TestTrueWhenWritten: a write that waits for the rate writes what is true once it has it, or nothing.
func TestTrueWhenWritten(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a", "b", "c")
		s.gives("Why", "before", "a", "b", "c")
		var now shared[map[string]PendingCondition]
		now.set(map[string]PendingCondition{
			"one": {Reason: "Why", Message: "m", Pods: s.pods("a")}, "two": {Reason: "Why", Message: "old", Pods: s.pods("b")}, "three": {Reason: "Why", Message: "old", Pods: s.pods("c")},
		})
		l := queue(s, 1, func(key string) PendingCondition { return now.get()[key] })
		go l.Run(ctx)
		for _, key := range []string{"one", "two", "three"} {
			l.Tell(key)
		}
		expect(t, "one a second", s, "a: Why: m")
		now.set(map[string]PendingCondition{"two": {Reason: "Why", Message: "new", Pods: s.pods("b")}})
		time.Sleep(10 * time.Second)
		expect(t, "two says something else by then, three nothing", s, "a: Why: m", "b: Why: new")
	})
}

// TestInTurn: for other words a key of many pods does not keep one of few waiting, and no queue keeps another one
// waiting.
func TestInTurn(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a0", "a1", "a2", "a3", "b0", "x")
		s.gives("Why", "before", "a0", "a1", "a2", "a3", "b0", "x")
		w := New(await.Closed())
		pods := map[string][]*v1.Pod{"a": s.pods("a0", "a1", "a2", "a3"), "b": s.pods("b0"), "x": s.pods("x")}
		say := func(key string) PendingCondition {
			return PendingCondition{Reason: "Why", Message: "m", Pods: pods[key]}
		}
		gangs, singles := queueOf(w, s, 1, say), queueOf(w, s, 1, say)
		gangs.Tell("a")
		gangs.Tell("b")
		go gangs.Run(ctx)
		time.Sleep(1500 * time.Millisecond)
		expect(t, "one of each", s, "a0: Why: m", "b0: Why: m")
		singles.Tell("x")
		go singles.Run(ctx)
		expect(t, "the other queue", s, "a0: Why: m", "b0: Why: m", "x: Why: m")
		time.Sleep(10 * time.Second)
		expect(t, "the others", s, "a0: Why: m", "b0: Why: m", "x: Why: m", "a1: Why: m", "a2: Why: m", "a3: Why: m")
	})
}

// TestReasonsAtOnce: a new reason is written to all of a large gang within the time that autoscalers wait for more
// pods, and a gang that comes later has its turn before the first is done.
func TestReasonsAtOnce(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		const members = 1000
		names := make([]string, members)
		for i := range names {
			names[i] = fmt.Sprintf("a%d", i)
		}
		s := newServer(append(slices.Clone(names), "b")...)
		s.gives("Before", "m", names[:10]...)
		pods := map[string][]*v1.Pod{"a": s.pods(names...), "b": s.pods("b")}
		l := queue(s, 1, func(key string) PendingCondition {
			return PendingCondition{Reason: v1.PodReasonUnschedulable, Message: "m", Pods: pods[key]}
		})
		began := time.Now()
		go l.Run(ctx)
		l.Tell("a")
		time.Sleep(time.Millisecond)
		l.Tell("b")
		for len(s.written()) < members+1 && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%d pods were told %d times, and it took %s", members, len(s.written()), took)
		}
		most := reasonsPerSecond + int(turnTime.Seconds()*reasonsPerSecond) + atOnce // what could be saved up, and a turn
		if at := slices.Index(s.written(), "b: Unschedulable: m"); at < 0 || at > most {
			t.Errorf("the small gang was told after %d writes", at)
		}
	})
}

// TestChanged: a pod that has changed is written to as it is then, and others do not wait for it.
func TestChanged(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a", "b")
		s.touch("a", func(*v1.Pod) {}) // the reader does not see it
		l := queue(s, 1000, func(string) PendingCondition {
			return PendingCondition{Reason: "Why", Message: "m", Pods: s.pods("a", "b")}
		})
		go l.Run(ctx)
		l.Tell("job")
		expect(t, "the watch is behind", s, "b: Why: m")
		s.show()
		time.Sleep(2 * lookAgain)
		expect(t, "the watch has told", s, "b: Why: m", "a: Why: m")
	})
}

// TestMadeAgain: another pod of its name is left alone, and so is one that is gone, or is bound.
func TestMadeAgain(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("made-again", "gone", "bound")
		old := s.pods("made-again", "gone", "bound")
		s.touch("made-again", func(pod *v1.Pod) { pod.UID = "another" })
		s.touch("bound", func(pod *v1.Pod) { pod.Spec.NodeName = "node" })
		s.mu.Lock()
		delete(s.stored, "gone")
		s.mu.Unlock()
		l := queue(s, 1000, func(string) PendingCondition {
			return PendingCondition{Reason: "Why", Message: "m", Pods: old}
		})
		go l.Run(ctx)
		l.Tell("job")
		time.Sleep(10 * time.Second)
		expect(t, "nothing is written", s)
	})
}

// TestSaysSomethingElse: a pod that was just given one message is given another when the watch has come so far.
func TestSaysSomethingElse(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a")
		var message shared[string]
		message.set("first")
		l := queue(s, 1000, func(string) PendingCondition {
			return PendingCondition{Reason: "Why", Message: message.get(), Pods: s.pods("a")}
		})
		go l.Run(ctx)
		l.Tell("job")
		expect(t, "at first", s, "a: Why: first")
		message.set("second")
		l.Tell("job")
		expect(t, "the watch has not told of the first write", s, "a: Why: first")
		s.show()
		time.Sleep(2 * lookAgain)
		expect(t, "it has", s, "a: Why: first", "a: Why: second")
	})
}

// TestRetried: a write that failed is made again after a pause, which grows.
func TestRetried(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a")
		s.fail = []error{errors.New("the API server is away"), apierrors.NewInternalError(errors.New("trouble"))}
		l := queue(s, 1000, func(string) PendingCondition {
			return PendingCondition{Reason: "Why", Message: "m", Pods: s.pods("a")}
		})
		go l.Run(ctx)
		l.Tell("job")
		time.Sleep(retryFirst + 2*retryFirst - time.Millisecond)
		expect(t, "it fails twice", s)
		time.Sleep(2 * time.Millisecond)
		expect(t, "then it does not", s, "a: Why: m")
	})
}

// TestRefused: a pod that the API server refuses keeps neither the others of its gang nor other gangs waiting, however
// often it has been tried; the pause between tries grows, also where the pod changes.
func TestRefused(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a", "b", "c", "d")
		s.refuse = map[string]error{"b": apierrors.NewForbidden(v1.Resource("pods"), "b", errors.New("a webhook says so"))}
		var message shared[string]
		message.set("first")
		pods := map[string][]string{"train": {"a", "b", "c"}, "other": {"d"}}
		l := queue(s, 1000, func(key string) PendingCondition {
			return PendingCondition{Reason: v1.PodReasonUnschedulable, Message: message.get(), Pods: s.pods(pods[key]...)}
		})
		go l.Run(ctx)
		began := time.Now()
		l.Tell("train")
		l.Tell("other")
		expectAll(t, "all but the one", s, "a: Unschedulable: first", "c: Unschedulable: first", "d: Unschedulable: first")
		s.show()
		time.Sleep(10 * time.Minute)
		s.touch("b", func(*v1.Pod) {})
		message.set("second")
		s.show()
		l.Tell("train")
		expectAll(t, "other words later", s, "a: Unschedulable: first", "a: Unschedulable: second", "c: Unschedulable: first", "c: Unschedulable: second", "d: Unschedulable: first")
		s.mu.Lock()
		defer s.mu.Unlock()
		var pauses []time.Duration
		for _, at := range s.refused {
			pauses = append(pauses, at.Sub(began).Round(time.Second))
			began = at
		}
		want := []time.Duration{0, 1e9, 2e9, 4e9, 8e9, 16e9, 32e9}
		for range 8 {
			want = append(want, retryMost)
		}
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Errorf("pauses between tries (-want +got):\n%s", diff)
		}
	})
}

// silent is a client of an API server that does not answer to writes to pods of a namespace.
type silent struct {
	kubernetes.Interface
	namespace string
}

func (s silent) CoreV1() corev1.CoreV1Interface { return silentCore{s.Interface.CoreV1(), s} }

type silentCore struct {
	corev1.CoreV1Interface
	silent silent
}

func (c silentCore) Pods(namespace string) corev1.PodInterface {
	if namespace == c.silent.namespace {
		return silentPods{c.CoreV1Interface.Pods(namespace)}
	}
	return c.CoreV1Interface.Pods(namespace)
}

type silentPods struct{ corev1.PodInterface }

func (silentPods) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*v1.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestNoAnswer: a write that is not answered is given up, and as many of them as there may be at once keep others
// waiting no longer than that, and not again.
func TestNoAnswer(t *testing.T) {
	run(t, func(t *testing.T, ctx context.Context) {
		s := newServer("a", "b", "c")
		var dead []*v1.Pod
		for i := range 2 * atOnce {
			name := fmt.Sprint("dead-", i)
			dead = append(dead, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "dead", Name: name, UID: types.UID(name), ResourceVersion: "1"}})
		}
		client := fake.NewClientset()
		client.PrependReactor("patch", "pods", s.patch)
		l := NewConditionQueue(New(await.Closed()), silent{client, "dead"}, 1000, func(key string) PendingCondition {
			if key == "dead" {
				return PendingCondition{Reason: "Why", Message: "m", Pods: dead}
			}
			return PendingCondition{Reason: "Why", Message: "m", Pods: s.pods(key)}
		})
		go l.Run(ctx)
		l.Tell("dead")
		time.Sleep(time.Millisecond)
		l.Tell("a")
		expect(t, "all places are taken", s)
		time.Sleep(WriteTimeout)
		expect(t, "they are given up", s, "a: Why: m")
		time.Sleep(WriteTimeout)
		for i, name := range []string{"b", "c"} {
			l.Tell(name)
			expect(t, "they are tried again beside others", s, []string{"a: Why: m", "b: Why: m", "c: Why: m"}[:i+2]...)
			time.Sleep(time.Hour)
		}
		if n := len(l.again); n > againAtOnce {
			t.Errorf("%d are tried again at once, want %d at most", n, againAtOnce)
		}
	})
}
