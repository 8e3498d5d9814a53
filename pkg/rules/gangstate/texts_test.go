package gangstate

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// A gang that lacks thousands of roles says so in a message that a condition can have.
func TestTextLacksMany(t *testing.T) {
	missing := map[string]int{}
	for i := range 5000 {
		missing[fmt.Sprintf("r%04d", i)] = 1
	}
	text := TextLacks(gangspec.Key{Namespace: "a", Name: "train"}, missing)
	if len(text) > 1000 || !strings.HasPrefix(text, `gang "a/train" lacks 1 more of role r0000, 1 more of role r0001`) || !strings.HasSuffix(text, " and members of 4992 more roles") {
		t.Errorf("%d bytes: %.300s ... %s", len(text), text, text[max(0, len(text)-60):])
	}
}

// What a namespace names may be longer than a queue's name can be: the rest of it is in no message and no metric.
func TestQueueOfLongName(t *testing.T) {
	none := func(gangspec.Key) string { return "" }
	long := strings.Repeat("ü", 100_000)
	name := gangspec.QueueOf(&v1.Pod{}, none, func(string) string { return long })
	if len(name) > 253 || !utf8.ValidString(name) || !strings.HasPrefix(long, name) || name == "" {
		t.Errorf("the queue is %d bytes: %.20q", len(name), name)
	}
	if name := gangspec.QueueOf(&v1.Pod{}, none, func(string) string { return "a b" }); name != "a b" {
		t.Errorf("the queue is %q", name)
	}
}
