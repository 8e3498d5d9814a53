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

// tellNews reports what is new of a gang in an event, and in the PodGroup's condition.
func (t *statusReporter) tellNews(ctx context.Context, key gangspec.Key) error {
	e, ok := t.toTell(key)
	if !ok {
		return nil
	}
	before, _ := t.lastReported.Swap(key, textOf(e))
	isNew := before != textOf(e)
	if !isNew && t.news.NumRequeues(key) == 0 { // otherwise its PodGroup could not be written to
		return nil
	}
	if err := t.lane.Wait(ctx); err != nil {
		return err
	}
	if isNew && e.Reason != v1alpha1.ReasonAwaitingPlacement { // it takes back what was reported, and is no event
		waits(e).Record(t.pl.fw.EventRecorder())
	}
	if e.Object.UID != "" && e.Object.Kind == gangspec.Community { // lockstep-controller derives the conditions of native PodGroups from the pods
		return status.WriteScheduled(ctx, t.groups, e.Gang, e.Reason, e.Message, t.pl.clock.Now())
	}
	return nil
}

// textOf returns what is reported of a gang, and on which PodGroup: a PodGroup that is recreated under its name has
// nothing yet.
func textOf(e gangstate.Explanation) string { return string(e.Object.UID) + e.Reason + e.Message }
