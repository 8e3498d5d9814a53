package podadmission

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// world is a cluster in memory. With failing it cannot be asked.
type world struct {
	priorities []schedulingv1.PriorityClass
	runtimes   map[string]*nodev1.RuntimeClass
	limits     map[string][]v1.LimitRange
	failing    error
}

func (w world) PriorityClasses(context.Context) ([]schedulingv1.PriorityClass, error) {
	return w.priorities, w.failing
}

func (w world) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return w.runtimes[name], w.failing
}

func (w world) LimitRanges(_ context.Context, namespace string) ([]v1.LimitRange, error) {
	return w.limits[namespace], w.failing
}

func amounts(of ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(of); i += 2 {
		list[v1.ResourceName(of[i])] = resource.MustParse(of[i+1])
	}
	return list
}

func limitRange(name string, items ...v1.LimitRangeItem) v1.LimitRange {
	return v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.LimitRangeSpec{Limits: items}}
}

func class(name string, value int32, policy *v1.PreemptionPolicy, isDefault bool) schedulingv1.PriorityClass {
	return schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: policy, GlobalDefault: isDefault}
}

var usual = world{
	priorities: []schedulingv1.PriorityClass{
		class("high", 1000, new(v1.PreemptLowerPriority), false), class("polite", 2000, new(v1.PreemptNever), false),
	},
	runtimes: map[string]*nodev1.RuntimeClass{
		"plain": {ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
		"vm": {
			ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Overhead: &nodev1.Overhead{PodFixed: amounts("cpu", "250m", "memory", "100Mi")},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []v1.Toleration{{Key: "vm", Operator: v1.TolerationOpExists}}},
		},
	},
	limits: map[string][]v1.LimitRange{
		"limited": {
			limitRange("second", v1.LimitRangeItem{Type: v1.LimitTypeContainer, Default: amounts("cpu", "9"), DefaultRequest: amounts("cpu", "9")}),
			limitRange("first", v1.LimitRangeItem{Type: v1.LimitTypeContainer, Default: amounts("cpu", "2"), DefaultRequest: amounts("cpu", "1")}),
		},
		"bounded": {
			limitRange("ratio", v1.LimitRangeItem{Type: v1.LimitTypeContainer, MaxLimitRequestRatio: amounts("cpu", "2")}),
			limitRange("sum", v1.LimitRangeItem{Type: v1.LimitTypePod, Max: amounts("cpu", "8")}),
		},
	},
}

// admission is what Admit decides about a pod.
type admission struct {
	Priority    int32
	Policy      v1.PreemptionPolicy
	Request     string
	Overhead    string
	Selector    map[string]string
	Tolerations int
}

