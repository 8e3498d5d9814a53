package podstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"golang.org/x/time/rate"

	"github.com/lockstep-sh/lockstep/plugins/leading"
)

// Writer is that of a process, whoever has something to say. It is safe for concurrent use.
type Writer struct {
	leading leading.Signal
	// attempts are the last write to each pod of late, by UID. They tell what the watch of pods does not yet.
	attempts *cache.Expiring
	// reasons bounds the writes of all lanes that have pods give another reason.
	reasons *rate.Limiter
}

// reasonsPerSecond is that bound: a gang of 1,000 is told in less than four seconds, and a storm of them leaves the API server
// room for bindings.
const reasonsPerSecond = 300

// attempt is a write to a version of a pod. What was refused since the pod had changed says nothing.
type attempt struct{ version, reason, message string }

// keepAttempts is how long an attempt is remembered: longer than a watch takes to deliver what it has led to.
const keepAttempts = time.Minute

// New makes a writer that begins once the process schedules.
func New(leads leading.Signal) *Writer {
	return &Writer{leading: leads, attempts: cache.NewExpiring(), reasons: rate.NewLimiter(reasonsPerSecond, reasonsPerSecond)}
}

// note remembers a write.
func (w *Writer) note(pod *v1.Pod, reason, message string) {
	w.attempts.Set(pod.UID, attempt{pod.ResourceVersion, reason, message}, keepAttempts)
}

// tried reports whether this version of a pod was written to, and whether that made it say this.
func (w *Writer) tried(pod *v1.Pod, s Saying) (tried, says bool) {
	last, known := w.attempts.Get(pod.UID)
	if !known || last.(attempt).version != pod.ResourceVersion {
		return false, false
	}
	return true, last == attempt{pod.ResourceVersion, s.Reason, s.Message}
}

// write has a pod say why it waits. A pod that has changed since it was read is left alone: its next version comes by the
// watch. So is one that is gone.
func (w *Writer) write(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, s Saying) error {
	status := pod.Status.DeepCopy()
	condition := v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: s.Reason, Message: s.Message,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.PodScheduled),
	}
	podutil.UpdatePodCondition(status, &condition)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []v1.PodCondition{condition}},
	})
	if err != nil {
		return fmt.Errorf("encoding the condition %s of pod %s: %w", v1.PodScheduled, klog.KObj(pod), err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsConflict(err):
		w.note(pod, "", "")
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("writing the condition %s of pod %s: %w", v1.PodScheduled, klog.KObj(pod), err)
	}
	w.note(pod, s.Reason, s.Message)
	return nil
}

// says reports whether a pod says in its status that it waits, for this reason and with this message. Where kube-scheduler has
// tried the pod it says so in words of its own around the message.
func says(pod *v1.Pod, reason, message string) bool {
	return gives(pod, reason) && (Word(pod).Message == message || isTried(Word(pod)) && quotes(Word(pod).Message, message))
}

// gives reports whether a pod says that it waits for this reason, in whatever words.
func gives(pod *v1.Pod, reason string) bool {
	current := Word(pod)
	return current != nil && current.Reason == reason
}

// isTried reports whether kube-scheduler may have said this of a pod that it has tried.
func isTried(word *v1.PodCondition) bool {
	return word.Reason == v1.PodReasonUnschedulable || word.Reason == v1.PodReasonSchedulerError
}

// Word returns what a pod says of why it waits; nil for nothing.
func Word(pod *v1.Pod) *v1.PodCondition {
	_, current := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
	if current == nil || current.Status != v1.ConditionFalse {
		return nil
	}
	return current
}

// quotes reports whether a text has a message in it, and not one that only begins like it: kube-scheduler puts words before
// what a plugin says, and more sentences after it.
func quotes(text, message string) bool {
	_, rest, found := strings.Cut(text, message)
	return found && (rest == "" || strings.HasPrefix(rest, "."))
}
