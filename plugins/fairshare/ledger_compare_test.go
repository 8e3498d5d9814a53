package fairshare

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// compare compares with a count of all pods. All events have been delivered.
func (c *chaos) compare(counts map[string]int) {
	c.t.Helper()
	c.d.lock()
	c.d.mu.Unlock()
	total, described := c.total(), map[string]share.Queue{}
	for name, q := range c.queues {
		described[name] = share.Queue{Name: name, Parent: q.Parent, Weight: q.Weight, Capability: q.Capability, Request: queueing.Vector{}, Idle: queueing.Vector{}}
	}
	running := map[string]queueing.Vector{}
	runs := func(queue string, amount queueing.Vector) {
		if running[queue] == nil {
			running[queue] = queueing.Vector{}
		}
		running[queue].Add(amount, 1)
	}
	for _, l := range c.lives {
		c.comparePod(l)
		if !l.ours() {
			continue
		}
		if q, ok := described[c.queue(l)]; ok {
			c.demand(l, q)
		}
		if !l.runs() {
			counts["waiting"]++
			if _, held := c.d.holds.HoldOf(l.uid); held {
				counts["held"]++
			}
			if len(c.has(l)) > 1 {
				counts["in several pools"]++
			}
			continue
		}
		counts["running"]++
		runs(queueing.Own(c.queue(l)), c.has(l)[0])
		for _, at := range c.path(c.queue(l)) {
			runs(at, c.has(l)[0])
		}
	}
	if diff := cmp.Diff(without(total), without(c.d.nodes.Total())); diff != "" {
		c.fail("there to be shared (-want +got):\n%s", diff)
	}
	for name, s := range c.d.book.Standings() {
		if diff := cmp.Diff(without(running[name]), without(s.Running)); diff != "" {
			c.fail("running in queue %s (-want +got):\n%s", name, diff)
		}
	}
	c.compareNotes()
	c.compareShares(share.Deserve(total, described))
	c.compareJobs(counts)
}

// demand adds what a pod asks for: in a closed queue only what it has.
func (c *chaos) demand(l *life, q share.Queue) {
	usage, _ := c.d.book.Counted(string(l.uid))
	shut := slices.ContainsFunc(c.path(q.Name), func(at string) bool { return c.queues[at].Closed })
	switch {
	case l.runs():
		q.Request.Add(c.has(l)[0], 1)
	case shut || !usage.Held && usage.Demand == queueing.Hopeless:
	default:
		for _, amount := range c.has(l) {
			q.Request.Add(amount, 1)
			if !usage.Held && usage.Demand == queueing.Idle {
				q.Idle.Add(amount, 1)
			}
		}
	}
}

// path returns a queue and those above it; only itself where they do not lead to the top.
func (c *chaos) path(name string) []string {
	path := []string{}
	for at := name; at != ""; at = c.queues[at].Parent {
		if _, ok := c.queues[at]; !ok || slices.Contains(path, at) {
			return []string{name}
		}
		path = append(path, at)
	}
	return path
}

func (c *chaos) comparePod(l *life) {
	c.t.Helper()
	type counted struct {
		Known, Runs, Promised, Held bool
		Queue                       string
		Priority                    int32
		GPUs                        []queueing.Vector
	}
	var want counted
	if l.ours() {
		one, held := c.d.holds.HoldOf(l.uid)
		held = held && !l.runs()
		promised := l.now().Status.NominatedNodeName != ""
		if held { // the status may be late
			promised = one.Reason == hold.Nomination
		}
		want = counted{
			true, l.runs(), promised, held && one.Reason == hold.Plan, c.queue(l), *l.now().Spec.Priority, c.has(l),
		}
	}
	usage, known := c.d.book.Counted(string(l.uid))
	got := counted{known, usage.Runs, usage.Promised, usage.Held && !usage.Runs, usage.Queue, usage.Priority, nil}
	if known {
		got.GPUs = append([]queueing.Vector{usage.Amount}, usage.Or...)
	}
	if l.runs() {
		got.Promised, want.Promised = false, false
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.fail("pod %s (-want +counted):\n%s", l.uid, diff)
	}
}

// compareNotes: nothing is kept of pods that need nothing.
func (c *chaos) compareNotes() {
	c.t.Helper()
	assumed, versions := 0, 0
	for _, l := range c.lives {
		if l.ours() {
			versions++
		}
		if (l.ours() || l.refused() && !l.ends()) && l.reserved && c.d.assumed[l.uid] != "" { // not where another scheduler has bound it
			assumed++
		}
	}
	if len(c.d.assumed) != assumed || len(c.d.usage.Pods()) != versions {
		c.fail("%d pods are assumed, want %d; %d versions are known, want %d", len(c.d.assumed), assumed, len(c.d.usage.Pods()), versions)
	}
}

// compareShares detects wrong requests too: no queue gets more than it asks for.
func (c *chaos) compareShares(want map[string]share.Share) {
	c.t.Helper()
	for name, got := range c.d.book.Shares() {
		if diff := cmp.Diff([]queueing.Vector{without(want[name].Deserved), without(want[name].Fair)}, []queueing.Vector{without(got.Deserved), without(got.Fair)}); diff != "" {
			c.fail("what queue %s deserves and may have (-want +got):\n%s", name, diff)
		}
	}
}

