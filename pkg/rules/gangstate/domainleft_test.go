package gangstate

import (
	"slices"
	"testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestDomainLeft: members that wait, and have to be where others are, are tried again when a node has lost the last of
// these.
func TestDomainLeft(t *testing.T) {
	for sentence, c := range map[string]struct {
		annotations map[string]string
		gone        string
		want        []string
	}{
		"the last one of a node goes":         {values{v1alpha1.RequiredTopologyAnnotation: "zone"}, "b", []string{"w"}},
		"another one is there":                {values{v1alpha1.RequiredTopologyAnnotation: "zone"}, "c", nil},
		"it does not matter where others are": {nil, "b", nil},
	} {
		s := New(gangspec.Defaults{}, Backoff{})
		key := gangspec.Key{Namespace: "a", Name: "train"}
		s.Describe(gangspec.Community, key, &gangspec.PodGroupDescription{Min: 5, Annotations: c.annotations}, start)
		for name, node := range map[string]string{"a": "n1", "b": "n2", "c": "n3", "d": "n3", "e": "n4"} {
			s.ObservePod(podOf(name, of("train"), bindTo(node, 0)), start)
		}
		s.Open(start)
		s.PodEnded("e", start)
		s.ObservePod(podOf("w", of("train")), start)
		var got []string
		for _, pod := range s.PodEnded(podOf(c.gone).UID, start).Activate {
			got = append(got, pod.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: tried again: %v, want %v", sentence, got, c.want)
		}
	}
}
