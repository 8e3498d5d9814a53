package gangspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
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
		"what no cluster can have keeps the gang from starting": {
			said: list("cpu", "1e30", "memory", "1"),
			want: parsed{Spec: with(defaults(1), func(s *Spec) {
				s.Min, s.MinResources = 0, resource.Vector{"memory": 1}
				s.Refused = "its PodGroup asks for what no cluster can have: spec.minResources[cpu] is 1e30: want at most 1P"
			})},
		},
		"a resource that cannot be": {
			said: list("a b", "1"),
			want: parsed{Spec: with(defaults(1), func(s *Spec) {
				s.Min = 0
				s.Refused = `its PodGroup asks for what no cluster can have: spec.minResources["a b"]: want the name of a resource, such as cpu or example.com/device`
			})},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parsedOf(&PodGroupDescription{Min: 1, MinResources: c.said}, podMeta{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMinResourcesOfFewer: minResources are for the minimum that is beside them, and not for a smaller one of an
// annotation.
func TestMinResourcesOfFewer(t *testing.T) {
	said := v1.ResourceList{"cpu": apiresource.MustParse("4")}
	for sentence, c := range map[string]struct {
		object PodGroupDescription
		want   resource.Vector
	}{
		"fewer":      {PodGroupDescription{Min: 3, MinResources: said, Annotations: map[string]string{v1alpha1.MinAvailableAnnotation: "2"}}, nil},
		"as many":    {PodGroupDescription{Min: 3, MinResources: said, Annotations: map[string]string{v1alpha1.MinAvailableAnnotation: "3"}}, resource.Vector{"cpu": 4000}},
		"more":       {PodGroupDescription{Min: 3, MinResources: said, Annotations: map[string]string{v1alpha1.MinAvailableAnnotation: "4"}}, resource.Vector{"cpu": 4000}},
		"no number":  {PodGroupDescription{Min: 3, MinResources: said, Annotations: map[string]string{v1alpha1.MinAvailableAnnotation: "two"}}, resource.Vector{"cpu": 4000}},
		"no minimum": {PodGroupDescription{MinResources: said, Annotations: map[string]string{v1alpha1.MinAvailableAnnotation: "2"}}, resource.Vector{"cpu": 4000}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parsedOf(&c.object, podMeta{}).Spec.MinResources); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
