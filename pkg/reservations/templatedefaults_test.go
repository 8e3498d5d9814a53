package reservations

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func priorityClass(name string, value int32, change func(*schedulingv1.PriorityClass)) *schedulingv1.PriorityClass {
	c := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: new(v1.PreemptLowerPriority)}
	change(c)
	return c
}

// runtimeClass is one with an overhead of CPU, and nodes of its own.
func runtimeClass(name, cpu string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name, Overhead: &nodev1.Overhead{PodFixed: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{name: "yes"}, Tolerations: []v1.Toleration{{Key: name, Operator: v1.TolerationOpExists}}},
	}
}

func ofRuntime(name string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) { r.Spec.Template.Spec.RuntimeClassName = &name }
}

// TestPriority: a reserve pod has the priority that an owner would have, and evicts others only where the profile, the
// class and the template let it.
func TestPriority(t *testing.T) {
	s := newStage(t)
	s.client = fake.NewClientset(
		priorityClass("high", 1000, func(*schedulingv1.PriorityClass) {}),
		priorityClass("polite", 2000, func(c *schedulingv1.PriorityClass) { c.PreemptionPolicy = new(v1.PreemptNever) }),
		priorityClass("usual", 7, func(c *schedulingv1.PriorityClass) { c.GlobalDefault = true }),
	)
	for sentence, c := range map[string]struct {
		class    string
		change   func(*v1.Pod)
		preempts bool
		priority int32
		policy   v1.PreemptionPolicy
	}{
		"the default class":                   {preempts: true, priority: 7, policy: v1.PreemptLowerPriority},
		"it preempts by its priority":         {class: "high", preempts: true, priority: 1000, policy: v1.PreemptLowerPriority},
		"unless the profile does not have it": {class: "high", priority: 1000, policy: v1.PreemptNever},
		"or the class":                        {class: "polite", preempts: true, priority: 2000, policy: v1.PreemptNever},
		"or the template": {
			class: "high", change: func(pod *v1.Pod) { pod.Spec.PreemptionPolicy = new(v1.PreemptNever) }, preempts: true, priority: 1000, policy: v1.PreemptNever,
		},
		"a template from a pod": {
			class: "high", change: func(pod *v1.Pod) { pod.Spec.Priority = new(int32(3)) }, preempts: true, priority: 1000, policy: v1.PreemptLowerPriority,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			template := templateOf(s.make("r"))
			if template.Spec.PriorityClassName = c.class; c.change != nil {
				c.change(template)
			}
			pod, err := s.admitted(t.Context(), template, c.preempts)
			must.Succeed(t, err)
			if corev1helpers.PodPriority(pod) != c.priority || *pod.Spec.PreemptionPolicy != c.policy {
				t.Errorf("priority %d, policy %s", corev1helpers.PodPriority(pod), *pod.Spec.PreemptionPolicy)
			}
		})
	}
}

// TestHeldAsAdmitted: what is sought, written down and held is what an owner takes: with the overhead of its
// RuntimeClass, on the nodes of that. It stays, also for a scheduler that begins later, whatever becomes of the
// RuntimeClass.
func TestHeldAsAdmitted(t *testing.T) {
	s := newStage(t)
	api := seeking(t, s.make("r", ofRuntime("vm")), yes, s)
	s.client = fake.NewClientset(runtimeClass("vm", "1"))
	s.lookNow("r")
	pod, err := s.store.Get("default", reservepods.PodName("r", 0))
	must.Succeed(t, err)
	if cpu := pod.Spec.Overhead.Cpu(); cpu.String() != "1" || pod.Spec.NodeSelector["vm"] != "yes" || len(pod.Spec.Tolerations) != 1 {
		t.Errorf("overhead %v, node selector %v, tolerations %v", pod.Spec.Overhead, pod.Spec.NodeSelector, pod.Spec.Tolerations)
	}
	must.Succeed(t, s.Bind(t.Context(), pod, "a"))
	if cpu := api.object.Status.Placements[0].Allocatable.Cpu(); cpu.String() != "5" {
		t.Errorf("written down are %v of cpu, want the 4 of the template and 1", cpu)
	}
	if got := s.held(); got != "a: 5" {
		t.Errorf("held %q", got)
	}
	later := newStage(t)
	later.client = fake.NewClientset(runtimeClass("vm", "3"))
	later.Update(api.object)
	if got := later.held(); got != "a: 5" {
		t.Errorf("after a restart held %q, want what was found", got)
	}
}

// TestPromisedAsAdmitted: so is what is promised before there is a place.
func TestPromisedAsAdmitted(t *testing.T) {
	s := newStage(t)
	seeking(t, s.make("r", ofRuntime("vm"), promisedOn("a")), yes, s)
	s.client = fake.NewClientset(runtimeClass("vm", "1"))
	if got := s.promised(); got != "a: 4" {
		t.Errorf("before it is looked up promised %q", got)
	}
	s.lookNow("r")
	if got := s.promised(); got != "a: 5" {
		t.Errorf("promised %q", got)
	}
}

