package fairshare

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestNextLetsInOneAtATime: the next pod that has its turn enters the scheduling queue when the scheduling thread has
// taken the one before, which it may do while that is being let in.
func TestNextLetsInOneAtATime(t *testing.T) {
	for sentence, c := range map[string]struct {
		activate func(d *Dispatcher, pod *v1.Pod)
		want     string
	}{
		"a pod is in the queue":        {func(d *Dispatcher, pod *v1.Pod) { d.gate(pod) }, "one"},
		"it is taken at once":          {func(d *Dispatcher, pod *v1.Pod) { d.gate(pod); d.Taken(pod.UID) }, "one two"},
		"another gate keeps each back": {func(*Dispatcher, *v1.Pod) {}, "one two"},
	} {
		t.Run(sentence, func(t *testing.T) {
			d, entered := newDispatcher(t, 4, 4), []string{}
			d.handles[profile] = activating{do: func(pods map[string]*v1.Pod) {
				for _, pod := range pods {
					entered = append(entered, pod.Name)
					c.activate(d, pod)
				}
			}}
			for _, name := range []string{"one", "two"} {
				p := pod(name, "", 1, "")
				d.know(p)
				d.podSeen(p)
				d.gate(p)
			}
			if d.Next(t.Context()); strings.Join(entered, " ") != c.want {
				t.Errorf("let in: %v, want %s", entered, c.want)
			}
			d.Taken("one")
			if d.Next(t.Context()); strings.Join(entered, " ") != "one two" {
				t.Errorf("let in, once the first is taken: %v, want both", entered)
			}
		})
	}
}
