package gang

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// gang is the members that agree on a key, and what is known of their wishes.
type gang struct {
	key     Key
	group   *group
	members map[types.UID]*member
	// succeeded are the owners of members that ran to success; they still count.
	succeeded map[types.UID]types.UID
	// owner is the controller of the newest member: only what succeeded under
	// the same one counts, so that a job that is run again starts as a gang.
	owner types.UID

	objects [2]*described // community PodGroup, native PodGroup
	spec    Spec
	// definer is the member whose annotations define the gang, if any.
	definer *member

	// Counts over members, kept by enter and leave.
	count  [numStates]int
	ready  int // eligible ones
	byRole map[string]*roleCount
	// failure is why the last attempt to place the gang failed, for users; empty
	// where none failed since it was last complete.
	failure string
	told    map[Problem]bool
	// ran is what satisfied said when it was last acted upon.
	ran bool
}

// described is an object that describes the gang.
type described struct {
	Object
	created time.Time
}

type roleCount struct {
	placed, ready int
}

// placed tells whether a state counts as having a node.
func (s State) placed() bool {
	return s == Planned || s == Held || s == Released || s == Bound
}

// enter and leave keep the counts; every change of a member stands between them.
func (g *gang) enter(m *member) { g.tally(m, 1) }
func (g *gang) leave(m *member) { g.tally(m, -1) }

func (g *gang) tally(m *member, by int) {
	g.count[m.state] += by
	if m.eligible() {
		g.ready += by
	}
	role := m.role()
	if role == "" {
		return
	}
	count := g.byRole[role]
	if count == nil {
		count = &roleCount{}
		g.byRole[role] = count
	}
	if m.state.placed() {
		count.placed += by
	}
	if m.eligible() {
		count.ready += by
	}
}

// change applies f to m and keeps the counts.
func (g *gang) change(m *member, f func()) {
	g.leave(m)
	f()
	g.enter(m)
}

// succeededCount counts the members that ran to success under the same owner.
func (g *gang) succeededCount() int {
	n := 0
	for _, owner := range g.succeeded {
		if owner == g.owner {
			n++
		}
	}
	return n
}

// satisfied tells whether members may go alone: the gang runs already. It is
// derived from what is bound or binding, so it survives a restart, and it ends
// when all pods are gone.
func (g *gang) satisfied() bool {
	if g.spec.Min == 0 {
		return false
	}
	running := g.count[Released] + g.count[Bound]
	switch g.spec.Policy {
	case OnlyWaiting:
		return false
	case WaitingAndRunning:
		return running+g.succeededCount() >= g.spec.Min
	default:
		return running > 0
	}
}

// have counts what a plan can build on: members that have a node, or had one to
// the end.
func (g *gang) have() int {
	waiting := g.count[Planned] + g.count[Held]
	if g.spec.Policy == OnlyWaiting {
		return waiting
	}
	return waiting + g.count[Released] + g.count[Bound] + g.succeededCount()
}

// reached tells whether the gang could be released: its minimum is held,
// released or bound. Planned members do not count: they hold capacity, but the
// scheduler has not yet checked them on their node.
func (g *gang) reached() bool {
	if g.satisfied() {
		return true
	}
	return g.spec.Min > 0 && g.have()-g.count[Planned] >= g.spec.Min && len(g.missingRoles(false)) == 0 && g.rolesHeld()
}

// rolesHeld is missingRoles with planned members left out; it is only asked
// when the rest is reached, so a scan is fine.
func (g *gang) rolesHeld() bool {
	if !g.enforceRoles() || g.count[Planned] == 0 {
		return true
	}
	held := map[string]int{}
	for _, m := range g.members {
		if m.state != Planned && m.state.placed() {
			held[m.role()]++
		}
	}
	for role, n := range g.spec.MinByRole {
		if held[role] < n {
			return false
		}
	}
	return true
}

// enforceRoles: a gang whose minimum is below the sum of its role minimums is
// elastic, and its roles do not bind it (seed 000, section 3.2.1).
func (g *gang) enforceRoles() bool {
	sum := 0
	for _, n := range g.spec.MinByRole {
		sum += n
	}
	return sum > 0 && g.spec.Min >= sum
}

