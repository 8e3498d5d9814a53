package gpucards

import "math"

// Free is the free memory of each card of a node. That of an oversold card is negative.
type Free []int64

// Best returns the card that a pod gets: of the cards with room the one that keeps the least, then
// the first. It returns false if no card has room.
func (f Free) Best(memory int64) (int, bool) {
	best := -1
	for i, free := range f {
		if free >= memory && (best < 0 || free < f[best]) {
			best = i
		}
	}
	return best, best >= 0
}

// take takes memory of a card.
func (f Free) take(card int, memory int64) {
	f[card] = less(f[card], memory)
}

// takeEvery takes memory of all cards.
func (f Free) takeEvery(memory int64) {
	for i := range f {
		f.take(i, memory)
	}
}

// less returns a - b for a b that is not negative, kept inside int64.
func less(a, b int64) int64 {
	if a < math.MinInt64+b {
		return math.MinInt64
	}
	return a - b
}

// Places of a pod whose card is not known.
const (
	// Open: the pod gets a card by Best.
	Open = -1
	// Anywhere: it is on a card, and it is not known on which.
	Anywhere = -2
)

// Pod is a pod on a node.
type Pod struct {
	// Memory is positive.
	Memory int64
	// Card is the index of a card of the node, Open or Anywhere.
	Card int
}

// Lay puts pods on cards of these sizes. It returns what is left, and the card of each pod;
// Anywhere for a pod that is on no single card. Pods that are on a card already go first, the open
// ones after them in the order given. An open pod for which no card has room counts on every card:
// it was promised room that is not there yet.
func Lay(sizes []int64, pods []Pod) (Free, []int) {
	free, cards := append(Free(nil), sizes...), make([]int, len(pods))
	for i, p := range pods {
		cards[i] = p.Card
		switch {
		case p.Card >= 0:
			free.take(p.Card, p.Memory)
		case p.Card == Anywhere:
			free.takeEvery(p.Memory)
		}
	}
	for i, p := range pods {
		if p.Card != Open {
			continue
		}
		best, ok := free.Best(p.Memory)
		if !ok {
			cards[i] = Anywhere
			free.takeEvery(p.Memory)
			continue
		}
		cards[i] = best
		free.take(best, p.Memory)
	}
	return free, cards
}
