package evictions

import "github.com/lockstep-sh/lockstep/pkg/rules/gangstate"

// inRepair reports whether a gang has been below its minimum for less than Grace: its members are being replaced, or
// are starting for the first time. For a gang that no profile knows the start is unknown.
func (c *Candidates) inRepair(f gangstate.RunningGang) bool {
	return !f.Enough(c.Ending) && (f.BrokenSince.IsZero() || c.Now.Sub(f.BrokenSince) < c.Grace)
}

// broken reports whether a gang is below its minimum and not in repair.
func (c *Candidates) broken(f gangstate.RunningGang) bool {
	return !f.Enough(c.Ending) && !c.inRepair(f)
}

// remaining returns how many members of a gang run and are not ending.
func (c *Candidates) remaining(f gangstate.RunningGang) int {
	n := 0
	for _, member := range f.Running {
		if !c.Ending[member.Pod.UID] {
			n++
		}
	}
	return n
}
