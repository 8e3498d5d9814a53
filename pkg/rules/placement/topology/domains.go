package topology

import (
	"cmp"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// Domain is the nodes, by index in ascending order, that share a label value.
type Domain struct {
	Value string
	Nodes []int
}

// Domains groups nodes by the value that label gives, sorted by value. Only the
// nodes of within are looked at.
func Domains(within []int, label func(node int) (value string, ok bool)) []Domain {
	at := map[string]int{}
	var domains []Domain
	for _, node := range within {
		value, ok := label(node)
		if !ok {
			continue
		}
		i, seen := at[value]
		if !seen {
			i = len(domains)
			at[value] = i
			domains = append(domains, Domain{Value: value})
		}
		domains[i].Nodes = append(domains[i].Nodes, node)
	}
	slices.SortFunc(domains, func(a, b Domain) int { return cmp.Compare(a.Value, b.Value) })
	return domains
}

// Ranked is a domain and how much room it has for a gang.
type Ranked struct {
	Domain
	// Slots estimates how many members it takes, judged by the resource that is scarcest in it.
	Slots int
	// Most bounds from above how many members it takes.
	Most int
}

// TightestFirst orders domains for a gang of need members: 1. the domains that should take it
// whole, first; 2. among them the tightest, among the others the roomiest; 3. value. The tightest
// fit leaves the roomy domains to bigger gangs.
func TightestFirst(domains []Ranked, need int) {
	slices.SortFunc(domains, func(a, b Ranked) int {
		fitsA, fitsB := a.Slots >= need, b.Slots >= need
		bySlots := cmp.Compare(a.Slots, b.Slots)
		if !fitsA {
			bySlots = -bySlots
		}
		return cmp.Or(bools.Compare(fitsB, fitsA), bySlots, cmp.Compare(a.Value, b.Value))
	})
}
