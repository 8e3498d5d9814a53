package turns

import (
	"slices"
	"time"
)

// restCovered lets the candidates rest whose attempts would fail. It costs a look at each, after an attempt that
// failed.
func (l *Line) restCovered(now time.Time) {
	if l.restedCovered || len(l.failed) == 0 {
		return
	}
	l.restedCovered = true
	for _, j := range slices.Clone(l.candidates.Items) {
		if m := l.coveredBy(j, now); m != nil && !l.elsewhere.Promised(j.holder()) {
			l.take(j)
			j.last.seen, j.last.at, j.last.coveredBy, j.fresh = l.view, now, m, false
			l.rest(j)
		}
	}
}

// dropCoverage stops failed attempts from covering others once room is made for their jobs: a preemptor finds victims
// that the next one may find, too.
func (l *Line) dropCoverage() {
	for _, alike := range l.failed {
		for _, m := range alike {
			if !m.void && (l.elsewhere.Making(m.holder) || l.elsewhere.Promised(m.holder)) {
				m.void, l.look = true, true
			}
		}
	}
}

// coveredBy returns the failed attempt which shows that one of a job would fail; nil for none.
func (l *Line) coveredBy(j *job, now time.Time) *failedAttempt {
	if j.last.changes != j.Changes {
		return nil
	}
	for _, m := range l.failed[j.last.shape.Key] {
		if m.job != j.Name && m.why == j.last.why && !m.void && (m.kept || j.Strict) && !m.old(now) &&
			m.rank.Compare(j.Rank) <= 0 && j.last.shape.asksNoLessThan(m.shape) {
			return m
		}
	}
	return nil
}
