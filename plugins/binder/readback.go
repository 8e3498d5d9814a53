package binder

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
)

// readTimeout bounds one look at a pod, so that a connection that died without a
// word does not keep the next look waiting.
const readTimeout = 5 * time.Second

// readBackoff returns the pauses between looks at a pod. They grow, and are spread, so that the members of a gang do
// not come back to a troubled API server all at once.
func readBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 5 * time.Second}
}

// settle finds out whether a Binding is stored whose call did not succeed, and sends
// it again while it may yet be. Until that is known it does not return, unless the
// scheduler shuts down: a Bind that returns an error frees the node for other pods.
func (pl *Binder) settle(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string,
	status *fwk.Status) *fwk.Status {
	logger, begin := klog.FromContext(ctx), time.Now()
	info := logger.Info
	openBindings.Inc()
	defer openBindings.Dec()
	q := question{uid: pod.UID, node: node}
	q.sent(status.AsError(), begin)
	for first, pause := true, pl.patience(); ; {
		live, err := pl.read(ctx, pod)
		outcome, why := q.judge(live, err, time.Now())
		if first && outcome == gone {
			info = logger.V(2).Info // nothing is wrong
		}
		if first {
			info("A binding did not succeed; its node stays held until it is known whether it is stored",
				"pod", klog.KObj(pod), "node", node, "answer", status.Message())
			first = false
		}
		if outcome == again {
			var sent bool
			switch status, sent = pl.send(ctx, state, pod, node); {
			case status.IsSuccess():
				outcome = bound
				q.times++
			case sent:
				q.sent(status.AsError(), time.Now())
			}
		}
		if outcome != again && outcome != unknown {
			doubtful.WithLabelValues(outcome.String()).Inc()
			info("It is known what became of a binding", "pod", klog.KObj(pod), "node", node,
				"outcome", outcome.String(), "sent", q.times, "took", time.Since(begin))
			if outcome == gone && q.open(live, err) {
				binding.LeaveOpen(state)
			}
			return q.status(outcome, pod, status, why)
		}
		select {
		case <-ctx.Done():
			doubtful.WithLabelValues("abandoned").Inc()
			return fwk.AsStatus(fmt.Errorf("binding pod %s/%s to node %s: %w before it was known whether it is stored; the "+
				"last answer: %s",
				pod.Namespace, pod.Name, node, context.Cause(ctx), status.Message()))
		case <-time.After(pause.Step()):
		}
	}
}

// read gets the pod as it is stored, not as a cache has it.
func (pl *Binder) read(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	// No resource version: the API server returns the newest.
	return pl.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
}

// deletedError is a binding.ErrDeleted in words of its own.
type deletedError struct{ error }

func (deletedError) Is(target error) bool { return target == binding.ErrDeleted }

// status returns what Bind returns for an outcome.
func (q *question) status(o outcome, pod *v1.Pod, last *fwk.Status, why string) *fwk.Status {
	switch o {
	case bound:
		return nil
	case failed:
		return last
	}
	err := fmt.Errorf("binding pod %s/%s to node %s: %s", pod.Namespace, pod.Name, q.node, why)
	if o == gone {
		return fwk.NewStatus(fwk.Unschedulable).WithError(deletedError{err}) // kube-scheduler logs errors as such
	}
	return fwk.AsStatus(err)
}
