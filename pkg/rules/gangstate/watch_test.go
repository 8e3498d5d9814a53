package gangstate

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// watch looks over the shoulder of a Gangs: it does what a caller has to do with the effects, as
// far as bookkeeping is concerned, and checks after each input what must be true.
type watch struct {
	s      *Gangs
	fail   func(format string, args ...any)
	ledger map[types.UID]string // the node held for each pod
	// refused are the pods that are outside the active queue and that the queue was not asked to
	// look at since: it did not let them through, or their cycle came to nothing.
	refused map[types.UID]*v1.Pod
	// cycling are the pods from the beginning of a cycle to its end, however it ends; true: the
	// queue was asked to look at them meanwhile.
	cycling map[types.UID]bool
	before  map[types.UID]State
	ran     map[gangspec.Key]bool // gangs that ran before
	// reserving are between Reserve and Permit. Their groups are settled when they
	// come to Permit.
	reserving map[types.UID]bool
}

func newWatch(s *Gangs, fail func(string, ...any)) *watch {
	return &watch{s: s, fail: fail, ledger: map[types.UID]string{}, refused: map[types.UID]*v1.Pod{}, cycling: map[types.UID]bool{}, before: map[types.UID]State{}, reserving: map[types.UID]bool{}}
}

// queue calls Queue as PreEnqueue does.
func (w *watch) queue(pod *v1.Pod) bool {
	_, refusal := w.s.Queue(pod)
	if refusal == "" {
		delete(w.refused, pod.UID)
	} else {
		w.refused[pod.UID] = pod
	}
	return refusal == ""
}

// beginCycle notes that a cycle begins.
func (w *watch) beginCycle(pod *v1.Pod) {
	delete(w.refused, pod.UID)
	w.cycling[pod.UID] = false
}

// visit begins a cycle, and asks what it is for.
func (w *watch) visit(pod *v1.Pod) Cycle {
	w.beginCycle(pod)
	v := w.s.BeginCycle(pod)
	if v.Verdict == Lead {
		w.checkAttempt(v.Attempt)
	}
	return v
}

// checkAttempt checks that an attempt can give each gang what it needs: otherwise it fails, and its gang passes for too
// large.
func (w *watch) checkAttempt(a *Attempt) {
	for _, need := range a.Gangs {
		roles := map[string]int{}
		for _, pod := range need.Pending {
			roles[gangspec.RoleOf(pod)]++
		}
		if need.Min > len(need.Pending) {
			w.fail("gang %s is tried for %d members with %d", need.Key, need.Min, len(need.Pending))
		}
		for role, n := range need.MinByRole {
			if n > roles[role] {
				w.fail("gang %s is tried for %d members of role %s with %d", need.Key, n, role, roles[role])
			}
		}
	}
}

// ended ends a cycle that came to nothing. It returns whether the queue looks at the pod again at
// once. For a pod on its own the queue itself knows what could help it.
func (w *watch) ended(pod *v1.Pod, alone bool) bool {
	woken := w.cycling[pod.UID]
	delete(w.cycling, pod.UID)
	if !woken && !alone {
		w.refused[pod.UID] = pod
		w.checkActivations(Effects{})
	}
	return woken
}

// after applies the effects of an input.
func (w *watch) after(e Effects, accepted map[types.UID]string) {
	for _, hold := range e.Rehold {
		w.ledger[hold.Pod.UID] = hold.Node
	}
	for _, uid := range e.Unhold {
		if _, ok := w.ledger[uid]; !ok {
			w.fail("nothing is held for pod %s, yet it is to be given back", uid)
		}
		delete(w.ledger, uid)
	}
	for uid, node := range accepted {
		if held, ok := w.ledger[uid]; ok {
			w.fail("pod %s is planned onto %s and still holds %s", uid, node, held)
		}
		w.ledger[uid] = node
	}
	w.checkReleases(e)
	w.checkRejects(e)
	w.checkFreed(e)
	w.checkActivations(e)
	w.checkHolds()
	checkState(w.s, w.reserving, w.fail)
	w.before, w.ran = map[types.UID]State{}, map[gangspec.Key]bool{}
	for uid, m := range w.s.members {
		w.before[uid] = m.state
	}
	for key, g := range w.s.gangs {
		w.ran[key] = runs(g, nil)
	}
}

