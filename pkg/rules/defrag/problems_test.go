package defrag

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// cluster returns a problem of one resource: for each node its size, and the sizes of its pods: "8:
// 4 2 1". A pod alone costs 1. Sizes may be followed by the letter of a group, as in 2a; groups
// have no pod to spare, and break at 10.
func cluster(t testing.TB, nodes ...string) Problem {
	t.Helper()
	p := Problem{Fits: func(int, int) bool { return true }, FitsMember: func(int, int, int) bool { return true }, Budget: ample}
	groups, kinds := map[string]int{}, map[string]int{}
	for i, text := range nodes {
		capacity, pods, _ := strings.Cut(text, ":")
		free := number(t, capacity)
		for _, word := range strings.Fields(pods) {
			name := strings.TrimLeft(word, "0123456789")
			pod := Pod{Node: i, Request: []int64{number(t, strings.TrimSuffix(word, name))}, Cost: Cost{1}, Group: -1}
			if name != "" {
				if _, ok := groups[name]; !ok {
					groups[name] = len(p.Groups)
					p.Groups = append(p.Groups, Group{Break: Cost{10}})
				}
				pod.Group = groups[name]
			}
			if _, ok := kinds[word]; !ok {
				kinds[word] = len(kinds)
			}
			pod.Kind = kinds[word]
			free -= pod.Request[0]
			p.Pods = append(p.Pods, pod)
		}
		p.Nodes = append(p.Nodes, Node{Free: []int64{free}})
	}
	return p
}

// ample is a budget that bounds nothing in these problems.
var ample = Budget{MaxMoves: 1000, MaxGroups: 1000}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	must.Succeed(t, err)
	return int64(n)
}

// wanting returns a problem where members of these sizes wait for a place in the same domain.
func (p Problem) wanting(domains [][]int, sizes ...int64) Problem {
	part := Part{Domains: domains}
	for i, size := range sizes {
		if i > 0 && size == sizes[i-1] {
			part.Classes[len(part.Classes)-1].Count++
			continue
		}
		part.Classes = append(part.Classes, Class{Request: []int64{size}, Count: 1})
	}
	p.Want = append(p.Want, part)
	return p
}

// nodes returns the nodes from one to another.
func nodes(from, to int) []int {
	var list []int
	for i := from; i <= to; i++ {
		list = append(list, i)
	}
	return list
}

// show describes a plan: moves as size:from>to, with the moves that they are after.
func show(p Problem, plan Plan) string {
	var words []string
	for _, m := range plan.Moves {
		pod := p.Pods[m.Pod]
		word := fmt.Sprintf("%d:%d>%d", pod.Request[0], pod.Node, m.To)
		if len(m.After) > 0 {
			word += fmt.Sprint(" after ", m.After)
		}
		words = append(words, word)
	}
	return fmt.Sprintf("%s; gang on %v; costs %d", strings.Join(words, ", "), plan.Places, plan.Cost[0])
}

// random returns a small problem with nodes in up to two domains.
func random(r *rand.Rand) Problem {
	columns := 1 + r.IntN(8)/7
	p := Problem{Budget: ample}
	count := 2 + r.IntN(4)
	for range count {
		var free []int64
		for range columns {
			free = append(free, int64(r.IntN(5)-r.IntN(2)*r.IntN(2)))
		}
		p.Nodes = append(p.Nodes, Node{free})
	}
	split := 1 + r.IntN(count-1)
	domains := [][]int{nodes(0, split-1), nodes(split, count-1)}
	for range r.IntN(3) {
		g := Group{Spare: r.IntN(2), Break: Cost{int64(r.IntN(4)), 8}}
		if g.Spare > 0 {
			g.Break[0] += 3
		}
		p.Groups = append(p.Groups, g)
	}
	for range r.IntN(3) {
		p.Limits = append(p.Limits, r.IntN(4))
	}
	most := 7
	if count == 5 {
		most = 6
	}
	randomPods(r, &p, 2+r.IntN(most-1))
	randomWant(r, &p, domains)
	if r.IntN(4) == 0 {
		p.Budget.MaxMoves = 1 + r.IntN(4)
	}
	if r.IntN(6) == 0 {
		p.Budget.MaxGroups = []int{0, ample.MaxGroups, 1}[r.IntN(3)]
	}
	banned, bannedMember := r.Uint64()&r.Uint64()&r.Uint64(), r.Uint64()&r.Uint64()&r.Uint64()
	p.Fits = func(pod, node int) bool { return banned>>((p.Pods[pod].Kind*5+node)%64)&1 == 0 }
	p.FitsMember = func(part, class, node int) bool {
		for p.Want[part].Twin {
			part--
		}
		return bannedMember>>((part*20+class*7+node)%64)&1 == 0
	}
	return p
}

// randomPods adds pods, some of them alike.
func randomPods(r *rand.Rand, p *Problem, count int) {
	for i := range count {
		node := r.IntN(len(p.Nodes))
		if i > 0 && r.IntN(3) == 0 {
			pod := p.Pods[r.IntN(i)]
			pod.Node = node
			p.Pods = append(p.Pods, pod)
			continue
		}
		pod := Pod{Node: node, Group: r.IntN(len(p.Groups)+1) - 1, Kind: i, Cost: Cost{int64(r.IntN(3)), int64(r.IntN(3))}}
		for range len(p.Nodes[0].Free) {
			pod.Request = append(pod.Request, int64(r.IntN(4)))
		}
		pod.Request[0]++
		for limit := range p.Limits {
			if r.IntN(3) == 0 {
				pod.Limits = append(pod.Limits, limit)
			}
		}
		p.Pods = append(p.Pods, pod)
	}
}

// randomWant adds a gang that waits.
func randomWant(r *rand.Rand, p *Problem, domains [][]int) {
	if r.IntN(4) == 0 {
		randomSlices(r, p, domains)
		return
	}
	for range 1 + r.IntN(5)/4 {
		part := Part{Domains: domains}
		if r.IntN(3) == 0 {
			part.Domains = [][]int{nodes(0, len(p.Nodes)-1)}
		}
		for range 1 + r.IntN(4)/3 {
			class := Class{Count: 1 + r.IntN(2)*r.IntN(3)}
			for range len(p.Nodes[0].Free) {
				class.Request = append(class.Request, int64(r.IntN(4)))
			}
			class.Request[0] = 2 + int64(r.IntN(4))
			part.Classes = append(part.Classes, class)
		}
		p.Want = append(p.Want, part)
	}
}

// randomSlices adds a gang in slices of one size, each on a node or two, all of them in one domain.
func randomSlices(r *rand.Rand, p *Problem, domains [][]int) {
	part := Part{Classes: []Class{{Count: 1 + r.IntN(2)}}}
	for range len(p.Nodes[0].Free) {
		part.Classes[0].Request = append(part.Classes[0].Request, int64(r.IntN(3)))
	}
	part.Classes[0].Request[0] = 1 + int64(r.IntN(3))
	join := Join{Name: 7}
	for area, nodes := range domains {
		for len(nodes) > 0 {
			n := min(len(nodes), 1+r.IntN(2))
			part.Domains, join.Area = append(part.Domains, nodes[:n]), append(join.Area, area)
			nodes = nodes[n:]
		}
	}
	if r.IntN(3) > 0 {
		part.Joins = []Join{join}
	}
	for i := range 2 + r.IntN(2) {
		part.Twin = i > 0
		p.Want = append(p.Want, part)
	}
}
