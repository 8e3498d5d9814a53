package gang

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

func TestParseMinResources(t *testing.T) {
	list := func(amounts ...string) v1.ResourceList {
		said := v1.ResourceList{}
		for i := 0; i < len(amounts); i += 2 {
			said[v1.ResourceName(amounts[i])] = apiresource.MustParse(amounts[i+1])
		}
		return said
	}
	floored := func(v resource.Vector) Spec { return with(defaults(1), func(s *Spec) { s.MinResources = v }) }
	for sentence, c := range map[string]struct {
		said v1.ResourceList
		want parsed
	}{
		"nothing said is nothing asked for": {want: parsed{Spec: defaults(1)}},
		"so is an empty list":               {said: list(), want: parsed{Spec: defaults(1)}},
		"and a list of zeros":               {said: list("cpu", "0"), want: parsed{Spec: defaults(1)}},
		"amounts are read as the scheduler does": {
			said: list("cpu", "1500m", "memory", "1Gi", "nvidia.com/gpu", "8"),
			want: parsed{Spec: floored(resource.Vector{"cpu": 1500, "memory": 1 << 30, "nvidia.com/gpu": 8})},
		},
		"a negative one is no amount; the others count": {
			said: list("cpu", "-4", "memory", "1"),
			want: parsed{
				Spec:     floored(resource.Vector{"memory": 1}),
				Problems: []string{`spec.minResources: "cpu: -4" is not an amount of 0 or more; using the others, and nothing for cpu`},
				OnObject: []string{"spec.minResources"},
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parse(&Object{Min: 1, MinResources: c.said}, Fields{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFloorOfAnAttempt: a gang that is to start asks for its floor, one that runs does not.
func TestFloorOfAnAttempt(t *testing.T) {
	c := newCluster(t, map[string]int{"n": 9})
	for _, name := range []string{"waits", "runs"} {
		c.describe(name, &Object{Min: 2, MinResources: v1.ResourceList{"cpu": apiresource.MustParse("8")}})
	}
	groups := says(groupsKey, `["a/waits","a/runs"]`)
	c.add(podsNamed("r", 2, of("runs"), needs(2), groups, on("n"))...)
	c.add(podsNamed("w", 2, of("waits"), needs(2), groups)...)
	got := map[string]resource.Vector{}
	for _, pod := range c.pods {
		if visit := c.s.Visit(pod); visit.Verdict == Lead {
			for _, need := range visit.Attempt.Gangs {
				got[need.Key.Name] = need.Floor
			}
		}
	}
	if diff := cmp.Diff(map[string]resource.Vector{"waits": {"cpu": 8000}, "runs": nil}, got); diff != "" {
		t.Errorf("floors (-want +got):\n%s", diff)
	}
}