// checkReleases checks the main invariant: a member is released only when every gang of its group
// has its minimum held, released or bound, or when its gang was running already.
func (w *watch) checkReleases(e Effects) {
	fresh := map[types.UID]bool{}
	for _, uid := range e.Release {
		m := w.s.members[uid]
		switch {
		case m == nil || m.state != Released:
			w.fail("pod %s is released, but it is not", uid)
		case w.before[uid] != Released:
			fresh[uid] = true
		case !m.waiting:
			w.fail("pod %s is released again though it does not wait", uid)
		}
	}
	for uid := range fresh {
		m := w.s.members[uid]
		if m == nil || w.ran[m.gang.key] || runs(m.gang, fresh) {
			continue
		}
		for _, g := range m.gang.group.gangs {
			if !runs(g, fresh) && !holds(g, fresh) {
				w.fail("pod %s is released while gang %s has not its minimum", uid, g.key)
			}
		}
	}
}

// runs and holds are satisfied and reached again, counted by hand. What was
// released just now does not make a gang run.
func runs(g *gang, fresh map[types.UID]bool) bool {
	running, done := 0, recount(&g.incarnation).N
	for uid, m := range g.members {
		if (m.state == Released && !fresh[uid]) || staysBound(g, m) {
			running++
		}
	}
	switch {
	case g.spec.Min == 0 || g.spec.Policy == gangspec.OnlyWaiting:
		return false
	case g.spec.Policy == gangspec.WaitingAndRunning:
		return running+done >= g.spec.Min
	default:
		return g.lastMin > 0 && !g.interrupted && running > 0 || done >= g.spec.Min
	}
}

// staysBound reports whether a member runs, and is not on its way out.
func staysBound(g *gang, m *member) bool {
	return m.state == Bound && stays(g, m)
}

// stays reports whether a member is not being deleted, and will not be.
func stays(g *gang, m *member) bool {
	return m.pod.DeletionTimestamp == nil && !ofAnother(g, m.pod) && !g.incarnation.supersedes(gangspec.OriginOf(m.pod))
}

// ofAnother reports whether the PodGroup is of another owner than a pod that is in the gang of its owner.
func ofAnother(g *gang, pod *v1.Pod) bool {
	object := cmp.Or(g.objects[gangspec.Community], g.objects[gangspec.Native])
	named := pod.Annotations[v1alpha1.GangNameAnnotation] != "" || pod.Labels[v1alpha1.PodGroupLabel] != "" || pod.Labels[v1alpha1.PodGroupNameLabel] != ""
	return object != nil && object.Owner != "" && !named && pod.Annotations[v1alpha1.GangAnnotation] != "" && pod.OwnerReferences[0].UID != object.Owner
}

// recount returns what of the members that succeeded belongs to this incarnation, one by one.
func recount(i *incarnation) gangspec.Count {
	var t gangspec.Count
	for _, f := range i.finished {
		if i.includes(f.origin.Controller, f.ended) {
			t.Add(1, f.role)
		}
	}
	for controller, p := range i.parts {
		if p.gone.N > 0 && i.includes(controller, p.gone.earliest) {
			t.AddAll(p.gone.Count, 1)
		}
	}
	return t
}

