package defrag

import (
	"errors"
	"fmt"
	"slices"
)

// validate returns an error if a problem makes no sense.
func (p *Problem) validate() error {
	for i, node := range p.Nodes {
		if len(node.Free) != p.columns() {
			return fmt.Errorf("node %d has %d columns, others have %d", i, len(node.Free), p.columns())
		}
	}
	if err := p.validatePods(); err != nil {
		return err
	}
	for i, part := range p.Want {
		if err := p.validatePart(part); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		if part.Twin && (i == 0 || !part.Like(p.Want[i-1])) {
			return fmt.Errorf("part %d is not like the one before", i)
		}
	}
	return nil
}

func (p *Problem) validatePods() error {
	first := map[int]int{}
	for i, pod := range p.Pods {
		if pod.Node < 0 || pod.Node >= len(p.Nodes) {
			return fmt.Errorf("pod %d is on node %d of %d", i, pod.Node, len(p.Nodes))
		}
		if pod.Group >= len(p.Groups) {
			return fmt.Errorf("pod %d is in group %d of %d", i, pod.Group, len(p.Groups))
		}
		if err := p.validateRequest(pod.Request); err != nil {
			return fmt.Errorf("pod %d: %w", i, err)
		}
		for _, limit := range pod.Limits {
			if limit < 0 || limit >= len(p.Limits) {
				return fmt.Errorf("pod %d counts for limit %d of %d", i, limit, len(p.Limits))
			}
		}
		if like, ok := first[pod.Kind]; !ok {
			first[pod.Kind] = i
		} else if !pod.alike(p.Pods[like]) {
			return fmt.Errorf("pods %d and %d are of kind %d, but not alike", like, i, pod.Kind)
		}
	}
	return nil
}

// alike reports whether two pods may be of one kind.
func (pod Pod) alike(other Pod) bool {
	return pod.Cost == other.Cost && pod.Group == other.Group &&
		slices.Equal(pod.Request, other.Request) && slices.Equal(pod.Limits, other.Limits)
}

func (p *Problem) validatePart(part Part) error {
	if len(part.Domains) == 0 {
		return errors.New("no domain to choose from")
	}
	for i, class := range part.Classes {
		if class.Count < 0 {
			return fmt.Errorf("class %d has %d members", i, class.Count)
		}
		if err := p.validateRequest(class.Request); err != nil {
			return fmt.Errorf("class %d: %w", i, err)
		}
	}
	for _, join := range part.Joins {
		if len(join.Area) != len(part.Domains) {
			return fmt.Errorf("join %d has %d areas, for %d domains", join.Name, len(join.Area), len(part.Domains))
		}
	}
	if (part.Twin || len(part.Joins) > 0) && part.members() == 0 {
		return errors.New("no members")
	}
	return p.validateNodes(part.Domains, false)
}

// Like reports whether two parts may be twins, except for what FitsMember says.
func (part Part) Like(other Part) bool {
	return slices.EqualFunc(part.Classes, other.Classes,
		func(a, b Class) bool { return a.Count == b.Count && slices.Equal(a.Request, b.Request) }) &&
		slices.EqualFunc(part.Domains, other.Domains, slices.Equal) &&
		slices.EqualFunc(part.Joins, other.Joins,
			func(a, b Join) bool { return a.Name == b.Name && slices.Equal(a.Area, b.Area) })
}

func (part Part) members() (n int) {
	for _, class := range part.Classes {
		n += class.Count
	}
	return n
}

func (p *Problem) validateRequest(request []int64) error {
	if len(request) != p.columns() {
		return fmt.Errorf("a request has %d columns, nodes have %d", len(request), p.columns())
	}
	for column, amount := range request {
		if amount < 0 {
			return fmt.Errorf("a request is negative in column %d", column)
		}
	}
	return nil
}

// validateNodes checks sets of nodes.
func (p *Problem) validateNodes(sets [][]int, disjoint bool) error {
	seen := map[int]bool{}
	for i, set := range sets {
		if !disjoint {
			clear(seen)
		}
		for _, node := range set {
			if node < 0 || node >= len(p.Nodes) {
				return fmt.Errorf("set %d has node %d of %d", i, node, len(p.Nodes))
			}
			if seen[node] {
				return fmt.Errorf("set %d has node %d twice, or another set has it", i, node)
			}
			seen[node] = true
		}
	}
	return nil
}
