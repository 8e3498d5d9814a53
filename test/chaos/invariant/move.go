package invariant

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Migration is what matters of a PodMigration.
type Migration struct {
	// Key is namespace/name.
	Key string
	UID types.UID
	// Pod is the pod that it moves.
	Pod types.UID
	// Phase is how far it is; Succeeded and Failed are final. Reason and Message are why.
	Phase, Reason, Message string
	// Reserved: its target was held. Evicted: it has evicted the pod.
	Reserved, Evicted bool
}

func (m *Migration) ended() bool { return m.Phase == "Succeeded" || m.Phase == "Failed" }

// Plan is what matters of a DefragmentationPlan.
type Plan struct {
	Name string
	UID  types.UID
	// Phase is how far it is; Succeeded and Failed are final. Reason and Message are why.
	Phase, Reason, Message string
	// Moves is how many there are.
	Moves int
}

func (p *Plan) ended() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

type (
	// MigrationSeen is a PodMigration that was created or changed, PlanSeen such a DefragmentationPlan.
	MigrationSeen struct{ Migration Migration }
	PlanSeen      struct{ Plan Plan }
	// MigrationGone, PlanGone are ones that are no more.
	MigrationGone struct{ UID types.UID }
	PlanGone      struct{ UID types.UID }
)

// moves are the pods that are moved to make room for others. Migrations and plans stay known when they are gone.
type moves struct {
	migrations map[types.UID]*Migration
	plans      map[types.UID]*Plan
	// there are the migrations and plans that still exist.
	there map[types.UID]bool
	// byPod are the migrations by the pod that they move.
	byPod map[types.UID][]*Migration
	// evicted are the pods that were evicted by the Eviction API, and not judged yet.
	evicted map[types.UID]*evictedPod
	seen    map[types.UID]bool
}

type evictedPod struct {
	pod *pod
	at  moment
}

func newMoves() moves {
	return moves{
		migrations: map[types.UID]*Migration{}, plans: map[types.UID]*Plan{}, there: map[types.UID]bool{}, byPod: map[types.UID][]*Migration{},
		evicted: map[types.UID]*evictedPod{}, seen: map[types.UID]bool{},
	}
}

// ends counts plans and migrations by how they ended.
func (m *moves) ends() (plans, migrations map[string]int) {
	plans, migrations = map[string]int{}, map[string]int{}
	name := func(phase, reason string) string {
		if phase == "Failed" {
			return phase + " " + reason
		}
		return phase
	}
	for _, p := range m.plans {
		plans[name(p.Phase, p.Reason)]++
	}
	for _, one := range m.migrations {
		migrations[name(one.Phase, one.Reason)]++
	}
	return plans, migrations
}

func (o MigrationSeen) apply(c *Checker) {
	m := &c.moves
	now := o.Migration
	before := m.migrations[now.UID]
	m.there[now.UID] = true
	if before == nil {
		m.migrations[now.UID] = &now
		m.byPod[now.Pod] = append(m.byPod[now.Pod], &now)
		c.log("migration "+now.Key, "made")
		return
	}
	if before.Phase != now.Phase || before.Reason != now.Reason {
		c.log("migration "+now.Key, "%s %s: %s", now.Phase, now.Reason, now.Message)
	}
	if before.ended() && before.Phase != now.Phase {
		c.violate(StatusLies, "migration "+now.Key, "", nil, "it was %s, and is %s", before.Phase, now.Phase)
	}
	reserved := before.Reserved // a hold is given back in the end
	*before = now
	before.Reserved = before.Reserved || reserved
}

func (o MigrationGone) apply(c *Checker) { delete(c.moves.there, o.UID) }

func (o PlanSeen) apply(c *Checker) {
	now := o.Plan
	before := c.moves.plans[now.UID]
	c.moves.there[now.UID], c.moves.plans[now.UID] = true, &now
	switch {
	case before == nil || before.Phase != now.Phase || before.Reason != now.Reason:
		c.log("plan "+now.Name, "%s %s, %d moves: %s", now.Phase, now.Reason, now.Moves, now.Message)
	}
	if before != nil && before.ended() && before.Phase != now.Phase {
		c.violate(StatusLies, "plan "+now.Name, "", nil, "it was %s, and is %s", before.Phase, now.Phase)
	}
}

