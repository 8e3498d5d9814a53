package defrag

import (
	"errors"
	"fmt"
	"slices"
)

// check reports why a plan of Best must not be carried out. It does not check whether the plan is
// cheap, nor whether moves could be left out.
func (p *Problem) check(plan Plan) error {
	if err := p.checkPlaces(plan); err != nil {
		return err
	}
	return p.checkMoves(plan)
}

// checkPlaces checks that every member has a place that it may have.
func (p *Problem) checkPlaces(plan Plan) error {
	if len(plan.Places) != len(p.Want) || len(plan.Domain) != len(p.Want) {
		return fmt.Errorf("%d parts have a place and %d a domain, of %d", len(plan.Places), len(plan.Domain), len(p.Want))
	}
	areas := map[int]int{}
	for i, part := range p.Want {
		if plan.Domain[i] < 0 || plan.Domain[i] >= len(part.Domains) {
			return fmt.Errorf("part %d is in domain %d of %d", i, plan.Domain[i], len(part.Domains))
		}
		if len(plan.Places[i]) != len(part.Classes) {
			return fmt.Errorf("part %d: %d classes have a place, of %d", i, len(plan.Places[i]), len(part.Classes))
		}
		for _, join := range part.Joins {
			area, chosen := areas[join.Name]
			if areas[join.Name] = join.Area[plan.Domain[i]]; chosen && area != areas[join.Name] {
				return fmt.Errorf("part %d is in area %d of join %d, others are in %d", i, areas[join.Name], join.Name, area)
			}
		}
		domain := part.Domains[plan.Domain[i]]
		for j, class := range part.Classes {
			if len(plan.Places[i][j]) != class.Count {
				return fmt.Errorf("part %d class %d: %d members have a place, of %d", i, j, len(plan.Places[i][j]), class.Count)
			}
			for _, node := range plan.Places[i][j] {
				if !slices.Contains(domain, node) || !p.FitsMember(i, j, node) {
					return fmt.Errorf("part %d class %d: a member may not be on node %d", i, j, node)
				}
			}
		}
	}
	return nil
}

// checkMoves checks the moves, one by one and together.
func (p *Problem) checkMoves(plan Plan) error {
	moved := map[int]bool{}
	for i, m := range plan.Moves {
		if m.Pod < 0 || m.Pod >= len(p.Pods) || m.To < 0 || m.To >= len(p.Nodes) {
			return fmt.Errorf("move %d: no pod %d or no node %d", i, m.Pod, m.To)
		}
		if moved[m.Pod] || m.To == p.Pods[m.Pod].Node {
			return fmt.Errorf("move %d: pod %d moves twice, or not at all", i, m.Pod)
		}
		if !p.Fits(m.Pod, m.To) {
			return fmt.Errorf("move %d: pod %d may not be on node %d", i, m.Pod, m.To)
		}
		moved[m.Pod] = true
	}
	if cost := p.cost(plan.Moves); cost != plan.Cost {
		return fmt.Errorf("the plan costs %v, and says %v", cost, plan.Cost)
	}
	if err := p.checkBounds(plan.Moves); err != nil {
		return err
	}
	if !p.membersFit(plan.Places, plan.Moves) {
		return errors.New("no room for all members in the end")
	}
	return p.checkOrder(plan)
}

// checkBounds checks budget and limits.
func (p *Problem) checkBounds(moves []Move) error {
	groups := map[int]bool{}
	for _, m := range moves {
		pod := p.Pods[m.Pod]
		if pod.Group >= 0 {
			groups[pod.Group] = true
		}
		if p.barred(&pod) {
			return fmt.Errorf("pod %d moves, and one of its limits lets none", m.Pod)
		}
	}
	if len(moves) > p.Budget.MaxMoves {
		return fmt.Errorf("%d pods move, more than the budget", len(moves))
	}
	if len(groups) > p.Budget.MaxGroups {
		return fmt.Errorf("pods of %d groups move, more than the budget", len(groups))
	}
	return nil
}

// checkOrder checks that each move has room if, of the moves that leave its target, only those that it comes after are
// done (and those that these come after), and all that come to its target earlier; and that moves which share a limit
// take turns. So any order that respects After works, including the plan's own.
func (p *Problem) checkOrder(plan Plan) error {
	free := p.free(plan.Places)
	before, sharing := make([]map[int]bool, len(plan.Moves)), map[int][]int{}
	for i, m := range plan.Moves {
		before[i] = map[int]bool{}
		for _, j := range m.After {
			if j < 0 || j >= i {
				return fmt.Errorf("move %d is after move %d, which does not come before", i, j)
			}
			before[i][j] = true
			for k := range before[j] {
				before[i][k] = true
			}
		}
		for _, limit := range p.Pods[m.Pod].Limits {
			if j := turn(sharing[limit], p.Limits[limit]); j >= 0 && !before[i][j] {
				return fmt.Errorf("move %d is not after move %d, and limit %d allows %d at a time", i, j, limit, p.Limits[limit])
			}
			sharing[limit] = append(sharing[limit], i)
		}
		here := slices.Clone(free[m.To])
		for j, other := range plan.Moves[:i] {
			if other.To == m.To {
				take(here, p.Pods[other.Pod].Request)
			}
			if before[i][j] && p.Pods[other.Pod].Node == m.To {
				give(here, p.Pods[other.Pod].Request)
			}
		}
		if !Fits(here, p.Pods[m.Pod].Request) {
			return fmt.Errorf("move %d: no room for pod %d on node %d at its turn", i, m.Pod, m.To)
		}
	}
	return nil
}
