package queueing

import (
	"strings"
	"testing"
)

// TestLine: jobs that wait, have their turn or did not fit are in the order in which they are served; others are not
// listed.
func TestLine(t *testing.T) {
	at := ready
	b := opened(Limits{Window: 1}, 1000, Queue{Name: "a", Weight: 1}, Queue{Name: "other", Weight: 1})
	come := func(j Job) {
		j.Pod, j.Pods, j.Together = "p"+j.Name, []string{"p" + j.Name}, true
		b.Count(j.Pod, Usage{Queue: j.Queue, Job: j.Name, Amount: gpus(6), Priority: j.Priority})
		b.Come(j, at)
	}
	come(of("a", 2, gpus(6))) // it has its turn, and fails
	b.failNow("pa-2", Failure{Job: "a-2", Together: true}, at)
	come(of("a", 3, gpus(6))) // it has its turn
	come(of("a", 4, gpus(6)))
	come(of("other", 1, gpus(6)))
	come(of("a", 1, gpus(6)))
	high := of("a", 9, gpus(6))
	high.Priority = 10
	come(high)
	line := func(queue string) string {
		var names []string
		for _, j := range b.Line(queue) {
			names = append(names, j.Name)
		}
		return strings.Join(names, " ")
	}
	if got, want := line("a"), "a-9 a-1 a-2 a-3 a-4"; got != want {
		t.Errorf("the line is %s, want %s", got, want)
	}
	begun := of("a", 20, gpus(6))
	begun.Begun = true
	b.limits = Limits{}
	b.Offer(begun, at)
	b.goneNow("pa-1", at)
	if got, want := line("a"), "a-20 a-9 a-2 a-3 a-4"; got != want {
		t.Errorf("with one that has begun, and without one that is gone, the line is %s, want %s", got, want)
	}
	if got := b.Representative("a-9"); got != "pa-9" {
		t.Errorf("%q stands for a-9", got)
	}
	if got := line("nowhere"); got != "" {
		t.Errorf("%s wait in a queue that is not there", got)
	}
}
