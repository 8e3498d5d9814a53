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
	text := TextLacks(gangspec.Key{Namespace: "a", Name: "train"}, &gangspec.Spec{Min: 5000, MinByRole: missing}, gangspec.Count{N: 5000})
	if len(text) > 1000 || !strings.HasPrefix(text, `gang "a/train" lacks 1 more of role r0000, 1 more of role r0001`) || !strings.HasSuffix(text, " and members of 4992 more roles") {
		t.Errorf("%d bytes: %.300s ... %s", len(text), text, text[max(0, len(text)-60):])
	}
}

// A role that may be a misspelling is told, with the others.
func TestTextLacksMisspelled(t *testing.T) {
	spec := &gangspec.Spec{Min: 3, MinByRole: map[string]int{"launcher": 1, "w1": 1, "w2": 1}}
	for sentence, c := range map[string]struct {
		have map[string]int
		want string
	}{
		"another case":                {map[string]int{"Launcher": 1, "w1": 1, "w2": 1}, "1 more of role launcher; members have the roles Launcher, w1, w2"},
		"a letter is missing":         {map[string]int{"lancher": 2, "w2": 1}, "1 more of role launcher, 1 more of role w1; members have the roles lancher, w2"},
		"another role":                {map[string]int{"leader": 1, "w1": 1, "w2": 1}, "1 more of role launcher"},
		"a role with its own minimum": {map[string]int{"launcher": 1, "w1": 2}, "1 more of role w2"},
		"no role":                     {nil, "1 more of role launcher, 1 more of role w1, 1 more of role w2"},
	} {
		got := TextLacks(gangspec.Key{Namespace: "a", Name: "train"}, spec, gangspec.Count{N: 3, Roles: c.have})
		if want := `gang "a/train" lacks ` + c.want; got != want {
			t.Errorf("%s: %s, want %s", sentence, got, want)
		}
	}
}

// What a namespace names may be longer than a queue's name can be: the rest of it is in no message and no metric.
func TestQueueOfLongName(t *testing.T) {
	none := func(gangspec.Key) gangspec.PodGroups { return gangspec.PodGroups{} }
	long := strings.Repeat("ü", 100_000)
	name := gangspec.QueueOf(&v1.Pod{}, none, func(string) string { return long })
	if len(name) > 253 || !utf8.ValidString(name) || !strings.HasPrefix(long, name) || name == "" {
		t.Errorf("the queue is %d bytes: %.20q", len(name), name)
	}
	if name := gangspec.QueueOf(&v1.Pod{}, none, func(string) string { return "a b" }); name != "a b" {
		t.Errorf("the queue is %q", name)
	}
}