func (o PlanGone) apply(c *Checker) { delete(c.moves.there, o.UID) }

// byEvictionAPI is the reason of pods that the Eviction API has deleted.
const byEvictionAPI = "EvictionByEvictionAPI"

// seeMoved takes in that a pod is being deleted, perhaps by the Eviction API: in a run only migrations use it.
func (c *Checker) seeMoved(p *pod, seen *v1.Pod) {
	if !c.config.Moves || c.moves.seen[p.uid] || seen.DeletionTimestamp == nil {
		return
	}
	if !slices.ContainsFunc(seen.Status.Conditions, func(one v1.PodCondition) bool {
		return one.Type == v1.DisruptionTarget && one.Status == v1.ConditionTrue && one.Reason == byEvictionAPI
	}) {
		return
	}
	c.moves.seen[p.uid] = true
	c.moves.evicted[p.uid] = &evictedPod{p, c.moment()}
	c.counts.Moved++
	c.note(&p.gang.past, p.gang.String(), "pod %s moved off %s", p.name, p.node)
}

// judgeMoves checks that each pod which was evicted is moved by one migration, whose target was reserved before. What
// is known of migrations comes by another watch.
func (c *Checker) judgeMoves() {
	for uid, e := range c.moves.evicted {
		reserved := 0
		for _, m := range c.moves.byPod[uid] {
			if m.Reserved && (m.Evicted || !m.ended()) { // else it ended before
				reserved++
			}
		}
		if reserved == 0 && c.since(e.at) <= settleAfter {
			continue
		}
		delete(c.moves.evicted, uid)
		switch n := len(c.moves.byPod[uid]); {
		case n == 0:
			c.violate(MovedTwice, "pod "+e.pod.name, "", e.pod.gang.past, "it was evicted at %s, and no PodMigration is for it", e.at.at.Format(stamp))
		case reserved == 0:
			c.violate(Unreserved, "pod "+e.pod.name, "", e.pod.gang.past, "it was evicted at %s, and its target was never reserved", e.at.at.Format(stamp))
		case reserved > 1:
			c.violate(MovedTwice, "pod "+e.pod.name, "", e.pod.gang.past, "it was evicted at %s, and %d PodMigrations have reserved a target for it", e.at.at.Format(stamp), reserved)
		}
	}
}

// OpenMoves counts plans with moves and migrations that are there and have not ended, and Reservations that are still
// held for one.
func (c *Checker) OpenMoves() int {
	n := 0
	for uid := range c.moves.there {
		if m := c.moves.migrations[uid]; m != nil && !m.ended() {
			n++
		}
		if p := c.moves.plans[uid]; p != nil && p.Moves > 0 && !p.ended() {
			n++
		}
	}
	for _, r := range c.promises.reservations {
		if r.ForMove && !r.over(c.now) {
			n++
		}
	}
	return n
}

// CheckMoves checks that all plans and migrations have ended, and that nothing is held for them any more. It is for a
// cluster in which no new plans are made.
func (c *Checker) CheckMoves(within time.Duration) {
	for _, uid := range slices.Sorted(maps.Keys(c.moves.there)) {
		if m := c.moves.migrations[uid]; m != nil && !m.ended() {
			c.violate(LeftOver, "migration "+m.Key, "", nil, "it is %s, %s after the last plan was made", m.Phase, within)
		}
		if p := c.moves.plans[uid]; p != nil && p.Moves > 0 && !p.ended() {
			c.violate(LeftOver, "plan "+p.Name, "", nil, "it is %s (%s), %s after the last plan was made", p.Phase, p.Reason, within)
		}
	}
	c.settle(true)
	for _, r := range c.promises.reservations {
		if r.ForMove && !r.over(c.now) {
			c.violate(LeftOver, "Reservation "+r.Name, "", nil, "it is %s, and all plans have ended", r.Phase)
		}
	}
}
