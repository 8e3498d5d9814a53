package gangstate

import "time"

// updateBroken finds out since when the gang runs with less than its minimum. The time starts anew when members are
// lost of a gang that had lost none of its minimum: one whose minimum was raised.
func (s *Gangs) updateBroken(g *gang, now time.Time) {
	switch {
	case g.running() == 0 || g.minimumRuns() || g.spec.Min == 0:
		g.broken = time.Time{}
	case g.broken.IsZero() || !g.losesMembers && g.hasLost():
		g.broken = now
		if g.hasStarted() && g.lost() > 0 {
			s.readmitExtras(g)
		}
	}
	g.losesMembers = !g.broken.IsZero() && g.hasLost()
}
