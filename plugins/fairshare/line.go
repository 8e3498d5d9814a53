package fairshare

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Line returns the position of a pod, or its gang, among those that wait in its queue, in the order in which the queue
// serves them, from 1; how many they are; and the first of them, by its name for users. The position is 0 where the pod
// does not wait. A queue serves those that a limit keeps back after those behind them.
func (d *Dispatcher) Line(pod *v1.Pod) (at, of int, first string) {
	defer d.lock()()
	usage, counted := d.book.Counted(string(pod.UID))
	if !d.opened || !counted {
		return 0, 0, ""
	}
	line := d.book.Line(usage.Queue)
	at = slices.Index(line, usage.Job) + 1
	if at == 0 {
		return 0, 0, ""
	}
	for _, leader := range d.podsOf([]string{d.book.Representative(line[0])}) {
		first = "pod " + leader.Namespace + "/" + leader.Name
		if key := groupOf(leader); key != "" && line[0] != hold.SinglePod(leader.UID) {
			first = "gang " + key[len(leader.Spec.SchedulerName)+1:]
		}
	}
	return at, len(line), first
}
