package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// fleet is shared by the tests that need a control plane.
var fleet *Fleet

func TestMain(m *testing.M) {
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	var err error
	if fleet, err = NewFleet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := fleet.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestRunnerHolds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding scenarios: %d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if report := (&Runner{Fleet: fleet}).Run(t.Context(), s); report.Failed() {
				t.Error(report)
			}
		})
	}
}

// tooSmall is a node on which three of four fit, whatever the stock scheduler makes of it.
const tooSmall = `
description: the stock scheduler knows no gangs
scheduler: {stock: true}
nodes:
- {name: small, allocatable: {cpu: 3}}
- {name: large, allocatable: {cpu: 8}, later: true}
priorityClasses:
- {name: high, value: 100}
gangs:
- name: a
  min: 4
  pod: {requests: {cpu: 1}}
- name: b
  min: 1
  groups: [default/b, default/c]
- name: c
  min: 1
  groups: [default/b, default/c]
  pod: {nodeSelector: {gone: fishing}}
- name: job
  min: 1
  pod: {annotations: {pod-complete.stage.kwok.x-k8s.io/delay: 8s}}
pods:
- name: urgent
  priority: high
  requests: {cpu: 3}
- name: first
- name: second
steps:
`

// broken are steps after tooSmall, and what has to be in the report.
var broken = map[string]struct {
	steps string
	want  []string // in the report
}{
	"a gang of which part is bound": {
		`
- create: {gangs: [a]}
- pause: 3s
- expect: {bound: {a: 4}}`,
		[]string{"in step 1", "all or nothing: gang default/a has had 3 of its minimum of 4 bound for more than 2s", "bound      pod default/a-0  to small-0"},
	},
	"a gang of which part is bound, while something else is expected": {
		`
- create: {gangs: [a]}
- expect: {bound: {a: 4}}`,
		[]string{"all or nothing: gang default/a has had 3 of its minimum of 4 bound"},
	},
	"half a GangGroup": {
		`
- create: {gangs: [b, c]}
- pause: 3s
- expect: {bound: {b: 1}}`,
		[]string{"of a GangGroup default/b is bound, but default/c is not"},
	},
	"a gang that loses a member to preemption": {
		`
- create: {nodes: [large]}
- patch: {nodes: [small-0], merge: {spec: {unschedulable: true}}}
- create: {gangs: [a]}
- expect: {bound: {a: 4}}
- patch: {nodes: [large-0], status: true, merge: {status: {allocatable: {cpu: "4"}}}}
- pause: 1s # nodes and pods come to the scheduler by streams of their own
- create: {pods: [urgent]}
- pause: 4s`,
		[]string{"all or nothing: gang default/a has had 1 of its minimum of 4 bound", "evicted    pod default/a-"},
	},
	"a state that does not last": {
		`
- create: {gangs: [job]}
- expect: {bound: {job: 1}, stableFor: 30}`,
		[]string{"stable: 1 changes by round", "pod default/job-0 phase Succeeded"},
	},
	"a scheduler that does not run": {
		`
- scheduler: stop
- expect: {stableFor: 5, pods: [{pods: [first], exist: 0}]}`,
		[]string{"stable: the scheduler has not tried pod lockstep-probe/probe-1"},
	},
	"an interrupt that never came": {
		`
- interrupt: {kill: scheduler, afterBound: 4, of: ["a-*"]}
- create: {pods: [first]}
- expect: {pods: [{pods: [first], bound: 1}]}`,
		[]string{"the interrupt that was armed never came"},
	},
	"something that holds too early": {
		`
- create: {pods: [first]}
- expect: {pods: [{pods: [first], bound: 1}], elapsed: {atLeast: 10s}}`,
		[]string{"want 10s at the earliest"},
	},
	"something that holds too late": {
		`
- name: begin
  pause: 1s
- create: {pods: [first]}
- expect: {pods: [{pods: [first], bound: 1}], elapsed: {since: begin, atMost: 1s}}`,
		[]string{"want 1s at the latest"},
	},
}

func TestRunnerReportsWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	for name, c := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFailure(t, tooSmall+c.steps, c.want)
		})
	}
}

// wantFailure runs a scenario that must be reported, with all of this in the report.
func wantFailure(t *testing.T, text string, want []string) {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, t.Name())
	s, err := Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	stock, err := localcluster.Binary("kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	report := (&Runner{Fleet: fleet, Scheduler: stock}).Run(t.Context(), s)
	if !report.Failed() {
		t.Fatalf("the scenario is reported to hold; what happened:\n%s", report.Timeline)
	}
	for _, w := range want {
		if !strings.Contains(report.String(), w) {
			t.Errorf("%q is not in the report", w)
		}
	}
	if t.Failed() {
		t.Log(report)
	}
}

