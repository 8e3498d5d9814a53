package list

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-sh/lockstep/plugins/overview"
)

func TestDiffering(t *testing.T) {
	gang := func(namespace, name, phase string) overview.Gang {
		return overview.Gang{Namespace: namespace, Name: name, Phase: phase, Bound: 2}
	}
	before := []overview.Gang{gang("a", "x", "Running"), gang("a", "y", "Running"), gang("b", "x", "Pending"), gang("b", "z", "Running")}
	now := []overview.Gang{gang("a", "new", "Pending"), gang("a", "x", "Running"), gang("b", "x", "Running"), gang("b", "z", "Running")}
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
