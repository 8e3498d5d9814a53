package defragplan

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
)

// TestGrown: no other pod is evicted for a gang that needs more members than the plan has places for, whether it was
// made anew or its minimum was raised.
func TestGrown(t *testing.T) {
	community := schema.GroupVersion{Group: "scheduling.x-k8s.io", Version: "v1alpha1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{community})
	mapper.Add(community.WithKind("PodGroup"), meta.RESTScopeNamespace)
	for sentence, c := range map[string]struct {
		goal                      migration.Waiting
		minimum, waiting, running int
		grown                     bool
	}{
		"as it was":                            {goal: migration.Waits, minimum: 2, waiting: 2},
		"more wait than have to start":         {goal: migration.Waits, minimum: 2, waiting: 5},
		"part of it runs":                      {goal: migration.Waits, minimum: 4, waiting: 2, running: 2},
		"its minimum is raised":                {goal: migration.Waits, minimum: 3, waiting: 3, grown: true},
		"members that succeeded are gone":      {goal: migration.Waits, minimum: 4, waiting: 2},
		"it is made anew":                      {goal: migration.Renewed, minimum: 2, waiting: 2},
		"anew, with more":                      {goal: migration.Renewed, minimum: 3, waiting: 3, grown: true},
		"anew, with more, which are to come":   {goal: migration.Renewed, minimum: 3, waiting: 2, grown: true},
		"anew, with more, part of which is on": {goal: migration.Renewed, minimum: 4, waiting: 2, running: 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(c.minimum)}}}
			group.SetGroupVersionKind(community.WithKind("PodGroup"))
			group.SetNamespace("ns")
			group.SetName("goal")
			objects := []client.Object{group}
			for i := range c.waiting + c.running {
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("goal-", i), Labels: map[string]string{v1alpha1.PodGroupLabel: "goal"}}}
				if i >= c.waiting {
					pod.Spec.NodeName = "node"
				}
				objects = append(objects, pod)
			}
			p := &v1alpha1.DefragmentationPlan{Spec: v1alpha1.DefragmentationPlanSpec{Goal: v1alpha1.DefragmentationGoal{PodGroup: "ns/goal"}}}
			p.Status.Places = []v1alpha1.PlannedPlace{{Namespace: "ns", PodName: "goal-0", NodeName: "a", Members: 1}, {Namespace: "ns", PodName: "goal-0", NodeName: "b", Members: 1}}
			api := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithRESTMapper(mapper).WithObjects(objects...).Build()
			r := &reconciler{client: api, live: api}
			why, err := r.grown(t.Context(), p, &migration.PlanSeen{Goal: c.goal})
			if err != nil || (why != "") != c.grown {
				t.Errorf("%q, %v", why, err)
			}
		})
	}
}
