package autoscaling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

var train = gangspec.Key{Namespace: "llm", Name: "train"}

// stage is a requester over fake API servers, with one gang whose explanation the test sets.
type stage struct {
	*Requester
	ctx      context.Context
	client   *fake.Clientset
	requests *dynamicfake.FakeDynamicClient
	clock    *clocktesting.FakeClock
	events   chan string
	e        gangstate.Explanation
	known    bool
}

// newStage returns a stage with a gang of pods that wait for their rack. served: the API server has the CRD.
func newStage(t *testing.T, served bool, pods int, made ...runtime.Object) *stage {
	t.Helper()
	s := &stage{events: make(chan string, 100), clock: clocktesting.NewFakeClock(time.Now()), known: true}
	s.e = gangstate.Explanation{Gang: train, Reason: v1alpha1.ReasonUnschedulable, Message: "scattered", Topology: "rack", Min: pods}
	var objects []runtime.Object
	for i := range pods {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "llm", Name: fmt.Sprintf("train-%d", i), UID: types.UID(fmt.Sprintf("train-%d", i))}}
		s.e.Pending = append(s.e.Pending, pod)
		objects = append(objects, pod)
	}
	s.client = fake.NewClientset(objects...)
	if served {
		s.client.Resources = []*metav1.APIResourceList{{
			GroupVersion: Resource.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: Resource.Resource}},
		}}
	}
	kinds := map[schema.GroupVersionResource]string{Resource: "ProvisioningRequestList"}
	s.requests = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, made...)
	s.restart(t, served)
	return s
}

// restart makes another requester, as after a change of the leader. With watches, it has seen the existing requests.
func (s *stage) restart(t *testing.T, watches bool) {
	t.Helper()
	var silent klog.Logger
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), silent))
	t.Cleanup(cancel)
	s.ctx = ctx
	s.Requester = New(Options{
		SchedulerName: "lockstep-scheduler", ClassName: "atomic", Client: s.client, Requests: s.requests,
		Recorder: &events.FakeRecorder{Events: s.events}, Clock: s.clock, Leading: await.Closed(),
		Explain: func(key gangspec.Key) (gangstate.Explanation, bool) {
			if key != train || !s.known {
				return gangstate.Explanation{}, false
			}
			return s.e, true
		},
	})
	must.Succeed(t, s.watch(ctx))
	if watches {
		await.Until(t, "the requests are known", s.informer.HasSynced)
	}
}