func holds(g *gang, fresh map[types.UID]bool) bool {
	total, byRole := 0, map[string]int{}
	for uid, m := range g.members {
		counts := m.state == Held || fresh[uid]
		if g.spec.Policy != gangspec.OnlyWaiting {
			counts = counts || m.state == Released || staysBound(g, m)
		}
		if counts {
			total++
			byRole[m.role()]++
		}
	}
	if g.spec.Policy != gangspec.OnlyWaiting {
		done := recount(&g.incarnation)
		total += done.N
		for role, n := range done.Roles {
			byRole[role] += n
		}
	}
	sum := 0
	for _, n := range g.spec.MinByRole {
		sum += n
	}
	if sum <= g.spec.Min {
		for role, n := range g.spec.MinByRole {
			if byRole[role] < n {
				return false
			}
		}
	}
	return g.spec.Min > 0 && total >= g.spec.Min
}

// checkRejects checks that only members that hold something, or are about to give
// it back, are rejected.
func (w *watch) checkRejects(e Effects) {
	for _, uid := range e.Reject {
		was, m := w.before[uid], w.s.members[uid]
		if was != Held && was != Returning && !w.reserving[uid] && (was != Released || m != nil) {
			w.fail("pod %s was not held, yet it is rejected", uid)
		}
		if m != nil && m.state != Returning && m.state != Bound {
			w.fail("pod %s is rejected, but not returning", uid)
		}
	}
	for uid, was := range w.before {
		if m := w.s.members[uid]; was == Held && (m == nil || m.state == Returning) && !slices.Contains(e.Reject, uid) {
			w.fail("pod %s has to give back its node and is not told", uid)
		}
	}
}

// checkFreed checks that Freed is set when capacity is given back.
func (w *watch) checkFreed(e Effects) {
	for uid, was := range w.before {
		m := w.s.members[uid]
		left := m == nil || m.state == Pending || m.state == Returning
		if left && (was == Planned || was == Held || was == Released && m != nil) && !e.Freed {
			w.fail("pod %s has given back its place, and nobody is told", uid)
		}
	}
}

// checkActivations checks that no wake-up is lost: a pod that was refused and may go now is
// activated now.
func (w *watch) checkActivations(e Effects) {
	active := map[types.UID]bool{}
	for _, pod := range e.Activate {
		active[pod.UID] = true
		if _, ok := w.cycling[pod.UID]; ok {
			w.cycling[pod.UID] = true
		}
	}
	for uid, pod := range w.refused {
		if m := w.s.members[uid]; m != nil {
			pod = m.pod
			if m.state != Pending && m.state != Planned {
				continue
			}
		}
		if _, refusal := w.s.Queue(pod); refusal == "" && !active[uid] && pod.Spec.NodeName == "" {
			w.fail("pod %s was refused, may go now, and is not activated", uid)
		}
	}
	for uid := range active {
		delete(w.refused, uid)
	}
}

// checkHolds checks that the ledger holds capacity for the planned members, and for no others:
// Unhold was returned once for each.
func (w *watch) checkHolds() {
	for uid := range w.ledger {
		if m := w.s.members[uid]; m == nil || m.state != Planned || m.node != w.ledger[uid] {
			w.fail("%s is held for pod %s, which is not planned there", w.ledger[uid], uid)
		}
	}
	for uid, m := range w.s.members {
		if _, ok := w.ledger[uid]; m.state == Planned && !ok {
			w.fail("pod %s is planned and nothing is held for it", uid)
		}
	}
}

// checkState checks the state against a plain recount.
func checkState(s *Gangs, reserving map[types.UID]bool, fail func(string, ...any)) {
	members, naming, groups := 0, map[gangspec.Key]map[gangspec.Key]bool{}, map[*group]bool{}
	for key, g := range s.gangs {
		members += len(g.members)
		if !slices.Contains(g.group.gangs, g) {
			fail("gang %s is not in its group", key)
		}
		groups[g.group] = true
		for _, other := range g.spec.Groups {
			if naming[other] == nil {
				naming[other] = map[gangspec.Key]bool{}
			}
			naming[other][key] = true
		}
		checkGang(s, g, fail)
	}
	if members != len(s.members) {
		fail("%d members, but gangs have %d", len(s.members), members)
	}
	if !maps.EqualFunc(naming, s.naming, maps.Equal) {
		fail("naming is %v, want %v", s.naming, naming)
	}
	for grp := range groups {
		settled := true
		for _, g := range grp.gangs {
			for uid := range g.members {
				settled = settled && !reserving[uid]
			}
		}
		checkGroup(s, grp, settled, fail)
	}
	for grp := range s.timed {
		if !groups[grp] {
			fail("group %s is gone and still timed", grp.key())
		}
	}
	if !reflect.ValueOf(s.effects).IsZero() {
		fail("effects were left behind: %+v", s.effects)
	}
}

