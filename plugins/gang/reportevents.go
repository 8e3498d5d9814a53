package gang

import (
	"context"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// newsAtOnce is for how many gangs the news are written at the same time: a PodGroup that cannot be written to keeps
// few other gangs waiting.
const newsAtOnce = 4

// telling is what was last reported of a gang.
type telling struct {
	text string
	// written: its PodGroup has it in its condition, where there is one.
	written bool
}

// tellNews reports what is new of a gang in an event, and in the PodGroup's condition.
func (t *statusReporter) tellNews(ctx context.Context, key gangspec.Key) error {
	e, ok := t.toTell(key)
	if !ok {
		return nil
	}
	text := textOf(e)
	isNew, written := t.tells(key, text)
	if written {
		return nil
	}
	if err := t.lane.Wait(ctx); err != nil {
		return err
	}
	if isNew && e.Reason != v1alpha1.ReasonAwaitingPlacement { // it takes back what was reported, and is no event
		waits(e).Record(t.pl.fw.EventRecorder())
	}
	if e.Object.UID != "" && e.Object.Kind == gangspec.Community { // lockstep-controller derives the conditions of native PodGroups from the pods
		if err := status.WriteScheduled(ctx, t.groups, e.Gang, e.Reason, e.Message, t.pl.clock.Now()); err != nil {
			return err
		}
	}
	t.wrote(key, text)
	return nil
}

// textOf returns what is reported of a gang, and on which PodGroup: a PodGroup that is recreated under its name has
// nothing yet.
func textOf(e gangstate.Explanation) string { return string(e.Object.UID) + e.Reason + e.Message }

// tells remembers what is reported of a gang, and returns whether that is new, and whether its PodGroup has it.
func (t *statusReporter) tells(key gangspec.Key, text string) (isNew, written bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if told := t.lastReported[key]; told.text == text {
		return false, told.written
	}
	t.lastReported[key] = telling{text: text}
	return true, false
}

// wrote notes that the PodGroup of a gang has the text, unless something else is to be reported, or nothing, by now.
func (t *statusReporter) wrote(key gangspec.Key, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lastReported[key].text == text {
		t.lastReported[key] = telling{text, true}
	}
}

// forget removes what was reported of a gang.
func (t *statusReporter) forget(key gangspec.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lastReported, key)
}
