package placement

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
)

// floorsOf returns the floors of the gangs of a part that was placed in a scope.
func (s *solver) floorsOf(p part, value string, placed map[int]int) []Floor {
	var floors []Floor
	for _, gang := range p {
		if g := s.Gangs[gang]; g.Floor {
			floors = append(floors, Floor{Gang: gang, Placed: of(g, placed), Nodes: s.floorNodes(g.Required, value), Value: value})
		}
	}
	return floors
}

// standing returns the floors of gangs whose members all have a place already.
func (s *solver) standing() []Floor {
	var floors []Floor
	for i, g := range s.Gangs {
		if g.Floor && g.Min == 0 {
			value, _ := s.valueOn(g, g.Required)
			floors = append(floors, Floor{Gang: i, Nodes: s.floorNodes(g.Required, value), Value: value})
		}
	}
	return floors
}

// floorNodes returns the nodes that count for a gang in a domain of its required topology.
func (s *solver) floorNodes(required, value string) []int {
	within := s.Floors
	if within == nil {
		within = s.Nodes
	}
	if required == "" {
		return within
	}
	if s.floorDomains == nil {
		s.floorDomains = map[string]map[string][]int{}
	}
	byValue, ok := s.floorDomains[required]
	if !ok {
		byValue = map[string][]int{}
		for _, d := range topology.Domains(within, s.label(required)) {
			byValue[d.Value] = d.Nodes
		}
		s.floorDomains[required] = byValue
	}
	return byValue[value]
}

// spare reports whether gangs have the room that they ask for beyond their members, together with
// the gangs whose members all have a place already.
func (s *solver) spare(ctx context.Context, floors []Floor) (bool, error) {
	if floors = append(floors, s.standing()...); len(floors) == 0 {
		return true, nil
	}
	short, err := s.world.Spare(ctx, floors)
	if err != nil {
		return false, fmt.Errorf("looking for room beyond the members: %w", err)
	}
	for _, floor := range floors {
		if !slices.Contains(short, floor.Gang) {
			s.floorMet[floor.Gang] = true
		}
	}
	for _, floor := range floors {
		s.best[floor.Gang].FloorShort = !s.floorMet[floor.Gang]
	}
	return len(short) == 0, nil
}
