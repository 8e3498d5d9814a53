package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/testutil"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/harness/observe"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const (
	// quietFor is how long nothing happens to any pod when the cluster counts as quiet, quietWithin how long to wait
	// for that: what is there may go on as long as pods end by themselves.
	quietFor    = 6 * time.Second
	quietWithin = 90 * time.Second
	// settled is how long nothing happens when there is room for all.
	settled = 4 * time.Second
	// relieved is how much of the GPUs is asked for after the cluster was relieved.
	relieved = 0.7

	goneWithin  = 60 * time.Second
	leadsWithin = time.Minute
	// movesWithin is how long plans may take to end when no more are made: pods that are moved end, what was freed is held
	// for a while, and the successor of a pod of a Job is awaited that has failed often: the Job makes it 10 s after the
	// first failure, and twice as long after each of the next.
	movesWithin  = 6 * time.Minute
	gaugesWithin = 15 * time.Second
)

// end lets everything come to rest, checks what has to be true then, makes room, checks again, deletes everything,
// and checks what is left.
func (s *stage) end(ctx context.Context, users *driver, report *Report) error {
	if ctx.Err() != nil {
		report.cut = true
		return nil
	}
	s.progress("arrivals and faults have ended; waiting until all is quiet")
	if err := s.health.waitWell(ctx); err != nil {
		return err
	}
	if err := s.waitController(ctx); err != nil {
		return err
	}
	if s.options.Moves {
		if err := s.endMoves(ctx, users); err != nil {
			return err
		}
	}
	report.quiet = s.rest(ctx, quietFor)
	if s.options.holds() {
		if err := s.checkReservations(ctx, users); err != nil {
			return err
		}
		report.quiet = s.rest(ctx, quietFor) && report.quiet
	}
	s.seen.with(func(c *invariant.Checker) {
		report.room = c.CheckRoom()
		c.CheckMarks()
	})
	users.deleteBadInputs(ctx)
	s.waitDeleted(ctx)
	for s.load() > relieved && users.oldest(ctx) {
		s.waitDeleted(ctx)
	}
	report.quiet = s.rest(ctx, settled) && report.quiet
	s.seen.with(func(c *invariant.Checker) { report.relievedRoom = c.CheckRoom() })
	s.progress("deleting everything")
	for users.oldest(ctx) {
	}
	sweep(ctx, users)
	within(ctx, goneWithin, func() bool { return s.seen.count() == 0 })
	gauges, err := s.gauges(ctx)
	if err != nil {
		return err
	}
	remains, err := s.remains(ctx)
	if err != nil {
		return err
	}
	s.seen.with(func(c *invariant.Checker) {
		c.CheckEmpty(gauges)
		c.CheckRemains(remains)
	})
	if ctx.Err() != nil {
		report.cut = true
	}
	return s.readLogs()
}

// waitController waits until a controller leads, which after one was killed takes as long as its lease, and until it
// has had time to write what it found.
func (s *stage) waitController(ctx context.Context) error {
	if s.options.Scheduler == stock {
		return nil
	}
	leads, cancel := context.WithTimeout(ctx, leadsWithin)
	defer cancel()
	if _, err := s.health.waitLeader(leads, workload.Controller); err != nil {
		return fmt.Errorf("waiting for a controller that leads: %w", err)
	}
	return await.Pause(ctx, settled)
}

// endMoves ends the making of plans, and checks that the existing ones end.
func (s *stage) endMoves(ctx context.Context, users *driver) error {
	for _, r := range s.replicas {
		if r.target == workload.Descheduler {
			if err := r.end(); err != nil {
				return fmt.Errorf("ending %s: %w", r.name, err)
			}
		}
	}
	open := func() (n int) {
		s.seen.with(func(c *invariant.Checker) { n = c.OpenMoves() })
		return n
	}
	within(ctx, movesWithin, func() bool { return open() == 0 })
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for plans to end: %w", context.Cause(ctx))
	}
	s.waitDeleted(ctx)
	s.seen.with(func(c *invariant.Checker) { c.CheckMoves(movesWithin) })
	users.deleteAll(ctx, v1alpha1.DefragmentationPlanResource, "", "")
	return nil
}

// checkReservations checks what the status of Reservations says, and then deletes them: what they held is free at
// once.
func (s *stage) checkReservations(ctx context.Context, users *driver) error {
	held, deadline := -1, time.Now().Add(gaugesWithin)
	for s.options.Scheduler != stock {
		metrics, err := s.leaderMetrics(ctx)
		if err != nil && time.Now().After(deadline) {
			return err
		}
		for _, one := range metrics[heldPlacements] {
			held = int(one.Value)
		}
		want := 0
		s.seen.with(func(c *invariant.Checker) { want = c.HeldPlacements() })
		if held == want || time.Now().After(deadline) || await.Pause(ctx, tickEvery) != nil {
			break // one that runs out at the moment is over for one of them before it is for the other
		}
	}
	s.seen.with(func(c *invariant.Checker) { c.CheckReservations(held) })
	users.deleteAll(ctx, v1alpha1.ReservationResource, "", "")
	s.waitDeleted(ctx)
	return nil
}

