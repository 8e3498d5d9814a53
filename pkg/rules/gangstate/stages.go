package gangstate

// enterStage adapts the minimum to the members that there are.
func (s *Gangs) enterStage(g *gang) {
	if len(g.asked.Stages) == 0 {
		return
	}
	standing := g.runningOrSucceeded().N
	stage := g.asked.Stages.Reached(standing, standing+g.byState[Planned].N+g.byState[Held].N+g.coming.N)
	if at := g.asked.AtStage(stage); at.Min != g.spec.Min {
		g.spec = at
		g.group.ranked = false
		s.mayFit(g.group)
	}
}

// laterStage reports whether a later stage is to start: its minimum has not run whole since anything
// of the gang runs.
func (g *gang) laterStage() bool {
	stage, _ := g.spec.Stage()
	return stage > 1 && g.lastMin < g.spec.Min
}
