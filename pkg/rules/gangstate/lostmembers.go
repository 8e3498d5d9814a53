package gangstate

import "time"

// certainMin returns how much of the minimum of a gang certainly ran that was not seen before, and of which part
// runs. If the rest is there and waits, the minimum may have been raised, and the rest never have run; otherwise
// something was lost and is not made anew.
func (g *gang) certainMin() int {
	if len(g.incarnation.unfinished)+g.succeeded().N < g.spec.Min {
		return g.spec.Min
	}
	return g.runningOrSucceeded().N
}

// grows reports whether the gang is below its minimum, and what certainly ran of it still runs. Members that are held
// in place of lost ones do not count: they may turn back.
func (g *gang) grows() bool {
	run := g.runningOrSucceeded()
	return g.confirmedMin > 0 && g.confirmedMin <= run.N && g.confirmedMin < g.spec.Min && !run.Reaches(&g.spec)
}

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

// writeOff lowers the minimum that ran by n members that succeeded and are gone, less what the minimum of the PodGroup
// has been lowered by already. Until that follows, the gang lacks these members, but has not lost them.
func (g *gang) writeOff(n int) {
	ahead := max(0, g.lowered)
	g.lowered -= n
	if n -= ahead; g.lastMin > 0 && n > 0 {
		g.lastMin, g.confirmedMin = max(1, g.lastMin-n), max(1, g.confirmedMin-n)
	}
}

// lower records that the minimum was another. It may have been lowered by members that are gone, before that was seen:
// no more than there are that succeeded.
func (g *gang) lower(was int) {
	if by := was - g.asked.Min; by > 0 && g.asked.Min > 0 {
		g.lowered = min(g.lowered+by, g.succeeded().N)
	}
}
