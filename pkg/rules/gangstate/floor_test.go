package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// TestFloorOfAnAttempt: a gang that is to start asks for its floor, one that runs does not.
func TestFloorOfAnAttempt(t *testing.T) {
	c := newCluster(t, map[string]int{"n": 9})
	for _, name := range []string{"waits", "runs"} {
		c.describe(name, &gangspec.PodGroupDescription{Min: 2, MinResources: v1.ResourceList{"cpu": apiresource.MustParse("8")}})
	}
	groups := says(groupsKey, `["a/waits","a/runs"]`)
	c.add(podsNamed("r", 2, of("runs"), needs(2), groups, on("n"))...)
	c.add(podsNamed("w", 2, of("waits"), needs(2), groups)...)
	got := map[string]resource.Vector{}
	for _, pod := range c.pods {
		c.retry()
		if visit := c.s.BeginCycle(pod); visit.Verdict == Lead {
			for _, need := range visit.Attempt.Gangs {
				got[need.Key.Name] = need.Floor
			}
		}
	}
	if diff := cmp.Diff(map[string]resource.Vector{"waits": {"cpu": 8000}, "runs": nil}, got); diff != "" {
		t.Errorf("floors (-want +got):\n%s", diff)
	}
}

// TestOutstanding: gangs that ask for a floor learn what a gang that has begun is still to take of its own.
func TestOutstanding(t *testing.T) {
	cpu := func(amount string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: apiresource.MustParse(amount)}
	}
	asks := func(amount string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: cpu(amount)}}}
		}
	}
	begun := func(c *cluster) {
		c.describe("spark", &gangspec.PodGroupDescription{Min: 1, MinResources: cpu("7")})
		c.bring(podOf("driver", of("spark"), needs(1), asks("1")))
	}
	outstanding := func(amount int64) []Outstanding {
		return []Outstanding{{Gang: gangspec.Key{Namespace: "a", Name: "spark"}, Amount: resource.Vector{v1.ResourceCPU: amount}, Nodes: []string{"n"}}}
	}
	for sentence, tc := range map[string]struct {
		play func(c *cluster)
		with []func(*v1.Pod)
		// floorless: the gang that asks has no minResources; initialized: it has run a first stage.
		floorless, initialized bool
		want                   []Outstanding
	}{
		"nothing has begun": {play: func(*cluster) {}},
		"a driver runs":     {play: begun, want: outstanding(6000)},
		"some of its executors, too": {
			play: func(c *cluster) { begun(c); c.add(podsNamed("e", 2, of("spark"), needs(1), asks("2"))...); c.run() },
			want: outstanding(2000),
		},
		"all of them": {
			play: func(c *cluster) { begun(c); c.add(podsNamed("e", 3, of("spark"), needs(1), asks("2"))...); c.run() },
		},
		"what has not come in time is not expected":   {play: func(c *cluster) { begun(c); c.pass(outstandingFor) }},
		"nor of one whose pods are gone":              {play: func(c *cluster) { begun(c); c.remove("driver") }},
		"nor by those that ask for nothing":           {play: begun, floorless: true},
		"nor by those of higher priority":             {play: begun, with: []func(*v1.Pod){urgent(1)}},
		"nor by one that has begun itself":            {play: begun, initialized: true},
		"a scheduler that begins knows when it began": {play: func(c *cluster) { bindDriver(c, cpu("7"), asks("1"), 0) }, want: outstanding(6000)},
		"and that it was long ago":                    {play: func(c *cluster) { bindDriver(c, cpu("7"), asks("1"), -outstandingFor) }},
		"of stages, what comes later":                 {play: func(c *cluster) { c.staged(cpu("7"), asks("2"), 2) }, want: outstanding(3000)},
		"when the last has come, all of it is there":  {play: func(c *cluster) { c.staged(cpu("7"), asks("2"), 3) }},
		"a gang all of whose members run is whole enough": {
			play: func(c *cluster) {
				c.describe("spark", &gangspec.PodGroupDescription{Min: 2, MinResources: cpu("2")})
				c.bring(podsNamed("w", 2, of("spark"), needs(2), asks("1"))...)
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := newCluster(t, map[string]int{"n": 9})
			tc.play(c)
			switch {
			case tc.initialized:
				c.describe("other", &gangspec.PodGroupDescription{Min: 2, MinResources: cpu("1"), Annotations: values{v1alpha1.StagesAnnotation: "1,1"}})
				c.bring(podOf("init", of("other")))
				c.finish("init")
			case tc.floorless:
				c.describe("other", &gangspec.PodGroupDescription{Min: 1})
			default:
				c.describe("other", &gangspec.PodGroupDescription{Min: 1, MinResources: cpu("1")})
			}
			c.add(podOf("other", append(tc.with, of("other"))...))
			c.retry()
			visit := c.s.BeginCycle(c.pods["other"])
			if visit.Attempt == nil {
				t.Fatalf("no attempt: %v", visit)
			}
			if diff := cmp.Diff(tc.want, visit.Attempt.Outstanding); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// bindDriver makes a driver be bound before the scheduler begins, at a time.
func bindDriver(c *cluster, floor v1.ResourceList, asks func(*v1.Pod), at time.Duration) {
	c.s.closed = true
	c.describe("spark", &gangspec.PodGroupDescription{Min: 1, MinResources: floor})
	c.add(podOf("driver", of("spark"), needs(1), asks, bindTo("n", at)))
	c.do(c.s.Open(c.now))
	c.pass(time.Second)
}

// staged makes the first members run of a gang that is made in stages of two and one.
func (c *cluster) staged(floor v1.ResourceList, asks func(*v1.Pod), members int) {
	c.describe("spark", &gangspec.PodGroupDescription{Min: 3, MinResources: floor, Annotations: values{v1alpha1.StagesAnnotation: "2,1"}})
	for _, pod := range podsNamed("w", members, of("spark"), asks) {
		c.bring(pod)
	}
}
