package share

import (
	"cmp"
	"container/heap"
	"math"
	"math/bits"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/util/heaps"
)

// Claim is what one claimant asks of one resource.
type Claim struct {
	// Weight is how fast the claim is filled beside others, from 1 to 2^31-1.
	Weight int64
	// Least is filled before anything is shared by weight; Most is where filling
	// ends. 0 <= Least <= Most.
	Least, Most int64
}

// WaterFill shares out a capacity by water-filling: all claims rise at the speed of their weight, none
// before the level has reached its Least, none beyond its Most. The amounts given add up to the
// capacity, or to all that is claimed if that is less. Where Least adds up to more than the
// capacity, it is filled in the same way from 0.
//
// Units that the weights do not divide go one by one to the claim with the highest weight per unit,
// the unit included (D'Hondt), so that more weight never means less; among equal claims, to the
// first.
func WaterFill(capacity int64, claims []Claim) []int64 {
	capacity = max(capacity, 0)
	left, short := capacity, false
	for _, c := range claims {
		if short = c.Least > left; short {
			break
		}
		left -= c.Least
	}
	if short {
		claims = slices.Clone(claims)
		for i := range claims {
			claims[i].Least, claims[i].Most = 0, claims[i].Least
		}
	}
	return fillTo(capacity, claims)
}

// edge is a level at which a claim begins to rise, or ends: amount/weight. ends is 1 then, and else 0.
type edge struct {
	claim  int
	amount int64
	ends   int
}

// fillTo finds the level that uses up the capacity, which is no less than the sum of
// Least, and returns what each claim has by then.
func fillTo(capacity int64, claims []Claim) []int64 {
	given := make([]int64, len(claims))
	edges := make([]edge, 0, 2*len(claims))
	left := capacity // without what claims hold that do not rise
	for i, c := range claims {
		given[i] = c.Least
		left -= c.Least
		if c.Most > c.Least {
			edges = append(edges, edge{i, c.Least, 0}, edge{i, c.Most, 1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(compareRatios(a.amount, claims[a.claim].Weight, b.amount, claims[b.claim].Weight),
			cmp.Compare(a.ends, b.ends), cmp.Compare(a.claim, b.claim))
	})
	rising := map[int]bool{}
	weight := int64(0) // of the claims that rise
	for _, e := range edges {
		// left is the capacity for the claims that rise, from 0: is it used up before this edge?
		if weight > 0 && compareRatios(left, weight, e.amount, claims[e.claim].Weight) <= 0 {
			break
		}
		if e.ends == 1 {
			delete(rising, e.claim)
			weight -= claims[e.claim].Weight
			given[e.claim] = claims[e.claim].Most
			left -= claims[e.claim].Most
		} else {
			rising[e.claim] = true
			weight += claims[e.claim].Weight
			left += claims[e.claim].Least
		}
	}
	if weight == 0 {
		return given
	}
	rest := left
	for i := range claims {
		if rising[i] {
			given[i] = mulDiv(left, claims[i].Weight, weight)
			rest -= given[i]
		}
	}
	handOut(rest, claims, given)
	return given
}

// handOut gives away the units that the level does not divide: each to the claim that has the highest weight per unit
// with it.
func handOut(units int64, claims []Claim, given []int64) {
	q := &heaps.Heap[int]{Compare: func(i, j int) int {
		return cmp.Or(compareRatios(claims[j].Weight, given[j]+1, claims[i].Weight, given[i]+1), cmp.Compare(i, j))
	}}
	for i, c := range claims {
		if given[i] < c.Most {
			q.Items = append(q.Items, i)
		}
	}
	for heap.Init(q); units > 0 && q.Len() > 0; units-- {
		i := q.Items[0]
		given[i]++
		if given[i] == claims[i].Most {
			heap.Pop(q)
		} else {
			heap.Fix(q, 0)
		}
	}
}

// compareRatios compares a/b with c/d. None is negative, and b and d are not 0.
func compareRatios(a, b, c, d int64) int {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(d))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(b))
	return cmp.Or(cmp.Compare(hi1, hi2), cmp.Compare(lo1, lo2))
}

// mulDiv returns a*b/c, rounded down, and at most math.MaxInt64.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}