// TestMakesWayOnceItsClassIsThere: the class of a Reservation that has its place is looked up until it is there.
func TestMakesWayOnceItsClassIsThere(t *testing.T) {
	s := newStage(t)
	p := yes
	p.yields = true
	seeking(t, s.make("r", func(r *v1alpha1.Reservation) {
		r.Spec.Template.Spec.PriorityClassName = "x"
		r.Status.Placements = []v1alpha1.ReservationPlacement{{NodeName: "a"}}
	}), p, s)
	now := testingclock.NewFakeClock(begin)
	s.work = workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](), workqueue.TypedRateLimitingQueueConfig[string]{Clock: now})
	t.Cleanup(s.work.ShutDown)
	s.lookNow("r")
	if got := s.Yielding(9); len(got) > 0 {
		t.Errorf("%v make way, and their class is not known", got)
	}
	now.Step(maxPause)
	deadline := time.Now().Add(5 * time.Second)
	for s.work.Len() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("it is not looked at again")
		}
		time.Sleep(time.Millisecond)
	}
	s.client = fake.NewClientset(priorityClass("x", 1, func(*schedulingv1.PriorityClass) {}))
	s.lookNow("r")
	if got := s.Yielding(9); len(got) != 1 {
		t.Errorf("%v make way, want r", got)
	}
}

// TestDefaultsOfLimitRanges: containers without requests get those of the namespace.
func TestDefaultsOfLimitRanges(t *testing.T) {
	s := newStage(t)
	seeking(t, s.make("r", func(r *v1alpha1.Reservation) {
		r.Spec.Template.Namespace = "team-a"
		r.Spec.Template.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	}), yes, s)
	s.client = fake.NewClientset(&v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "usual"}, Spec: v1.LimitRangeSpec{
		Limits: []v1.LimitRangeItem{{Type: v1.LimitTypeContainer, DefaultRequest: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}},
	}})
	s.lookNow("r")
	pod, err := s.store.Get("team-a", reservepods.PodName("r", 0))
	must.Succeed(t, err)
	if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "2" {
		t.Errorf("it asks for %v of cpu", cpu)
	}
}

// TestToldWhatAdmissionRefuses: nothing is sought for a template of which the API server would create no pod; the
// Reservation says why, and is placed once that has changed.
func TestToldWhatAdmissionRefuses(t *testing.T) {
	limited := &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"}, Spec: v1.LimitRangeSpec{
		Limits: []v1.LimitRangeItem{{Type: v1.LimitTypeContainer, Default: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}},
	}}
	for sentence, c := range map[string]struct {
		change func(r *v1alpha1.Reservation)
		has    []runtime.Object
		mend   func(t *testing.T, client *fake.Clientset)
		want   string
	}{
		"there is no such RuntimeClass": {
			ofRuntime("vm"), nil, func(t *testing.T, client *fake.Clientset) {
				must.Succeed(t, client.Tracker().Add(runtimeClass("vm", "1")))
			}, `spec.template.spec.runtimeClassName: "vm": there is no such RuntimeClass`,
		},
		"there is no such PriorityClass": {
			func(r *v1alpha1.Reservation) { r.Spec.Template.Spec.PriorityClassName = "x" }, nil, func(t *testing.T, client *fake.Clientset) {
				must.Succeed(t, client.Tracker().Add(priorityClass("x", 1, func(*schedulingv1.PriorityClass) {})))
			}, `spec.template.spec.priorityClassName: "x": there is no such PriorityClass`,
		},
		"a limit by default is below what it asks for": {
			func(*v1alpha1.Reservation) {}, []runtime.Object{limited}, func(t *testing.T, client *fake.Clientset) {
				must.Succeed(t, client.CoreV1().LimitRanges("default").Delete(t.Context(), "small", metav1.DeleteOptions{}))
			}, `must be less than or equal to cpu limit of 1`,
		},
		"the scheduler may not look": {
			func(*v1alpha1.Reservation) {}, nil, func(_ *testing.T, client *fake.Clientset) { client.ReactionChain = client.ReactionChain[1:] },
			`looking up LimitRanges in namespace "default": limitranges is forbidden: none of yours: update the ClusterRole`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			api := seeking(t, s.make("r", c.change), yes, s)
			client := fake.NewClientset(c.has...)
			if strings.Contains(c.want, "forbidden") {
				client.PrependReactor("list", "limitranges", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(v1.Resource("limitranges"), "", errors.New("none of yours"))
				})
			}
			s.client = client
			s.lookNow("r")
			if reason, message := api.scheduled(); reason != v1alpha1.ReservationReasonUnschedulable || !strings.Contains(message, c.want) {
				t.Errorf("%s: %s", reason, message)
			}
			if _, err := s.store.Get("default", reservepods.PodName("r", 0)); err == nil {
				t.Error("a place is sought all the same")
			}
			c.mend(t, client)
			s.Update(api.object)
			s.lookNow("r")
			if _, err := s.store.Get("default", reservepods.PodName("r", 0)); err != nil {
				t.Errorf("no place is sought though what was wrong is right by now: %v", err)
			}
		})
	}
}

// TestTemplateOfAnAdmittedPod: what admission wrote on the pod that a template was taken from is written anew.
func TestTemplateOfAnAdmittedPod(t *testing.T) {
	s := newStage(t)
	s.client = fake.NewClientset(runtimeClass("vm", "1"))
	template := templateOf(s.make("r", ofRuntime("vm")))
	template.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
	template.Spec.NodeSelector, template.Spec.Priority = map[string]string{"vm": "yes"}, new(int32(0))
	pod, err := s.admitted(t.Context(), template, true)
	must.Succeed(t, err)
	if cpu := pod.Spec.Overhead.Cpu(); cpu.String() != "1" {
		t.Errorf("overhead %v, want that of the RuntimeClass today", cpu)
	}
	if got := template.Spec.Overhead.Cpu().String(); got != "3" {
		t.Errorf("the template was changed: %v", got)
	}
}
