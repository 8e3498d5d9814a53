package eviction

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// since remembers for which pods something holds, and since when that is known. It is safe
// for concurrent use.
type since struct {
	mu   sync.Mutex
	pods map[types.UID]time.Time
}

func (s *since) note(pod types.UID, holds bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !holds {
		delete(s.pods, pod)
		return
	}
	if s.pods == nil {
		s.pods = map[types.UID]time.Time{}
	}
	if _, ok := s.pods[pod]; !ok {
		s.pods[pod] = now
	}
}

func (s *since) longerThan(d time.Duration, now time.Time) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []types.UID
	for pod, at := range s.pods {
		if now.Sub(at) >= d {
			pods = append(pods, pod)
		}
	}
	return pods
}

// finishAfter is how long a pod that was marked may run on.
const finishAfter = 5 * time.Second

// Seen updates what is known of a pod.
func (e *Evictor) Seen(pod *v1.Pod) { e.unfinished.note(pod.UID, e.Marked(pod), e.Clock.Now()) }

// Gone notes that a pod does not exist any more.
func (e *Evictor) Gone(pod types.UID) {
	now := e.Clock.Now()
	e.Underway.Gone(pod, now)
	e.unfinished.note(pod, false, now)
}

// Finish evicts pods that were marked and still run in a gang that was to be evicted whole, has lost pods
// since and is below its minimum: it must not stay in part. Where broken gangs are to be left
// alone, only pods with a mark are evicted. Where the gang can run on, or lost nothing since, or
// the pod was to be evicted by itself, the mark is taken back: if the pod has to go, the preemptor that needs its
// place chooses it again.
func (e *Evictor) Finish(ctx context.Context, now time.Time, evictBroken bool) {
	underway := e.Underway.All()
	for _, uid := range e.unfinished.longerThan(finishAfter, now) {
		pod, ok := e.Pod(uid)
		if !ok || underway[uid] || !e.Marked(pod) {
			continue
		}
		rest, err := e.leftOf(pod)
		switch {
		case err != nil:
			klog.FromContext(ctx).Error(err, "Failed to finish an eviction; trying again", "pod", klog.KObj(pod))
		case len(rest) == 0:
			e.Unmark(ctx, pod)
		default:
			e.finish(ctx, rest, markedOf(pod), evictBroken)
		}
	}
}

// leftOf returns what runs of the gang of a pod, and of the gangs that start together with it, where
// these were to be evicted whole, pods have gone since, and the rest is of no use; otherwise none.
func (e *Evictor) leftOf(pod *v1.Pod) ([]gang.Footprint, error) {
	of := OwnerOf(e.Gangs, pod)
	if of.IsPod() {
		return nil, nil
	}
	together, err := e.Together(of, pod)
	if err != nil || OnNodes(together) >= markedOf(pod) {
		return nil, err
	}
	all := e.Gangs.Running(of.Profile, of.Gang) // also gangs of which no pod runs any more
	if !slices.ContainsFunc(slices.Concat(all, together), func(f gang.Footprint) bool { return f.Whole || len(f.Running) < f.Min }) {
		return nil, nil
	}
	return together, nil
}

// finish evicts what is left of gangs that had so many pods.
func (e *Evictor) finish(ctx context.Context, left []gang.Footprint, of int, evictBroken bool) {
	for _, f := range left {
		for _, m := range f.Running {
			one, ok := e.Pod(m.Pod.UID)
			if !ok || one.Spec.NodeName == "" || !evictBroken && !e.Marked(one) {
				continue
			}
			if _, err := e.end(ctx, Turn{Pod: one, Marked: e.Marked(one), Of: of, Note: e.Words.Finishing}); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to finish an eviction; trying again", "pod", klog.KObj(one))
			}
		}
	}
}

// GiveUp ends the wait for victims that should have ended long ago. Preemptors look
// for other victims, and their clocks run.
func (e *Evictor) GiveUp(now time.Time) {
	for uid := range e.Underway.All() {
		if pod, ok := e.Pod(uid); ok && Stuck(pod, now) {
			e.Underway.Spared(uid)
		}
	}
}