// leaderMetrics reads the metrics of the leading scheduler.
func (s *stage) leaderMetrics(ctx context.Context) (testutil.Metrics, error) {
	leader, err := s.health.waitLeader(ctx, workload.Scheduler)
	if err != nil {
		return nil, fmt.Errorf("reading gauges: %w", err)
	}
	metrics, err := leader.readMetrics(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading gauges: %w", err)
	}
	return metrics, nil
}

// load returns what is asked for, as a part of all GPUs.
func (s *stage) load() (load float64) {
	s.seen.with(func(c *invariant.Checker) {
		asked, there, _ := c.Demand(localcluster.ResourceGPU)
		load = float64(asked) / float64(max(1, there))
	})
	return load
}

// waitDeleted gives the watches time to see a deletion.
func (s *stage) waitDeleted(ctx context.Context) { _ = await.Pause(ctx, 5*tickEvery) }

// rest waits until nothing happens any more, and reports whether that came about. If not, the checker checks why.
func (s *stage) rest(ctx context.Context, quiet time.Duration) bool {
	if s.waitQuiet(ctx, quiet) {
		return true
	}
	if ctx.Err() == nil && time.Since(s.seen.quietSince()) <= quiet {
		s.seen.with((*invariant.Checker).CheckQuiet)
	}
	return false
}

// waitQuiet waits until nothing happens any more, and reports whether that came about.
func (s *stage) waitQuiet(ctx context.Context, quiet time.Duration) bool {
	return within(ctx, quietWithin, func() bool { return time.Since(s.seen.quietSince()) > quiet && s.health.well() })
}

// within asks for so long until something holds, and reports whether it came to that.
func within(ctx context.Context, most time.Duration, holds func() bool) bool {
	return wait.PollUntilContextTimeout(ctx, tickEvery, most, true, func(context.Context) (bool, error) { return holds(), nil }) == nil
}

// podsResource is the resource of pods, made what users make, pods after their owners.
var (
	podsResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	made         = []schema.GroupVersionResource{
		{Group: "batch", Version: "v1", Resource: "jobs"}, {Group: "apps", Version: "v1", Resource: "replicasets"}, podsResource, observe.PodGroups,
	}
)

// sweep deletes all that users may have left.
func sweep(ctx context.Context, users *driver) {
	for _, namespace := range workload.Namespaces {
		for _, resource := range made {
			users.deleteAll(ctx, resource, namespace, "")
		}
	}
}

// ours are the gauges that are 0 where there are no pods.
var ours = []string{"lockstep_holds", "lockstep_gang_gangs", "lockstep_gang_members_held", "lockstep_queue_allocated", "lockstep_queue_share", "lockstep_queue_waiting_jobs", heldPlacements}

const heldPlacements = "lockstep_reservation_held_placements"

// gauges returns them as the leading scheduler has them, when they are 0 or after a while.
func (s *stage) gauges(ctx context.Context) (map[string]float64, error) {
	if s.options.Scheduler == stock {
		return nil, nil
	}
	for deadline := time.Now().Add(gaugesWithin); ; {
		metrics, err := s.leaderMetrics(ctx)
		found, sum := map[string]float64{}, 0.0
		for _, name := range ours {
			for _, one := range metrics[name] {
				found[one.Metric.String()] = float64(one.Value)
				sum += math.Abs(float64(one.Value))
			}
		}
		if err == nil && len(found) > 0 && sum == 0 || time.Now().After(deadline) {
			if len(found) == 0 {
				return nil, fmt.Errorf("reading gauges: the scheduler has none of %q: %w", ours, err)
			}
			return found, nil
		}
		if err := await.Pause(ctx, tickEvery); err != nil {
			return nil, fmt.Errorf("reading gauges: %w", err)
		}
	}
}

// readLogs looks for panics and data races, and for decisions that come to nothing.
func (s *stage) readLogs() error {
	for _, r := range s.replicas {
		data, err := os.ReadFile(r.logFile)
		if err != nil {
			return fmt.Errorf("reading the log of %s: %w", r.name, err)
		}
		log := string(data)
		for _, finding := range invariant.Findings(log) {
			s.seen.report(invariant.LogFinding, r.name, "%s", finding)
		}
		s.seen.with(func(c *invariant.Checker) { c.CheckWithdrawals(log) })
	}
	return nil
}
