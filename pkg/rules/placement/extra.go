package placement

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
)

// extrasOf returns the extras of the gangs of a part that was placed in a scope.
func (s *solver) extrasOf(p part, value string, placed map[int]int) []Extra {
	var extras []Extra
	for _, gang := range p {
		if g := s.Gangs[gang]; g.HasExtra {
			extras = append(extras,
				Extra{Gang: gang, Placed: membersOf(g, placed), Nodes: s.extraNodes(g.Required, value), Value: value})
		}
	}
	return extras
}

// extrasOfPlaced returns the extras of gangs whose members are all placed already.
func (s *solver) extrasOfPlaced() []Extra {
	var extras []Extra
	for i, g := range s.Gangs {
		if g.HasExtra && g.Min == 0 {
			value, _ := s.valueOn(g, g.Required)
			extras = append(extras, Extra{Gang: i, Nodes: s.extraNodes(g.Required, value), Value: value})
		}
	}
	return extras
}

// extraNodes returns the nodes that count for a gang in a domain of its required topology.
func (s *solver) extraNodes(required, value string) []int {
	within := s.ExtraNodes
	if within == nil {
		within = s.Nodes
	}
	if required == "" {
		return within
	}
	if s.extraDomains == nil {
		s.extraDomains = map[string]map[string][]int{}
	}
	byValue, ok := s.extraDomains[required]
	if !ok {
		byValue = map[string][]int{}
		for _, d := range topology.Domains(within, s.label(required)) {
			byValue[d.Value] = d.Nodes
		}
		s.extraDomains[required] = byValue
	}
	return byValue[value]
}

// extrasFit reports whether gangs have their extras, together with the gangs whose members are all placed already.
func (s *solver) extrasFit(ctx context.Context, extras []Extra) (bool, error) {
	if extras = append(extras, s.extrasOfPlaced()...); len(extras) == 0 {
		return true, nil
	}
	short, err := s.world.LackingExtra(ctx, extras)
	if err != nil {
		return false, fmt.Errorf("looking for room beyond the members: %w", err)
	}
	for _, extra := range extras {
		if !slices.Contains(short, extra.Gang) {
			s.extraMet[extra.Gang] = true
		}
	}
	for _, extra := range extras {
		s.best[extra.Gang].LacksExtra = !s.extraMet[extra.Gang]
	}
	return len(short) == 0, nil
}
