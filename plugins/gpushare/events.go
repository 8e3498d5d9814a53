package gpushare

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/topology"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// EventBadValue is the reason of events about descriptions of GPU cards that could not
// be used.
const EventBadValue = "BadGPUCardValue"

// badValue returns an event about a key of an object. Its action names the key.
func badValue(on runtime.Object, key, format string, args ...any) status.Event {
	return status.Event{On: on, Type: v1.EventTypeWarning, Reason: EventBadValue,
		Action: "Reading " + topology.ShortKey(key),
		Note:   key + ": " + fmt.Sprintf(format, args...)}
}

// badCards returns the event on a node whose cards cannot be read.
func badCards(node *v1.Node, l layout) status.Event {
	return badValue(node, v1alpha1.GPUCardsAnnotation,
		"invalid value %q, want %v; node accepts no pods requesting %s until fixed",
		clip(l.value), l.want, v1alpha1.GPUMemoryResource)
}

// oversold returns the event on a node with a card of which pods have more than it has.
func oversold(node *v1.Node, index int, recorded, size int64) status.Event {
	return badValue(node, v1alpha1.GPUCardAnnotation,
		"pods have %d MiB of card %d, which has %d; it takes no more until some of them are gone", recorded, index, size)
}

// cardMissing returns the event on a pod that does not record which card it has.
func cardMissing(pod *v1.Pod, memory int64, node *v1.Node) status.Event {
	return badValue(pod, v1alpha1.GPUCardAnnotation,
		"annotation missing on pod bound to node %s; its %d MiB count against every card of the node", node.Name, memory)
}

// badCard returns the event on a pod that names a card which its node does not have.
func badCard(pod *v1.Pod, value string, want error, memory int64, node *v1.Node) status.Event {
	return badValue(pod, v1alpha1.GPUCardAnnotation,
		"invalid value %q, want %v; the pod's %d MiB count against every card of node %s until fixed",
		clip(value), want, memory, node.Name)
}

// badMemory returns the event on a pod that records another amount than it requests.
func badMemory(pod *v1.Pod, value string, memory int64) status.Event {
	return badValue(pod, v1alpha1.GPUCardMemoryAnnotation, "%q is not the %d MiB that the pod requests; using %d",
		clip(value), memory, memory)
}

// clip cuts a value to what an event takes.
func clip(value string) string {
	const most, more = 200, " ..."
	if len(value) <= most {
		return value
	}
	return value[:most] + more
}
