package scenario

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind is what an entry of the timeline is about.
type Kind string

// Kinds of entries. Those of the second group are what must not come while nothing may change.
const (
	KindStep  Kind = "step"
	KindNote  Kind = "note"
	KindEvent Kind = "event"
	KindNode  Kind = "node"

	KindCreated   Kind = "created"
	KindBound     Kind = "bound"
	KindEvicted   Kind = "evicted"
	KindDeleted   Kind = "deleted"
	KindGone      Kind = "gone"
	KindPhase     Kind = "phase"
	KindCondition Kind = "condition"
	KindNominated Kind = "nominated"
	KindWithdrawn Kind = "withdrawn" // a nomination, of the node in the text
	KindMeta      Kind = "metadata"
	KindStatus    Kind = "status" // of a PodGroup
)

// flaps reports whether an entry of this kind is a change of state.
func (k Kind) flaps() bool {
	switch k {
	case KindStep, KindNote, KindEvent, KindNode:
		return false
	}
	return true
}

// moves reports whether an entry of this kind changes what runs where, or is to. That a pod is gone does
// not: it has been evicted or deleted before, and how long it takes to end is not decided by the
// scheduler. Nor does a nomination that is withdrawn: like the condition of an attempt that failed, it is
// written after the binds of others that it made way for, and it is no longer meant to run there.
func (k Kind) moves() bool {
	switch k {
	case KindCreated, KindBound, KindEvicted, KindDeleted, KindNominated:
		return true
	}
	return false
}

// Entry is one thing that was seen.
type Entry struct {
	At     time.Time
	Kind   Kind
	Object string // "pod default/a-0", or empty
	UID    types.UID
	Text   string
}

// Timeline is what was seen, in order.
type Timeline []Entry

// String writes one line per entry, with the seconds since the step it belongs to.
func (t Timeline) String() string {
	var out strings.Builder
	if len(t) == 0 {
		return ""
	}
	step := t[0].At
	for _, e := range t {
		if e.Kind == KindStep {
			step = e.At
			fmt.Fprintf(&out, "%s\n", e.Text)
			continue
		}
		text := strings.TrimSpace(e.Object + "  " + strings.ReplaceAll(e.Text, "\n", " "))
		fmt.Fprintf(&out, "  %+8.3f  %-9s  %s\n", e.At.Sub(step).Seconds(), e.Kind, text)
	}
	return out.String()
}

// tail returns the last n entries, and how many it leaves out.
func (t Timeline) tail(n int) string {
	if len(t) <= n {
		return t.String()
	}
	// The step that the first shown entry belongs to dates it.
	first := len(t) - n
	for i := first; i >= 0; i-- {
		if t[i].Kind == KindStep {
			return fmt.Sprintf("(%d entries left out)\n", first) + append(Timeline{t[i]}, t[max(first, i+1):]...).String()
		}
	}
	return fmt.Sprintf("(%d entries left out)\n", first) + t[first:].String()
}
