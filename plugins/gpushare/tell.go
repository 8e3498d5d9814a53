package gpushare

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Problems are reported when they are news: once for each value.

func (pl *GPUShare) tellCards(node *v1.Node, l layout) {
	if pl.ledger.isNews(node.UID, v1alpha1.GPUCardsAnnotation, fmt.Sprint(l.total, " ", l.value)) {
		badCards(node, l).Record(pl.handle.EventRecorder())
	}
}

func (pl *GPUShare) tellOversold(node *v1.Node, index int, recorded, size int64) {
	// By card, since several cards may be oversold.
	key := v1alpha1.GPUCardAnnotation + " " + strconv.Itoa(index)
	if pl.ledger.isNews(node.UID, key, fmt.Sprint(recorded, " ", size)) {
		oversold(node, index, recorded, size).Record(pl.handle.EventRecorder())
	}
}

func (pl *GPUShare) tellCardMissing(pod *v1.Pod, memory int64, node *v1.Node) {
	if pl.ledger.isNews(pod.UID, v1alpha1.GPUCardAnnotation, "") {
		cardMissing(pod, memory, node).Record(pl.handle.EventRecorder())
	}
}

func (pl *GPUShare) tellCard(pod *v1.Pod, value string, want error, memory int64, node *v1.Node) {
	if pl.ledger.isNews(pod.UID, v1alpha1.GPUCardAnnotation, value) {
		badCard(pod, value, want, memory, node).Record(pl.handle.EventRecorder())
	}
}

func (pl *GPUShare) tellMemory(pod *v1.Pod, value string, memory int64) {
	if pl.ledger.isNews(pod.UID, v1alpha1.GPUCardMemoryAnnotation, value) {
		badMemory(pod, value, memory).Record(pl.handle.EventRecorder())
	}
}
