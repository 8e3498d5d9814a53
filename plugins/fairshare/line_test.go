package fairshare

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// TestLineOfPods: pods are in the line of their queue, by age; a pod that has a node is not.
func TestLineOfPods(t *testing.T) {
	d := newDispatcher(t, 8, 1, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"})
	running := pod("running", "a", 1, "all")
	d.seeAll(running)
	for i, name := range []string{"first", "second", "third"} {
		p := pod(name, "a", 2, "")
		p.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
		d.seeAll(p)
		d.comes(p)
	}
	for name, want := range map[string]int{"first": 1, "second": 2, "third": 3} {
		at, of, first := d.Line(pod(name, "a", 2, ""))
		if at != want || of != 3 || first != "pod default/first" {
			t.Errorf("%s is number %d of %d after %s, want %d of 3 after the first", name, at, of, first, want)
		}
	}
	if at, _, _ := d.Line(running); at != 0 {
		t.Errorf("a pod that runs is number %d", at)
	}
}
