package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// churn keeps a cluster full while pods end all the time and many gangs of several priorities wait: what
// becomes free has to go to the gang of the highest rank that fits. No pod may evict another, so that the
// order in which gangs start is that in which they were chosen.
type churn struct {
	nodes, gangs int
	sizes        []int // of the gangs that wait, one after the other; 1 is a plain pod
}

const (
	// churnWindow is how long pods end, endsPerSecond of them.
	churnWindow   = time.Minute
	endsPerSecond = 5
	// churnBatches are how many gangs are created at a time: creation has whole seconds.
	churnBatches = 40
	// fillPriority is the priority of the pods that run at first; churnPriorities are the gangs'.
	fillPriority = 1000
)

var churnPriorities = []int32{10, 20, 30, 40}

func (b churn) name() string {
	return fmt.Sprintf("Churn/nodes=%d/gangs=%d/sizes=%s", b.nodes, b.gangs, strings.Trim(strings.ReplaceAll(fmt.Sprint(b.sizes), " ", ","), "[]"))
}

// mean returns the mean of the sizes.
func (b churn) mean() float64 {
	sum := 0
	for _, size := range b.sizes {
		sum += size
	}
	return float64(sum) / float64(len(b.sizes))
}

func (b churn) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	if err := f.setPriorities(ctx, v1.PreemptNever, append([]int32{fillPriority}, churnPriorities...)...); err != nil {
		return err
	}
	goals := []goal{
		{unit: "inversions", atMost: true},
		{unit: "thread-busy-%", atMost: true, bound: 50},
	}
	if len(b.sizes) == 1 {
		// Room for nine in ten of the gangs that the pods that end make room for.
		goals = append(goals, goal{unit: "starts", bound: 0.9 * endsPerSecond * churnWindow.Seconds() / b.mean()})
	}
	t := r.table(b.name(), goals, "scheduler=ours")
	for range f.rounds {
		v, err := b.once(ctx, f)
		if err != nil {
			return err
		}
		r.add(t, 0, b.gangs, v)
		if err := f.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b churn) once(ctx context.Context, f *fixture) (v values, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, s, err := f.startWatched(ctx, ours)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	f.turn++
	fill := workload{scheduler: ours.schedulerName, prefix: fmt.Sprintf("fill-%d-", f.turn), gangs: b.nodes, size: gpusOnNode, priority: fillPriority, polite: true}
	if err := f.create(ctx, fill); err != nil {
		return nil, err
	}
	if err := f.all(ctx, seen, s, func() bool { return len(seen.pods) >= fill.pods() }); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	wait, err := b.line(ctx, f, random)
	if err != nil {
		return nil, err
	}
	if err := f.untilQuiet(ctx); err != nil {
		return nil, err
	}
	history := seen.record()
	v = values{}
	if err := f.whileBusy(ctx, s, v, func() error { return b.end(ctx, f, fill, random) }); err != nil {
		return nil, err
	}
	if err := await.Pause(ctx, settlePause); err != nil {
		return nil, err
	}
	starts, inversions := inverted(wait, history())
	v["starts"], v["inversions"] = float64(starts), float64(len(inversions))
	for _, one := range inversions[:min(len(inversions), 5)] {
		progress("%s: %s", b.name(), one)
	}
	return v, nil
}

// line creates the gangs that wait, and returns them.
func (b churn) line(ctx context.Context, f *fixture, random *rand.Rand) ([]contender, error) {
	var wait []contender
	for batch := 0; len(wait) < b.gangs; batch++ {
		next := time.Now().Add(time.Second)
		for range min(churnBatches, b.gangs-len(wait)) {
			i := len(wait)
			w := workload{
				scheduler: ours.schedulerName, prefix: fmt.Sprintf("wait-%d-%d-", f.turn, i), gangs: 1, size: b.sizes[i%len(b.sizes)],
				priority: churnPriorities[random.IntN(len(churnPriorities))], polite: true,
			}
			if w.size > 1 {
				w.min = w.size
			}
			if err := f.create(ctx, w); err != nil {
				return nil, err
			}
			wait = append(wait, contender{gang: w.gangName(0), priority: w.priority, size: w.size})
		}
		if err := await.Pause(ctx, time.Until(next)); err != nil {
			return nil, err
		}
	}
	return wait, f.age(ctx, wait)
}

