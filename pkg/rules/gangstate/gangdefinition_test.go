package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestARunningGangOutlivesABadEdit: a value by which a gang must not start does no harm to one that runs.
func TestARunningGangOutlivesABadEdit(t *testing.T) {
	bad := says(requiredKey, "a rack")
	edited := newCluster(t, map[string]int{"n": 9})
	edited.add(podsNamed("x", 2, of("x"), needs(2))...)
	edited.run()
	edited.change("x", bad)
	seen := newCluster(t, map[string]int{"n": 9}) // by a scheduler that has just started
	seen.add(podsNamed("x", 2, of("x"), needs(2), bad, bindTo("n", 0))...)
	waits := newCluster(t, nil)
	waits.add(podsNamed("x", 2, of("x"), needs(2), bad)...)
	for sentence, c := range map[string]struct {
		of      *cluster
		minimum int
		refused bool
	}{
		"it is edited while it runs": {edited, 2, false},
		"it runs at the start":       {seen, 2, false},
		"it waits":                   {waits, 0, true},
	} {
		spec := c.of.s.gangs[gangspec.Key{Namespace: "a", Name: "x"}].spec
		if spec.Min != c.minimum || (spec.Refused != "") != c.refused {
			t.Errorf("%s: its minimum is %d, want %d; refused: %q, want one: %t", sentence, spec.Min, c.minimum, spec.Refused, c.refused)
		}
	}
}

// TestAValueOfNoGangOnMembers: where a pod asks for a gang by a value that is none, it is in no gang before it has a
// node, and in that of its schedulingGroup once it has one.
func TestAValueOfNoGangOnMembers(t *testing.T) {
	pod := podOf("p", says(v1alpha1.GangAnnotation, "true"))
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("g")}
	if key, _, member := gangspec.KeyOf(pod); member {
		t.Errorf("it waits, and is in %s", key)
	}
	pod.Spec.NodeName = "n"
	if key, _, member := gangspec.KeyOf(pod); !member || key.Name != "g" {
		t.Errorf("it runs, and is in %q, want g", key.Name)
	}
}

// TestLoweredMinimum: what becomes surplus of a gang that runs may help preemptors at once.
func TestLoweredMinimum(t *testing.T) {
	roles := func(value string) values { return values{v1alpha1.MinByRoleAnnotation: value} }
	for sentence, then := range map[string]struct {
		object gangspec.PodGroupDescription
		freed  bool
	}{
		"a lower minimum":           {gangspec.PodGroupDescription{Min: 3, Annotations: roles(`{"worker":2}`)}, true},
		"a lower minimum of a role": {gangspec.PodGroupDescription{Min: 4, Annotations: roles(`{"worker":1}`)}, true},
		"a higher one":              {gangspec.PodGroupDescription{Min: 4, Annotations: roles(`{"worker":3}`)}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := newCluster(t, map[string]int{"n": 4})
			c.describe("train", &gangspec.PodGroupDescription{Min: 4, Annotations: roles(`{"worker":2}`)})
			c.bring(podsNamed("p", 4, labeled(v1alpha1.PodGroupLabel, "train"), as("worker"))...)
			then.object.Created = start
			if e := c.s.Describe(gangspec.Community, gangspec.Key{Namespace: "a", Name: "train"}, &then.object, c.now); e.Freed != then.freed {
				t.Errorf("it frees something: %t, want %t", e.Freed, then.freed)
			}
		})
	}
}

// TestMembersThatDiffer: where members say different things of their gang, what does not count is reported,
// whichever of them comes first.
func TestMembersThatDiffer(t *testing.T) {
	const which, same = " is not what pod p1 says, which counts for the gang; using ", "; write the same on all its pods"
	minimum := minKey + `: "4"` + which + `"3"` + same
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want []string
	}{
		"all say the same":          {podsNamed("p", 3, needs(3), says(modeKey, "Strict")), nil},
		"some say nothing":          {[]*v1.Pod{podOf("p1", needs(3)), podOf("p2")}, nil},
		"others have it as a label": {[]*v1.Pod{podOf("p1", needs(3)), podOf("p2", labeled(minLabel, "3"))}, nil},
		"two have another minimum":  {[]*v1.Pod{podOf("p1", needs(3)), podOf("p2", needs(4)), podOf("p3", needs(4))}, []string{minimum, minimum}},
		"the other one comes first": {[]*v1.Pod{podOf("p2", needs(4)), podOf("p1", needs(3))}, []string{minimum}},
		"one that is being deleted": {[]*v1.Pod{podOf("p1", needs(3)), podOf("p2", needs(4), dying)}, nil},
		"one says what none else does": {
			[]*v1.Pod{podOf("p1", needs(3)), podOf("p2", needs(3), says(requiredKey, "rack"))},
			[]string{requiredKey + `: "rack"` + which + "what the PodGroup says, or the default" + same},
		},
	} {
		s := newOpen(gangspec.Defaults{WaitTime: time.Minute}, Backoff{Initial: time.Second, Max: time.Second})
		var got []string
		for _, pod := range c.pods {
			of("x")(pod)
			for _, report := range s.ObservePod(pod, start).Problems {
				got = append(got, report.Problem.String())
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
}
