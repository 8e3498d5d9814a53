package dispatch

import "testing"

// TestLosesSpeakerInItsTurn: a gang that loses a member in its turn leaves that to others, also where the member is the one that
// speaks for it: of one that is gone nobody knows whether its gang is whole.
func TestLosesSpeakerInItsTurn(t *testing.T) {
	gone := map[string]bool{}
	at := Moment{
		Now: start, Read: true,
		Waits: func(pod string) bool { return !gone[pod] },
		Whole: func(pod string) bool { return gone[pod] || len(gone) == 0 || pod != "one" && pod != "other" }, // as Dispatcher.whole says
	}
	for _, lost := range []string{"one", "other"} {
		clear(gone)
		b := newBook(tier)
		b.SetLimits(Limits{Window: 10})
		b.SetTotal(gpus(10))
		b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(10)})
		j := of("a", 1, gpus(8))
		j.Pod, j.Pods, j.Gang = "one", []string{"one", "other"}, true
		for _, pod := range j.Pods {
			b.Count(pod, Usage{Queue: "a", Job: j.Name, Amount: gpus(4)})
		}
		b.Come(j, at)
		second := comes(b, "a", 2, 8, at)
		if b.Phase(j.Name) != Admitted || b.Phase(second) != Waiting {
			t.Fatalf("the first is in phase %d, the second in phase %d", b.Phase(j.Name), b.Phase(second))
		}
		gone[lost] = true
		b.Gone(lost, at)
		b.Tick(at)
		if b.Phase(second) != Admitted {
			t.Errorf("the gang has lost %q, is in phase %d, and the second waits for its turn still", lost, b.Phase(j.Name))
		}
	}
}

// TestSpeakerLeavesInItsTurn: so it does where the member that speaks for a gang is put into no gang, or another, by its labels.
func TestSpeakerLeavesInItsTurn(t *testing.T) {
	left := false
	at := Moment{
		Now: start, Read: true, Waits: func(string) bool { return true },
		Whole: func(pod string) bool { return !left || pod != "other" }, // "one" is all there is to place with it by then
	}
	b := newBook(tier)
	b.SetLimits(Limits{Window: 10})
	b.SetTotal(gpus(10))
	b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(10)})
	j := of("a", 1, gpus(8))
	j.Pod, j.Pods, j.Gang = "one", []string{"one", "other"}, true
	for _, pod := range j.Pods {
		b.Count(pod, Usage{Queue: "a", Job: j.Name, Amount: gpus(4)})
	}
	b.Come(j, at)
	second := comes(b, "a", 2, 8, at)
	left = true
	b.Count("one", Usage{Queue: "a", Job: "alone", Amount: gpus(4)})
	b.Tick(at)
	if b.Phase(second) != Admitted {
		t.Errorf("the gang is in phase %d, and the second waits for its turn still", b.Phase(j.Name))
	}
}

// TestAnotherSpeaks: a gang that is whole without the member that speaks for it keeps its turn, and loses it once it lacks another one.
func TestAnotherSpeaks(t *testing.T) {
	gone := map[string]bool{}
	at := Moment{
		Now: start, Read: true,
		Waits: func(pod string) bool { return !gone[pod] },
		Whole: func(pod string) bool { return gone[pod] || len(gone) < 2 || pod != "two" && pod != "three" }, // two of three are enough
	}
	b := newBook(tier)
	b.SetLimits(Limits{Window: 10})
	b.SetTotal(gpus(10))
	b.SetQueues(Queue{Name: "a", Weight: 1, Capability: gpus(10)})
	j := of("a", 1, gpus(9))
	j.Pod, j.Pods, j.Gang = "one", []string{"one", "two", "three"}, true
	for _, pod := range j.Pods {
		b.Count(pod, Usage{Queue: "a", Job: j.Name, Amount: gpus(3)})
	}
	b.Come(j, at)
	second := comes(b, "a", 2, 8, at)
	for i, want := range []Phase{Admitted, Outside} {
		pod := j.Pods[i]
		gone[pod] = true
		b.Gone(pod, at)
		b.Tick(at)
		if got := b.Phase(j.Name); got != want {
			t.Errorf("without %d of its members the gang is %s, want %s", i+1, names[got], names[want])
		}
	}
	if got := b.Phase(second); got != Admitted {
		t.Errorf("the second is %s", names[got])
	}
}
