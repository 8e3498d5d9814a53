package lockstepcontroller_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/test/harness/observe"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

var podGroups = schedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups")

// status is what a test looks at.
type status struct {
	schedulingv1alpha1.PodGroupStatus `json:",inline"`

	Conditions []metav1.Condition `json:"conditions"`
}

func (s status) String() string {
	text := fmt.Sprintf("%s running=%d succeeded=%d failed=%d occupiedBy=%q", s.Phase, s.Running, s.Succeeded, s.Failed, s.OccupiedBy)
	for _, c := range s.Conditions {
		text += fmt.Sprintf(" %s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

// scheduled returns the condition Scheduled, empty where there is none.
func (s status) scheduled() metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == "Scheduled" {
			return c
		}
	}
	return metav1.Condition{}
}

// group watches PodGroup "train" of a namespace and keeps every status it had.
type group struct {
	n      *namespace
	client dynamic.ResourceInterface

	mu   sync.Mutex
	seen []status
}

// createGroup creates PodGroup "train", and watches it from then on.
func (n *namespace) createGroup(minMember int64) *group {
	n.t.Helper()
	client, err := dynamic.NewForConfig(n.cluster.RESTConfig())
	if err != nil {
		n.t.Fatal(err)
	}
	g := &group{n: n, client: client.Resource(podGroups).Namespace(n.name)}
	object, err := g.client.Create(n.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": podGroups.GroupVersion().String(), "kind": "PodGroup",
		"metadata": map[string]any{"name": "train"},
		"spec":     map[string]any{"minMember": minMember},
	}}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatalf("creating a PodGroup: %v", err)
	}
	created := object.GetResourceVersion()
	go observe.Follower[*unstructured.Unstructured]{From: observe.Dynamic(g.client), See: func(_, after *unstructured.Unstructured) {
		if after != nil && after.GetName() == "train" && after.GetResourceVersion() != created {
			g.see(after)
		}
	}}.Run(n.t.Context())
	return g
}

func (g *group) see(object *unstructured.Unstructured) {
	s := g.decode(object)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, s)
}

// get reads the PodGroup from the API server.
func (g *group) get() status {
	g.n.t.Helper()
	object, err := g.client.Get(g.n.t.Context(), "train", metav1.GetOptions{})
	if err != nil {
		g.n.t.Fatalf("reading a PodGroup: %v", err)
	}
	return g.decode(object)
}

func (g *group) decode(object *unstructured.Unstructured) status {
	var pg struct {
		Status status `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pg); err != nil {
		g.n.t.Errorf("decoding a PodGroup: %v", err)
	}
	return pg.Status
}

func (g *group) last() status {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) == 0 {
		return status{}
	}
	return g.seen[len(g.seen)-1]
}

// written returns the number of writes since the group was created.
func (g *group) written() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.seen)
}

// phases lists the phases it had, repetitions left out.
func (g *group) phases() (list []schedulingv1alpha1.PodGroupPhase) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.seen {
		if len(list) == 0 || list[len(list)-1] != s.Phase {
			list = append(list, s.Phase)
		}
	}
	return list
}

// wait waits for a phase, numbers, and the reason of Scheduled.
func (g *group) wait(phase schedulingv1alpha1.PodGroupPhase, running, succeeded, failed int32, reason string) {
	g.n.t.Helper()
	g.waitFor(fmt.Sprintf("%s running=%d succeeded=%d failed=%d Scheduled %s", phase, running, succeeded, failed, reason), func(s status) bool {
		return s.Phase == phase && s.Running == running && s.Succeeded == succeeded && s.Failed == failed && s.scheduled().Reason == reason
	})
}

func (g *group) waitFor(what string, check func(status) bool) {
	g.n.t.Helper()
	await.NoError(g.n.t, "PodGroup "+g.n.name+"/train has "+what, func() error {
		if s := g.last(); !check(s) {
			return fmt.Errorf("it has %s", s)
		}
		return nil
	})
}

// stays fails if the PodGroup is written.
func (g *group) stays() {
	g.n.t.Helper()
	before := g.written()
	time.Sleep(quiet)
	if after := g.written(); after != before {
		g.n.t.Errorf("%d writes where nothing happened; last: %s", after-before, g.last())
	}
}

// explain writes the condition Scheduled as the scheduler does.
func (g *group) explain(reason, message string) {
	g.n.t.Helper()
	body := fmt.Sprintf(`{"apiVersion": %q, "kind": "PodGroup", "metadata": {"name": "train"}, "status": {"conditions": [
		{"type": "Scheduled", "status": "False", "reason": %q, "message": %q, "lastTransitionTime": %q}]}}`,
		podGroups.GroupVersion(), reason, message, time.Now().UTC().Format(time.RFC3339))
	force := true
	if _, err := g.client.Patch(g.n.t.Context(), "train", types.ApplyPatchType, []byte(body),
		metav1.PatchOptions{FieldManager: "lockstep-scheduler", Force: &force}, "status"); err != nil {
		g.n.t.Fatalf("explaining: %v", err)
	}
}

// testContext ends before the test's own clean-up.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
