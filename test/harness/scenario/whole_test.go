package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// play feeds events to a gang and returns its violation one minute later. Events are "second verb
// member[:role]": bind, take (by the scenario), evict.
func play(t *testing.T, g *Gang, events ...string) string {
	t.Helper()
	w := newWholeness("default/a", g)
	for _, event := range events {
		var second float64
		var verb, member string
		if _, err := fmt.Sscanf(event, "%g %s %s", &second, &verb, &member); err != nil {
			t.Fatalf("event %q: %v", event, err)
		}
		now := time.Duration(second * float64(time.Second))
		name, role, _ := strings.Cut(member, ":")
		switch verb {
		case "bind":
			w.bind(types.UID(name), role, now)
		case "take", "evict":
			w.lose(types.UID(name), verb == "take", now)
		default:
			t.Fatalf("event %q: unknown verb", event)
		}
	}
	return w.check(time.Minute)
}

func TestWholeness(t *testing.T) {
	three := &Gang{Min: 3}
	roles := &Gang{Min: 3, MinByRole: map[string]int{"head": 1}}
	elastic := &Gang{Min: 1, MinByRole: map[string]int{"head": 1, "hand": 1}}
	cases := map[string]struct {
		gang   *Gang
		events []string
		want   string // part of the violation, "" for none
	}{
		"nothing bound":                         {three, nil, ""},
		"bound in a burst":                      {three, []string{"1 bind x", "1.5 bind y", "2.9 bind z"}, ""},
		"a late member":                         {three, []string{"1 bind x", "1.5 bind y", "3.1 bind z"}, "2 of its minimum of 3"},
		"a member that never comes":             {three, []string{"1 bind x", "1 bind y"}, "2 of its minimum of 3"},
		"a longer burst is allowed":             {&Gang{Min: 3, Burst: metav1.Duration{Duration: 5 * time.Second}}, []string{"1 bind x", "1 bind y", "5 bind z"}, ""},
		"one was evicted":                       {three, []string{"1 bind x", "1 bind y", "1 bind z", "9 evict y"}, "2 of its minimum of 3"},
		"all were evicted":                      {three, []string{"1 bind x", "1 bind y", "1 bind z", "9 evict y", "9.1 evict x", "9.2 evict z"}, ""},
		"surplus was evicted":                   {&Gang{Min: 2}, []string{"1 bind x", "1 bind y", "1 bind z", "9 evict y"}, ""},
		"the scenario took one":                 {three, []string{"1 bind x", "1 bind y", "1 bind z", "9 take y"}, ""},
		"a replacement ends the excuse":         {three, []string{"1 bind x", "1 bind y", "1 bind z", "9 take y", "10 bind w", "20 evict x"}, "2 of its minimum of 3"},
		"with nothing bound it is a gang again": {three, []string{"1 bind x", "1 bind y", "1 bind z", "9 take x", "9 take y", "9 take z", "20 bind w"}, "1 of its minimum of 3"},
		"a role is missing":                     {roles, []string{"1 bind x", "1 bind y", "1 bind z"}, "0 of the 1 of role head"},
		"every role is there":                   {roles, []string{"1 bind x:head", "1 bind y", "1 bind z"}, ""},
		"roles do not bind an elastic gang":     {elastic, []string{"1 bind x:hand"}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := play(t, c.gang, c.events...)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("violation %q, want %q", got, c.want)
			}
		})
	}
}

func TestGroupWholeness(t *testing.T) {
	a, b := newWholeness("default/a", &Gang{Min: 1}), newWholeness("default/b", &Gang{Min: 1})
	g := &groupWholeness{gangs: []*wholeness{a, b}}
	a.bind("x", "", time.Second)
	g.update(time.Second)
	if got := g.check(2 * time.Second); got != "" {
		t.Errorf("after 1 s: violation %q, want none", got)
	}
	if got := g.check(4 * time.Second); !strings.Contains(got, "default/a is bound, but default/b is not") {
		t.Errorf("after 3 s: violation %q, want one that names both gangs", got)
	}
	b.bind("y", "", 2*time.Second)
	whole := &groupWholeness{gangs: []*wholeness{a, b}}
	whole.update(2 * time.Second)
	if got := whole.check(time.Minute); got != "" {
		t.Errorf("both bound: violation %q, want none", got)
	}
}

