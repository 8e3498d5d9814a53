package reservepods

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// told is a recorder that notes the reasons of events, and what they are about.
type told struct {
	mu  *sync.Mutex
	all *[]string
}

func (r told) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.all = append(*r.all, reason+" "+nameOf(regarding))
}

func (r told) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

func (r told) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(*r.all)
}

// stage is kube-scheduler itself, with all default plugins, over a fake API server and a store.
type stage struct {
	*testing.T
	client *fake.Clientset
	store  *Store
	sched  *scheduler.Scheduler
	events told
	// bound is what a handler of the pod informer saw of reserve pods, and their nodes, in order.
	mu    sync.Mutex
	bound []string
}

func newStage(t *testing.T, nodes ...runtime.Object) *stage {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stage{T: t, client: fake.NewClientset(nodes...), store: NewStore(), events: told{&sync.Mutex{}, &[]string{}}}
	client := Client(s.client, s.store)
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		return NewInformer(s.store, client, nil)
	})
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.saw("added", object) },
		UpdateFunc: func(_, object any) { s.saw("updated", object) },
		DeleteFunc: func(object any) { s.saw("deleted", object) },
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	s.sched, err = scheduler.New(ctx, client, factory, nil,
		func(string) events.EventRecorderLogger { return Recorder(s.events) },
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	must.Succeed(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	must.Succeed(t, s.sched.WaitForHandlersSync(ctx))
	done := make(chan struct{})
	go func() { s.sched.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done; factory.Shutdown() })
	return s
}

func (s *stage) saw(what string, object any) {
	pod, ok := object.(*v1.Pod)
	if !ok || !IsReservePod(pod) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound = append(s.bound, what+" on "+pod.Spec.NodeName)
}

// eventually waits for something.
func (s *stage) eventually(what string, holds func() bool) {
	s.Helper()
	for begin := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			s.Fatalf("waited in vain: %s", what)
		}
	}
}

// nothingWritten checks that the API server was written nothing but what the test wrote.
func (s *stage) nothingWritten(own int) {
	s.Helper()
	var writes []string
	for _, action := range s.client.Actions() {
		if verb := action.GetVerb(); !slices.Contains([]string{"get", "list", "watch"}, verb) {
			writes = append(writes, verb+" "+action.GetResource().Resource+" "+action.GetSubresource())
		}
	}
	if len(writes) != own {
		s.Errorf("the API server got %q, want %d writes, which are the test's", writes, own)
	}
}

func condition(pod *v1.Pod) v1.PodCondition {
	if _, c := podutil.GetPodCondition(&pod.Status, v1.PodScheduled); c != nil {
		return *c
	}
	return v1.PodCondition{}
}

func node(name, cpu string) *v1.Node {
	return st.MakeNode().Name(name).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: "8Gi", v1.ResourcePods: "10"}).Obj()
}

func TestReservePodIsScheduledLikeAnyPod(t *testing.T) {
	s := newStage(t, node("n1", "2"))
	must.Succeed(t, s.store.Add(reservePod("a").Obj()))
	name := PodName("a", 0)
	s.eventually("the pod is bound", func() bool { return get(t, s.store, name).Spec.NodeName == "n1" })
	if c := condition(get(t, s.store, name)); c.Status != v1.ConditionTrue {
		t.Errorf("the condition is %v", c)
	}
	s.eventually("an event says so", func() bool { return slices.Equal(s.events.list(), []string{"Scheduled Reservation a"}) })
	// A pod of the API server sees the room that is taken.
	if _, err := s.client.CoreV1().Pods(ns).Create(t.Context(), reservePod("x").Name("real").UID("real").Obj(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("a real pod has no room, and is told so", func() bool {
		return slices.Contains(s.events.list(), "FailedScheduling pod real")
	})
	s.eventually("its condition is written", func() bool {
		return slices.ContainsFunc(s.client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "patch" && a.GetSubresource() == "status" })
	})
	s.nothingWritten(2) // the pod, and its condition
	// The reserve pod leaves, and the real one has its place.
	must.Succeed(t, s.store.Delete(ns, name, nil))
	s.eventually("the real pod is bound", func() bool {
		return slices.ContainsFunc(s.client.Actions(), func(a clienttesting.Action) bool {
			return a.GetVerb() == "create" && a.GetSubresource() == "binding"
		})
	})
	s.eventually("handlers saw it bound before they saw its end", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Equal(s.bound, []string{"added on ", "updated on n1", "deleted on n1"})
	})
}

func TestReservePodThatDoesNotFitIsTriedAgain(t *testing.T) {
	s := newStage(t, node("n1", "1"))
	must.Succeed(t, s.store.Add(reservePod("a").Obj()))
	name := PodName("a", 0)
	s.eventually("the pod is told that it has no room", func() bool {
		c := condition(get(t, s.store, name))
		return c.Reason == v1.PodReasonUnschedulable && strings.Contains(c.Message, "1 Insufficient cpu")
	})
	s.nothingWritten(0)
	if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node("n2", "4"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the pod is bound", func() bool { return get(t, s.store, name).Spec.NodeName == "n2" })
	s.eventually("events say so", func() bool {
		return slices.Equal(s.events.list(), []string{"FailedScheduling Reservation a", "Scheduled Reservation a"})
	})
	s.nothingWritten(1) // the node
}

func TestReservePodThatIsTakenBackLeavesTheQueue(t *testing.T) {
	s := newStage(t, node("n1", "1"))
	must.Succeed(t, s.store.Add(reservePod("a").Obj()))
	pending := func() int { pods, _ := s.sched.SchedulingQueue.PendingPods(); return len(pods) }
	s.eventually("the pod waits", func() bool { return condition(get(t, s.store, PodName("a", 0))).Reason != "" && pending() == 1 })
	must.Succeed(t, s.store.Delete(ns, PodName("a", 0), nil))
	s.eventually("nothing waits", func() bool { return pending() == 0 })
	s.nothingWritten(0)
}
