package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// Writer is the one of a process, for all its queues. It is safe for concurrent use.
type Writer struct {
	leading leadership.Signal
	// attempts has the latest write to each pod, by UID, for a while. They know what the watch of pods has not
	// delivered yet.
	attempts *cache.Expiring
	// reasons bounds the writes that give pods another reason, over all queues.
	reasons *rate.Limiter
}

// reasonsPerSecond is that bound: a gang of 1,000 has its reason in less than four seconds, and a storm of gangs leaves
// the API server room for bindings.
const reasonsPerSecond = 300

// attempt is what came of the last write to a pod.
type attempt struct {
	// version is the one that was written to, if the API server took the write, or refused it since the pod had changed.
	version string
	// underWay: it has not ended.
	underWay bool
	// failures is how many have failed one after the other, and next is when the next one may begin.
	failures int
	next     time.Time
}

const (
	// keepAttempts is how long an attempt is remembered: longer than a write takes, than a watch takes to deliver what it
	// has led to, and than the pause before another.
	keepAttempts = 2 * time.Minute
	// retryFirst and retryMost are the pauses after a write that failed.
	retryFirst, retryMost = time.Second, time.Minute
	// WriteTimeout is how long a write of what users read may take. A webhook has 10 seconds unless it asks for more.
	WriteTimeout = 15 * time.Second
)

// New makes a writer that begins once the process schedules.
func New(leads leadership.Signal) *Writer {
	return &Writer{leading: leads, attempts: cache.NewExpiring(),
		reasons: rate.NewLimiter(reasonsPerSecond, reasonsPerSecond)}
}

// last returns what came of the last write to a pod of late.
func (w *Writer) last(pod *v1.Pod) attempt {
	if last, known := w.attempts.Get(pod.UID); known {
		return last.(attempt)
	}
	return attempt{}
}

// note remembers what came of a write to a pod.
func (w *Writer) note(pod *v1.Pod, a attempt) {
	w.attempts.Set(pod.UID, a, keepAttempts)
}

// pause returns how long to wait after so many writes, at least one, that failed one after the other.
func pause(failures int) time.Duration { return min(retryFirst<<min(failures-1, 10), retryMost) }

// begin notes that a write to a pod begins.
func (w *Writer) begin(pod *v1.Pod) {
	w.note(pod, attempt{underWay: true, failures: w.last(pod).failures})
}

// write writes into the status of a pod why it waits, and notes what came of it. A pod that has changed since it was
// read is left alone: its next version comes by the watch. So is one that is gone.
func (w *Writer) write(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, s PendingCondition) error {
	err := patch(ctx, client, pod, s)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		failures := w.last(pod).failures + 1
		w.note(pod, attempt{failures: failures, next: time.Now().Add(pause(failures))})
		return fmt.Errorf("writing the condition %s of pod %s: %w", v1.PodScheduled, klog.KObj(pod), err)
	}
	w.note(pod, attempt{version: pod.ResourceVersion})
	return nil
}

// patch writes to the version of a pod that was read.
func patch(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, s PendingCondition) error {
	status := pod.Status.DeepCopy()
	condition := v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: s.Reason, Message: s.Message,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.PodScheduled),
	}
	podutil.UpdatePodCondition(status, &condition)
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []v1.PodCondition{condition}},
	})
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body,
		metav1.PatchOptions{}, "status")
	return err
}

// says reports whether the status of a pod says that it waits, for this reason and with this message. On a
// pod that kube-scheduler has tried, its own words may stand after the message: see [PrefixMessage].
func says(pod *v1.Pod, reason, message string) bool {
	c := objectstate.WaitCondition(pod)
	return c != nil && c.Reason == reason && (c.Message == message || strings.HasPrefix(c.Message, message+between))
}

// Gives reports whether the status of a pod says that it waits for this reason, in whatever words.
func Gives(pod *v1.Pod, reason string) bool {
	current := objectstate.WaitCondition(pod)
	return current != nil && current.Reason == reason
}
