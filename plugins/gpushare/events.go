package gpushare

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/status"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// EventBadValue is the reason of events about descriptions of GPU cards that could not
// be used.
const EventBadValue = "BadGPUCardValue"

// longestValue is as much of a value as an event quotes.
const longestValue = 200

// tell records an event about a key of an object, once for each value of what the event is about. Its action names the
// key.
func (pl *GPUShare) tell(on interface {
	runtime.Object
	metav1.Object
}, key, about, value, format string, args ...any) {
	if !pl.ledger.isNews(on.GetUID(), about, value) {
		return
	}
	status.Event{On: on, Type: v1.EventTypeWarning, Reason: EventBadValue, Action: "Reading " + topology.ShortKey(key),
		Note: key + ": " + fmt.Sprintf(format, args...)}.Record(pl.handle.EventRecorder())
}

// tellCards reports a node whose cards cannot be read.
func (pl *GPUShare) tellCards(node *v1.Node, l layout) {
	const key = v1alpha1.GPUCardsAnnotation
	pl.tell(node, key, key, fmt.Sprint(l.total, " ", l.value),
		"invalid value %q, want %v; node accepts no pods requesting %s until fixed",
		words.Clip(l.value, longestValue), l.want, v1alpha1.GPUMemoryResource)
}

// tellOversold reports a node with a card of which pods have more than it has.
func (pl *GPUShare) tellOversold(node *v1.Node, index int, recorded, size int64) {
	const key = v1alpha1.GPUCardAnnotation
	pl.tell(node, key, key+" "+strconv.Itoa(index), fmt.Sprint(recorded, " ", size), // several cards may be oversold
		"pods have %d MiB of card %d, which has %d; it takes no more until some of them are gone", recorded, index, size)
}

// tellCardMissing reports a pod that does not record which card it has.
func (pl *GPUShare) tellCardMissing(pod *v1.Pod, memory int64, node *v1.Node) {
	const key = v1alpha1.GPUCardAnnotation
	pl.tell(pod, key, key, "",
		"annotation missing on pod bound to node %s; its %d MiB count against every card of the node", node.Name, memory)
}

// tellCard reports a pod that names a card which its node does not have.
func (pl *GPUShare) tellCard(pod *v1.Pod, value string, want error, memory int64, node *v1.Node) {
	const key = v1alpha1.GPUCardAnnotation
	pl.tell(pod, key, key, value,
		"invalid value %q, want %v; the pod's %d MiB count against every card of node %s until fixed",
		words.Clip(value, longestValue), want, memory, node.Name)
}

// tellMemory reports a pod that records another amount than it requests.
func (pl *GPUShare) tellMemory(pod *v1.Pod, value string, memory int64) {
	const key = v1alpha1.GPUCardMemoryAnnotation
	pl.tell(pod, key, key, value, "%q is not the %d MiB that the pod requests; using %d",
		words.Clip(value, longestValue), memory, memory)
}
