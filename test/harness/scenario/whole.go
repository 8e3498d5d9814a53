package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// defaultBurst is how long a gang may be seen half bound while its members are bound one by one.
const defaultBurst = 2 * time.Second

// uptime is a clock that stands still while the scheduler or the API server is down, or does not answer.
type uptime struct {
	begin time.Time
	down  map[string]bool
	since time.Time
	lost  time.Duration
}

func newUptime(begin time.Time) *uptime { return &uptime{begin: begin, down: map[string]bool{}} }

// set notes that something went down or came up.
func (u *uptime) set(what string, down bool, now time.Time) {
	before := len(u.down)
	if down {
		u.down[what] = true
	} else {
		delete(u.down, what)
	}
	switch {
	case before == 0 && len(u.down) > 0:
		u.since = now
	case before > 0 && len(u.down) == 0:
		u.lost += now.Sub(u.since)
	}
}

func (u *uptime) at(now time.Time) time.Duration {
	if len(u.down) > 0 {
		now = u.since
	}
	return now.Sub(u.begin) - u.lost
}

// wholeness follows what is bound of one gang. From the first binding on, the gang may lack part of
// its minimum only as long as a burst takes. What the scenario itself took away does not count as
// lacking; that ends once the gang has nothing bound, for then it is a gang again.
type wholeness struct {
	key       string
	min       int
	minByRole map[string]int
	burst     time.Duration

	bound map[types.UID]string // roles
	taken []string             // roles of those that the scenario took and that were not replaced
	// broken: it lacks something, since this moment of uptime.
	broken    bool
	since     time.Duration
	wasWhole  bool
	violation string
}

func newWholeness(key string, g *Gang) *wholeness {
	w := &wholeness{key: key, min: g.Min, burst: g.Burst.Duration, bound: map[types.UID]string{}}
	if w.burst == 0 {
		w.burst = defaultBurst
	}
	sum := 0
	for _, n := range g.MinByRole {
		sum += n
	}
	if sum <= g.Min { // else the gang is elastic and its roles do not bind it
		w.minByRole = g.MinByRole
	}
	return w
}

func (w *wholeness) bind(uid types.UID, role string, now time.Duration) {
	w.check(now)
	w.bound[uid] = role
	if i := slices.Index(w.taken, role); i >= 0 {
		w.taken = slices.Delete(w.taken, i, i+1)
	}
	w.update(now)
}

// lose takes in that a bound member is no more: deleted, or failed.
func (w *wholeness) lose(uid types.UID, byScenario bool, now time.Duration) {
	role, ok := w.bound[uid]
	if !ok {
		return
	}
	w.check(now)
	delete(w.bound, uid)
	if byScenario {
		w.taken = append(w.taken, role)
	}
	w.update(now)
}

func (w *wholeness) update(now time.Duration) {
	if len(w.bound) == 0 {
		w.taken = nil
	}
	lacks := len(w.bound) > 0 && w.lacks() != ""
	if lacks && !w.broken {
		w.since = now
	}
	w.broken = lacks
	w.wasWhole = w.wasWhole || len(w.bound) > 0 && !lacks
}

// lacks returns what part of the minimum is not bound.
func (w *wholeness) lacks() string {
	var out []string
	if have := len(w.bound) + len(w.taken); have < w.min {
		out = append(out, fmt.Sprintf("%d of its minimum of %d bound", have, w.min))
	}
	for _, role := range keys(w.minByRole) {
		have := 0
		for _, r := range w.bound {
			if r == role {
				have++
			}
		}
		for _, r := range w.taken {
			if r == role {
				have++
			}
		}
		if have < w.minByRole[role] {
			out = append(out, fmt.Sprintf("%d of the %d of role %s bound", have, w.minByRole[role], role))
		}
	}
	return strings.Join(out, ", ")
}

// check returns the violation, the first one for ever.
func (w *wholeness) check(now time.Duration) string {
	if w.violation == "" && w.broken && now-w.since > w.burst {
		w.violation = fmt.Sprintf("all or nothing: gang %s has had %s for more than %s", w.key, w.lacks(), w.burst)
	}
	return w.violation
}

// groupWholeness follows a GangGroup: once one of its gangs has anything bound, every one of them
// gets its minimum within a burst.
type groupWholeness struct {
	gangs     []*wholeness
	broken    bool
	since     time.Duration
	violation string
}

// update takes in that something was bound or lost in one of the gangs.
func (g *groupWholeness) update(now time.Duration) {
	g.check(now)
	bound, missing := false, false
	for _, w := range g.gangs {
		bound = bound || len(w.bound) > 0
		missing = missing || !w.wasWhole
	}
	if bound && missing && !g.broken {
		g.since = now
	}
	g.broken = bound && missing
}

func (g *groupWholeness) check(now time.Duration) string {
	var burst time.Duration
	var bound, missing []string
	for _, w := range g.gangs {
		burst = max(burst, w.burst)
		if len(w.bound) > 0 {
			bound = append(bound, w.key)
		}
		if !w.wasWhole {
			missing = append(missing, w.key)
		}
	}
	if g.violation == "" && g.broken && now-g.since > burst {
		g.violation = fmt.Sprintf("all or nothing: of a GangGroup %s is bound, but %s is not, for more than %s",
			strings.Join(bound, ", "), strings.Join(missing, ", "), burst)
	}
	return g.violation
}
