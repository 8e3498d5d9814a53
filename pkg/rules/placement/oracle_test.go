package placement

import (
	"context"
	"fmt"
	"slices"
)

// oracle finds by trying everything whether a problem has a solution. It is slow, and too simple to
// be wrong.
type oracle struct {
	c *cluster
	p Problem
	// gang of each member, and where it is; -1 means nowhere.
	gang, at []int
}

func solvable(c *cluster, p Problem) bool {
	o := &oracle{c: c.copied(), p: p, gang: make([]int, len(p.Members)), at: make([]int, len(p.Members))}
	for i, g := range p.Gangs {
		for _, m := range g.Members {
			o.gang[m] = i
		}
	}
	for i := range o.at {
		o.at[i] = -1
	}
	return o.try(0)
}

func (o *oracle) try(member int) bool {
	if member == len(o.p.Members) {
		return o.done()
	}
	class := o.p.Members[member].Class
	for _, node := range o.p.Nodes {
		if !o.c.fits(class, node) || !o.domainAllows(member, node) {
			continue
		}
		o.at[member] = node
		o.c.change(taking{member, class, node}, -1)
		ok := o.try(member + 1)
		o.c.change(taking{member, class, node}, 1)
		o.at[member] = -1
		if ok {
			return true
		}
	}
	// Leaving it out comes last: any problem with a solution has one with few left out.
	return o.canSpare(member) && o.try(member+1)
}

func (o *oracle) domainAllows(member, node int) bool {
	g := o.p.Gangs[o.gang[member]]
	if !o.slicesAllow(g, member, node) {
		return false
	}
	if g.Required == "" {
		return true
	}
	value, ok := o.c.Label(node, g.Required)
	if !ok {
		return false
	}
	if g.Shared {
		return o.sharedAllows(member, value)
	}
	for _, on := range g.On {
		if other, ok := o.c.Label(on.Node, g.Required); ok {
			return other == value
		}
	}
	for _, m := range g.Members {
		if m < member && o.at[m] >= 0 {
			other, _ := o.c.Label(o.at[m], g.Required)
			return other == value
		}
	}
	return true
}

// sharedAllows reports whether a member would be in one domain with all other members of gangs that
// share theirs.
func (o *oracle) sharedAllows(member int, value string) bool {
	for _, g := range o.p.Gangs {
		for _, on := range g.On {
			if other, ok := o.c.Label(on.Node, g.Required); g.Shared && ok {
				return other == value
			}
		}
	}
	for m := range member {
		if g := o.p.Gangs[o.gang[m]]; g.Shared && o.at[m] >= 0 {
			other, _ := o.c.Label(o.at[m], g.Required)
			return other == value
		}
	}
	return true
}

// slicesAllow reports whether a member would be in one domain with the other members of its slices.
func (o *oracle) slicesAllow(g Gang, member, node int) bool {
	standing := slices.Clone(g.On)
	for _, m := range g.Members {
		if m < member && o.at[m] >= 0 {
			standing = append(standing, PlacedMember{o.at[m], o.p.Members[m].Rank})
		}
	}
	for _, level := range g.Levels {
		if !level.sliced() {
			continue
		}
		value, ok := o.c.Label(node, level.Key)
		if !ok {
			return false
		}
		for _, other := range standing {
			if with, ok := o.c.Label(other.Node, level.Key); ok && other.Rank/level.Slice == o.p.Members[member].Rank/level.Slice && with != value {
				return false
			}
		}
	}
	return true
}

// canSpare cuts branches in which too few members are left for the minimum.
func (o *oracle) canSpare(member int) bool {
	g := o.p.Gangs[o.gang[member]]
	if g.sliced() {
		return slices.Index(g.Members, member) >= g.Min // the lowest ranks make up the minimum
	}
	left := 0
	for _, m := range g.Members {
		if m > member || o.at[m] >= 0 {
			left++
		}
	}
	return left >= g.Min
}

func (o *oracle) done() bool {
	var floors []Extra
	if !enough(o.p, func(m int) bool { return o.at[m] >= 0 }) {
		return false
	}
	for i, g := range o.p.Gangs {
		value, set := "", false
		for _, on := range g.On {
			if v, ok := o.c.Label(on.Node, g.Required); ok && !set {
				value, set = v, true
			}
		}
		f := Extra{Gang: i, Placed: map[int]int{}}
		for _, m := range g.Members {
			if node := o.at[m]; node >= 0 {
				f.Placed[m] = node
				if v, ok := o.c.Label(node, g.Required); ok && !set {
					value, set = v, true
				}
			}
		}
		for _, node := range o.p.Nodes {
			if v, ok := o.c.Label(node, g.Required); g.Required == "" || ok && set && v == value {
				f.Nodes = append(f.Nodes, node)
			}
		}
		if g.HasExtra {
			floors = append(floors, f)
		}
	}
	short, err := o.c.LackingExtra(context.Background(), floors)
	return err == nil && len(short) == 0
}

