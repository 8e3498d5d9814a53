package evictions

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	stockpreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func budgetOf(namespace, name string, selector *metav1.LabelSelector, allowed int32, disrupted ...string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}}
	b.Status.DisruptionsAllowed, b.Status.DisruptedPods = allowed, map[string]metav1.Time{}
	for _, pod := range disrupted {
		b.Status.DisruptedPods[pod] = metav1.Now()
	}
	return b
}

func list(t *testing.T, budgets ...*policyv1.PodDisruptionBudget) *Budgets {
	t.Helper()
	return listed(t, false, budgets...)
}

func labelled(namespace string, labels map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", Labels: labels}}
}

func listed(t *testing.T, emptyCovers bool, budgets ...*policyv1.PodDisruptionBudget) *Budgets {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, one := range budgets {
		must.Succeed(t, indexer.Add(one))
	}
	b, err := ListBudgets(policylisters.NewPodDisruptionBudgetLister(indexer), emptyCovers)
	must.Succeed(t, err)
	return b
}

var app = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}

func TestGuards(t *testing.T) {
	other := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b"}}}}
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Sideways"}}}
	for sentence, c := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		labels map[string]string
		want   []int
	}{
		"a budget guards the pods that its selector matches": {budgetOf("x", "b", app, 1), map[string]string{"app": "a"}, []int{0}},
		"no others":                                            {budgetOf("x", "b", app, 1), map[string]string{"app": "b"}, nil},
		"none in another namespace":                            {budgetOf("y", "b", app, 1), map[string]string{"app": "a"}, nil},
		"an empty selector matches nothing":                    {budgetOf("x", "b", &metav1.LabelSelector{}, 0), map[string]string{"app": "a"}, nil},
		"nor does none":                                        {budgetOf("x", "b", nil, 0), map[string]string{"app": "a"}, nil},
		"nor one that makes no sense":                          {budgetOf("x", "b", broken, 0), map[string]string{"app": "a"}, nil},
		"a pod without labels is not guarded":                  {budgetOf("x", "b", other, 0), nil, nil},
		"one with others is":                                   {budgetOf("x", "b", other, 0), map[string]string{"app": "a"}, []int{0}},
		"who is ending with its leave does not count twice":    {budgetOf("x", "b", app, 0, "pod"), map[string]string{"app": "a"}, nil},
		"who is ending with that of another budget is guarded": {budgetOf("x", "b", app, 0, "pod-2"), map[string]string{"app": "a"}, []int{0}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, slices.Collect(maps.Keys(list(t, c.budget).Guards(labelled("x", c.labels))))); diff != "" {
				t.Errorf("guards (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUsedUp: only budgets count that guard one of the pods, each once; without budgets no pod is guarded. The Eviction
// API lets an empty selector cover all pods of its namespace.
func TestUsedUp(t *testing.T) {
	all := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	x, y, z := map[string]string{"app": "x"}, map[string]string{"app": "y"}, map[string]string{"app": "z"}
	pods := []*v1.Pod{labelled("a", x), labelled("a", x), labelled("b", y), labelled("a", z)}
	budgets := []*policyv1.PodDisruptionBudget{budgetOf("a", "none", all("x"), 0), budgetOf("a", "one", all("x"), 1), budgetOf("a", "others", all("y"), 0)}
	for sentence, c := range map[string]struct {
		budgets *Budgets
		want    []string
	}{
		"some":                                 {list(t, budgets...), []string{"a/none"}},
		"none":                                 {nil, nil},
		"an empty selector, and no selector":   {listed(t, true, budgetOf("a", "b", &metav1.LabelSelector{}, 0), budgetOf("a", "n", nil, 0)), []string{"a/b"}},
		"an empty selector in the scheduler's": {list(t, budgetOf("a", "b", &metav1.LabelSelector{}, 0)), nil},
	} {
		if diff := cmp.Diff(c.want, c.budgets.UsedUp(pods)); diff != "" {
			t.Errorf("%s: used up (-want +got):\n%s", sentence, diff)
		}
	}
	if none := (*Budgets)(nil); none.Allowed() != nil {
		t.Errorf("without budgets %v are allowed", none.Allowed())
	}
}

// TestTwoBudgets: a pod may be guarded by several budgets, which changes nothing for other pods.
func TestTwoBudgets(t *testing.T) {
	b := list(t, budgetOf("x", "b", app, 1), budgetOf("x", "c", &metav1.LabelSelector{MatchLabels: map[string]string{"role": "r"}}, 2))
	for range 2 {
		for _, c := range []struct {
			labels map[string]string
			want   []int // allowed by the budgets that guard it
		}{
			{map[string]string{"app": "a", "role": "r"}, []int{1, 2}}, {map[string]string{"app": "a"}, []int{1}}, {map[string]string{"role": "r"}, []int{2}},
		} {
			var got []int
			for place := range b.Guards(labelled("x", c.labels)) {
				got = append(got, b.Allowed()[place])
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("%v: guarded by budgets that allow %v, want %v", c.labels, got, c.want)
			}
		}
	}
}

// everywhere is a preemptor that fits once all given pods are gone.
type everywhere struct{ missing int }

func (e *everywhere) Remove(pods []victim.Pod) error {
	e.missing -= len(pods)
	return nil
}

func (e *everywhere) Restore(pods []victim.Pod) error {
	e.missing += len(pods)
	return nil
}

func (e *everywhere) Fits() (bool, error) { return e.missing <= 0, nil }

func (e *everywhere) MayFit() bool { return e.missing <= 0 }

// TestAsKubeScheduler: where all pods have to be evicted, as many violate a budget as kube-scheduler counts.
func TestAsKubeScheduler(t *testing.T) {
	violating := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		value := func() string { return string(rune('a' + r.IntN(3))) }
		var budgets []*policyv1.PodDisruptionBudget
		for i := range 1 + r.IntN(3) { // each guards an app of its own
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": string(rune('a' + i))}}
			if r.IntN(5) == 0 {
				selector = &metav1.LabelSelector{}
			}
			budgets = append(budgets, budgetOf("x", fmt.Sprint("b", i), selector, int32(r.IntN(3)), fmt.Sprint("pod-", r.IntN(6))))
		}
		mine := list(t, budgets...)
		problem := victim.Problem{Need: victim.Vector{v1.ResourceCPU: 1}, Allowed: mine.Allowed()}
		var theirs []stockpreemption.Victim
		for i := range 1 + r.IntN(8) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("pod-", i)), Labels: map[string]string{"app": value()}}}
			if r.IntN(6) == 0 {
				pod.Labels = nil
			}
			one, err := stockpreemption.NewVictim([]fwk.PodInfo{idle.PodInfo(t, pod)}, 0, fwk.PodKeyType)
			must.Succeed(t, err)
			theirs = append(theirs, one)
			problem.Gangs = append(problem.Gangs, victim.Gang{ID: pod.Name, Min: 1, Pods: []victim.Pod{
				{UID: pod.UID, Request: victim.Vector{v1.ResourceCPU: 1}, Local: true, Guards: mine.Guards(pod)},
			}})
		}
		want, _ := stockpreemption.FilterVictimsWithPDBViolation(theirs, budgets)
		got, ok, err := problem.Select(&everywhere{len(theirs)})
		if !ok || err != nil || len(got.Pods()) != len(theirs) {
			t.Fatalf("seed %d: %d victims, %v, %v, want all %d", seed, len(got.Pods()), ok, err, len(theirs))
		}
		if got.Violating != len(want) {
			t.Errorf("seed %d: %d violate a budget, want %d", seed, got.Violating, len(want))
		}
		violating += len(want)
	}
	if violating < 300 {
		t.Errorf("%d violations tell little", violating)
	}
}
