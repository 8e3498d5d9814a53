package gangstate

import "time"

// Open lets through the members that may go: until then every member is kept out of the queue. It records that what
// there was to see at the start has been seen: after a restart, a gang that is about to be seen half bound has to come
// before gangs that wait.
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
