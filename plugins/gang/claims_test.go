package gang

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// TestCannotClaim: members that share a claim are refused, with its name, where nothing would keep them from being
// bound.
func TestCannotClaim(t *testing.T) {
	naming := func(claims ...string) []*v1.Pod {
		return makeMembers("train", len(claims), 1, func(i int, pod *st.PodWrapper) {
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "net", ResourceClaimName: &claims[i]}}
		})
	}
	for sentence, c := range map[string]struct {
		pods       []*v1.Pod
		bindsFirst bool
		want       string
	}{
		"each has its own":       {naming("a", "b"), false, ""},
		"two share one":          {naming("a", "b", "a"), false, "its members share ResourceClaim default/a, for which Gang has to be the first plugin at bind, before any extender that binds"},
		"and can be waited with": {naming("a", "b", "a"), true, ""},
	} {
		pl := &Gang{bindsFirst: c.bindsFirst}
		if got := pl.cannotClaim(&gangstate.Attempt{Gangs: []gangstate.Need{{Pending: c.pods}}}); got != c.want {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}
