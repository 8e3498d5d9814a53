package view

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

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
func Waits(in GangsIn) map[gangspec.Key][]Wait {
	waits := map[gangspec.Key][]Wait{}
	for key, s := range newReader(in).gangs {
		if list := waitsOf(s.pods); len(list) > 0 {
			waits[key] = list
		}
	}
	return waits
}

func waitsOf(pods []*v1.Pod) []Wait {
	count := map[Wait]int{}
	for _, pod := range pods {
		if c := objectstate.WaitCondition(pod); c != nil && objectstate.AwaitsNode(pod) {
			count[Wait{Reason: c.Reason, Message: c.Message}]++
		}
	}
	waits := slices.SortedFunc(maps.Keys(count), func(a, b Wait) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	waits = waits[:min(len(waits), maxWaits)]
	for i := range waits {
		waits[i].Pods = count[waits[i]]
	}
	return waits
}
