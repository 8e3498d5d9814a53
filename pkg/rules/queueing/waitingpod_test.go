package queueing

import "testing"

// inTurn returns a book in which it is the turn of a gang of these pods, with each this many GPUs; the first of them
// speaks for it. A second gang, which does not fit beside it, waits.
func inTurn(at Moment, each int64, pods ...string) (b *Book, first, second string) {
	b = newBook(tier)
	b.SetLimits(Limits{Window: 10})
	b.SetTotal(gpus(10))
	b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(10)})
	j := of("a", 1, gpus(each*int64(len(pods))))
	j.Pod, j.Pods, j.Gang = pods[0], pods, true
	for _, pod := range pods {
		b.Count(pod, Usage{Queue: "a", Job: j.Name, Amount: gpus(each)})
	}
	b.Come(j, at)
	return b, j.Name, comes(b, "a", 2, 8, at)
}

// TestLosesSpeakerInItsTurn: a gang that loses a member in its turn leaves the turn to others, even if it is the member
// that speaks for it: for a pod that is gone it is not known whether its gang is whole.
func TestLosesSpeakerInItsTurn(t *testing.T) {
	gone := map[string]bool{}
	at := Moment{
		Now: start, Read: true, Room: yes,
		Waits: func(pod string) bool { return !gone[pod] },
		Whole: func(pod string) bool { return gone[pod] || len(gone) == 0 || pod != "one" && pod != "other" }, // as Dispatcher.whole says
	}
	for _, lost := range []string{"one", "other"} {
		clear(gone)
		b, first, second := inTurn(at, 4, "one", "other")
		if b.Phase(first) != Admitted || b.Phase(second) != Waiting {
			t.Fatalf("the first is in phase %d, the second in phase %d", b.Phase(first), b.Phase(second))
		}
		gone[lost] = true
		b.goneNow(lost, at)
		b.tickNow(at)
		if b.Phase(second) != Admitted {
			t.Errorf("the gang has lost %q, is in phase %d, and the second waits for its turn still", lost, b.Phase(first))
		}
	}
}

// TestSpeakerLeavesInItsTurn: so it does if the member that speaks for a gang is put into no gang, or another, by its
// labels.
func TestSpeakerLeavesInItsTurn(t *testing.T) {
	left := false
	at := Moment{
		Now: start, Read: true, Waits: yes, Room: yes,
		Whole: func(pod string) bool { return !left || pod != "other" }, // "one" is all there is to place with it by then
	}
	b, first, second := inTurn(at, 4, "one", "other")
	left = true
	b.Count("one", Usage{Queue: "a", Job: "alone", Amount: gpus(4)})
	b.tickNow(at)
	if b.Phase(second) != Admitted {
		t.Errorf("the gang is in phase %d, and the second waits for its turn still", b.Phase(first))
	}
}

// TestAnotherSpeaks: a gang that is whole without the member that speaks for it keeps its turn, and loses it once it
// lacks another one.
func TestAnotherSpeaks(t *testing.T) {
	gone := map[string]bool{}
	at := Moment{
		Now: start, Read: true, Room: yes,
		Waits: func(pod string) bool { return !gone[pod] },
		Whole: func(pod string) bool { return gone[pod] || len(gone) < 2 || pod != "two" && pod != "three" }, // two of three are enough
	}
	b, first, second := inTurn(at, 3, "one", "two", "three")
	for i, want := range []Phase{Admitted, Outside} {
		pod := []string{"one", "two"}[i]
		gone[pod] = true
		b.goneNow(pod, at)
		b.tickNow(at)
		if got := b.Phase(first); got != want {
			t.Errorf("without %d of its members the gang is %s, want %s", i+1, names[got], names[want])
		}
	}
	if got := b.Phase(second); got != Admitted {
		t.Errorf("the second is %s", names[got])
	}
}
