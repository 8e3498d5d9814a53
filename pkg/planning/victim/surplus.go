package victim

import "slices"

// surplus is how many pods of each role, or of each part, run beyond their minimum. of returns the role, or part.
type surplus struct {
	byName map[string]int
	of     func(Pod) string
}

// surpluses returns the surplus of roles, if they bind, and of parts, if there are any.
func (g *Gang) surpluses() (list []surplus) {
	sum := 0
	for _, n := range g.MinByRole {
		sum += n
	}
	if sum > 0 && g.Min >= sum {
		list = append(list, g.surplus(g.MinByRole, func(p Pod) string { return p.Role }))
	}
	if len(g.MinByPart) > 0 {
		list = append(list, g.surplus(g.MinByPart, func(p Pod) string { return p.Part }))
	}
	return list
}

func (g *Gang) surplus(least map[string]int, of func(Pod) string) surplus {
	s := surplus{byName: map[string]int{}, of: of}
	for name, n := range least {
		s.byName[name] -= n
	}
	for _, pod := range g.Pods {
		s.byName[of(pod)]++
	}
	return s
}

// splitSurplus divides pods of a gang into those beyond its minimum, or all if it is broken, and the rest, in their
// order, except that those that violate a PodDisruptionBudget come last. It spends those beyond the minimum.
func (g *Gang) splitSurplus(pods []Pod, broken bool, spent *spending) (safe, core []Pod) {
	left, bound := len(g.Pods)-g.Min, g.surpluses()
	if broken {
		left, bound = len(pods), nil
	}
	divide := func(pod Pod) {
		if left <= 0 || slices.ContainsFunc(bound, func(s surplus) bool { return s.byName[s.of(pod)] <= 0 }) {
			core = append(core, pod)
			return
		}
		safe = append(safe, pod)
		spent.spend(pod)
		left--
		for _, s := range bound {
			s.byName[s.of(pod)]--
		}
	}
	var violating []Pod
	for _, pod := range pods {
		if spent.violatedBy(pod) {
			violating = append(violating, pod)
		} else {
			divide(pod)
		}
	}
	for _, pod := range violating {
		divide(pod)
	}
	return safe, core
}