func TestRunnerReportsEveryExpectation(t *testing.T) {
	t.Parallel()
	wantFailure(t, tooSmall+`
- create: {pods: [first]}
- expect: {pods: [{pods: [first], bound: 1}]}
- create: {pods: [second]}
- expect: {pods: [{pods: [second], bound: 1}]}
- create: {gangs: [c]}
- expect:
    within: 2s
    bound: {a: 1}
    whole: {"[bc]": 2}
    pods:
    - {pods: [first], exist: 2, bound: 0, nodes: [large-0], phase: Failed, annotations: {none: ""}, labels: {none: ""}}
    - {pods: [c-0], reason: Sated, conditions: [{type: DisruptionTarget}], withoutAnnotations: [gang.scheduling.koordinator.sh/name]}
    - {pods: [third]}
    - {pods: [first, second], phase: Failed, matching: 1}
    placement:
    - {pods: [first], domains: 2, in: [large-0], perDomain: 3, counts: {large-0: 1}}
    events:
    - {name: first, reason: FailedScheduling}
    - {name: first, reason: Scheduled, count: 0}
    evictions: {first: 1}
    neverBound: [first]
    boundOrder:
    - {first: [second], then: [first]}
`, []string{
		"gang default/a: got 0 bound, want 1",
		"whole gangs among [bc]: got 0, want 2",
		"pods first: got 1, want 2",
		"pods first: got 1 bound, want 0",
		`pod default/first: node: got "small-0", want [large-0]`,
		`pod default/first: phase: got "Running", want Failed`,
		`pod default/first: annotation none: got ""`,
		`pod default/first: label none: got ""`,
		`pod default/c-0: condition PodScheduled: got False "Unschedulable"`,
		"pod default/c-0: condition DisruptionTarget: there is none",
		`annotation gang.scheduling.koordinator.sh/name: got "c", want no such annotation`,
		"pods third: there are none",
		"pods first, second: got 0 of which that is true, want 1",
		"got 1 domains map[small-0:1], want 2",
		`got 1 in "small-0", want them in [large-0]`,
		`got 1 in "small-0", want 3 in each`,
		`got 0 in "large-0", want 1`,
		`events on Pod first with type "", reason "FailedScheduling", message "": got 0, want >=1`,
		`events on Pod first with type "", reason "Scheduled", message "": got 1, want 0`,
		"evictions of first: got 0 [], want 1",
		"never bound: pod default/first was bound to small-0",
		"order: pod default/first was bound",
		"still so after 2s",
	})
}

func TestRunnerReportsObjectsAndWrites(t *testing.T) {
	t.Parallel()
	wantFailure(t, tooSmall+`
- create: {pods: [first]}
- expect: {pods: [{pods: [first], phase: Running}]}
- expect:
    within: 1s
    objects:
    - {apiVersion: v1, kind: Pod, name: first, fields: {.status.phase: Pending}}
    - {apiVersion: v1, kind: Pod, name: first, absent: true}
    - {apiVersion: v1, kind: Pod, name: third}
    - {apiVersion: nowhere.example/v1, kind: Nothing, name: nothing}
    writes:
    - {resource: pods/binding, count: 0}
    - {resource: pods/binding, name: second, count: 1}
`, []string{
		`Pod first: .status.phase: got "Running", want Pending`,
		"Pod first: it is there; want it gone",
		`Pod third: pods "third" not found`,
		"finding the resource of nowhere.example/v1, Kind=Nothing",
		`writes of the scheduler to "pods/binding" "" since "": got 1 map[create pods/binding:1], want 0`,
		`writes of the scheduler to "pods/binding" "second" since "": got 0`,
	})
}

func TestRunnerReportsAnotherNodeThanStock(t *testing.T) {
	t.Parallel()
	wantFailure(t, `
description: a scheduler that packs is not the stock scheduler
scheduler:
  config:
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    profiles:
    - schedulerName: lockstep-scheduler
      pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
      plugins: {multiPoint: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
nodes:
- {name: empty, allocatable: {cpu: 8}}
- {name: half, allocatable: {cpu: 8}}
pods:
- {name: filler, node: half-0, requests: {cpu: 4}}
- {name: pod, requests: {cpu: 1}}
steps:
- create: {pods: [filler, pod]}
- expect: {within: 2s, sameNodesAsStock: [pod]}
`, []string{`pod default/pod: got node "half-0", want "empty-0", where the stock scheduler puts it`})
}

func TestRunnerReportsASchedulerThatEnds(t *testing.T) {
	t.Parallel()
	wantFailure(t, `
description: a scheduler that refuses its flags
scheduler: {args: [--no-such-flag]}
steps:
- expect: {pods: [{pods: [none], exist: 0}]}
`, []string{"in the set-up", "waiting for the scheduler to be ready: it ended", "unknown flag: --no-such-flag"})
}
