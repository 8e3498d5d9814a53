package gangstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// asks makes a pod ask for so much cpu.
func asks(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": apiresource.MustParse(cpu)}}}}
	}
}

// TestImpossibleMembers: a pod that asks for what no pod can have is no member for now; the others wait only if they
// are too few, and say which pod it is.
func TestImpossibleMembers(t *testing.T) {
	const why = `gang "a/x" has 1 of 2 members (and 1 with impossible requests: pod p2: spec.containers[0].resources.requests[cpu] is 1e30: want at most 1T)`
	c := newCluster(t, map[string]int{"n": 9})
	c.bring(podOf("p1", of("x"), needs(2), asks("1")), podOf("p2", of("x"), needs(2), asks("1e30")))
	e, _ := c.s.Explain(gangspec.Key{Namespace: "a", Name: "x"})
	if e.Reason != v1alpha1.ReasonGangIncomplete || e.Message != why {
		t.Errorf("%s, %s\nwant %s", e.Reason, e.Message, why)
	}
	c.add(podOf("p3", of("x"), needs(2), asks("1")))
	c.outcome("with another")
	if got := strings.Join(c.log, "; "); !strings.Contains(got, "a/x 1 pending 2 bound") {
		t.Errorf("%s; the two others should run", got)
	}
}

// TestImpossibleMemberIsReported: by an event, once.
func TestImpossibleMemberIsReported(t *testing.T) {
	s := newOpen(gangspec.Defaults{WaitTime: time.Minute}, Backoff{Initial: time.Second, Max: time.Second})
	var got []string
	for range 2 {
		for _, report := range s.ObservePod(podOf("p", of("x"), needs(1), asks("1e30")), start).Problems {
			got = append(got, report.Problem.String())
		}
	}
	want := []string{`spec.containers[0].resources.requests[cpu]: "1e30" is not at most 1T; using nothing: the pod waits, and is no member for now`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// TestManyGangsTogether: no more than keys.MaxGroups gangs start together, however many name each other in a line; the
// others wait and say why, until there are fewer.
func TestManyGangsTogether(t *testing.T) {
	const line = 2*keys.MaxGroups + 10
	name := func(i int) string { return fmt.Sprintf("g%03d", i) }
	c := newCluster(t, map[string]int{"n": line})
	for i := range line {
		c.add(podOf(name(i)+"-p", of(name(i)), needs(1), says(groupsKey, fmt.Sprintf(`["a/%s","a/%s"]`, name(max(0, i-1)), name(min(line-1, i+1))))))
	}
	for i := range line {
		g := c.s.gangs[gangspec.Key{Namespace: "a", Name: name(i)}]
		if len(g.group.gangs) > keys.MaxGroups {
			t.Fatalf("%d gangs are in the group of %s", len(g.group.gangs), g.key)
		}
	}
	const why = `gang "a/g063" waits for gang "a/g064": more than 64 gangs name each other, the most that start together; name fewer in the groups annotation`
	if e, _ := c.s.Explain(gangspec.Key{Namespace: "a", Name: name(63)}); e.Reason != v1alpha1.ReasonGangUnsupported || e.Message != why {
		t.Errorf("%s, %s\nwant %s", e.Reason, e.Message, why)
	}
	c.run()
	for i := range line {
		if c.s.gangs[gangspec.Key{Namespace: "a", Name: name(i)}].byState[Bound].N > 0 {
			t.Fatalf("%s runs without those that it names", name(i))
		}
	}
	c.remove(name(64)) // two lines are left that are short enough, once their ends name nothing that is gone
	c.remove(name(129))
	c.change(name(63), says(groupsKey, `["a/g062"]`))
	c.change(name(65), says(groupsKey, `["a/g066"]`))
	c.change(name(128), says(groupsKey, `["a/g127"]`))
	for i := 130; i < line; i++ {
		c.remove(name(i))
	}
	c.run()
	for _, i := range []int{0, 63, 65, 128} {
		if c.s.gangs[gangspec.Key{Namespace: "a", Name: name(i)}].byState[Bound].N != 1 {
			t.Errorf("%s does not run: %v", name(i), c.s.gangs[gangspec.Key{Namespace: "a", Name: name(i)}].byState)
		}
	}
}
