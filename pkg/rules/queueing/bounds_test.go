package queueing

import (
	"slices"
	"testing"
	"time"
)

// TestWithin: pods are within a ceiling one after the other. What is held for them, and what their job asks for in its
// turn, is theirs, and what others have is not.
func TestWithin(t *testing.T) {
	either := Usage{Amount: Vector{gpu: 1}, Or: []Vector{{"large": 1}}}
	for sentence, c := range map[string]struct {
		usages map[string]Usage
		turn   []string // the pods with which the job has its turn
		want   []string
	}{
		"as many as there is room for":        {want: []string{"p1", "p2", "p3", "p4"}},
		"beside what others use":              {usages: map[string]Usage{"other": {Runs: true}}, want: []string{"p1", "p2", "p3"}},
		"or hold":                             {usages: map[string]Usage{"other": {Held: true}}, want: []string{"p1", "p2", "p3"}},
		"some are held already":               {usages: map[string]Usage{"p1": {Held: true}, "p2": {Held: true}}, want: []string{"p1", "p2", "p3", "p4"}},
		"or promised, with no job":            {usages: map[string]Usage{"p1": {Promised: true}, "p2": {Promised: true}}, want: []string{"p1", "p2", "p3", "p4"}},
		"or with theirs":                      {usages: map[string]Usage{"p1": {Promised: true, Job: "j"}}, want: []string{"p1", "p2", "p3", "p4"}},
		"it is their turn":                    {turn: []string{"p1", "p2", "p3"}, want: []string{"p1", "p2", "p3", "p4"}},
		"or that of others of the job":        {turn: []string{"p6", "p7"}, want: []string{"p1", "p2", "p3", "p4"}},
		"one that may have more leaves a few": {usages: map[string]Usage{"p1": either, "p2": either, "p3": either}, want: []string{"p1", "p2", "p3", "p4", "p5"}},
	} {
		b := opened(Limits{}, 0, Queue{Name: "q", Weight: 1, Capability: Vector{gpu: 4, "large": 3}})
		b.SetTotal(Vector{gpu: 9, "large": 9})
		pods := []string{"p1", "p2", "p3", "p4", "p5"}
		for _, pod := range slices.Concat(pods, c.turn, []string{"other"}) {
			u, said := c.usages[pod]
			if u.Queue, u.Amount = "q", gpus(1); said || pod != "other" {
				if slices.Contains(c.turn, pod) {
					u.Job = "j"
				}
				b.Count(pod, u)
			}
		}
		if len(c.turn) > 0 {
			b.Offer(Job{Name: "j", Queue: "q", Pod: c.turn[0], Pods: c.turn, Options: []Needs{{"q": gpus(int64(len(c.turn)))}}}, ready)
			if turnsOf(b) != "j" {
				t.Fatalf("%s: it is not its turn", sentence)
			}
		}
		if got := b.Within("j", pods); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}

// TestReleasesSuffice: no gang gives back what it holds for a ceiling that others satisfy, which give it back for another.
func TestReleasesSuffice(t *testing.T) {
	at := ready
	b := opened(Limits{Window: 5}, 100, Queue{Name: "p", Weight: 1, Capability: gpus(7)}, Queue{Name: "a", Parent: "p", Weight: 1, Capability: gpus(2)}, Queue{Name: "b", Parent: "p", Weight: 1})
	holds := func(gang, queue string, created, amount int64) {
		b.Count(gang+"-waits", Usage{Queue: queue, Job: gang, Gang: gang, Amount: gpus(1)})
		b.Count(gang+"-holds", Usage{Queue: queue, Job: gang, Gang: gang, Amount: gpus(amount), Held: true})
		b.Offer(Job{Name: gang, Queue: queue, Gang: gang, Pod: gang + "-waits", Pods: []string{gang + "-waits"}, Together: true, Created: time.Unix(created, 0), Options: []Needs{{queue: gpus(1)}}}, at)
	}
	holds("older", "a", 100, 2)
	holds("younger", "b", 200, 5)
	b.Count("pod", Usage{Queue: "a", Job: "pod", Amount: gpus(1)})
	b.Offer(Job{Name: "pod", Queue: "a", Pod: "pod", Pods: []string{"pod"}, Created: time.Unix(50, 0), Options: []Needs{{"a": gpus(1)}}}, at)
	admitted, ok := b.Admit("pod", at)
	if !ok || len(admitted.Releases) != 1 || admitted.Releases[0].Name != "older" {
		t.Errorf("admitted %t, for which %v give back what they hold; want the older gang alone", ok, admitted.Releases)
	}
}
