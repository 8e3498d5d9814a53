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
	"k8s.io/kubernetes/pkg/scheduler/framework"
	stockpreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
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

func listed(t *testing.T, emptyCovers bool, budgets ...*policyv1.PodDisruptionBudget) *Budgets {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, one := range budgets {
		if err := indexer.Add(one); err != nil {
			t.Fatal(err)
		}
	}
	b, err := ListBudgets(policylisters.NewPodDisruptionBudgetLister(indexer), emptyCovers)
	if err != nil {
		t.Fatal(err)
	}
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
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod", Labels: c.labels}}
			if diff := cmp.Diff(c.want, slices.Collect(maps.Keys(list(t, c.budget).Guards(pod)))); diff != "" {
				t.Errorf("guards (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEmptySelector: the Eviction API lets an empty selector cover all pods of its namespace.
func TestEmptySelector(t *testing.T) {
	b := listed(t, true, budgetOf("x", "b", &metav1.LabelSelector{}, 0), budgetOf("x", "none", nil, 0))
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod", Labels: map[string]string{"app": "a"}}}
	if diff := cmp.Diff([]string{"x/b"}, b.UsedUp([]*v1.Pod{pod})); diff != "" {
		t.Errorf("used up (-want +got):\n%s", diff)
	}
}

// TestNoBudgets: without budgets no pod is guarded.
// TestUsedUp: only budgets count that guard one of the pods, each once.
func TestUsedUp(t *testing.T) {
	all := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	guarded := func(namespace, name, app string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}}}
	}
	budgets := list(t, budgetOf("a", "none", all("x"), 0), budgetOf("a", "one", all("x"), 1), budgetOf("a", "others", all("y"), 0))
	pods := []*v1.Pod{
		guarded("a", "p", "x"), guarded("a", "q", "x"),
		guarded("b", "r", "y"), guarded("a", "s", "z"),
	}
	if got := budgets.UsedUp(pods); !slices.Equal(got, []string{"a/none"}) {
		t.Errorf("used up: %v, want a/none", got)
	}
	if got := (*Budgets)(nil).UsedUp(pods); got != nil {
		t.Errorf("without budgets used up: %v", got)
	}
}

func TestNoBudgets(t *testing.T) {
	var none *Budgets
	if guards := none.Guards(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}}); guards != nil || none.Allowed() != nil {
		t.Errorf("guarded by %v of %v", guards, none.Allowed())
	}
}

// TestTwoBudgets: a pod may be guarded by several budgets, which changes nothing for other pods.
func TestTwoBudgets(t *testing.T) {
	b := list(t, budgetOf("x", "b", app, 1), budgetOf("x", "c", &metav1.LabelSelector{MatchLabels: map[string]string{"role": "r"}}, 2))
	pod := func(labels map[string]string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod", Labels: labels}}
	}
	for range 2 {
		both := b.Guards(pod(map[string]string{"app": "a", "role": "r"}))
		if len(both) != 2 || len(b.Allowed()) != 2 {
			t.Errorf("guarded by %v of %v, want two of two", both, b.Allowed())
		}
		for label, want := range map[string]int{"app": 1, "role": 2} {
			one := b.Guards(pod(map[string]string{label: map[string]string{"app": "a", "role": "r"}[label]}))
			if len(one) != 1 {
				t.Fatalf("guarded by %v, want one", one)
			}
			for place := range one {
				if b.Allowed()[place] != want {
					t.Errorf("guarded by one that allows %d, want %d", b.Allowed()[place], want)
				}
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
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				t.Fatal(err)
			}
			one, err := stockpreemption.NewVictim([]fwk.PodInfo{info}, 0, fwk.PodKeyType)
			if err != nil {
				t.Fatal(err)
			}
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
