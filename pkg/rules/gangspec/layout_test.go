package gangspec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

func TestParseLayout(t *testing.T) {
	const slices, gather = v1alpha1.TopologySlicesAnnotation, v1alpha1.NetworkTopologySpecAnnotation
	levels := []TopologyLevel{{Key: "zone"}, {Key: "block", Name: "SpineLayer"}, {Key: "rack", Name: "RackLayer"}}
	filling, scored := Topology{Levels: levels, Fill: true}, Topology{Levels: levels}
	for sentence, c := range map[string]struct {
		said     values
		topology Topology
		required string
		want     Layout
		bad      []string
	}{
		"a gang that says nothing is laid out by the levels of the cluster": {
			topology: filling, want: Layout{Levels: []Level{{Key: "zone"}, {Key: "block"}, {Key: "rack"}}, Custom: true},
		},
		"unless scores decide alone": {topology: scored},
		"or no levels are known":     {topology: Topology{Fill: true}},
		"levels that are not finer than what it requires make no difference": {
			said: values{requiredKey: "block"}, topology: filling, required: "block", want: Layout{Levels: []Level{{Key: "rack"}}, Custom: true},
		},
		"what it wishes for takes its place among the levels": {
			said: values{preferKey: "block"}, topology: scored, want: Layout{Levels: []Level{{Key: "zone"}, {Key: "block"}, {Key: "rack"}}},
		},
		"a wish that is no level of the cluster has no known place": {
			said: values{preferKey: "row"}, topology: scored,
			want: Layout{Levels: []Level{{Key: "row"}, {Key: "zone"}, {Key: "block"}, {Key: "rack"}}, Unordered: true},
		},
		"slices": {
			said: values{slices: `[{"topology":"block","size":64},{"topology":"rack","size":16}]`},
			want: Layout{Levels: []Level{{"block", 64}, {"rack", 16}}},
		},
		"slices among the levels of the cluster": {
			said: values{slices: `[{"topology":"block","size":64}]`}, topology: scored,
			want: Layout{Levels: []Level{{"zone", 0}, {"block", 64}, {"rack", 0}}},
		},
		"slices that do not divide each other": {
			said: values{slices: `[{"topology":"block","size":64},{"topology":"rack","size":24}]`}, bad: []string{slices},
		},
		"slices of nothing":              {said: values{slices: `[{"topology":"rack","size":0}]`}, bad: []string{slices}},
		"slices of a topology twice":     {said: values{slices: `[{"topology":"rack","size":4},{"topology":"rack","size":2}]`}, bad: []string{slices}},
		"slices of no label key":         {said: values{slices: `[{"topology":"a b","size":4}]`}, bad: []string{slices}},
		"slices by more than three":      {said: values{slices: `[{"topology":"a","size":8},{"topology":"b","size":4},{"topology":"c","size":2},{"topology":"d","size":1}]`}, bad: []string{slices}},
		"slices that are no JSON":        {said: values{slices: `rack:4`}, bad: []string{slices}},
		"no slices":                      {said: values{slices: `[]`}},
		"even, and in one domain as one": {said: values{v1alpha1.TopologySpreadAnnotation: "Even", v1alpha1.TopologyScopeAnnotation: "group"}, want: Layout{Even: true, Shared: true}},
		"values of neither": {
			said: values{v1alpha1.TopologySpreadAnnotation: "even", v1alpha1.TopologyScopeAnnotation: "gang"},
			bad:  []string{v1alpha1.TopologySpreadAnnotation, v1alpha1.TopologyScopeAnnotation},
		},
		"Koordinator's layers: the finest that must, those that should": {
			said:     values{gather: `{"gatherStrategy":[{"layer":"SpineLayer","strategy":"MustGather"},{"layer":"zone","strategy":"MustGather"},{"layer":"RackLayer","strategy":"PreferGather"}]}`},
			topology: scored, required: "block", want: Layout{Levels: []Level{{Key: "rack"}}},
		},
		"our own keys win over Koordinator's": {
			said:     values{requiredKey: "zone", preferKey: "rack", gather: `{"gatherStrategy":[{"layer":"RackLayer","strategy":"MustGather"},{"layer":"block","strategy":"PreferGather"}]}`},
			topology: scored, required: "zone", want: Layout{Levels: []Level{{Key: "block"}, {Key: "rack"}}},
		},
		"layers that nobody has named, and strategies that are none": {
			said:     values{gather: `{"gatherStrategy":[{"layer":"PodLayer","strategy":"MustGather"},{"layer":"RackLayer","strategy":"Gather"}]}`},
			topology: scored, bad: []string{gather, gather},
		},
		"more layers than any topology has, reported once": {
			said: values{gather: `{"gatherStrategy":[` + strings.Repeat(`{"layer":"x"},`, 5000) + `{}]}`}, topology: scored, bad: []string{gather},
		},
		"a wish that is no JSON": {said: values{gather: `RackLayer`}, topology: scored, bad: []string{gather}},
	} {
		t.Run(sentence, func(t *testing.T) {
			spec, problems := Parse(Key{"ns", "train"}, nil, &v1.Pod{ObjectMeta: podMeta{Annotations: c.said}}, Defaults{Topology: c.topology})
			if diff := cmp.Diff(c.want, spec.Layout); diff != "" || spec.RequiredTopology != c.required {
				t.Errorf("it requires %q, want %q; layout (-want +got):\n%s", spec.RequiredTopology, c.required, diff)
			}
			var bad []string
			for _, problem := range problems {
				if bad = append(bad, problem.Key); strings.Contains(problem.String(), "  ") || problem.Used == "" || problem.Want == "" {
					t.Errorf("problem %q", problem)
				}
			}
			if diff := cmp.Diff(c.bad, bad); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