// audit checks that a result is true and that the world agrees with it.
// before is the cluster as it was.
func audit(before, after *cluster, p Problem, r Result) error {
	if want := complete(p, r) && floorsMet(after, p, r); r.Complete != want {
		return fmt.Errorf("it says complete %v, and is %v", r.Complete, want)
	}
	if !r.Complete && !p.KeepPartial && len(r.Node) > 0 {
		return fmt.Errorf("it is not complete, and leaves %v placed", r.Node)
	}
	if !r.Complete && len(r.Node) > 0 && complete(p, r) {
		return fmt.Errorf("all gangs have their minimum, and not what they ask for beyond: %v", r.Node)
	}
	if err := auditWorld(before, after, p, r); err != nil {
		return err
	}
	if len(r.Gangs) != len(p.Gangs) {
		return fmt.Errorf("it has %d outcomes for %d gangs", len(r.Gangs), len(p.Gangs))
	}
	for i, g := range p.Gangs {
		if err := auditGang(before, p, r, i); err != nil {
			return fmt.Errorf("gang %d %+v: %w", i, g, err)
		}
	}
	return nil
}

// auditWorld replays the placements on the cluster as it was.
func auditWorld(before, after *cluster, p Problem, r Result) error {
	if len(after.log) != len(r.Node) {
		return fmt.Errorf("the world has %d placed, the result %d", len(after.log), len(r.Node))
	}
	replay := before.copied()
	inPlaceOf := map[int]int{}
	for m, other := range r.As {
		inPlaceOf[other] = m
	}
	for _, t := range after.log {
		node, ok := r.Node[inPlaceOf[t.member]]
		if !ok || node != t.node || t.class != p.Members[t.member].Class {
			return fmt.Errorf("the world has %+v, the result %v", t, r.Node)
		}
		if !slices.Contains(p.Nodes, node) || !replay.fits(t.class, node) {
			return fmt.Errorf("member %d does not fit on node %d", t.member, node)
		}
		replay.change(t, -1)
	}
	for node := range replay.free {
		if !slices.Equal(replay.free[node], after.free[node]) {
			return fmt.Errorf("node %d has %v left, want %v", node, after.free[node], replay.free[node])
		}
	}
	return nil
}

func auditGang(c *cluster, p Problem, r Result, gang int) error {
	g, outcome := p.Gangs[gang], r.Gangs[gang]
	values := map[string]bool{}
	for _, m := range g.Members {
		node, ok := r.Node[m]
		if !ok || g.Required == "" {
			continue
		}
		value, ok := c.Label(node, g.Required)
		if !ok {
			return fmt.Errorf("member %d is on node %d, which is in no domain", m, node)
		}
		values[value] = true
	}
	for _, on := range g.On {
		if value, ok := c.Label(on.Node, g.Required); ok && len(values) > 0 {
			values[value] = true
			break // members that are apart already pin to the first
		}
	}
	if err := sliced(c, p, r); err != nil {
		return err
	}
	if len(values) > 1 {
		return fmt.Errorf("it is in the domains %v", values)
	}
	for _, m := range outcome.Unplaced {
		if !slices.Contains(g.Members, m) {
			return fmt.Errorf("unplaced member %d is not in it", m)
		}
	}
	if r.Complete && (outcome.Fit < g.Min || len(outcome.Unplaced) > 0) {
		return fmt.Errorf("the problem is complete, and the outcome is %+v", outcome)
	}
	return nil
}

// floorsMet reports whether every gang has the room that it asks for beyond its members, in the cluster as the
// result left it.
func floorsMet(after *cluster, p Problem, r Result) bool {
	o := &oracle{c: after, p: Problem{Members: p.Members, Gangs: slices.Clone(p.Gangs), Nodes: p.Nodes}, at: make([]int, len(p.Members))}
	for i := range o.p.Gangs {
		o.p.Gangs[i].Min, o.p.Gangs[i].MinByRole = 0, nil
	}
	for m := range o.at {
		o.at[m] = -1
		if node, ok := r.Node[m]; ok {
			o.at[m] = node
		}
	}
	return o.done()
}

// complete reports whether every gang has what it needs.
func complete(p Problem, r Result) bool {
	return enough(p, func(m int) bool { _, ok := r.Node[m]; return ok })
}

// enough reports whether as many members of each gang have a place as it needs, of each role too.
func enough(p Problem, placed func(member int) bool) bool {
	for _, g := range p.Gangs {
		n, roles := 0, map[string]int{}
		for _, m := range g.Members {
			if placed(m) {
				n++
				roles[p.Members[m].Role]++
			}
		}
		if n < g.Min {
			return false
		}
		for role, least := range g.MinByRole {
			if roles[role] < least {
				return false
			}
		}
	}
	return true
}
