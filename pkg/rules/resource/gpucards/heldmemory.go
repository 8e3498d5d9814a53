package gpucards

// Kept is what is kept on the cards of a node for pods that are not there yet, as seen from one pod.
type Kept struct {
	// By is the memory that other pods are to have, by card.
	By map[int]int64
	// Has is whether the pod itself has memory on a card: Card.
	Has  bool
	Card int
}

// Pods returns the kept memory as pods on a node with this many cards.
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

// Choose returns the card that a pod gets, given what is free: its own, or else the best one. It
// returns false if that has no room.
func (k Kept) Choose(free Free, memory int64) (int, bool) {
	if !k.Has {
		return free.Best(memory)
	}
	return k.Card, k.Card < len(free) && free[k.Card] >= memory
}
