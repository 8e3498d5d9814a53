package defragmentation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// setWant makes each gang of the attempt a part, in one of the domains that it may be in; a gang in slices is several
// parts, which are joined where the domains of coarser levels bind them.
func (p *problem) setWant(d *demand) {
	joins, areas := ordinals{}, ordinals{}
	for i, need := range d.attempt.Gangs {
		var last *defrag.Part
		for _, piece := range p.simulation.Pieces(i) {
			part := defrag.Part{}
			for class, c := range p.classes[i] {
				part.Classes = append(part.Classes, defrag.Class{Request: p.vector(c.Demand.Request), Count: piece.Counts[class]})
			}
			var in [][]int
			part.Domains, in = p.common(piece.In, areas)
			for b, bond := range piece.In {
				shared := b == 0 && d.attempt.Shared() != ""
				gang := i
				switch {
				case shared:
					gang = -1
				case b == len(piece.In)-1:
					continue // it binds this piece only
				}
				part.Joins = append(part.Joins, defrag.Join{Name: joins.ordinalOf(gang, b, bond.Number), Area: in[b]})
			}
			part.Twin = last != nil && part.Like(*last)
			last = &part
			p.Want, p.gangOf = append(p.Want, part), append(p.gangOf, i)
		}
		p.sliced = p.sliced ||
			slices.ContainsFunc(need.Spec.Layout.Levels, func(level gangspec.Level) bool { return level.Slice > 0 })
	}
}

// ordinals number what words tell apart.
type ordinals map[string]int

func (n ordinals) ordinalOf(words ...any) int {
	key := fmt.Sprintf("%q", words)
	if _, known := n[key]; !known {
		n[key] = len(n)
	}
	return n[key]
}

// plain reports whether the demand is one gang without slices: then the only part is the whole gang, and gangs of its
// shape can be counted.
func (p *problem) plain() bool { return len(p.Want) == 1 && !p.sliced }

// common returns the sets of nodes that are in one domain of each of some topologies, in the order of their labels.
// Where a member is on a node already, only the domain of that node counts. in are, by topology, the domains that the
// sets are in, as numbered by areas. All nodes are one set where there are no topologies.
func (p *problem) common(bonds []placement.Bond, areas ordinals) (sets, in [][]int) {
	by, values := map[string][]int{}, map[string][]string{}
	for i := range p.simulation.Len() {
		labels, fits := p.labels(i, bonds)
		if !fits {
			continue
		}
		key := strings.Join(labels, "\x00")
		by[key], values[key] = append(by[key], i), labels
	}
	if len(by) == 0 {
		by[""], values[""] = nil, make([]string, len(bonds)) // no member fits there
	}
	in = make([][]int, len(bonds))
	for _, key := range sortedKeys(by) {
		sets = append(sets, by[key])
		for b, value := range values[key] {
			in[b] = append(in[b], areas.ordinalOf(bonds[b].Key, value))
		}
	}
	return sets, in
}

// labels returns the labels by which a node is in domains of some topologies; false where it can be in none of their
// sets.
func (p *problem) labels(node int, in []placement.Bond) (list []string, fits bool) {
	labels := p.simulation.Node(node).Node().Labels
	for _, bond := range in {
		if !bond.Allows(labels) {
			return nil, false
		}
		list = append(list, labels[bond.Key])
	}
	return list, true
}

// dropDomain removes the domain in which a plan would have one of its parts, for the part and its twins. It reports
// whether there was another.
func (p *problem) dropDomain(plan *defrag.Plan) bool {
	for part, domain := range plan.Domain {
		if len(p.Want[part].Domains) < 2 {
			continue
		}
		first := part
		for p.Want[first].Twin {
			first--
		}
		for i := first; i == first || i < len(p.Want) && p.Want[i].Twin; i++ {
			p.Want[i] = without(p.Want[i], domain)
		}
		return true
	}
	return false
}

// without returns a part without one of its domains.
func without(part defrag.Part, domain int) defrag.Part {
	part.Domains = slices.Delete(slices.Clone(part.Domains), domain, domain+1)
	part.Joins = slices.Clone(part.Joins)
	for i, join := range part.Joins {
		part.Joins[i].Area = slices.Delete(slices.Clone(join.Area), domain, domain+1)
	}
	return part
}