func checkGang(s *Gangs, g *gang, fail func(string, ...any)) {
	var byState [numStates]gangspec.Count
	var coming, returning gangspec.Count
	describers := 0
	for uid, m := range g.members {
		if s.members[uid] != m || m.gang != g || m.uid() != uid {
			fail("pod %s is not the member it is taken for", uid)
		}
		if gangspec.DescribesGang(m.pod) {
			describers++
		}
		if m.state == Bound && !staysBound(g, m) {
			continue
		}
		byState[m.state].Add(1, m.role())
		free := !m.expired && stays(g, m) && !gangspec.IsUncounted(m.pod) && len(m.losing) == 0
		if free && (m.state == Pending || m.state == Returning) {
			coming.Add(1, m.role())
			if m.state == Returning {
				returning.Add(1, m.role())
			}
		}
		if (m.state == Pending) != (m.node == "") {
			fail("pod %s is in state %d on node %q", uid, m.state, m.node)
		}
		if (m.state == Planned || m.state == Held) && !free {
			fail("pod %s is not to be scheduled, yet a node is held for it", uid)
		}
	}
	counted, there := append(g.byState[:], g.coming, g.returning), append(byState[:], coming, returning)
	if !slices.EqualFunc(counted, there, func(a, b gangspec.Count) bool { return a.N == b.N && maps.Equal(a.Roles, b.Roles) }) {
		fail("gang %s counts %v; there are %v", g.key, counted, there)
	}
	if describers != len(g.describers) || !slices.IsSortedFunc(g.describers, compareDescribers) || g.definer != g.defining() {
		var are []string
		for _, m := range g.describers {
			are = append(are, fmt.Sprintf("%s dying %t defines %t %v %v", m.pod.Name, m.pod.DeletionTimestamp != nil, m.defines, m.index, m.pod.Spec.Priority))
		}
		fail("gang %s: wrong describers: %d say something, in order %v; definer %v, not %v", g.key, describers, are, g.definer, g.defining())
	}
	if g.wasStarted != g.hasStarted() || g.wasStarted != runs(g, nil) {
		fail("gang %s runs: %t, acted upon: %t", g.key, runs(g, nil), g.wasStarted)
	}
	if g.empty() {
		fail("gang %s is empty and not forgotten", g.key)
	}
	if n, want := g.succeeded().N, recount(&g.incarnation).N; n != want {
		fail("gang %s: %d members succeeded in this incarnation, counted %d", g.key, want, n)
	}
	unfinished, controllers := 0, map[types.UID]int{}
	for _, m := range g.members {
		if stays(g, m) {
			unfinished++
			controllers[gangspec.OriginOf(m.pod).Controller]++
		}
	}
	gone, idle := 0, 0
	for controller, p := range g.incarnation.parts {
		if p.unfinished != controllers[controller] {
			fail("gang %s: %d are unfinished of controller %s, counted %d", g.key, controllers[controller], controller, p.unfinished)
		}
		if p.unfinished == 0 && !p.first.IsZero() {
			idle++
		}
		gone += p.gone.N
	}
	if g.incarnation.gone != gone || g.incarnation.idle != idle {
		fail("gang %s: %d are gone, counted %d; %d controllers are idle, counted %d", g.key, gone, g.incarnation.gone, idle, g.incarnation.idle)
	}
	if n := len(g.incarnation.unfinished); n != unfinished {
		fail("gang %s: %d are unfinished, counted %d", g.key, unfinished, n)
	}
	if g.incarnation.madeFor != g.madeFor() {
		fail("gang %s: made for %q, known %q", g.key, g.madeFor(), g.incarnation.madeFor)
	}
	checkSuperseded(g, fail)
	checkBegin(s, g, fail)
}