// compareJobs: only jobs have turns, and what waits is a pod that exists.
func (c *chaos) compareJobs(counts map[string]int) {
	c.t.Helper()
	admitted := 0
	for name := range c.jobs {
		if c.d.book.Phase(name) == queueing.Admitted {
			admitted++
			counts["admitted"]++
		}
	}
	if got := c.d.turns(); got != admitted || got > window {
		c.fail("%d turns, of %d jobs; want no more than %d", got, admitted, window)
	}
	waiting := c.waiting(c.d)
	if got := len(c.d.book.Jobs(queueing.Waiting)); got != len(waiting) {
		c.fail("%d jobs wait for their turn, %d for somebody to tell", got, len(waiting))
	}
	c.d.expire()
	for name, speaker := range c.waiting(c.d) {
		counts["told to wait"]++
		for _, l := range c.lives {
			if l.uid == speaker && (l.ends() || l.now().Spec.NodeName != "") {
				c.fail("job %s waits for its turn with pod %s, which does not", name, l.uid)
			}
		}
	}
}

// waiting returns the jobs that wait for their turn, with the pods to call then.
func (c *chaos) waiting(d *Dispatcher) map[string]types.UID {
	waiting := map[string]types.UID{}
	for name := range c.jobs {
		if d.book.Phase(name) == queueing.Waiting {
			waiting[name] = types.UID(d.book.Representative(name))
		}
	}
	return waiting
}

// compareRestarted compares with a process that starts anew: what all queues use, once the
// turns have ended, and which pods are admitted then.
func (c *chaos) compareRestarted() {
	c.t.Helper()
	for _, l := range c.lives {
		drop(c.d.holds, l.uid) // another process would not know it
		if l.reserved {
			assumed := l.cycle
			l.cycle, l.reserved = nil, false
			c.d.unreserve(silent, assumed)
		}
	}
	c.expire(c.d)
	fresh := c.restarted()
	c.compare(map[string]int{})
	for _, name := range chaosQueues {
		all := queueing.Job{Queue: name, Options: []queueing.Needs{{name: gpus(1000)}}}
		want, _ := fresh.book.Ceilings(all)
		got, _ := c.d.book.Ceilings(all)
		if diff := cmp.Diff(want, got); diff != "" {
			c.fail("what queue %s uses (-restarted +as it was):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(c.letIn(fresh), c.letIn(c.d)); diff != "" {
		c.fail("who is let in (-restarted +as it was):\n%s", diff)
	}
}

// compareEmpty: once all pods are gone and some time has passed, nothing is left of them.
func (c *chaos) compareEmpty() {
	c.t.Helper()
	for _, l := range c.lives {
		c.remove(l)
	}
	c.deliver(len(c.events))
	for range 3 {
		c.clock.Step(time.Hour)
		c.d.expire()
	}
	d := c.d
	book := func(field string) int { return reflect.ValueOf(d.book).Elem().FieldByName(field).Len() }
	for what, n := range map[string]int{
		"jobs": book("jobs"), "jobs that time can move": book("timed"), "usages": book("usages"), "missed": book("missed"),
		"assumed": len(d.assumed), "places": len(d.places), "naming": len(d.naming),
	} {
		if n > 0 {
			c.fail("%d %s are left of nothing", n, what)
		}
	}
	if left := d.left(); len(left) > 0 {
		c.fail("%v are left of nothing", left)
	}
	for name := range d.book.Standings() {
		if _, described := c.queues[strings.TrimSuffix(name, queueing.Own(""))]; !described {
			c.fail("queue %s is left of nothing", name)
		}
	}
}

// letIn makes all pods in no gang come to the gate, which opens then, and returns those that are admitted.
func (c *chaos) letIn(d *Dispatcher) string {
	d.opened = false
	for _, l := range c.lives { // what was tried before does not count
		usage, _ := d.book.Counted(string(l.uid))
		demand := queueing.Full
		if usage.Gang != "" {
			demand = queueing.Hopeless
		}
		if usage.Demand != demand {
			usage.Demand = demand
			d.book.Count(string(l.uid), usage)
		}
	}
	for _, l := range c.lives {
		if l.ours() && !l.runs() && l.now().Labels["gang"] == "" {
			d.comes(l.now())
		}
	}
	alone := map[string]bool{} // others are in a gang, or are admitted anyway
	for _, l := range c.lives {
		alone[string(l.uid)] = l.now().Labels["gang"] == "" && l.now().Status.NominatedNodeName == ""
	}
	all := func(string) bool { return true }
	d.book.Tick(queueing.Moment{Now: c.clock.Now(), IsWaiting: func(pod string) bool { return alone[pod] }, WaitsForRoom: all, IsComplete: all})
	d.calledNow() // those from before
	d.change(func() { d.opened = true })
	return d.calledNow()
}
