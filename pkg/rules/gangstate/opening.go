package gangstate

import "time"

// Close keeps every member out of the queue until Open. The caller closes the gangs while it does
// not know everything yet: after a restart, a gang that is about to be seen half bound has to come
// before gangs that wait.
func (s *Gangs) Close() { s.closed = true }

// Open lets through the members that may go. It records that what there was to see at the start has
// been seen.
func (s *Gangs) Open(now time.Time) Effects {
	s.closed = false
	for _, g := range s.gangs {
		s.settle(g, now)
	}
	for _, g := range s.gangs {
		s.admitGang(g)
	}
	return s.take()
}
