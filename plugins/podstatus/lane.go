package podstatus

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"golang.org/x/time/rate"
)

// Saying is why some pods wait. The zero value is nothing.
type Saying struct {
	Reason, Message string
	// Pods are those that are to say it, as they were last seen, in the order in which they are written to.
	Pods []*v1.Pod
	// Said is called once all of them say it; nil for nothing to call.
	Said func()
}

// Lane is things of one kind, named by keys, of which the pods are told in turn: a write for one, then one for the next, so
// that a thing of many pods does not keep one of few waiting. A process has a lane for gangs and one for pods in none; each
// has its own rate, and none waits behind another.
type Lane[K comparable] struct {
	writer *Writer
	client kubernetes.Interface
	limit  *rate.Limiter
	say    func(K) Saying
	queue  workqueue.TypedRateLimitingInterface[K]
}

const (
	// retryFirst and retryMost are the pauses after a write that failed.
	retryFirst, retryMost = time.Second, time.Minute
	// lookAgain is the pause where the next version of a pod is waited for.
	lookAgain = time.Second
)

// NewLane makes a lane of so many writes per second. say returns what is to be said of a key at the moment; it is asked right
// before each write.
func NewLane[K comparable](w *Writer, client kubernetes.Interface, qps int32, say func(K) Saying) *Lane[K] {
	return &Lane[K]{
		writer: w, client: client, say: say, limit: rate.NewLimiter(rate.Limit(qps), int(qps)),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryFirst, retryMost)),
	}
}

// Tell has the pods of a key told what there is to say, if they do not say it yet.
func (l *Lane[K]) Tell(key K) { l.queue.Add(key) }

// Wait waits for a part of the lane's rate, for what is told in another way than by pods.
func (l *Lane[K]) Wait(ctx context.Context) error {
	if err := l.limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the rate limit: %w", err)
	}
	return nil
}

// Run writes, from when this process schedules until it ends.
func (l *Lane[K]) Run(ctx context.Context) {
	defer l.queue.ShutDown()
	if !l.writer.leading.Wait(ctx) {
		return
	}
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

// left is what is left to be done after the turn of a key.
type left int

const (
	// nothing: all pods say it.
	nothing left = iota
	// more: there may be another pod to write to.
	more
	// unseen: some pod has changed since it was read, or says something else by now, and the watch has not told yet.
	unseen
)

// turn is that of a key: one write at most.
func (l *Lane[K]) turn(ctx context.Context, key K) {
	left, err := l.tell(ctx, key)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to tell a pod why it waits; trying again", "of", key)
			l.queue.AddRateLimited(key)
		}
		return
	}
	l.queue.Forget(key)
	switch left {
	case more:
		l.queue.Add(key)
	case unseen:
		l.queue.AddAfter(key, lookAgain)
	case nothing:
	}
}

// tell has the first pod say it that does not.
func (l *Lane[K]) tell(ctx context.Context, key K) (left, error) {
	if pod, left := l.next(l.say(key)); pod == nil {
		return left, nil // which costs no part of the rate
	}
	if err := l.Wait(ctx); err != nil {
		return nothing, err
	}
	s := l.say(key)
	pod, left := l.next(s)
	if pod == nil {
		return left, nil // it is not so any more
	}
	return more, l.writer.write(ctx, l.client, pod, s)
}

// next returns the next pod to write to. If there is none it notes that all say it, where they do.
func (l *Lane[K]) next(s Saying) (*v1.Pod, left) {
	result := nothing
	for _, pod := range s.Pods {
		if says(pod, s.Reason, s.Message) {
			continue
		}
		switch tried, says := l.writer.tried(pod, s); {
		case !tried:
			return pod, more
		case !says:
			result = unseen
		}
	}
	if result == nothing && s.Said != nil {
		s.Said()
	}
	return nil, result
}
