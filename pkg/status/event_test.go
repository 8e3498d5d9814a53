package status

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

// TestEventAnnotations: what programs need of an event is written with it, by recorders that write annotations.
func TestEventAnnotations(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	recorder.Verbose = true
	Event{On: &v1.Pod{}, Type: v1.EventTypeNormal, Reason: "Why", Action: "Doing", Note: "in words", Annotations: map[string]string{"number": "5"}}.Record(recorder)
	if got := <-recorder.Events; !strings.HasSuffix(got, " map[number:5]") {
		t.Errorf("recorded %q, without its annotations", got)
	}
}

// A note is written as it is, whatever characters are in it, and cut if it is too long.
func TestNotes(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	for note, want := range map[string]string{
		"50% of nodes":            "Normal Why 50% of nodes",
		strings.Repeat("x", 1024): "Normal Why " + strings.Repeat("x", 1024),
		strings.Repeat("x", 1025): "Normal Why " + strings.Repeat("x", 1021) + "...",
		strings.Repeat("ä", 513):  "Normal Why " + strings.Repeat("ä", 510) + "...",
	} {
		Event{On: &v1.Pod{}, Type: v1.EventTypeNormal, Reason: "Why", Action: "Doing", Note: note}.Record(recorder)
		if got := <-recorder.Events; got != want {
			t.Errorf("recorded %q, want %q", got, want)
		}
	}
}
