package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/observe"
)

// told measures how long it takes until all members of a large gang that does not fit have a condition that says so,
// once its last member has come: from then, and from the first condition.
type told struct {
	nodes, members int
}

func (b told) name() string { return fmt.Sprintf("Told/nodes=%d/members=%d", b.nodes, b.members) }

// toldWithin bounds the wait until all members have a condition.
const toldWithin = 2 * time.Minute

func (b told) run(ctx context.Context, f *fixture, r *report) (err error) {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	_, s, err := f.startWatched(ctx, ours)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	t := r.table(b.name(), []goal{{unit: "s-to-all-told", atMost: true, bound: 5}}, "scheduler=ours")
	for range f.rounds {
		f.turn++
		v, err := b.once(ctx, f, fmt.Sprint("wide-", f.turn, "-"))
		if err != nil {
			return err
		}
		r.add(t, 0, b.members, v)
		if err := f.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

// once makes all members but one, waits until their conditions say that members are missing, and makes the last.
func (b told) once(ctx context.Context, f *fixture, prefix string) (values, error) {
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	says := &conditions{since: map[string]map[string]time.Time{}}
	go observe.Follower[*v1.Pod]{From: observe.Core(f.client, "pods", namespace, fields.Everything()), See: says.see}.Run(ctx)
	w := workload{scheduler: ours.schedulerName, prefix: prefix, gangs: 1, size: b.members - 1, min: b.members}
	if err := f.create(ctx, w); err != nil {
		return nil, err
	}
	if err := says.until(ctx, v1alpha1.ReasonGangIncomplete, w.size); err != nil {
		return nil, err
	}
	w.size = b.members
	begin := time.Now()
	if err := f.createPod(ctx, w.at(w.size-1)); err != nil {
		return nil, err
	}
	if err := says.until(ctx, v1.PodReasonUnschedulable, b.members); err != nil {
		return nil, err
	}
	first, last := says.span(v1.PodReasonUnschedulable)
	return values{"s-to-all-told": last.Sub(begin).Seconds(), "s-first-to-last": last.Sub(first).Seconds()}, nil
}

// conditions are since when pods give reasons why they wait, by reason and name, as a watch delivers them.
type conditions struct {
	observe.Board
	since map[string]map[string]time.Time
}

func (c *conditions) see(_, after *v1.Pod) {
	if after == nil {
		return
	}
	c.Lock()
	defer c.Unlock()
	for _, condition := range after.Status.Conditions {
		if condition.Type != v1.PodScheduled || condition.Status != v1.ConditionFalse {
			continue
		}
		pods := c.since[condition.Reason]
		if pods == nil {
			pods = map[string]time.Time{}
			c.since[condition.Reason] = pods
		}
		if _, known := pods[after.Name]; !known {
			pods[after.Name] = time.Now()
			c.Changed()
		}
	}
}

// until waits until so many pods have given a reason.
func (c *conditions) until(ctx context.Context, reason string, pods int) error {
	if err := c.Wait(ctx, func() bool { return len(c.since[reason]) >= pods }); err != nil {
		return fmt.Errorf("waiting until %d pods give the reason %s: %w", pods, reason, err)
	}
	return nil
}

// span returns when the first and the last pod gave a reason.
func (c *conditions) span(reason string) (first, last time.Time) {
	c.Lock()
	defer c.Unlock()
	for _, at := range c.since[reason] {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}
