package defragplan

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
)

// TestGrown: no other pod is evicted for a gang that needs more members than the plan has places for, whether it was
// made anew or its minimum was raised.
func TestGrown(t *testing.T) {
	for sentence, c := range map[string]struct {
		goal                      migration.Waiting
		minimum, waiting, running int
		gated                     int
		stages                    string
		grown                     bool
	}{
		"as it was":                            {goal: migration.Waits, minimum: 2, waiting: 2},
		"more wait than have to start":         {goal: migration.Waits, minimum: 2, waiting: 5},
		"part of it runs":                      {goal: migration.Waits, minimum: 4, waiting: 2, running: 2},
		"its minimum is raised":                {goal: migration.Waits, minimum: 3, waiting: 3, grown: true},
		"others have scheduling gates":         {goal: migration.Waits, minimum: 4, waiting: 2, gated: 2},
		"it starts in stages":                  {goal: migration.Waits, minimum: 3, waiting: 3, stages: "2,1"},
		"members that succeeded are gone":      {goal: migration.Waits, minimum: 4, waiting: 2},
		"it is made anew":                      {goal: migration.Renewed, minimum: 2, waiting: 2},
		"anew, with more":                      {goal: migration.Renewed, minimum: 3, waiting: 3, grown: true},
		"anew, with more, which are to come":   {goal: migration.Renewed, minimum: 3, waiting: 2, grown: true},
		"anew, with more, part of which is on": {goal: migration.Renewed, minimum: 4, waiting: 2, running: 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			group := fakeapi.PodGroup(coscheduling.Kind, "goal", c.minimum, "spec", "minMember")
			if c.stages != "" {
				group.SetAnnotations(map[string]string{v1alpha1.StagesAnnotation: c.stages})
			}
			objects := []client.Object{group}
			for i := range c.waiting + c.running + c.gated {
				name := fmt.Sprint("goal-", i)
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.PodGroupLabel: "goal"}}}
				switch {
				case i >= c.waiting+c.running:
					pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "later"}}
				case i >= c.waiting:
					pod.Spec.NodeName = "node"
				}
				objects = append(objects, pod)
			}
			p := &v1alpha1.DefragmentationPlan{Spec: v1alpha1.DefragmentationPlanSpec{Goal: v1alpha1.DefragmentationGoal{PodGroup: "ns/goal"}}}
			p.Status.Places = []v1alpha1.PlannedPlace{{Namespace: "ns", PodName: "goal-0", NodeName: "a", Members: 1}, {Namespace: "ns", PodName: "goal-0", NodeName: "b", Members: 1}}
			api := fakeapi.New(objects...).Build()
			r := &reconciler{client: api, live: api}
			why, err := r.gangOutgrewPlan(t.Context(), p, &migration.PlanSeen{Goal: c.goal})
			if err != nil || (why != "") != c.grown {
				t.Errorf("%q, %v", why, err)
			}
		})
	}
}

// TestStartTogether: the PodGroup of the community has precedence over that of Kubernetes, and the annotations of the
// first pod in rank count where they say more.
func TestStartTogether(t *testing.T) {
	minCount := []string{"spec", "schedulingPolicy", "gang", "minCount"}
	podOf := func(name string, labels, annotations map[string]string) client.Object {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: labels, Annotations: annotations}}
	}
	in := func(gang string) map[string]string { return map[string]string{v1alpha1.PodGroupLabel: gang} }
	says := func(gang, minimum string) map[string]string {
		return map[string]string{v1alpha1.GangNameAnnotation: gang, v1alpha1.MinAvailableAnnotation: minimum}
	}
	staged := says("staged", "2")
	staged[v1alpha1.StagesAnnotation] = "1,1"
	numbered := func(n string) map[string]string { return map[string]string{"apps.kubernetes.io/pod-index": n} }
	api := fakeapi.New(
		fakeapi.PodGroup(coscheduling.Kind, "both", 3, "spec", "minMember"), fakeapi.PodGroup(fakeapi.NativePodGroup, "both", 4, minCount...), podOf("both-0", in("both"), nil),
		fakeapi.PodGroup(fakeapi.NativePodGroup, "native", 5, minCount...), podOf("native-0", in("native"), nil),
		podOf("job-0", nil, says("job", "2")), podOf("staged-0", nil, staged), podOf("silent-0", in("silent"), nil),
		podOf("set-1", numbered("1"), says("set", "2")), podOf("set-0", numbered("0"), says("set", "3")),
	).Build()
	r := &reconciler{client: api, live: api}
	for gang, want := range map[string]int{"none": 0, "both": 3, "native": 5, "job": 2, "staged": 0, "silent": 0, "set": 3} {
		seen, err := r.observe(t.Context(), gangspec.Key{Namespace: "ns", Name: gang}, true)
		if got := startTogether(seen); err != nil || got != want {
			t.Errorf("of gang %s %d start together, %v; want %d", gang, got, err, want)
		}
	}
}

// TestCostlier: a plan that shows the move of one pod does not begin if a gang would fall below its minimum without it.
// Members that succeeded are there; a pod that its JobSet has made again, and which is about to go, is not.
func TestCostlier(t *testing.T) {
	const attempt = "jobset.sigs.k8s.io/restart-attempt"
	for sentence, c := range map[string]struct {
		third    func(*v1.Pod)
		costlier bool
	}{
		"another runs":                     {func(p *v1.Pod) { p.Spec.NodeName = "node" }, false},
		"another waits":                    {func(*v1.Pod) {}, true},
		"another has succeeded":            {func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "node", v1.PodSucceeded }, false},
		"another is of the attempt before": {func(p *v1.Pod) { p.Spec.NodeName, p.Labels[attempt] = "node", "0" }, true},
	} {
		objects := []client.Object{fakeapi.PodGroup(coscheduling.Kind, "g", 2, "spec", "minMember")}
		for i := range 3 {
			name := fmt.Sprint("g-", i)
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.PodGroupLabel: "g",
				"jobset.sigs.k8s.io/jobset-uid": "s", attempt: "1"}}}
			if i < 2 {
				pod.Spec.NodeName = "node"
			} else {
				c.third(pod)
			}
			objects = append(objects, pod)
		}
		p := &v1alpha1.DefragmentationPlan{}
		p.Status.Restarts = 1
		p.Status.Moves = []v1alpha1.PlannedMove{{Namespace: "ns", PodName: "g-0", PodUID: "g-0", PodGroup: "g"}}
		api := fakeapi.New(objects...).Build()
		r := &reconciler{client: api, live: api}
		if why, err := r.costlier(t.Context(), p, nil); err != nil || (why != "") != c.costlier {
			t.Errorf("%s: %q, %v", sentence, why, err)
		}
	}
}
