package scenario

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNominations(t *testing.T) {
	pod := func(nominated, node string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{NodeName: node}, Status: v1.PodStatus{NominatedNodeName: nominated}}
	}
	for name, c := range map[string]struct {
		old, pod *v1.Pod
		want     []change
		moves    bool
	}{
		"given":            {pod("", ""), pod("a", ""), []change{{KindNominated, "a"}}, true},
		"another node":     {pod("a", ""), pod("b", ""), []change{{KindNominated, "b"}}, true},
		"withdrawn":        {pod("a", ""), pod("", ""), []change{{KindWithdrawn, "a"}}, false},
		"gone with a bind": {pod("a", ""), pod("", "a"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := podChanges(c.old, c.pod)
			if !slices.Equal(got, c.want) {
				t.Errorf("changes are %v, want %v", got, c.want)
			}
			for _, x := range got {
				if !x.kind.flaps() {
					t.Errorf("%v is no change of state", x)
				}
				if x.kind.moves() != c.moves {
					t.Errorf("moves of %v is %t, want %t", x, x.kind.moves(), c.moves)
				}
			}
		})
	}
}
