package dispatch

import (
	"fmt"
	"slices"
)

// missed is a job that had its turn and did not fit.
type missed struct {
	Job
	// passed is how many jobs that come after it were placed since.
	passed int
}

// SetBypass says how many jobs may pass one that does not fit; 0 for any number. When so
// many have, those that come after it and ask for any of what it asks for wait, until it is
// placed, gone, or let off.
func (b *Book) SetBypass(most int) { b.bypass = most }

// Miss notes that a job did not fit in its turn.
func (b *Book) Miss(name string) {
	j := b.jobs[name]
	if j == nil || !j.admitted || b.bypass == 0 {
		return
	}
	if m := b.missed[name]; m != nil {
		m.Job = j.Job
		return
	}
	b.missed[name] = &missed{Job: j.Job}
}

// Forget ends what was noted of a job that did not fit: it is gone.
func (b *Book) Forget(name string) { delete(b.missed, name) }

// LetOff has a job be passed by as many once more.
func (b *Book) LetOff(name string) {
	if m := b.missed[name]; m != nil {
		m.passed = 0
	}
}

// Waited are the jobs for which others wait now.
func (b *Book) Waited() []string {
	var names []string
	for name, m := range b.missed {
		if m.passed >= b.bypass {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// placed counts a job that was placed against those that it passed.
func (b *Book) placed(j Job) {
	delete(b.missed, j.Name)
	for _, m := range b.missed {
		if m.before(j) {
			m.passed++
		}
	}
}

// before tells whether a job comes after this one, and asks for any of what it asks for.
func (m *missed) before(j Job) bool {
	if j.Name == m.Name || j.Priority > m.Priority || j.Priority == m.Priority && !m.Created.Before(j.Created) {
		return false
	}
	for name, need := range m.Need {
		if need > 0 && j.Need[name] > 0 {
			return true
		}
	}
	return false
}

// waitsFor tells for whom a job has to wait; empty for nobody. Nobody waits for a job that
// waits for its own queue, or that is larger than all there is.
func (b *Book) waitsFor(j *job) string {
	for _, name := range b.Waited() {
		m := b.missed[name]
		if m.before(j.Job) && b.couldFit(m) {
			return fmt.Sprintf("it waits for %s, which does not fit and was passed by %d others", m.Title, m.passed)
		}
	}
	return ""
}

func (b *Book) couldFit(m *missed) bool {
	for name, need := range m.Need {
		if need > b.total[name] {
			return false
		}
	}
	one := &job{Job: m.Job}
	q := b.queues[m.Queue]
	if q == nil || q.err != nil || q.spec == nil || q.spec.Closed {
		return false
	}
	if current := b.jobs[m.Name]; current != nil && current.admitted {
		return true // it counts as used already
	}
	_, why := b.limits(b.Shares(), one)
	return why == ""
}
