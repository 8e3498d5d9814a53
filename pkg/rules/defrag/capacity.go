package defrag

// mostGangs is how many gangs are counted at most.
const mostGangs = 10000

// Capacity returns how many gangs of some classes fit on the nodes of a domain, one after the other, at most 10000:
// by arithmetic, and by which nodes members of a class may use; nil means all. Exact for one class; for several it
// is what first fit finds. What the gangs take is taken from free.
func Capacity(free [][]int64, domain []int, classes []Class, fits func(class, node int) bool) int {
	count := 0
	at := make([]int, len(classes)) // a node without room now has none later: each class goes through the nodes once
	type use struct{ class, node int }
	var taken []use
	for count < mostGangs {
		taken = taken[:0]
		for class, c := range classes {
			for range c.Count {
				for ; at[class] < len(domain); at[class]++ {
					if node := domain[at[class]]; Fits(free[node], c.Request) && (fits == nil || fits(class, node)) {
						break
					}
				}
				if at[class] == len(domain) {
					for _, one := range taken {
						give(free[one.node], classes[one.class].Request)
					}
					return count
				}
				node := domain[at[class]]
				take(free[node], c.Request)
				taken = append(taken, use{class, node})
			}
		}
		if len(taken) == 0 {
			return mostGangs // there is room for any number of gangs without members
		}
		count++
	}
	return count
}
