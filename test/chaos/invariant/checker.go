package invariant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Invariant is the name of something that has to hold.
type Invariant string

// The invariants.
const (
	Oversold      Invariant = "nothing oversold"
	NodeRefuses   Invariant = "no pod refused by its node"
	Partial       Invariant = "nothing partial for long"
	GroupPartial  Invariant = "no group of gangs in part for long"
	RackSplit     Invariant = "no required topology split"
	NeedlessEvict Invariant = "no eviction for a preemptor that is placed"
	FutileEvict   Invariant = "no futile eviction"
	Withdrawn     Invariant = "no decision withdrawn over and over"
	BrokenVictim  Invariant = "no victim gang left in part"
	Promised      Invariant = "nothing promised twice"
	StatusLies    Invariant = "what is said of Reservations is so"
	Unreserved    Invariant = "no pod moved before its target is reserved"
	MovedTwice    Invariant = "no pod moved for nothing, or twice"
	FreeRoom      Invariant = "what fits is bound in the end"
	LeftOver      Invariant = "nothing left over"
	Sums          Invariant = "sums are 0 in the end"
	Process       Invariant = "no process ends by itself"
	LogFinding    Invariant = "no panic and no data race"
	Growth        Invariant = "nothing grows for ever"
)

// Violation is an invariant that did not hold.
type Violation struct {
	Invariant Invariant
	// Object is what it did not hold for: "gang a/b", "node node-3".
	Object string
	// Text has the numbers.
	Text string
	At   time.Time
	// Recent is what was last seen of the object, oldest first.
	Recent []string
}

