package victim

// Budget is what evictions use up, such as what a queue may lose before it has less than it deserves. It keeps count of
// what it granted. What it refuses it would also refuse if it had granted more.
type Budget interface {
	// Take asks to evict these pods of a gang. It grants all of them or none.
	Take(gang *Gang, pods []Pod) bool
	// Return gives back pods that were granted together.
	Return(gang *Gang, pods []Pod)
}

// wouldGrant reports whether a budget would grant pods beside what it has granted.
func wouldGrant(budget Budget, gang *Gang, pods []Pod) bool {
	if !budget.Take(gang, pods) {
		return false
	}
	budget.Return(gang, pods)
	return true
}

// affordable returns, of sorted bundles, what the budget would grant if nothing else were evicted: Safe bundles shrink,
// Whole ones are in with all pods of their gang or out. If a Safe pod of a gang must stay, the gang does not go whole:
// that pod would be all that is left of it.
func affordable(need Vector, bundles []Bundle, budget Budget) []Bundle {
	var list []Bundle
	for _, b := range bundles {
		if b.Kind == Whole {
			if wouldGrant(budget, b.Gang, b.Gang.Pods) {
				list = append(list, b)
			}
			continue
		}
		var granted []Pod
		for i := range b.Pods {
			if wouldGrant(budget, b.Gang, b.Pods[i:i+1]) {
				granted = append(granted, b.Pods[i])
			}
		}
		if len(granted) > 0 {
			b.Pods = granted
			list = append(list, makeBundle(need, b))
		}
	}
	return list
}