// pass lets time pass, and then handles the gang. The watch sees afterwards what was written.
func (s *stage) pass(t *testing.T, d time.Duration) {
	t.Helper()
	s.clock.Step(d)
	must.Succeed(t, s.sync(s.ctx, train))
	await.Until(t, "the watch has seen what there is", func() bool {
		return !s.informer.HasSynced() || slices.Equal(s.names(t), slices.Sorted(slices.Values(s.informer.GetStore().ListKeys())))
	})
	pods, err := s.client.CoreV1().Pods("llm").List(s.ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	for i := range s.e.Pending { // as the watch of pods delivers them
		s.e.Pending[i] = &pods.Items[i]
	}
}

// settles keeps the gang as it is for long enough to be acted upon.
func (s *stage) settles(t *testing.T) {
	t.Helper()
	s.pass(t, 0)
	s.pass(t, settle)
}

func (s *stage) list(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list, err := s.requests.Resource(Resource).List(s.ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	return list.Items
}

func (s *stage) names(t *testing.T) (names []string) {
	t.Helper()
	for _, request := range s.list(t) {
		names = append(names, request.GetNamespace()+"/"+request.GetName())
	}
	slices.Sort(names)
	return names
}

// want fails unless there are so many requests, each with its template, and so many pods that name one as theirs.
func (s *stage) want(t *testing.T, sentence string, requests, consume int) {
	t.Helper()
	templates, err := s.client.CoreV1().PodTemplates("llm").List(s.ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	if got := s.names(t); len(got) != requests || len(templates.Items) != requests {
		t.Errorf("%s: requests %v with %d templates; want %d", sentence, got, len(templates.Items), requests)
	}
	if got := len(consumers(s.e)); got != consume {
		t.Errorf("%s: %d pods say that a request is theirs; want %d", sentence, got, consume)
	}
}

// said returns the events since the last call.
func (s *stage) said() []string { return await.Drain(s.events) }

// end gives the only request a condition.
func (s *stage) end(t *testing.T, condition string) {
	t.Helper()
	request := s.list(t)[0]
	conditions := []any{map[string]any{"type": condition, "status": "True", "reason": "Expired", "message": "no stock"}}
	must.Succeed(t, unstructured.SetNestedSlice(request.Object, conditions, "status", "conditions"))
	if _, err := s.requests.Resource(Resource).Namespace("llm").Update(s.ctx, &request, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the watch has seen the condition", func() bool {
		made, _ := s.made(train)
		_, over := EndOf(made[0])
		return over
	})
}

// TestAskedOnceItHasWaited: nodes are requested not at once, but once, and the request is taken back only after the
// gang has waited for something else for a while.
func TestAskedOnceItHasWaited(t *testing.T) {
	s := newStage(t, true, 3)
	s.pass(t, 0)
	s.want(t, "it has just come to wait for its rack", 0, 0)
	s.pass(t, settle-time.Second)
	s.want(t, "not for long enough", 0, 0)
	s.pass(t, time.Second)
	s.want(t, "for long enough", 1, 3)
	s.pass(t, lookAgain)
	s.want(t, "it waits on", 1, 3)
	s.e.Reason, s.e.Topology = "", ""
	s.pass(t, lookAgain)
	s.want(t, "it is tried at the moment", 1, 3)
	s.e.Reason = v1alpha1.ReasonUnschedulable
	s.pass(t, 0)
	s.want(t, "it is short of nodes", 1, 3)
	s.e.Topology = "rack"
	s.pass(t, settle)
	s.want(t, "that did not last", 1, 3)
	s.e.Topology = ""
	s.settles(t)
	s.want(t, "it is short of nodes, and stays so", 0, 0)
	if said := s.said(); len(said) != 1 || !strings.Contains(said[0], "asks for nodes for 3 pods in one rack") {
		t.Errorf("told: %q", said)
	}
	if len(s.phases) > 0 {
		t.Errorf("remembered: %v", s.phases)
	}
}

// TestNotAsked: nodes are requested only for a gang that waits for its topology.
func TestNotAsked(t *testing.T) {
	for sentence, change := range map[string]func(*stage){
		"it is short of nodes":              func(s *stage) { s.e.Topology = "" },
		"its queue may not have more":       func(s *stage) { s.e.Reason = "QueueCapability" },
		"others are evicted for it":         func(s *stage) { s.e.Reason = v1alpha1.ReasonPreemptionInProgress },
		"there is nothing to be said of it": func(s *stage) { s.e.Reason, s.e.Topology = "", "" },
		"somebody else asks for nodes": func(s *stage) {
			s.e.Pending[0] = s.e.Pending[0].DeepCopy()
			metav1.SetMetaDataAnnotation(&s.e.Pending[0].ObjectMeta, ConsumeAnnotation, "by-another")
			if _, err := s.client.CoreV1().Pods("llm").Update(s.ctx, s.e.Pending[0], metav1.UpdateOptions{}); err != nil {
				panic(err)
			}
		},
		"it runs":    func(s *stage) { s.e.Running = true },
		"it is gone": func(s *stage) { s.known = false },
	} {
		s := newStage(t, true, 2)
		change(s)
		s.settles(t)
		s.want(t, sentence, 0, 0)

		s = newStage(t, true, 2)
		s.settles(t)
		change(s)
		s.settles(t)
		if sentence == "there is nothing to be said of it" {
			s.want(t, "as before: "+sentence, 1, 2)
			continue
		}
		consume := 0
		if !s.known {
			consume = 2 // its pods are not known any more
		}
		s.want(t, "any more: "+sentence, 0, consume)
	}
}

// TestAnotherDemand: a request cannot be changed, so another one replaces it, and the pods name the new one.
func TestAnotherDemand(t *testing.T) {
	s := newStage(t, true, 3)
	s.settles(t)
	before := s.names(t)
	s.e.Pending = s.e.Pending[:2]
	s.pass(t, lookAgain)
	s.want(t, "one pod has gone", 1, 2)
	if now := s.names(t); slices.Equal(before, now) {
		t.Errorf("the request is %s as before", now)
	}
}

// TestEndedIsNotMadeAgain: a request that failed is reported once and stays, until a user deletes it.
func TestEndedIsNotMadeAgain(t *testing.T) {
	for _, condition := range []string{"Failed", "BookingExpired", "CapacityRevoked"} {
		s := newStage(t, true, 2)
		s.settles(t)
		s.said()
		s.end(t, condition)
		s.requests.ClearActions()
		for range 3 {
			s.pass(t, lookAgain)
		}
		s.want(t, condition, 1, 2)
		for _, action := range s.requests.Actions() {
			if action.GetVerb() == "create" || action.GetVerb() == "delete" {
				t.Errorf("%s: %s of a request", condition, action.GetVerb())
			}
		}
		said := s.said()
		if len(said) != 1 || !strings.Contains(said[0], EventEnded) || !strings.Contains(said[0], condition+": Expired: no stock") {
			t.Errorf("%s: told %q", condition, said)
		}
		must.Succeed(t, s.requests.Resource(Resource).Namespace("llm").Delete(s.ctx, s.list(t)[0].GetName(), metav1.DeleteOptions{}))
		await.Until(t, "the watch has seen that it is deleted", func() bool { return len(s.informer.GetStore().ListKeys()) == 0 })
		s.pass(t, 0)
		s.want(t, condition+", and then deleted", 1, 2)
		if made, _ := s.made(train); len(made) != 1 {
			t.Fatalf("%s: made again: %d", condition, len(made))
		} else if _, over := EndOf(made[0]); over {
			t.Errorf("%s: what was made again has ended", condition)
		}
	}
}

// TestAfterRestart: a process that begins to lead goes on with the requests of the one before, and takes them back
// where they are not wanted.
func TestAfterRestart(t *testing.T) {
	s := newStage(t, true, 2)
	s.settles(t)
	before := s.names(t)
	s.restart(t, true)
	s.e.Reason, s.e.Topology = "", ""
	s.settles(t)
	s.want(t, "it has not been tried yet", 1, 2)
	s.e.Reason, s.e.Topology = v1alpha1.ReasonUnschedulable, "rack"
	s.pass(t, 0)
	if now := s.names(t); !slices.Equal(before, now) {
		t.Errorf("the request is %s, want %s", now, before)
	}
	s.restart(t, true)
	s.e.Topology = ""
	s.settles(t)
	s.want(t, "it waits for something else", 0, 0)
}

// TestOthersAreLeftAlone: requests of other profiles, and of users, are not touched.
func TestOthersAreLeftAlone(t *testing.T) {
	request := func(name string, annotations map[string]any) *unstructured.Unstructured {
		labels := map[string]any{v1alpha1.ProvisioningRequestLabel: "some"}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": Resource.GroupVersion().String(), "kind": "ProvisioningRequest",
			"metadata": map[string]any{"namespace": "llm", "name": name, "labels": labels, "annotations": annotations},
		}}
	}
	s := newStage(t, true, 2,
		request("by-hand", nil),
		request("of-another", map[string]any{v1alpha1.GangNameAnnotation: "train", v1alpha1.SchedulerNameAnnotation: "another"}))
	s.e.Topology = ""
	s.settles(t)
	if got := s.names(t); len(got) != 2 {
		t.Errorf("requests: %v, want both", got)
	}
}

