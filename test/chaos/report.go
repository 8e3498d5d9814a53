package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
)

// Report is what came of a run.
type Report struct {
	options Options
	dir     string
	plan    string
	played  time.Duration
	cut     bool // the run was ended early
	quiet   bool // it came to rest
	// room is what waited when all was quiet, relievedRoom when there was room for all.
	room, relievedRoom invariant.Room

	faults, missed map[string]int
	failovers      []time.Duration
	restarts       map[string]int
	lostLeases     int
	stalls         int
	counts         invariant.Counts
	unknown        int
	violations     []invariant.Violation
	samples        samples
	bad            badInputs
}

// fill takes in what is known at the end.
func (s *stage) fill(r *Report, users *driver, faults *injector) {
	r.faults, r.missed, r.samples = faults.counts, faults.missed, s.samples
	users.mu.Lock()
	r.bad = users.bad
	users.mu.Unlock()
	s.health.mu.Lock()
	r.failovers, r.stalls = slices.Clone(s.health.failovers), s.health.stalls
	s.health.mu.Unlock()
	r.restarts = map[string]int{}
	for _, one := range s.replicas {
		one.mu.Lock()
		r.restarts[one.name] = one.starts - 1
		r.lostLeases += one.lostRuns
		one.mu.Unlock()
	}
	s.seen.with(func(c *invariant.Checker) {
		r.counts, r.violations, r.unknown = c.Counts(), c.Violations(), c.UnknownPreemptors()
	})
}

// Violated reports whether an invariant did not hold.
func (r *Report) Violated() bool { return len(r.violations) > 0 }

// Little returns why the run shows too little; empty: it shows enough.
func (r *Report) Little() string {
	if r.cut {
		return ""
	}
	if little := r.counts.Little(r.played); little != "" {
		return little
	}
	switch {
	case !r.options.Steady:
		return ""
	case !r.samples.enough():
		return "no scheduler, or no controller, led for long enough to be judged"
	case !r.samples.steady():
		return "pods became ever more: the machine does not keep up, and what grows was not judged"
	}
	return ""
}

// String returns the report for people.
func (r *Report) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	scheduler := filepath.Base(r.options.Scheduler)
	if r.options.Scheduler == stock {
		scheduler = "the stock scheduler"
	}
	line("fault run of %s: seed %d, %.1f minutes, queues: %t, Reservations: %t, moves: %t",
		scheduler, r.options.Seed, r.played.Minutes(), r.options.Queues, r.options.Reservations, r.options.Moves)
	if r.cut {
		line("  it was ended early: what has to be true at the end was not checked")
	}
	line("  planned: %s", r.plan)
	r.writeFaults(line)
	r.writeCounts(line)
	if r.options.Steady {
		b.WriteString(r.samples.String())
	}
	if little := r.Little(); little != "" {
		line("THE RUN SHOWS TOO LITTLE: %s", little)
	}
	if len(r.violations) == 0 {
		line("no violations")
	} else {
		line("VIOLATIONS: %d", len(r.violations))
		r.writeKinds(line)
		for i, v := range r.violations {
			line("%d. %s", i+1, v)
		}
	}
	line("logs, the plan and all that was observed: %s", r.dir)
	return b.String()
}

func (r *Report) writeFaults(line func(string, ...any)) {
	total := 0
	for _, n := range r.faults {
		total += n
	}
	line("faults: %d", total)
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		missed := ""
		if n := r.missed[kind]; n > 0 {
			missed = fmt.Sprintf(" (%d without such a moment within %s)", n, momentWithin)
		}
		line("  %3d %s%s", r.faults[kind], kind, missed)
	}
	var times []string
	for _, t := range r.failovers {
		times = append(times, fmt.Sprintf("%.1f", t.Seconds()))
	}
	if len(times) > 0 {
		line("failovers, in seconds until another scheduler led: %s", strings.Join(times, " "))
	}
	var restarts []string
	for _, name := range slices.Sorted(maps.Keys(r.restarts)) {
		restarts = append(restarts, fmt.Sprintf("%s %d", name, r.restarts[name]))
	}
	line("processes started again: %s; %d of them after a lease that was lost to a fault", strings.Join(restarts, ", "), r.lostLeases)
}

func (r *Report) writeCounts(line func(string, ...any)) {
	n := r.counts
	line("gangs and single pods %d, pods %d, binds %d, evictions %d", n.Gangs, n.Pods, n.Binds, n.Evictions)
	line("healthy %.0f of %.0f seconds; pods listed again %d times; the machine stood still %d times", n.Healthy.Seconds(), n.Total.Seconds(), n.Relists, r.stalls)
	line("starts %d, of which a fault interrupted %d; longest healthy time in part %.2f s", n.Started, n.Interrupted, n.LongestPartial.Seconds())
	line("preemptors %d: %d placed in time, %d excused by what happened to them; evictions of which no event names the preemptor: %d",
		n.Preemptors, n.PreemptorsPlaced, n.PreemptorsExcused, r.unknown)
	line("victim gangs %d, %d of them excused", n.VictimGangs, n.VictimGangsExcused)
	if r.options.BadInput {
		line("bad input: %d objects and changes taken by the API server, %d refused", r.bad.taken, r.bad.refused)
	}
	if r.options.holds() {
		line("Reservations %d; placements that held something at a time, at most: %d; pods bound to one: %d", n.Reservations, n.Placements, n.Uses)
	}
	if r.options.Moves {
		line("pods evicted to move them %d; migrations: %s; plans: %s", n.Moved, endsText(n.Migrations), endsText(n.Plans))
	}
	if r.cut {
		return
	}
	line("at the end quiet: %t; waiting %s; with room made, waiting %s", r.quiet, roomText(r.room), roomText(r.relievedRoom))
}

func endsText(ends map[string]int) string {
	var parts []string
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		parts = append(parts, fmt.Sprintf("%d %s", ends[end], cmp.Or(end, "not begun")))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

func roomText(r invariant.Room) string {
	text := fmt.Sprintf("%d, judged %d", r.Waiting, r.Judged)
	for _, why := range slices.Sorted(maps.Keys(r.Left)) {
		text += fmt.Sprintf(", %d not: %s", r.Left[why], why)
	}
	return text
}

// writeKinds counts violations by invariant.
func (r *Report) writeKinds(line func(string, ...any)) {
	kinds := map[invariant.Invariant]int{}
	for _, v := range r.violations {
		kinds[v.Invariant]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		line("  %3d %s", kinds[kind], kind)
	}
}

// save writes the report beside the logs.
func (r *Report) save() error {
	if err := os.WriteFile(filepath.Join(r.dir, "report.txt"), []byte(r.String()), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
