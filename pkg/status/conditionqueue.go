package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// PendingCondition is why some pods wait. The zero value means that there is nothing to write.
type PendingCondition struct {
	Reason, Message string
	// Pods are the pods that are to have it in their condition, as they were last seen, in the order in which they are
	// written to.
	Pods []*v1.Pod
}

// ConditionQueue is things of one kind, named by keys, whose pods are written to in turn. A new reason is written to
// many pods of a key in one turn, some at a time: autoscalers go by the reason, and should see the whole demand of a
// gang at once. Other words for the same reason are for people, and change often: that is a write for one key, then
// one for the next, so that a thing of many pods does not keep one of few waiting. A process has a queue for gangs and
// one for pods in none; each has its own rate for words, and none waits behind another.
//
// A pod that cannot be written to is tried again after a pause of its own, which grows. No other pod waits for it
// meanwhile.
type ConditionQueue[K comparable] struct {
	writer         *Writer
	client         kubernetes.Interface
	messageLimiter *rate.Limiter
	say            func(K) PendingCondition
	queue          workqueue.TypedDelayingInterface[K]
	// first are places for writes under way, and again are those for pods to which the last write failed: where the API
	// server does not answer for these, they take nothing from others.
	first, again chan struct{}
	writes       sync.WaitGroup
}

const (
	// lookAgain is the pause where the next version of a pod is waited for, or a place for a write.
	lookAgain = time.Second
	// turnTime is how long a reason is written to pods of a key before the next key has its turn.
	turnTime = time.Second
	// freshFor is how long an answer of what to write counts as true without asking again.
	freshFor = 50 * time.Millisecond
	// atOnce is how many writes of a queue are under way at most: the API server answers more requests than these.
	atOnce = 16
	// againAtOnce is how many more there may be to pods to which the last one failed.
	againAtOnce = 4
)

// NewConditionQueue makes a queue of so many writes per second of other words. say returns what to write for a key at
// the moment; it is called right before writes.
func NewConditionQueue[K comparable](w *Writer, client kubernetes.Interface, qps int32,
	say func(K) PendingCondition) *ConditionQueue[K] {
	return &ConditionQueue[K]{
		writer: w, client: client, say: say, messageLimiter: rate.NewLimiter(rate.Limit(qps), int(qps)),
		queue: workqueue.NewTypedDelayingQueue[K](), first: make(chan struct{}, atOnce),
		again: make(chan struct{}, againAtOnce),
	}
}

// Tell makes the queue write to the pods of a key what say returns for it, if they do not have it yet.
func (l *ConditionQueue[K]) Tell(key K) { l.queue.Add(key) }

// Wait waits for a part of the queue's rate, for what is written elsewhere than to pods.
func (l *ConditionQueue[K]) Wait(ctx context.Context) error { return wait(ctx, l.messageLimiter) }

func wait(ctx context.Context, limit *rate.Limiter) error {
	if err := limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the rate limit: %w", err)
	}
	return nil
}

// Run writes, from when this process schedules until it ends.
func (l *ConditionQueue[K]) Run(ctx context.Context) {
	defer l.queue.ShutDown()
	if !l.writer.leading.Wait(ctx) {
		return
	}
	defer l.writes.Wait()
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	for {
		key, down := l.queue.Get()
		if down {
			return
		}
		l.turn(ctx, key)
		l.queue.Done(key)
	}
}

// turn gives a key its turn.
func (l *ConditionQueue[K]) turn(ctx context.Context, key K) {
	var now step
	for began := time.Now(); ; {
		if now = l.ask(key, now); len(now.pods) == 0 {
			l.later(key, now) // which costs no part of the rate
			return
		}
		places, err := l.admit(ctx, now.kind)
		if err != nil {
			return // the process ends
		}
		if now = l.ask(key, now); len(now.pods) == 0 { // it took a while, and no longer holds
			<-places
			l.later(key, now)
			return
		}
		l.begin(ctx, key, now.pods[0], now.saying, places)
		now.pods = now.pods[1:]
		if now.kind == rewordings || time.Since(began) >= turnTime {
			l.queue.Add(key)
			return
		}
	}
}

// step is the next work for a key.
type step struct {
	saying PendingCondition
	kind   kind
	// pods are the pods to write to; empty for none at the moment.
	pods []*v1.Pod
	// pause is after what time there may be some without a further Tell; 0 where the key is added again anyway.
	pause time.Duration
	asked time.Time
}

// kind is the kind of a write.
type kind int

const (
	// reasons are for pods that give another reason.
	reasons kind = iota
	// retries are for pods to which the last write failed.
	retries
	// rewordings are for pods that give the reason in other words.
	rewordings
)

// ask finds out what to do next for a key, unless that is known.
func (l *ConditionQueue[K]) ask(key K, known step) step {
	if now := time.Now(); len(known.pods) == 0 || now.Sub(known.asked) > freshFor {
		known = l.next(l.say(key), now)
	}
	return known
}

// later makes a key be looked at again after the pause of its step, if it has one.
func (l *ConditionQueue[K]) later(key K, s step) {
	if s.pause > 0 {
		l.queue.AddAfter(key, s.pause)
	}
}

// admit waits for a place for a write and a part of the rate. It returns the channel that the place is given back to.
func (l *ConditionQueue[K]) admit(ctx context.Context, kind kind) (chan struct{}, error) {
	places, limit := l.first, l.writer.reasons
	switch kind {
	case reasons:
	case retries:
		places = l.again
	case rewordings:
		limit = l.messageLimiter
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for other writes: %w", ctx.Err())
	}
	if err := wait(ctx, limit); err != nil {
		<-places
		return nil, err
	}
	return places, nil
}

// begin begins a write. Its key has a turn once it has ended, since other pods may have waited for that, or all have
// it by now.
func (l *ConditionQueue[K]) begin(ctx context.Context, key K, pod *v1.Pod, s PendingCondition, places chan struct{}) {
	l.writer.begin(pod)
	l.writes.Go(func() {
		defer l.queue.Add(key)
		defer func() { <-places }()
		if err := l.writer.write(ctx, l.client, pod, s); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to tell a pod why it waits; trying again", "of", key)
		}
	})
}

// next returns the next write: to the pods that give another reason, then to one to which a write failed, then to one
// that gives the reason in other words.
func (l *ConditionQueue[K]) next(s PendingCondition, now time.Time) step {
	next := step{saying: s, asked: now}
	var failed, reworded []*v1.Pod
	for _, pod := range s.Pods {
		if says(pod, s.Reason, s.Message) {
			continue
		}
		switch last := l.writer.last(pod); {
		case last.underWay, last.version != "" && last.version == pod.ResourceVersion:
			next.wait(lookAgain) // the watch has not delivered what came of it
		case last.failures > 0 && now.Before(last.next):
			next.wait(last.next.Sub(now))
		case last.failures > 0:
			failed = append(failed, pod)
		case Gives(pod, s.Reason):
			reworded = append(reworded, pod)
		default:
			next.pods = append(next.pods, pod)
		}
	}
	free := len(l.again) < cap(l.again)
	switch {
	case len(next.pods) > 0:
		next.kind = reasons
	case len(failed) > 0 && free:
		next.kind, next.pods = retries, failed[:1]
	case len(reworded) > 0:
		next.kind, next.pods = rewordings, reworded[:1]
	case len(failed) > 0:
		next.wait(lookAgain)
	}
	return next
}

// wait takes in a pause after which there may be something to do.
func (s *step) wait(pause time.Duration) {
	if s.pause == 0 || pause < s.pause {
		s.pause = pause
	}
}
