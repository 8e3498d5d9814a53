package scenario

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// defaultSettle is how long nothing may have changed before the rounds begin, and settleWithin how
	// long that may take to come: what belongs to an expectation, such as the conditions of other
	// members, may be written a moment after it holds.
	defaultSettle = 2 * time.Second
	settleWithin  = 20 * time.Second

	defaultRound = 400 * time.Millisecond
	warmUpRounds = 4

	// roundKey is a label and a resource of a node, changed in each round.
	// probeWithin is how long the scheduler may take to try one more pod.
	probeWithin = 10 * time.Second

	// probeClass is the priority of the runner's pods: below all others, and they never preempt.
	probeClass    = probeNamespace
	probePriority = -1000

	roundKey = "scenario.lockstep.dev/round"
)

// stayStable runs on for some scheduling rounds, in which nothing may change: no binding, eviction or
// nomination, no condition or annotation written anew, no status of a PodGroup.
func (r *run) stayStable(ctx context.Context, e *Expect) error {
	every := cmp.Or(e.RoundEvery.Duration, defaultRound)
	if err := r.warmUp(ctx, every, cmp.Or(e.Settle.Duration, defaultSettle)); err != nil {
		return err
	}
	from := r.entries()
	for i := range e.StableFor {
		r.rec.note(KindNote, "round %d of %d", i+1, e.StableFor)
		if err := r.round(ctx, every); err != nil {
			return err
		}
		if f := r.changes(from, Kind.flaps); len(f) > 0 {
			return append(failures{fmt.Sprintf("stable: %d changes by round %d, want none:", len(f), i+1)}, f...)
		}
	}
	return nil
}

// warmUp goes round until a round has changed nothing, and neither has the time after it. Why a pod
// waits may be written anew when it is tried for the first time after the last thing that happened; a
// binding or an eviction is a failure already.
func (r *run) warmUp(ctx context.Context, every, quiet time.Duration) error {
	from := r.entries()
	if err := r.settle(ctx, quiet, r.begin); err != nil {
		return err
	}
	for range warmUpRounds {
		before, begin := r.entries(), time.Now()
		r.rec.note(KindNote, "round before it counts")
		if err := r.round(ctx, every); err != nil {
			return err
		}
		if quiet > defaultSettle || len(r.changes(before, Kind.flaps)) > 0 {
			if err := r.settle(ctx, quiet, begin); err != nil {
				return err
			}
		}
		if f := r.changes(from, Kind.moves); len(f) > 0 {
			return append(failures{fmt.Sprintf("stable: %d changes after everything held, want none:", len(f))}, f...)
		}
		if len(r.changes(before, Kind.flaps)) == 0 {
			return nil
		}
	}
	f := r.changes(from, Kind.flaps)
	return append(failures{fmt.Sprintf("stable: %d changes in %d rounds, want a round without:", len(f), warmUpRounds)}, f...)
}

// entries returns the length of the timeline.
func (r *run) entries() int {
	r.rec.Lock()
	defer r.rec.Unlock()
	return len(r.rec.timeline)
}

// changes lists the entries of a kind since then, and the invariants that are broken.
func (r *run) changes(from int, kind func(Kind) bool) failures {
	r.rec.Lock()
	defer r.rec.Unlock()
	f := failures(r.rec.violations())
	for _, c := range r.rec.timeline[from:] {
		if kind(c.Kind) {
			f = append(f, fmt.Sprintf("  %s %s %s", c.Object, c.Kind, c.Text))
		}
	}
	return f
}

// settle waits until nothing has changed for so long since then.
func (r *run) settle(ctx context.Context, quiet time.Duration, since time.Time) error {
	deadline := time.Now().Add(settleWithin)
	for {
		r.rec.Lock()
		changed, last := r.rec.Next(), since
		for i := len(r.rec.timeline) - 1; i >= 0; i-- {
			if r.rec.timeline[i].Kind.flaps() {
				last = latest(since, r.rec.timeline[i].At)
				break
			}
		}
		r.rec.Unlock()
		left := time.Until(last.Add(quiet))
		if left <= 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return failures{fmt.Sprintf("stable: something changes at least every %s, for %s already", quiet, settleWithin)}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-time.After(left):
		}
	}
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// round makes the scheduler go round once: a pod without requests comes, is scheduled and goes, a node
// gets another label and more of a resource that no pod asks for. A scheduler that listens to what
// could help a pending pod gets events that might.
func (r *run) round(ctx context.Context, length time.Duration) error {
	r.rounds++
	end := time.After(length)
	if err := r.touchNode(ctx); err != nil {
		return err
	}
	if err := r.probe(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-r.died:
		return err
	case <-end:
		return nil
	}
}

// touchNode changes a label and a resource of one node, another in each round.
func (r *run) touchNode(ctx context.Context) error {
	r.rec.Lock()
	names := keys(r.rec.nodes)
	r.rec.Unlock()
	if len(names) == 0 {
		return nil
	}
	name := names[r.rounds%len(names)]
	nodes := r.site.client.Resource(nodesResource)
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, roundKey, r.rounds)
	if _, err := nodes.Patch(ctx, name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("labelling node %s: %w", name, err)
	}
	more := fmt.Appendf(nil, `{"status":{"capacity":{%q:"%d"},"allocatable":{%q:"%d"}}}`, roundKey, r.rounds, roundKey, r.rounds)
	if _, err := nodes.Patch(ctx, name, types.MergePatchType, more, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("giving node %s another resource: %w", name, err)
	}
	return nil
}

// probe makes the scheduler try a pod of the runner's own. That it is tried proves that the scheduler
// works; where there is no room for it, it stays pending.
func (r *run) probe(ctx context.Context) error {
	name := fmt.Sprintf("probe-%d", r.rounds)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: probeNamespace},
		Spec: v1.PodSpec{
			SchedulerName: DefaultScheduler, Containers: []v1.Container{{Name: "main", Image: "none"}},
			Tolerations:       []v1.Toleration{{Operator: v1.TolerationOpExists}},
			PriorityClassName: probeClass,
		},
	}
	pods := r.site.cluster.Clientset().CoreV1().Pods(probeNamespace)
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a pod to see whether the scheduler works: %w", err)
	}
	uid := created.UID
	err = r.waitWithin(ctx, probeWithin, func() bool { return r.rec.pods[uid] != nil && wasTried(r.rec.pods[uid]) })
	if err != nil {
		return failures{fmt.Sprintf("stable: the scheduler has not tried pod %s/%s within %s: %v", probeNamespace, name, probeWithin, err)}
	}
	err = pods.Delete(ctx, name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s/%s: %w", probeNamespace, name, err)
	}
	if err := r.waitWithin(ctx, probeWithin, func() bool { return r.rec.pods[uid].gone }); err != nil {
		return fmt.Errorf("waiting for pod %s/%s to be gone: %w", probeNamespace, name, err)
	}
	return nil
}
