package gangstate

import "time"

// updateBroken finds out since when the gang runs with less than its minimum, and does not grow.
func (s *Gangs) updateBroken(g *gang, now time.Time) {
	switch {
	case g.running() == 0 || g.minimumRuns() || g.spec.Min == 0 || g.grows():
		g.broken = time.Time{}
	case g.broken.IsZero():
		g.broken = now
		if g.hasStarted() {
			s.readmitExtras(g)
		}
	}
}