// TestNotServed: without the CRD nothing is written, and nothing is tried again and again.
func TestNotServed(t *testing.T) {
	s := newStage(t, false, 2)
	s.settles(t)
	for range 3 {
		s.pass(t, lookAgain)
	}
	for _, action := range s.client.Actions() {
		if action.GetVerb() == "create" || action.GetVerb() == "patch" {
			t.Errorf("%s of %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

// TestWhatKeepsFromIt: users get once what is missing, and the request is tried again.
func TestWhatKeepsFromIt(t *testing.T) {
	gvr := schema.GroupResource{Resource: "podtemplates"}
	for sentence, c := range map[string]struct {
		err  error
		want string
	}{
		"it is not allowed": {apierrors.NewForbidden(gvr, "x", errors.New("User cannot create resource")), "User cannot create resource; if its account may not, apply " + Role},
		"it is not valid":   {apierrors.NewInvalid(schema.GroupKind{Kind: "PodTemplate"}, "x", nil), "is invalid"},
	} {
		s := newStage(t, true, 2)
		refuses := true
		s.client.PrependReactor("create", "podtemplates", func(clienttesting.Action) (bool, runtime.Object, error) { return refuses, nil, c.err })
		s.settles(t)
		for range 3 {
			s.pass(t, lookAgain)
		}
		s.want(t, sentence, 0, 0)
		if said := s.said(); len(said) != 1 || !strings.Contains(said[0], EventNotRequested) || !strings.Contains(said[0], c.want) {
			t.Errorf("%s: told %q, want once: %s", sentence, said, c.want)
		}
		refuses = false
		s.pass(t, lookAgain)
		s.want(t, sentence+" any more", 1, 2)
	}
}

// TestFailedCallsAreTriedAgain: an error of the API server is returned, and the rest is done the next time.
func TestFailedCallsAreTriedAgain(t *testing.T) {
	s := newStage(t, true, 2)
	fails := false
	s.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, apierrors.NewInternalError(errors.New("storage"))
	})
	s.settles(t)
	s.e.Topology, fails = "", true
	s.pass(t, 0)
	s.clock.Step(settle)
	if err := s.sync(s.ctx, train); err == nil {
		t.Error("no error, although the pods could not be written to")
	}
	fails = false
	s.pass(t, 0)
	s.want(t, "after an error", 0, 0)
}

// TestNoTemplateIsLeft: templates go with their request, also if a call fails on the way, or the request is refused.
func TestNoTemplateIsLeft(t *testing.T) {
	s := newStage(t, true, 2)
	s.settles(t)
	failed := false
	s.client.PrependReactor("delete", "podtemplates", func(clienttesting.Action) (bool, runtime.Object, error) {
		fails := !failed
		failed = true
		return fails, nil, apierrors.NewInternalError(errors.New("storage"))
	})
	s.e.Topology = ""
	s.pass(t, 0)
	s.clock.Step(settle)
	if err := s.sync(s.ctx, train); err == nil || !failed {
		t.Errorf("no error, although a template could not be deleted: %t", failed)
	}
	await.Until(t, "the watch has seen what there is", func() bool {
		return slices.Equal(s.names(t), slices.Sorted(slices.Values(s.informer.GetStore().ListKeys())))
	})
	s.pass(t, 0)
	s.want(t, "after an error", 0, 0)
}

// TestWantedAgain: a request that could not be withdrawn whole has its templates again where its gang wants it again.
func TestWantedAgain(t *testing.T) {
	s := newStage(t, true, 2)
	s.settles(t)
	fails := true
	s.requests.PrependReactor("delete", Resource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, apierrors.NewInternalError(errors.New("storage"))
	})
	topology := s.e.Topology
	s.e.Topology = ""
	s.pass(t, 0)
	s.clock.Step(settle)
	if err := s.sync(s.ctx, train); err == nil {
		t.Error("no error, although the request could not be deleted")
	}
	s.e.Topology, fails = topology, false
	s.settles(t)
	s.want(t, "wanted again", 1, 2)
}
