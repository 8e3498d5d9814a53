package gangspec

import (
	"testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/sample/queuecases"
)

// TestSaid: the first PodGroup that names a queue names it for the gang. Of an eviction only the one that describes the
// gang tells.
func TestSaid(t *testing.T) {
	evicted := func(value string) map[string]string { return map[string]string{v1alpha1.EvictedAnnotation: value} }
	for sentence, c := range map[string]struct {
		groups PodGroups
		want   PodGroupFacts
	}{
		"none":                      {},
		"the community's":           {PodGroups{Community: {Queue: "a", Annotations: evicted("x")}}, PodGroupFacts{"a", "x"}},
		"the native one":            {PodGroups{Native: {Queue: "b", Annotations: evicted("y")}}, PodGroupFacts{"b", "y"}},
		"both say it":               {PodGroups{{Queue: "a", Annotations: evicted("x")}, {Queue: "b", Annotations: evicted("y")}}, PodGroupFacts{"a", "x"}},
		"the native one alone does": {PodGroups{{}, {Queue: "b", Annotations: evicted("y")}}, PodGroupFacts{"b", ""}},
		"one that makes no gang":    {PodGroups{{Annotations: evicted("x")}, {Queue: "b", Basic: true}}, PodGroupFacts{"", "x"}},
		"nor does it alone":         {PodGroups{Native: {Queue: "b", Basic: true, Annotations: evicted("y")}}, PodGroupFacts{}},
	} {
		if got := c.groups.Facts(); got != c.want {
			t.Errorf("%s: %+v, want %+v", sentence, got, c.want)
		}
	}
}

func TestQueueOf(t *testing.T) {
	for sentence, c := range queuecases.Cases() {
		var groups PodGroups
		if c.Community != nil {
			groups[Community] = ReadPodGroup(c.Community, &c.Community.Spec)
		}
		if c.Native != nil {
			groups[Native] = ReadNative(c.Native)
		}
		got := QueueOf(c.Pod, func(Key) PodGroups { return groups }, func(string) string { return queuecases.OfNamespace })
		if got != c.Want {
			t.Errorf("%s: queue %q, want %q", sentence, got, c.Want)
		}
	}
}
