package list

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

func TestDiffering(t *testing.T) {
	gang := func(namespace, name, phase string) view.Gang {
		return view.Gang{Namespace: namespace, Name: name, Phase: phase, Bound: 2}
	}
	before := []view.Gang{gang("a", "x", "Running"), gang("a", "y", "Running"), gang("b", "x", "Pending"), gang("b", "z", "Running")}
	now := []view.Gang{gang("a", "new", "Pending"), gang("a", "x", "Running"), gang("b", "x", "Running"), gang("b", "z", "Running")}
	var got []string
	for _, g := range differing(before, now) {
		got = append(got, fmt.Sprintf("%s/%s %s %d", g.Namespace, g.Name, g.Phase, g.Bound))
	}
	const want = "a/new Pending 2, b/x Running 2, a/y Deleted 0"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("changed: %s, want %s", got, want)
	}
	if again := differing(now, now); len(again) > 0 {
		t.Errorf("nothing has changed, and there is %v", again)
	}
}
