package gangstate

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// RunningGang is what runs of a gang.
type RunningGang struct {
	Key     gangspec.Key
	Created time.Time
	// Object refers to its PodGroup.
	Object gangspec.Ref
	// Min is how many of Running the gang needs to be of use, MinByRole how many of each role, 0 or more. Members that
	// succeeded are subtracted. If the minimum was raised, or a stage is still to come, it is what certainly ran.
	Min       int
	MinByRole map[string]int
	// Gone are how many of those that were counted off are gone, and are not counted off in the PodGroup.
	Gone int
	// RequiredTopology is the label key of the topology that has to have all in one domain; empty for none.
	RequiredTopology string
	// Whole: all that runs of it is evicted, or nothing.
	Whole bool
	// EvictBy is how it is evicted as a whole; empty if neither its pods nor its PodGroup say.
	EvictBy string
	// Slices are the label keys of the topologies that have to have each slice of it in one domain.
	Slices []string
	// BrokenSince is when a gang of which part runs was first seen below its minimum, or, if it grew, began to lose
	// members; zero while it is not below, or grows.
	BrokenSince time.Time
	// Running are the members that are on a node or on their way there, except those
	// that are about to end, in order.
	Running []Placed
}

// RunsSince returns since when the minimum of a gang runs without a break, in whole seconds, as its pods say: the
// replacement of a member starts it over. It is zero if the minimum does not run, or if that is not known.
func (f *RunningGang) RunsSince() time.Time {
	var bound []time.Time
	for _, member := range f.Running {
		if at := BoundAt(member.Pod); !at.IsZero() {
			bound = append(bound, at)
		}
	}
	least := max(1, f.Min)
	if len(bound) < least {
		return time.Time{}
	}
	slices.SortFunc(bound, time.Time.Compare)
	return bound[least-1]
}

// Starts reports whether the minimum of a gang has its nodes, and part of it is still on its way there.
func (f *RunningGang) Starts() bool {
	on := 0
	for _, member := range f.Running {
		if member.Pod.Spec.NodeName != "" {
			on++
		}
	}
	least := max(1, f.Min)
	return on < least && len(f.Running) >= least
}

// Enough reports whether a gang has its minimum without the pods that are ending.
func (f *RunningGang) Enough(ending map[types.UID]bool) bool {
	var stays gangspec.Count
	for _, member := range f.Running {
		if !ending[member.Pod.UID] {
			stays.Add(1, gangspec.RoleOf(member.Pod))
		}
	}
	return stays.N >= f.Min && len(stays.Missing(f.MinByRole)) == 0
}

// RunningGangs returns what runs of a gang and of the gangs that start together with it, by key; none
// if there is no such gang. Gangs whose minimum is not known are left out.
func (s *Gangs) RunningGangs(key gangspec.Key) []RunningGang {
	g := s.gangs[key]
	if g == nil {
		return nil
	}
	var list []RunningGang
	for _, one := range g.group.gangs {
		if one.spec.Min > 0 {
			list = append(list, s.runningGang(one))
		}
	}
	return list
}

// RunningGang returns what runs of a gang. If its minimum is not known, it needs all of that.
func (s *Gangs) RunningGang(key gangspec.Key) RunningGang {
	g := s.gangs[key]
	if g == nil {
		return RunningGang{Key: key}
	}
	f := s.runningGang(g)
	if g.spec.Min == 0 {
		f.Min = len(f.Running)
	}
	return f
}

func (s *Gangs) runningGang(g *gang) RunningGang {
	done, gone := g.incarnation.counted()
	f := RunningGang{
		Key: g.key, Created: g.created(), Object: g.ref(), Gone: gone.N,
		RequiredTopology: g.spec.RequiredTopology, Whole: g.spec.Whole, EvictBy: g.spec.EvictBy, BrokenSince: g.broken,
	}
	grows := g.grows()
	if f.Min = max(0, g.spec.Min-done.N); grows {
		f.Min = max(0, g.confirmedMin-done.N)
	}
	for _, level := range g.spec.Layout.Levels {
		if level.Slice > 0 {
			f.Slices = append(f.Slices, level.Key)
		}
	}
	runs := map[string]int{}
	for i, m := range g.sorted(func(m *member) bool { return m.runs() && m.lives() }) {
		f.Running = append(f.Running, Placed{Pod: m.pod, Node: m.node, Number: i + 1})
		runs[m.role()]++
	}
	if g.spec.RolesBind() {
		f.MinByRole = map[string]int{}
		for role, n := range g.spec.MinByRole {
			if n = max(0, n-done.Roles[role]); grows {
				n = min(n, runs[role])
			}
			f.MinByRole[role] = n
		}
	}
	return f
}

// Placing reports whether a group, by its name, has all members that it needs to be placed.
func (s *Gangs) Placing(name string) bool {
	grp := s.groupOf(name)
	return grp != nil && grp.phase != gathering
}
