package victim

// Budget is what evictions use up: what a queue may lose before it has less than it
// deserves, for example. It is asked once for every candidate, the most preferred first,
// and keeps count.
type Budget interface {
	// Take asks to evict these pods of a gang. It grants all of them or none.
	Take(gang *Gang, pods []Pod) bool
}

// validate leaves of sorted bundles what the budget grants: Safe bundles shrink, Whole
// ones stand or fall. A gang of which a Safe pod has to stay does not go whole: that pod
// would be all that is left of it.
func validate(need Vector, bundles []Bundle, budget Budget) []Bundle {
	var valid []Bundle
	shrunk := map[string]bool{}
	for _, b := range bundles {
		if b.Kind == Whole {
			if !shrunk[b.Gang.ID] && budget.Take(b.Gang, b.Pods) {
				valid = append(valid, b)
			}
			continue
		}
		var granted []Pod
		for i := range b.Pods {
			if budget.Take(b.Gang, b.Pods[i:i+1]) {
				granted = append(granted, b.Pods[i])
			}
		}
		shrunk[b.Gang.ID] = shrunk[b.Gang.ID] || len(granted) < len(b.Pods)
		if len(granted) > 0 {
			b.Pods = granted
			valid = append(valid, makeBundle(need, b))
		}
	}
	return valid
}
