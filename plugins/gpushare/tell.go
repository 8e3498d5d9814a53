package gpushare

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
)

// EventBadValue is the reason of events about what is written of GPU cards and could not
// be used.
const EventBadValue = "BadGPUCardValue"

// tell is for news. The action names the key: events of one object that differ in their
// note alone are counted as one.
func (pl *GPUShare) tell(object runtime.Object, key, format string, args ...any) {
	pl.handle.EventRecorder().Eventf(object, nil, v1.EventTypeWarning, EventBadValue, "Reading "+topology.ShortKey(key), "%s: %s", key, fmt.Sprintf(format, args...))
}

// clip cuts a value to what an event takes.
func clip(value string) string {
	const most, more = 200, " ..."
	if len(value) <= most {
		return value
	}
	return value[:most] + more
}

func (pl *GPUShare) tellCards(node *v1.Node, l layout) {
	if pl.ledger.news(node.UID, v1alpha1.GPUCardsAnnotation, fmt.Sprint(l.total, " ", l.value)) {
		pl.tell(node, v1alpha1.GPUCardsAnnotation, "invalid value %q, want %v; node accepts no pods requesting %s until fixed",
			clip(l.value), l.want, v1alpha1.GPUMemoryResource)
	}
}

func (pl *GPUShare) tellOversold(node *v1.Node, index int, recorded, size int64) {
	// By card, since several may be.
	key := v1alpha1.GPUCardAnnotation + " " + strconv.Itoa(index)
	if pl.ledger.news(node.UID, key, fmt.Sprint(recorded, " ", size)) {
		pl.tell(node, v1alpha1.GPUCardAnnotation, "pods have %d MiB of card %d, which has %d; it takes no more until some of them are gone", recorded, index, size)
	}
}

func (pl *GPUShare) tellCardMissing(pod *v1.Pod, memory int64, node *v1.Node) {
	if pl.ledger.news(pod.UID, v1alpha1.GPUCardAnnotation, "") {
		pl.tell(pod, v1alpha1.GPUCardAnnotation, "annotation missing on pod bound to node %s; its %d MiB count against every card of the node", node.Name, memory)
	}
}

func (pl *GPUShare) tellCard(pod *v1.Pod, value string, want error, memory int64, node *v1.Node) {
	if pl.ledger.news(pod.UID, v1alpha1.GPUCardAnnotation, value) {
		pl.tell(pod, v1alpha1.GPUCardAnnotation, "invalid value %q, want %v; the pod's %d MiB count against every card of node %s until fixed", clip(value), want, memory, node.Name)
	}
}

func (pl *GPUShare) tellMemory(pod *v1.Pod, value string, memory int64) {
	if pl.ledger.news(pod.UID, v1alpha1.GPUCardMemoryAnnotation, value) {
		pl.tell(pod, v1alpha1.GPUCardMemoryAnnotation, "%q is not the %d MiB that the pod requests; using %d", clip(value), memory, memory)
	}
}