// end ends pods, some each second, for as long as the window is.
func (b churn) end(ctx context.Context, f *fixture, fill workload, random *rand.Rand) error {
	order := random.Perm(fill.pods())
	for at := 0; at < int(churnWindow/time.Second)*endsPerSecond; at += endsPerSecond {
		next := time.Now().Add(time.Second)
		names := make([]string, endsPerSecond)
		for i := range names {
			names[i] = fill.at(order[at+i]).Name
		}
		if err := f.deletePods(ctx, names); err != nil {
			return err
		}
		if err := await.Pause(ctx, time.Until(next)); err != nil {
			return err
		}
	}
	return nil
}

// whileBusy measures a scheduler while work is done.
func (f *fixture) whileBusy(ctx context.Context, s *process, v values, work func() error) error {
	read := func() (cpu time.Duration, thread float64, err error) {
		served, err := s.metrics(ctx)
		if err != nil {
			return 0, 0, err
		}
		cpu, err = cpuOf(s.Pid())
		return cpu, sum(served, threadSeconds), err
	}
	start := time.Now()
	cpu, thread, err := read()
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	cpuAfter, threadAfter, err := read()
	if err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	v["cpu-%"], v["thread-busy-%"] = 100*(cpuAfter-cpu).Seconds()/took, 100*(threadAfter-thread)/took
	return nil
}

// threadSeconds is the metric that has how long the scheduling thread has been busy.
const threadSeconds = "scheduler_scheduling_algorithm_duration_seconds_sum"

// sum adds up a metric of all profiles.
func sum(served testutil.Metrics, name string) (total float64) {
	for _, profile := range served[name] {
		total += float64(profile.Value)
	}
	return total
}

// contender is a gang that waits.
type contender struct {
	gang     string
	priority int32
	created  time.Time // of its oldest member, in whole seconds
	size     int
}

// before reports whether a gang comes before another: of two of the same second neither does.
func (c contender) before(other contender) bool {
	if c.priority != other.priority {
		return c.priority > other.priority
	}
	return c.created.Before(other.created)
}

// change is a pod that got a node, or left one.
type change struct {
	at    time.Time
	pod   string
	bound bool
}

const (
	// together is how far apart two starts are whose order says nothing: bindings of several gangs are
	// under way at a time.
	together = 100 * time.Millisecond
	// known is how long something has to be free before a scheduler is expected to have known it when it
	// chose.
	known = 500 * time.Millisecond
)

// inverted counts the gangs that started, and describes those that started although one of higher rank
// waited that would have fit: in the place that they took, or in what had been free for a while. At first
// nothing is free.
func inverted(wait []contender, history []change) (starts int, inversions []string) {
	started := map[string]time.Time{}
	for _, c := range history {
		gang := gangOf(c.pod)
		if _, known := started[gang]; !known && c.bound {
			started[gang] = c.at
		}
	}
	for _, x := range wait {
		at, ok := started[x.gang]
		if !ok {
			continue
		}
		starts++
		room := max(x.size, freeFor(history, at, known))
		i := slices.IndexFunc(wait, func(y contender) bool {
			when, began := started[y.gang]
			return y.before(x) && y.size <= room && (!began || when.Sub(at) > together)
		})
		if i >= 0 {
			inversions = append(inversions, fmt.Sprintf("gang %s (priority %d, size %d) started before %s (priority %d, size %d), with %d free",
				x.gang, x.priority, x.size, wait[i].gang, wait[i].priority, wait[i].size, room))
		}
	}
	return starts, inversions
}

// freeFor returns how much was free all the time from a while before a moment until just before it.
func freeFor(history []change, at time.Time, while time.Duration) int {
	free, least := 0, -1
	for _, c := range history {
		if !c.at.Before(at) {
			break
		}
		if least < 0 && !c.at.Before(at.Add(-while)) {
			least = free
		}
		if c.bound {
			free--
		} else {
			free++
		}
		if least >= 0 {
			least = min(least, free)
		}
	}
	if least < 0 {
		return free
	}
	return least
}