// missingRoles tells what each role lacks; withReady counts members that could
// be placed as there.
func (g *gang) missingRoles(withReady bool) map[string]int {
	if !g.enforceRoles() {
		return nil
	}
	missing := map[string]int{}
	for role, n := range g.spec.MinByRole {
		if count := g.byRole[role]; count != nil {
			n -= count.placed
			if withReady {
				n -= count.ready
			}
		}
		if n > 0 {
			missing[role] = n
		}
	}
	return missing
}

// need is the number of members that a plan has to place.
func (g *gang) need() int {
	if g.satisfied() {
		return 0
	}
	return max(0, g.spec.Min-g.have())
}

// complete tells whether a round could reach the minimum, and if not, what is
// awaited.
func (g *gang) complete() (bool, string) {
	switch {
	case g.spec.Min == 0:
		return false, g.undefined()
	case g.satisfied():
		return true, ""
	}
	// Members that give back a node will be eligible again.
	if have := g.have() + g.ready + g.count[Returning]; have < g.spec.Min {
		return false, g.incomplete(have)
	}
	if missing := g.missingRoles(true); len(missing) > 0 {
		var parts []string
		for _, role := range slices.Sorted(maps.Keys(missing)) {
			parts = append(parts, fmt.Sprintf("%d more of role %s", missing[role], role))
		}
		return false, fmt.Sprintf("gang %q lacks %s", g.key, strings.Join(parts, ", "))
	}
	return true, ""
}

func (g *gang) incomplete(have int) string {
	message := fmt.Sprintf("gang %q has %d of %d members", g.key, have, g.spec.Min)
	var aside []string
	if n := g.expired(); n > 0 {
		aside = append(aside, fmt.Sprintf("%d timed out: remove the annotation %s from them, or replace them", n, v1alpha1.TimeoutAnnotation))
	}
	if n := g.gated(); n > 0 {
		aside = append(aside, fmt.Sprintf("%d with scheduling gates", n))
	}
	if len(aside) > 0 {
		message += " (and " + strings.Join(aside, "; ") + ")"
	}
	return message
}

func (g *gang) undefined() string {
	if g.source() == FromAnnotation {
		return fmt.Sprintf("gang %q has no minimum: set the annotation %s on its pods", g.key, v1alpha1.MinAvailableAnnotation)
	}
	return fmt.Sprintf("gang %q has no minimum: its PodGroup does not exist", g.key)
}

// source is the way by which its members joined; of several, the first in order.
func (g *gang) source() Source {
	source := FromSchedulingGroup
	for _, m := range g.members {
		if _, s, ok := KeyOf(m.pod); ok {
			source = min(source, s)
		}
	}
	return source
}

func (g *gang) expired() int {
	n := 0
	for _, m := range g.members {
		if m.expired && m.state == Pending {
			n++
		}
	}
	return n
}

func (g *gang) gated() int {
	n := 0
	for _, m := range g.members {
		if m.state == Pending && len(m.pod.Spec.SchedulingGates) > 0 {
			n++
		}
	}
	return n
}

// created is when the gang came to be: its object, else its oldest member.
func (g *gang) created() time.Time {
	for _, object := range g.objects {
		if object != nil {
			return object.created
		}
	}
	var first time.Time
	for _, m := range g.members {
		if created := m.pod.CreationTimestamp.Time; first.IsZero() || created.Before(first) {
			first = created
		}
	}
	return first
}

// sorted lists the members that pass the test, in their order.
func (g *gang) sorted(test func(*member) bool) []*member {
	var out []*member
	for _, m := range g.members {
		if test(m) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, compareMembers)
	return out
}

func (g *gang) empty() bool {
	return len(g.members) == 0 && g.objects[0] == nil && g.objects[1] == nil && len(g.succeeded) == 0
}

func podsOf(members []*member) []*v1.Pod {
	pods := make([]*v1.Pod, len(members))
	for i, m := range members {
		pods[i] = m.pod
	}
	return pods
}
