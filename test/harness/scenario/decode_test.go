package scenario

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// minimal is a scenario that is right; cases replace one line of it.
const minimal = `
description: a gang is bound
nodes:
- name: node
gangs:
- name: a
  min: 2
steps:
- create: {gangs: [a]}
- expect: {bound: {a: 2}}
`

func TestParseRefuses(t *testing.T) {
	if _, err := Parse("minimal", []byte(minimal)); err != nil {
		t.Fatalf("the scenario that the cases change: %v", err)
	}
	cases := map[string]struct{ old, new, want string }{
		"an unknown field of a list entry": {"  min: 2", "  min: 2\n  minn: 3", `unknown field "gangs[0].minn"`},
		"an unknown field of a step":       {"create: {gangs: [a]}", "create: {gang: [a]}", `unknown field "steps[0].create.gang"`},
		"an unknown field at the top":      {"nodes:", "nods: []\nnodes:", `unknown field "nods"`},
		"a field that is there twice":      {"  min: 2", "  min: 2\n  min: 3", `"min" already set in map`},
		"an unknown field of a pod's spec": {"  min: 2", "  min: 2\n  pod: {spec: {hostNetwrk: true}}", `unknown field "hostNetwrk"`},
		"a gang that is not defined":       {"gangs: [a]", "gangs: [b]", `creating gang "b": it is not defined`},
		"pods that are not defined":        {"gangs: [a]", `pods: ["a-2"]`, `creating pods "a-2": none is defined`},
		"a gang that nobody defines bound": {"bound: {a: 2}", "bound: {b: 2}", `expecting gang "b": it is not defined`},
		"a step with two actions":          {"- create: {gangs: [a]}", "- create: {gangs: [a]}\n  pause: 1s", "want exactly one action, got 2 [Create Pause]"},
		"a step without an action":         {"- create: {gangs: [a]}", "- name: idle", "want exactly one action, got 0"},
		"a scenario that expects nothing":  {"- expect: {bound: {a: 2}}", "- pause: 1s", "none expects anything"},
		"words that ask for a step":        {"- create: {gangs: [a]}", "- say: '{{after \"then\" \"a-*\"}}'\n  create: {gangs: [a]}", `no step before is named "then"`},
		"words that are no template":       {"- create: {gangs: [a]}", "- say: '{{'\n  create: {gangs: [a]}", "reading what is said"},
		"words without a step":             {"- create: {gangs: [a]}", "- say: so\n  name: idle", "want exactly one action, got 0"},
		"a command that shows something":   {"- create: {gangs: [a]}", "- run: {command: ls, show: some}", `show is "some", want one of all, begin, nothing`},
		"two replicas with a new file":     {"steps:", "scheduler: {standby: true}\nsteps:\n- configure: new.yaml", "cannot be configured anew"},
		"a count that is none":             {"{a: 2}", `{a: two}`, `reading count "two"`},
		"a broken regular expression":      {"bound: {a: 2}", `pods: [{pods: [a-0], message: "("}]`, "reading a regular expression"},
		"a step that nobody named":         {"bound: {a: 2}", "elapsed: {since: then}", `no step before has that name`},
		"a gang without a minimum":         {"  min: 2", "  total: 2", "min 0, want 1 or more"},
		"an owner makes its pods itself":   {"  min: 2", "  min: 2\n  join: owner", "its owner makes its members: write members: 0"},
		"an unknown way to join":           {"  min: 2", "  min: 2\n  join: hands", `unknown way to join "hands"`},
		"no prose":                         {"description: a gang is bound", "", "checking description"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(minimal, c.old) {
				t.Fatalf("%q is not in the scenario", c.old)
			}
			_, err := Parse("bad", []byte(strings.Replace(minimal, c.old, c.new, 1)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestWaysToJoin(t *testing.T) {
	cases := map[string]struct {
		labels, annotations map[string]string
		group               string // the kind and API version of the object that describes the gang
		native              string
	}{
		JoinAnnotation: {annotations: map[string]string{
			v1alpha1.GangNameAnnotation: "a", v1alpha1.MinAvailableAnnotation: "2", v1alpha1.ModeAnnotation: "NonStrict",
		}},
		JoinLabelForm: {
			labels:      map[string]string{v1alpha1.PodGroupNameLabel: "a", v1alpha1.PodGroupMinAvailableLabel: "2"},
			annotations: map[string]string{v1alpha1.ModeAnnotation: "NonStrict"},
		},
		JoinLabel:  {labels: map[string]string{v1alpha1.PodGroupLabel: "a"}, group: "scheduling.x-k8s.io/v1alpha1"},
		JoinXLabel: {labels: map[string]string{v1alpha1.PodGroupXLabel: "a"}, group: "scheduling.x-k8s.io/v1alpha1"},
		JoinNative: {group: "scheduling.k8s.io/v1beta1", native: "a"},
	}
	for join, want := range cases {
		t.Run(join, func(t *testing.T) {
			p, err := newPlan(&Scenario{Gangs: []Gang{{Name: "team/a", Min: 2, Join: join, Mode: "NonStrict"}}})
			if err != nil {
				t.Fatal(err)
			}
			pod := p.members["team/a"][1]
			if pod.Namespace != "team" || pod.Name != "a-1" {
				t.Errorf("pod %s/%s, want team/a-1", pod.Namespace, pod.Name)
			}
			if diff := cmp.Diff(want.labels, pod.Labels, emptyIsNil); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.annotations, pod.Annotations, emptyIsNil); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			native := ""
			if g := pod.Spec.SchedulingGroup; g != nil {
				native = *g.PodGroupName
			}
			if native != want.native {
				t.Errorf("spec.schedulingGroup %q, want %q", native, want.native)
			}
			group := p.groups["team/a"]
			switch {
			case (group == nil) != (want.group == ""):
				t.Errorf("PodGroup %v, want one of %q", group, want.group)
			case group != nil && (group.GetAPIVersion() != want.group || group.GetAnnotations()[v1alpha1.ModeAnnotation] != "NonStrict"):
				t.Errorf("PodGroup %v, want API version %s and the mode as annotation", group.Object, want.group)
			}
		})
	}
}

var emptyIsNil = cmp.Transformer("emptyIsNil", func(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
})

func TestTheExampleOfTheReadmeIsRight(t *testing.T) {
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```yaml\n")
	example, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("README.md has no example")
	}
	if _, err := Parse("example", []byte(example)); err != nil {
		t.Error(err)
	}
}
