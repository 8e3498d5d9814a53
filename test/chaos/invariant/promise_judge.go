package invariant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// judgePromises checks that what runs on a node, and what is held there for others, is no more than it has.
func (c *Checker) judgePromises(name string, now time.Time) {
	n := c.nodes[name]
	if n == nil || n.gone {
		return
	}
	p := &c.promises
	sum, held := amounts{}, amounts{}
	for _, pod := range p.pods {
		if pod.node == name && !pod.ended {
			sum.add(pod.requests, 1)
		}
	}
	var whose []string
	for _, r := range p.reservations {
		for _, at := range r.Placements {
			if at.Node == name && !r.over(now) {
				if left := p.left(r, at); len(left) > 0 {
					held.add(left, 1)
					whose = append(whose, r.Name)
				}
			}
		}
	}
	sum.add(held, 1)
	var over []string
	for _, resource := range slices.Sorted(maps.Keys(held)) {
		if has := n.allocatable[resource]; held[resource] > 0 && sum[resource] > has {
			over = append(over, fmt.Sprintf("%s %s, %s of it held, of %s", amountText(resource, sum[resource]), resource, amountText(resource, held[resource]), amountText(resource, has)))
		}
	}
	if len(over) > 0 && !p.over[name] {
		slices.Sort(whose)
		c.violate(Promised, "node "+name, now.Format(stamp), *c.pastOf(name), "its pods and Reservations %s ask for %s", strings.Join(whose, ", "), strings.Join(over, "; "))
	}
	p.over[name] = len(over) > 0
}

// promised notes what happens to what is held on a node.
func (c *Checker) promised(node, format string, args ...any) {
	c.note(c.pastOf(node), "held on "+node, format, args...)
}

func (c *Checker) pastOf(node string) *history {
	if c.promises.past[node] == nil {
		c.promises.past[node] = &history{}
	}
	return c.promises.past[node]
}

// standing reports whether any Reservation may hold something, or come to.
func (c *Checker) standing() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.promises.reservations)), func(r *Reserved) bool { return !r.over(c.now) })
}

// HeldPlacements returns how many placements of Reservations hold something.
func (c *Checker) HeldPlacements() int {
	c.settle(true)
	return c.promises.placements(c.now)
}

// endsWithin is how long after its end a Reservation may still have the status of one that stands.
const endsWithin = 5 * time.Second

// CheckReservations checks that the status of all Reservations agrees with what pods do, that those which have run out
// have ended, and that no pod in no gang waits beside what is held for it. held is how many placements the leading
// scheduler reports that it holds; negative if that is not known. It is for a cluster in which nothing happens any
// more.
func (c *Checker) CheckReservations(held int) {
	c.settle(true)
	p := &c.promises
	for _, r := range slices.SortedFunc(maps.Values(p.reservations), func(a, b *Reserved) int { return cmp.Compare(a.Name, b.Name) }) {
		object := "Reservation " + r.Name
		switch {
		case r.Phase == "Failed" || r.Phase == "Succeeded":
			continue
		case !r.Ends.IsZero() && c.now.Sub(r.Ends) > endsWithin:
			c.violate(LeftOver, object, "", nil, "it is %s, and has run out at %s", r.Phase, r.Ends.Format(stamp))
			continue
		}
		owners := 0
		for _, at := range r.Placements {
			asked := amounts{}
			for _, user := range p.used[use{r.UID, at.Index}] {
				if !user.ended && user.node == at.Node {
					owners++
					asked.add(user.requests, 1)
				}
			}
			has, says := amountsOf(at.Allocatable), amountsOf(at.Allocated)
			for name := range has {
				if want := min(has[name], asked[name]); says[name] != want {
					c.violate(StatusLies, object, fmt.Sprint(at.Index, name), *c.pastOf(at.Node), "placement %d says that %s %s is used, and its pods use %s",
						at.Index, amountText(name, says[name]), name, amountText(name, want))
				}
			}
			c.judgeOwnersOf(r, at)
		}
		if owners != r.Owners {
			c.violate(StatusLies, object, "owners", nil, "it says that %d pods use it, and %d do", r.Owners, owners)
		}
	}
	if want := p.placements(c.now); held >= 0 && held != want {
		c.violate(StatusLies, "the scheduler", "placements", nil, "it holds %d placements of Reservations, and their status says %d", held, want)
	}
}

// judgeOwnersOf checks that no pod waits that could use a placement.
func (c *Checker) judgeOwnersOf(r *Reserved, at Placement) {
	n := c.nodes[at.Node]
	if n == nil || n.gone || n.cordoned || r.Phase != "Available" {
		return
	}
	left := c.promises.left(r, at)
	for _, waits := range c.pods {
		if !waits.pending() || !waits.gang.single || !r.owned(waits.identity) {
			continue
		}
		fits := len(left) > 0
		for name, asked := range waits.requests {
			if has, reserved := left[name]; reserved && asked > has || !reserved && asked > n.allocatable[name]-n.used[name] {
				fits = false
			}
		}
		if fits && (waits.wants == "" || waits.wants == r.Name) {
			c.violate(FreeRoom, "pod "+waits.name, r.Name, *c.pastOf(at.Node), "it waits, and Reservation %s holds what it asks for on %s", r.Name, at.Node)
		}
	}
}
