package defrag

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCapacity: of equal members as many gangs fit as the nodes have room for members, and what the last gang, which
// did not fit, had taken is given back.
func TestCapacity(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 500 {
		var free [][]int64
		var domain []int
		for node := range random.IntN(6) {
			free = append(free, []int64{random.Int64N(10), random.Int64N(3)})
			domain = append(domain, node)
		}
		class := Class{Request: []int64{1 + random.Int64N(4), 1}, Count: 1 + random.IntN(4)}
		barred := random.IntN(6)
		members := 0
		for node, has := range free {
			if node != barred {
				members += int(min(has[0]/class.Request[0], has[1]))
			}
		}
		before := slices.Clone(free)
		for node := range before {
			before[node] = slices.Clone(free[node])
		}
		got := Capacity(free, domain, []Class{class}, func(_, node int) bool { return node != barred })
		if got != members/class.Count {
			t.Fatalf("%d gangs of %v fit on %v without node %d, and %d were counted", members/class.Count, class, before, barred, got)
		}
		taken := int64(0)
		for node := range free {
			taken += before[node][1] - free[node][1]
		}
		if taken != int64(got*class.Count) {
			t.Fatalf("%d members take the room of %d", got*class.Count, taken)
		}
	}
	two := []Class{{Request: []int64{4}, Count: 1}, {Request: []int64{1}, Count: 2}}
	free := [][]int64{{5}, {5}, {2}}
	if got := Capacity(free, []int{0, 1, 2}, two, nil); got != 2 || free[0][0]+free[1][0]+free[2][0] != 0 {
		t.Errorf("%d gangs of a leader and two workers fit, %v is left", got, free)
	}
}
