package reservationstate

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Slot is a placement that a pod may use, in its current state.
type Slot struct {
	// ID is its hold in the ledger, and Holder the holder of that.
	ID     hold.ID
	Holder hold.Holder
	Node   string
	// Left is what no pod uses of it.
	Left hold.Taken
	// ForMigration: it is held for the successor of a pod that is moved, and this pod is that, as far as is known.
	ForMigration bool
	// SingleUse: only one pod may use it. Taken: another pod does.
	SingleUse, Taken bool
	// Card is the GPU card that it is on; negative for none.
	Card int
	// Restricted names the resources of which a pod must not request more than is left; empty for none.
	Restricted []v1.ResourceName
}

// OnCard is a placement on a GPU card.
type OnCard struct {
	ID hold.ID
	// Reservation and Index identify it in an Allocation.
	Reservation types.UID
	Index       int32
	Card        int
	// Left is the memory, in MiB, of which no pod has a part.
	Left int64
	// Parts is the memory, in MiB, of each pod that uses it, or is nominated to it.
	Parts map[types.UID]int64
}

// Offers reports whether a pod with this request may use the slot, and would get anything.
func (s *Slot) Offers(need hold.Taken) bool {
	if s.Taken {
		return false
	}
	for _, name := range s.Restricted {
		if need.Request[name] > s.Left.Request[name] {
			return false
		}
	}
	part := s.Left.Part(need)
	return !part.Request.Zero() || len(part.Ports) > 0 || len(need.Request) == 0 && part.Pods > 0
}

// Rank orders the slots that a pod may use, the best first: 1. a slot for its migration; 2. the one that covers most of
// its request; 3. the one with the least left over; 4. the given order. It returns their positions.
func Rank(need hold.Taken, slots []Slot) []int {
	type rank struct {
		at, tier      int
		lacks, leaves float64
	}
	var ranks []rank
	for i := range slots {
		if !slots[i].Offers(need) {
			continue
		}
		r := rank{at: i}
		if !slots[i].ForMigration {
			r.tier = 1
		}
		for name, amount := range need.Request {
			if amount > 0 {
				r.lacks += float64(max(0, amount-slots[i].Left.Request[name])) / float64(amount)
			}
		}
		for name, left := range slots[i].Left.Request {
			if left > 0 {
				r.leaves += float64(max(0, left-need.Request[name])) / float64(left)
			}
		}
		ranks = append(ranks, r)
	}
	slices.SortStableFunc(ranks, func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.lacks, b.lacks), cmp.Compare(a.leaves, b.leaves))
	})
	order := make([]int, len(ranks))
	for i, r := range ranks {
		order[i] = r.at
	}
	return order
}

// Suits returns how well a slot suits a pod, from 0 to 1: how much of its request it covers, and how little is left
// over.
func Suits(need hold.Taken, slot *Slot) float64 {
	covers, leaves := share(need, slot.Left), 1-share(slot.Left, need)
	return covers * (1 - leaves/2)
}

// share returns how much of one amount the other contains, as the average over the resources of the first.
func share(of, in hold.Taken) float64 {
	sum, count := 0.0, 0
	for name, amount := range of.Request {
		if amount > 0 {
			sum += float64(min(amount, in.Request[name])) / float64(amount)
			count++
		}
	}
	if count == 0 {
		return 1
	}
	return sum / float64(count)
}
