package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// cycle is one scheduling cycle of a pod.
func (c *cluster) cycle(pod *v1.Pod) {
	if c.nodeless {
		c.beginCycle(pod)
		c.do(c.s.EndedEarly(pod, NoNodes, c.now))
		c.park(pod.UID, false)
		return
	}
	c.turns.BeginCycle()
	v := c.visit(pod)
	if v.Verdict == Lead {
		c.turns.Begin(v.Group, c.now)
	}
	c.after(Effects{}, nil)
	if what := c.between[pod.UID]; what != nil {
		delete(c.between, pod.UID)
		what()
	}
	switch v.Verdict {
	case Wait:
		if v.Reason == "" {
			c.fail("pod %s waits for no reason", pod.UID)
		}
		c.park(pod.UID, false)
	case Outside, Alone:
		if node := c.fit(pod, c.used()); node != "" {
			c.reserve(pod.UID, node)
		} else {
			c.park(pod.UID, true)
		}
	case Follow:
		c.follow(pod, v.Node)
	case Lead:
		rivals, o := c.plan(v.Attempt)
		c.attempts = append(c.attempts, attempted{v.Attempt, o})
		c.now = c.now.Add(o.Cost)
		accepted, e := c.s.Planned(v.Attempt, o, c.now)
		c.doPlan(e, accepted)
		c.do(c.s.Yield(rivals))
		if node := accepted[pod.UID]; o.Complete && node != "" {
			c.follow(pod, node)
		} else {
			c.park(pod.UID, false)
		}
	}
}

// park ends a cycle that came to nothing.
func (c *cluster) park(id types.UID, alone bool) {
	pod := c.pods[id]
	if pod == nil {
		delete(c.at, id)
		delete(c.cycling, id)
		return
	}
	c.at[id] = parked
	if c.ended(pod, alone) {
		c.offer(id)
	}
}

func (c *cluster) follow(pod *v1.Pod, node string) {
	used := c.used()
	used[node] -= sizeOf(pod) // held for the pod itself
	for _, claim := range NamedClaims(pod) {
		if other, busy := c.claiming[claim]; busy {
			c.fail("pod %s comes for claim %s while it is allocated or reserved for %s", pod.UID, claim.Name, other)
		}
	}
	if c.fits(pod, node, used) && pod.UID != c.spoiled {
		c.reserve(pod.UID, node)
		return
	}
	c.do(c.s.Unreserved(pod.UID, c.now))
	c.park(pod.UID, false)
}

func (c *cluster) reserve(id types.UID, node string) {
	c.node[id] = node
	c.reserving[id] = true
	c.do(c.s.Reserved(id, node, c.now))
	delete(c.reserving, id)
	c.at[id] = held
	wait, ahead, e := c.s.Permitted(id, c.now)
	if !wait {
		c.bind(id)
	} else if ahead {
		c.goAhead(id)
	}
	c.do(e)
}

// goAhead makes the calls for the claims of a pod, which waits then.
func (c *cluster) goAhead(id types.UID) {
	for _, claim := range NamedClaims(c.pods[id]) {
		c.claiming[claim] = id
	}
	c.tasks = append(c.tasks, func() {
		c.endClaiming(id)
		c.do(c.s.Through(id))
	})
}

func (c *cluster) endClaiming(id types.UID) {
	maps.DeleteFunc(c.claiming, func(_ types.NamespacedName, of types.UID) bool { return of == id })
}

// bind is the binding of a pod: it goes through, or fails as often as the test wants.
func (c *cluster) bind(id types.UID) {
	c.at[id] = going
	c.tasks = append(c.tasks, func() {
		pod := c.pods[id]
		if pod == nil || c.refuse[id] > 0 {
			c.refuse[id]--
			c.unreserve(id)
			return
		}
		c.do(c.s.BoundTo(id, c.now))
		c.add(edit(pod, on(c.node[id])))
	})
}

