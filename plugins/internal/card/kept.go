package card

// Kept is what is kept on the cards of a node for pods that are not there yet, as far as one pod is concerned.
type Kept struct {
	// By is the memory that others are to have, by card.
	By map[int]int64
	// Has is whether the pod has memory on a card itself, which then is its card, and Seat which.
	Has  bool
	Seat int
}

// Pods are those for which it is kept, on a node with so many cards.
func (k Kept) Pods(cards int) []Pod {
	var pods []Pod
	for at, memory := range k.By {
		if at >= cards {
			at = Anywhere
		}
		pods = append(pods, Pod{Memory: memory, Card: at})
	}
	return pods
}

// Choose returns the card that a pod gets of those that are free: its own, or else the best one. It
// returns false where that has no room.
func (k Kept) Choose(free Free, memory int64) (int, bool) {
	if !k.Has {
		return free.Best(memory)
	}
	return k.Seat, k.Seat < len(free) && free[k.Seat] >= memory
}
