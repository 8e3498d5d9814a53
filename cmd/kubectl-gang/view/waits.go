package view

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// maxWaits is how many reasons a gang has at most: members that wait for much the same reason give it
// with other numbers.
const maxWaits = 4

// Wait is why members of a gang have no node, in the words of their condition PodScheduled.
type Wait struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Pods is how many have this reason.
	Pods int `json:"pods"`
}

// AddWait counts a pod that waits for a reason, each reason once.
func AddWait(waits []Wait, reason, message string) []Wait {
	at := slices.IndexFunc(waits, func(w Wait) bool { return w.Reason == reason && w.Message == message })
	if at < 0 {
		waits, at = append(waits, Wait{Reason: reason, Message: message}), len(waits)
	}
	waits[at].Pods++
	return waits
}

// Waits returns why the members of gangs wait, by gang: the most frequent reason first, and four
// reasons at most.
func Waits(pods []*v1.Pod) map[types.NamespacedName][]Wait {
	counts := map[types.NamespacedName]map[Wait]int{}
	for _, pod := range pods {
		key, _, ok := gangspec.KeyOf(pod)
		if !ok || !objectstate.AwaitsNode(pod) {
			continue
		}
		c := objectstate.WaitCondition(pod)
		if c == nil {
			continue
		}
		of := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
		if counts[of] == nil {
			counts[of] = map[Wait]int{}
		}
		counts[of][Wait{Reason: c.Reason, Message: c.Message}]++
	}
	waits := make(map[types.NamespacedName][]Wait, len(counts))
	for of, count := range counts {
		list := slices.SortedFunc(maps.Keys(count), func(a, b Wait) int {
			return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
		})
		list = list[:min(len(list), maxWaits)]
		for i := range list {
			list[i].Pods = count[list[i]]
		}
		waits[of] = list
	}
	return waits
}