// checkBegin checks what is known of how a gang began to run.
func checkBegin(s *Gangs, g *gang, fail func(string, ...any)) {
	switch running, whole := g.running(), g.minimumRuns(); {
	case (running > 0) != (g.interrupted || g.lastMin > 0) && !s.closed && g.spec.Min > 0:
		fail("gang %s: %d run, interrupted %t, after %d", g.key, running, g.interrupted, g.lastMin)
	case running > 0 && whole && !g.ranTogether():
		fail("gang %s has its minimum, and has not started", g.key)
	case g.broken.IsZero() != (running == 0 || whole || g.spec.Min == 0 || g.grows()):
		fail("gang %s: %d run, and it is broken since %s", g.key, running, g.broken)
	case running == 0 && g.confirmedMin > 0:
		fail("gang %s does not run, and surely stood with %d", g.key, g.confirmedMin)
	}
}

func checkGroup(s *Gangs, grp *group, settled bool, fail func(string, ...any)) {
	name, able, need := grp.key().String(), s.isComplete(grp), grp.need()
	complain := func(format string, args ...any) {
		fail("group %s, phase %d: %s", name, grp.phase, fmt.Sprintf(format, args...))
	}
	if !slices.EqualFunc(grp.gangs, s.agreeing(grp.gangs[0]), func(a, b *gang) bool { return a == b }) {
		complain("its gangs do not agree")
	}
	switch {
	case !settled:
	case !able && grp.phase != gathering:
		complain("it is not able")
	case !able && grp.holding() > 0:
		complain("it is not able and holds something")
	case able && grp.phase == gathering && (need > 0 || grp.waiting(Planned) > 0):
		complain("it is able and lacks %d", need)
	case (grp.phase == inTurn || grp.phase == awaiting) && need == 0:
		complain("it needs nobody")
	case grp.phase == following && (need > 0 || grp.countIn(Planned) == 0):
		complain("it lacks %d, and %d follow", need, grp.countIn(Planned))
	case grp.phase == awaiting && grp.tried && grp.strict() && grp.holding() > 0:
		complain("it is Strict, has failed, and holds something")
	case grp.releasable() && able && grp.waiting(Held) > 0:
		complain("its minimum is reached and %d wait", grp.waiting(Held))
	}
	if grp.phase != gathering && !s.timed[grp] {
		complain("it is not timed")
	}
	if fresh := (&group{gangs: grp.gangs}).rankOf(); grp.ranked && fresh != grp.rank {
		complain("its rank is %v, known %v", fresh, grp.rank)
	}
	if grp.holding() > 0 && grp.clocks.held.IsZero() {
		complain("it holds something since never")
	}
	if !grp.clocks.held.IsZero() && !s.timed[grp] {
		complain("its wait time does not run")
	}
	checkAdmissions(s, grp, settled, complain)
}

func checkAdmissions(s *Gangs, grp *group, settled bool, complain func(string, ...any)) {
	leaders := 0
	for _, g := range grp.gangs {
		for uid, m := range g.members {
			if (m.state == Pending || m.state == Planned) && m.admitted != s.admissible(m) {
				complain("pod %s is admitted: %t", uid, m.admitted)
			}
			if m.admitted && m.state == Pending && !g.hasStarted() {
				leaders++
				if grp.leader != uid || grp.phase != inTurn {
					complain("pod %s is admitted and does not lead", uid)
				}
			}
		}
	}
	if leaders > 1 || settled && !s.closed && grp.phase == inTurn && leaders == 0 && grp.pickLeader() != nil {
		complain("%d leaders are admitted", leaders)
	}
}