func TestAdmit(t *testing.T) {
	const lower, never = v1.PreemptLowerPriority, v1.PreemptNever
	defaults := usual
	defaults.priorities = append(defaults.priorities, class("other", 9, nil, true), class("usual", 7, new(never), true))
	pod := func(change func(*v1.Pod)) *v1.Pod {
		p := st.MakePod().Name("p").Namespace("ns").Req(map[v1.ResourceName]string{v1.ResourceCPU: "3"}).Obj()
		change(p)
		return p
	}
	of := func(runtime string, change func(*v1.Pod)) *v1.Pod {
		return pod(func(p *v1.Pod) {
			p.Spec.RuntimeClassName = &runtime
			change(p)
		})
	}
	as := func(*v1.Pod) {}
	ratio := func(p *v1.Pod) {
		p.Namespace = "bounded"
		p.Spec.Containers[0].Resources.Limits = amounts("cpu", "7")
	}
	for sentence, c := range map[string]struct {
		world world
		pod   *v1.Pod
		want  admission
		fails string
	}{
		"without classes": {usual, pod(as), admission{Policy: lower, Request: "3"}, ""},
		"of a class":      {usual, pod(func(p *v1.Pod) { p.Spec.PriorityClassName = "high" }), admission{Priority: 1000, Policy: lower, Request: "3"}, ""},
		"of a class that evicts none": {usual, pod(func(p *v1.Pod) { p.Spec.PriorityClassName = "polite" }),
			admission{Priority: 2000, Policy: never, Request: "3"}, ""},
		"of two default classes the lower counts": {defaults, pod(as), admission{Priority: 7, Policy: never, Request: "3"}, ""},
		"of a class that does not exist": {usual, pod(func(p *v1.Pod) { p.Spec.PriorityClassName = "x" }), admission{},
			`spec.priorityClassName: "x": there is no such PriorityClass`},
		"with a priority of its own": {usual, pod(func(p *v1.Pod) { p.Spec.Priority = new(int32(5)) }), admission{}, "spec.priority: 5: "},
		"with a policy of its own": {usual, pod(func(p *v1.Pod) { p.Spec.PriorityClassName, p.Spec.PreemptionPolicy = "high", new(never) }), admission{},
			`spec.preemptionPolicy: "Never": `},

		"what it asks for stays": {usual, pod(func(p *v1.Pod) { p.Namespace = "limited"; p.Spec.Containers[0].Resources.Limits = amounts("cpu", "4") }),
			admission{Policy: lower, Request: "3"}, ""},
		"what it does not ask for is that of the first LimitRange": {usual, pod(func(p *v1.Pod) { p.Namespace = "limited"; p.Spec.Containers[0].Resources = v1.ResourceRequirements{} }),
			admission{Policy: lower, Request: "1"}, ""},
		"beyond a ratio": {usual, pod(ratio), admission{}, "spec.containers: LimitRange bounded/ratio forbids it: cpu max limit to request ratio per Container is 2"},
		"beyond what a pod may have, by pod-level resources": {usual, pod(func(p *v1.Pod) {
			p.Namespace, p.Spec.Resources = "bounded", &v1.ResourceRequirements{Requests: amounts("cpu", "9"), Limits: amounts("cpu", "9")}
			p.Spec.Containers[0].Resources.Limits = amounts("cpu", "3")
		}), admission{}, "LimitRange bounded/sum forbids it: maximum cpu usage per Pod is 8, but limit is 9"},

		"of a RuntimeClass": {usual, of("vm", as), admission{Policy: lower, Request: "3", Overhead: "250m", Selector: map[string]string{"vm": "yes"}, Tolerations: 1}, ""},
		"of a RuntimeClass, and it has all of that": {usual, of("vm", func(p *v1.Pod) {
			p.Spec.Overhead, p.Spec.NodeSelector = amounts("cpu", "0.25", "memory", "100Mi"), map[string]string{"vm": "yes", "a": "b"}
			p.Spec.Tolerations = []v1.Toleration{{Key: "vm", Operator: v1.TolerationOpExists}}
		}), admission{Policy: lower, Request: "3", Overhead: "250m", Selector: map[string]string{"vm": "yes", "a": "b"}, Tolerations: 1}, ""},
		"of a RuntimeClass that says nothing":   {usual, of("plain", as), admission{Policy: lower, Request: "3"}, ""},
		"of a RuntimeClass that does not exist": {usual, of("x", as), admission{}, `spec.runtimeClassName: "x": there is no such RuntimeClass`},
		"of a RuntimeClass on other nodes": {usual, of("vm", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"vm": "no"} }), admission{},
			`spec.nodeSelector[vm]: "no": RuntimeClass "vm" has "yes"`},
		"with another overhead":                        {usual, of("vm", func(p *v1.Pod) { p.Spec.Overhead = amounts("cpu", "1") }), admission{}, "spec.overhead: "},
		"with an overhead, and without a RuntimeClass": {usual, pod(func(p *v1.Pod) { p.Spec.Overhead = amounts("cpu", "1") }), admission{}, "spec.overhead: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			err := Admit(t.Context(), c.world, c.pod)
			var refusal *Refusal
			if c.fails != "" {
				if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want a refusal with %q", err, c.fails)
				}
				return
			}
			must.Succeed(t, err)
			spec := &c.pod.Spec
			got := admission{
				Priority: *spec.Priority, Policy: *spec.PreemptionPolicy, Request: spec.Containers[0].Resources.Requests.Cpu().String(),
				Selector: spec.NodeSelector, Tolerations: len(spec.Tolerations),
			}
			if spec.Overhead != nil {
				got.Overhead = spec.Overhead.Cpu().String()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCannotBeAsked: a look-up that fails says nothing about the pod.
func TestCannotBeAsked(t *testing.T) {
	down := errors.New("the API server is down")
	err := Admit(t.Context(), world{failing: down}, st.MakePod().Obj())
	if refusal := (*Refusal)(nil); !errors.Is(err, down) || errors.As(err, &refusal) {
		t.Errorf("error %v, want that of the look-up", err)
	}
}