// String returns the violation on several lines.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s, at %s\n", v.Invariant, v.Object, v.Text, v.At.Format(stamp))
	for _, line := range v.Recent {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

// stamp is how moments are written: the date is the day of the run.
const stamp = "15:04:05.000"

// The bounds of what is tolerated. Durations are of healthy time unless they say otherwise: time in which the scheduler
// leads and the API server answers.
const (
	// partialFor is how long a gang may have a part of its minimum bound before it ever had all of it.
	partialFor = 3 * time.Second
	// doubtFor is the same for a gang that may have lost a member or room, from when on it has all members again, and
	// there is clear room for them: it may have to wait for as long as a pod that was refused often.
	doubtFor = 12 * time.Second
	// lifeGap is how long a gang has had nothing bound when it counts as a gang again that has to start together.
	// Before, a scheduler may not know yet that its last member is gone.
	lifeGap = time.Second
	// inFlight is how long, by the clock on the wall, a preemptor may have been placed already when a pod is evicted for
	// it: the call may have been on its way. The time that the API server takes to answer comes on top.
	inFlight = 250 * time.Millisecond
	// placedWithin is how soon after the first eviction for it a preemptor is placed.
	placedWithin = 10 * time.Second
	// placedAfter is the same after a fault, which may have cost it an answer: a pod that was refused often waits 10
	// seconds before it is tried again.
	placedAfter = 12 * time.Second
	// podEndsWithin is how soon a pod that is evicted ends: if a kubelet takes longer, that is no fault of the scheduler.
	podEndsWithin = 7 * time.Second
	// usedWithin is how long, by the clock on the wall, a preemptor has to begin to use the room that was made for
	// it, before others are evicted for it: its scheduler may have begun to look before the last victim ended.
	usedWithin = 2 * time.Second
	// victimsWithin is how soon after the last eviction a gang that lost members is whole or gone.
	victimsWithin = 12 * time.Second
	// markedFor is how long a pod may be marked as evicted and not be deleted.
	markedFor = 12 * time.Second
	// splitFor is how long, by the clock on the wall, a gang may seem to be in two domains: nodes and pods are two
	// watches.
	splitFor = 500 * time.Millisecond
	// maxStep bounds how much healthy time passes between two observations. A machine that stood still says nothing
	// about the scheduler.
	maxStep = 500 * time.Millisecond
)

// Config is what is in use.
type Config struct {
	// Queues are the queues with a bound, and their parents. AllQueues is whether queues are in use at all: then only
	// what fits beside everything else that waits has to be bound in the end.
	Queues    []Queue
	AllQueues bool
	// Reservations is whether there may be some, Moves whether PodMigrations may have pods evicted.
	Reservations, Moves bool
}

// Counts say how much was judged: an invariant that never had a case has not been shown to hold.
type Counts struct {
	Gangs, Pods, Binds, Evictions int
	// Relists are lists after the first: what happened before them may have been missed.
	Relists int
	// Started are gangs that had their minimum bound; Interrupted those of them that were partial
	// while something was faulty.
	Started, Interrupted int
	// LongestPartial is the longest healthy time that a gang was partial before it started, of those
	// that were judged.
	LongestPartial time.Duration
	// Preemptors counts the gangs for which pods were evicted; of these, PreemptorsPlaced were placed in time, and
	// PreemptorsExcused excused.
	Preemptors, PreemptorsPlaced, PreemptorsExcused int
	// UnknownPreemptor counts evictions whose preemptor no event named.
	UnknownPreemptor int
	// VictimGangs lost members to the scheduler; excused are those of them that lost others otherwise.
	VictimGangs, VictimGangsExcused int
	// Reservations that were seen, how many of their placements held something at most, and how often a pod was bound
	// to one.
	Reservations, Placements, Uses int
	// Plans and Migrations that were seen, by how they ended; Moved are pods that were evicted for them.
	Plans, Migrations map[string]int
	Moved             int
	// Healthy of Total is the time in which nothing was faulty.
	Healthy, Total time.Duration
}

// Little returns why a run of that length shows too little, whatever was found; empty: it shows enough.
func (n Counts) Little(length time.Duration) string {
	const long, enough = 2 * time.Minute, 0.4
	switch {
	case n.Healthy.Seconds() < enough*n.Total.Seconds():
		return fmt.Sprintf("it was healthy for %.0f of %.0f seconds", n.Healthy.Seconds(), n.Total.Seconds())
	case n.Started == 0:
		return "no gang started"
	case length >= long && n.Preemptors <= n.PreemptorsExcused:
		return "no preemptor was judged"
	case length >= long && n.Migrations != nil && n.Migrations["Succeeded"] == 0:
		return "no pod was moved"
	}
	return ""
}

// Checker judges one run.
type Checker struct {
	config Config

	now     time.Time
	healthy time.Duration
	down    []string
	// faults counts how often something became faulty.
	faults int
	// awaySince is since when the API server does not answer, blindUntil until when a scheduler may not see what it has.
	awaySince, blindUntil time.Time
	// troubled are the times in which something was faulty, or the scheduler may not have seen all.
	troubled []span
	// slowest is the longest that the API server took of late to answer.
	slowest   time.Duration
	slowestAt time.Time
	// listing: pods of a list are being taken in.
	listing bool

	promises promises
	moves    moves

	// finished is when a pod last ended by itself.
	finished moment

	pods  map[types.UID]*pod
	nodes map[string]*node
	gangs map[string]*gang
	// objects are the PodGroups.
	objects map[string]Group
	// gangOfPod stays when a pod is gone: events come late.
	gangOfPod map[types.UID]string
	// active are gangs that have pods.
	active map[string]*gang

	evictions map[types.UID]*eviction
	preemptor map[types.UID]string // by victim, from events
	pursuits  map[string]*pursuit
	// ending are gangs and pods that their user ends.
	ending map[string]bool

	counts     Counts
	violations []Violation
	reported   map[string]bool
	// Log, if set, gets a line for everything of note that was observed.
	Log func(at time.Time, object, text string)
}

// New returns a checker that has seen nothing.
func New(config Config) *Checker {
	return &Checker{
		config: config, pods: map[types.UID]*pod{}, nodes: map[string]*node{}, gangs: map[string]*gang{},
		objects: map[string]Group{}, gangOfPod: map[types.UID]string{}, active: map[string]*gang{},
		evictions: map[types.UID]*eviction{}, preemptor: map[types.UID]string{}, pursuits: map[string]*pursuit{},
		ending: map[string]bool{}, reported: map[string]bool{}, promises: newPromises(), moves: newMoves(),
	}
}

// Observe takes in what was seen at that time, which is never earlier than that of the call before.
func (c *Checker) Observe(at time.Time, o Observation) {
	c.advance(at)
	o.apply(c)
}

// advance moves both clocks.
func (c *Checker) advance(at time.Time) {
	if c.now.IsZero() || at.Before(c.now) {
		at = maxTime(at, c.now)
		c.now = at
		return
	}
	passed := at.Sub(c.now)
	c.now = at
	c.counts.Total += passed
	if len(c.down) == 0 {
		c.healthy += min(passed, maxStep)
		c.counts.Healthy = c.healthy
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Violations returns what did not hold so far, in the order in which it was found.
func (c *Checker) Violations() []Violation { return slices.Clone(c.violations) }

// Counts returns how much was judged so far.
func (c *Checker) Counts() Counts {
	n := c.counts
	if c.config.Moves {
		n.Plans, n.Migrations = c.moves.ends()
	}
	return n
}

// span is a time; without an end it has not ended.
type span struct{ from, to time.Time }

// troubledIn reports whether something was faulty at some time from one moment to another.
func (c *Checker) troubledIn(from, to time.Time) bool {
	return slices.ContainsFunc(c.troubled, func(s span) bool { return !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from)) })
}

// moment is a point in time: by the clock on the wall, in healthy time, and after how many faults.
type moment struct {
	at      time.Time
	healthy time.Duration
	faults  int
}

func (c *Checker) moment() moment { return moment{c.now, c.healthy, c.faults} }

// since returns the healthy time since m.
func (c *Checker) since(m moment) time.Duration { return c.healthy - m.healthy }

// blind reports whether a scheduler may not see again yet what the API server has.
func (c *Checker) blind() bool { return c.now.Before(c.blindUntil) }

// violate reports a violation, once for each object and key.
func (c *Checker) violate(i Invariant, object, key string, recent []string, format string, args ...any) {
	id := fmt.Sprint(i, object, key)
	if c.reported[id] {
		return
	}
	c.reported[id] = true
	v := Violation{Invariant: i, Object: object, Text: fmt.Sprintf(format, args...), At: c.now, Recent: slices.Clone(recent)}
	c.violations = append(c.violations, v)
	c.log("VIOLATION", "%s: %s: %s", i, object, v.Text)
}

func (c *Checker) log(object, format string, args ...any) {
	if c.Log != nil {
		c.Log(c.now, object, fmt.Sprintf(format, args...))
	}
}

// historyLength is how much of an object's past is kept for reports.
const historyLength = 24

// history is what was last seen of an object.
type history []string

// note adds a line.
func (c *Checker) note(h *history, object, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	*h = append(*h, c.now.Format(stamp)+" "+text)
	if len(*h) > historyLength {
		*h = slices.Delete(*h, 0, len(*h)-historyLength)
	}
	c.log(object, "%s", text)
}