func (c *cluster) unreserve(id types.UID) {
	c.at[id] = going
	c.tasks = append(c.tasks, func() {
		delete(c.node, id)
		c.endClaiming(id)
		c.do(c.s.Unreserved(id, c.now))
		c.park(id, false)
		c.changed()
	})
}

func sizeOf(pod *v1.Pod) int {
	if n, err := strconv.Atoi(pod.Labels[sizeLabel]); err == nil {
		return n
	}
	return 1
}

// used returns what is taken of the nodes, by pods and by what is held.
func (c *cluster) used() map[string]int {
	used := map[string]int{}
	for id, node := range c.node {
		if pod := c.pods[id]; pod != nil {
			used[node] += sizeOf(pod)
		}
	}
	for id, node := range c.ledger {
		used[node] += sizeOf(c.s.members[id].pod)
	}
	return used
}

func (c *cluster) fits(pod *v1.Pod, node string, used map[string]int) bool {
	if want, ok := pod.Labels[nodeLabel]; ok && want != node {
		return false
	}
	return used[node]+sizeOf(pod) <= c.room[node]
}

func (c *cluster) fit(pod *v1.Pod, used map[string]int) string {
	for _, node := range slices.Sorted(maps.Keys(c.room)) {
		if c.fits(pod, node, used) {
			return node
		}
	}
	return ""
}

// plan places an attempt, without and then with what its rivals hold. It returns those that have to give that back.
func (c *cluster) plan(a *Attempt) ([]string, Outcome) {
	o := c.try(a, nil)
	if o.Complete {
		return nil, o
	}
	if fresh := a.Fresh; fresh != nil {
		if better := c.try(fresh, []string{a.Group}); better.Complete {
			better.FromScratch = true
			return nil, better
		}
	}
	rivals := outranked(c.s, a)
	for n := 1; n <= len(rivals); n++ {
		if better := c.try(a, rivals[:n]); better.Complete {
			return rivals[:n], better
		}
	}
	return nil, o
}

func (c *cluster) try(a *Attempt, evict []string) Outcome {
	used := c.used()
	for id, node := range c.ledger {
		if m := c.s.members[id]; slices.Contains(evict, m.gang.group.key().String()) {
			used[node] -= sizeOf(m.pod)
		}
	}
	o := Outcome{Nodes: map[types.UID]string{}, Complete: true, Why: map[gangspec.Key]string{}, Cost: c.costOf(a), Hopeless: c.hopeless[a.Group]}
	for _, need := range a.Gangs {
		fit, roles := 0, maps.Clone(need.MinByRole)
		for _, pod := range need.Pending {
			if node := c.fit(pod, used); node != "" {
				used[node] += sizeOf(pod)
				o.Nodes[pod.UID] = node
				roles = less(roles, gangspec.RoleOf(pod))
				fit++
				o.Fit++
			}
		}
		if fit < need.Min || len(roles) > 0 {
			o.Complete = false
			o.Shape = shapeOf(a)
			o.Why[need.Key] = fmt.Sprintf("gang %q: %d of %d members fit", need.Key, fit, need.Min)
		}
	}
	return o
}

func (c *cluster) costOf(a *Attempt) time.Duration {
	if c.dear != "" && c.dear != a.Group {
		return 0
	}
	return c.cost
}

// shapeOf returns the shape of an attempt for one gang of equal members that may go anywhere.
func shapeOf(a *Attempt) turns.Shape {
	need := a.Gangs[0]
	if len(a.Gangs) > 1 || len(need.MinByRole) > 0 || len(need.Pending) == 0 {
		return turns.Shape{}
	}
	for _, pod := range need.Pending {
		if sizeOf(pod) != sizeOf(need.Pending[0]) || pod.Labels[nodeLabel] != "" {
			return turns.Shape{}
		}
	}
	return turns.Shape{Key: 1, Members: need.Min, Request: resource.Vector{"size": int64(sizeOf(need.Pending[0]))}}
}

// less counts one of a role as placed.
func less(roles map[string]int, role string) map[string]int {
	if roles[role] > 1 {
		roles[role]--
	} else {
		delete(roles, role)
	}
	return roles
}
