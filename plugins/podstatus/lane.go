package podstatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// Lane is things of one kind, named by keys, of which the pods are told in turn. What reason pods give is told to many of them
// in one turn, some at a time: autoscalers go by the reason, and should see the whole demand of a gang at once. What they say
// in other words for the same reason is for people, and changes often: that is a write for one, then one for the next, so that a
// thing of many pods does not keep one of few waiting. A process has a lane for gangs and one for pods in none; each has its own
// rate for words, and none waits behind another.
type Lane[K comparable] struct {
	writer *Writer
	client kubernetes.Interface
	words  *rate.Limiter
	say    func(K) Saying
	queue  workqueue.TypedRateLimitingInterface[K]
}

const (
	// retryFirst and retryMost are the pauses after a write that failed.
	retryFirst, retryMost = time.Second, time.Minute
	// lookAgain is the pause where the next version of a pod is waited for.
	lookAgain = time.Second
	// inTurn is how many pods of a key are told a reason before the next key has its turn.
	inTurn = 512
	// atOnce is how many writes of a lane are under way at most: the API server answers more requests than these.
	atOnce = 16
)

// NewLane makes a lane of so many writes per second of other words. say returns what is to be said of a key at the moment; it
// is asked right before writes.
func NewLane[K comparable](w *Writer, client kubernetes.Interface, qps int32, say func(K) Saying) *Lane[K] {
	return &Lane[K]{
		writer: w, client: client, say: say, words: rate.NewLimiter(rate.Limit(qps), int(qps)),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryFirst, retryMost)),
	}
}

// Tell has the pods of a key told what there is to say, if they do not say it yet.
func (l *Lane[K]) Tell(key K) { l.queue.Add(key) }

// Wait waits for a part of the lane's rate, for what is told in another way than by pods.
func (l *Lane[K]) Wait(ctx context.Context) error { return wait(ctx, l.words, 1) }

func wait(ctx context.Context, limit *rate.Limiter, writes int) error {
	if err := limit.WaitN(ctx, writes); err != nil {
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

// left is what is left to be done after writes for a key.
type left int

const (
	// nothing: all pods say it.
	nothing left = iota
	// words: there may be pods that say it in other words.
	words
	// reasons: there may be pods that give another reason.
	reasons
	// unseen: some pod has changed since it was read, or says something else by now, and the watch has not told yet.
	unseen
)

// turn is that of a key.
func (l *Lane[K]) turn(ctx context.Context, key K) {
	for told := 0; ; {
		wrote, left, err := l.tell(ctx, key)
		if err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to tell a pod why it waits; trying again", "of", key)
				l.queue.AddRateLimited(key)
			}
			return
		}
		l.queue.Forget(key)
		if told += wrote; left == reasons && told < inTurn {
			continue
		}
		switch left {
		case words, reasons:
			l.queue.Add(key)
		case unseen:
			l.queue.AddAfter(key, lookAgain)
		case nothing:
		}
		return
	}
}

// tell has some pods say it that give another reason, or else one that says it in other words. It returns how many.
func (l *Lane[K]) tell(ctx context.Context, key K) (wrote int, left left, err error) {
	s := l.say(key)
	pods, left := l.next(s)
	if len(pods) == 0 {
		return 0, left, nil // which costs no part of the rate
	}
	limit := l.words
	if left == reasons {
		limit = l.writer.reasons
	}
	if granted := len(pods); !limit.AllowN(time.Now(), granted) {
		if err := wait(ctx, limit, granted); err != nil {
			return 0, nothing, err
		}
		s = l.say(key)
		if pods, left = l.next(s); len(pods) == 0 {
			return 0, left, nil // it is not so any more
		}
		pods = pods[:min(len(pods), granted)]
	}
	return len(pods), left, l.write(ctx, s, pods)
}

// write has pods say it, all at the same time.
func (l *Lane[K]) write(ctx context.Context, s Saying, pods []*v1.Pod) error {
	errs := make([]error, len(pods))
	var writes sync.WaitGroup
	for i, pod := range pods {
		writes.Go(func() { errs[i] = l.writer.write(ctx, l.client, pod, s) })
	}
	writes.Wait()
	return errors.Join(errs...)
}

// next returns the next pods to write to: some that give another reason, or else one that says it in other words. If there are
// none it notes that all say it, where they do.
func (l *Lane[K]) next(s Saying) ([]*v1.Pod, left) {
	var others, reworded []*v1.Pod
	result := nothing
	for _, pod := range s.Pods {
		if says(pod, s.Reason, s.Message) {
			continue
		}
		switch tried, says := l.writer.tried(pod, s); {
		case !tried && gives(pod, s.Reason):
			reworded = append(reworded, pod)
		case !tried:
			others = append(others, pod)
		case !says:
			result = unseen
		}
		if len(others) == atOnce {
			break
		}
	}
	switch {
	case len(others) > 0:
		return others, reasons
	case len(reworded) > 0:
		return reworded[:1], words
	}
	if result == nothing && s.Said != nil {
		s.Said()
	}
	return nil, result
}