func TestUptimeStandsStill(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	u := newUptime(begin)
	u.set("scheduler", true, at(10))
	u.set("apiServer", true, at(12))
	u.set("scheduler", false, at(14))
	if got := u.at(at(15)); got != 10*time.Second {
		t.Errorf("while one is down: %s, want 10s", got)
	}
	u.set("apiServer", false, at(20))
	if got := u.at(at(25)); got != 15*time.Second {
		t.Errorf("with both up again: %s, want 15s", got)
	}
}

// TestMovedBetweenGangs: a pod counts for the gang that it names now. What the scenario took out of a gang is not
// missed there.
func TestMovedBetweenGangs(t *testing.T) {
	pod := func(name, gang string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.PodGroupLabel: gang}},
			Spec:       v1.PodSpec{NodeName: "node"},
		}
	}
	r := newRecorder(&plan{})
	a, b := newWholeness("default/a", &Gang{Min: 2}), newWholeness("default/b", &Gang{Min: 1})
	r.whole = map[string]*wholeness{"default/a": a, "default/b": b}
	for _, name := range []string{"x", "y"} {
		waits := pod(name, "a")
		waits.Spec.NodeName = ""
		r.seePod(nil, waits)
		r.seePod(waits, pod(name, "a"))
	}
	r.seePod(pod("x", "a"), pod("x", "b"))
	if len(a.bound) != 1 || len(b.bound) != 1 || a.check(time.Hour)+b.check(time.Hour) != "" {
		t.Errorf("bound: %v and %v; missed: %q", a.bound, b.bound, a.check(time.Hour)+b.check(time.Hour))
	}
}

func TestOversold(t *testing.T) {
	quantity := func(cpu string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)} }
	pod := func(name, node string, phase v1.PodPhase) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{
				Name: "main", Resources: v1.ResourceRequirements{Requests: quantity("1")},
			}}},
			Status: v1.PodStatus{Phase: phase},
		}
	}
	allocatable := quantity("2")
	allocatable[v1.ResourcePods] = resource.MustParse("3")
	cases := map[string]struct {
		others []*v1.Pod
		want   string
	}{
		"a pod that fits":                   {[]*v1.Pod{pod("a", "node", v1.PodRunning)}, ""},
		"one too many":                      {[]*v1.Pod{pod("a", "node", v1.PodRunning), pod("b", "node", v1.PodRunning)}, "ask for 3 cpu; it has 2"},
		"pods on another node do not count": {[]*v1.Pod{pod("a", "node", v1.PodRunning), pod("b", "other", v1.PodRunning)}, ""},
		"pods that have ended do not count": {[]*v1.Pod{pod("a", "node", v1.PodRunning), pod("b", "node", v1.PodSucceeded)}, ""},
		"the number of pods has a limit too": {[]*v1.Pod{
			pod("a", "node", v1.PodRunning), withoutRequests(pod("b", "node", v1.PodRunning)), withoutRequests(pod("c", "node", v1.PodRunning)),
		}, "ask for 4 pods; it has 3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRecorder(&plan{})
			r.seeNode(nil, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: v1.NodeStatus{Allocatable: allocatable}})
			for _, p := range c.others {
				r.placed[nameOf(p)] = true
				r.seePod(nil, p)
			}
			r.seePod(nil, pod("late", "", v1.PodPending))
			r.seePod(nil, pod("late", "node", v1.PodPending))
			if (r.oversold == "") != (c.want == "") || !strings.Contains(r.oversold, c.want) {
				t.Errorf("oversold %q, want %q", r.oversold, c.want)
			}
		})
	}
}

func withoutRequests(pod *v1.Pod) *v1.Pod {
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	return pod
}
