package fairshare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// writes are the statuses that pods get. The first fail writes fail.
type writes struct {
	mu     sync.Mutex
	fail   int
	told   map[string]string
	called chan string
}

// patch handles a write to the status of a pod.
func (w *writes) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail > 0 {
		w.fail--
		return true, nil, errors.New("the API server is away")
	}
	patch := action.(clienttesting.PatchAction)
	pod := &v1.Pod{}
	if err := json.Unmarshal(patch.GetPatch(), pod); err != nil {
		return true, nil, err
	}
	name := patch.GetName()
	w.told[name] = pod.Status.Conditions[0].Reason + ": " + pod.Status.Conditions[0].Message
	select {
	case w.called <- name:
	default:
	}
	return true, pod, nil
}

// speaking returns a Dispatcher that writes the status of pods, so many per second.
func speaking(t *testing.T, qps int32, w *writes, queues ...queueing.Queue) *Dispatcher {
	t.Helper()
	d := newDispatcher(t, 8, 9, queues...)
	w.told, w.called = map[string]string{}, make(chan string, 100)
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", w.patch)
	leading := make(chan struct{})
	close(leading)
	d.leading = leading
	d.conditions = status.NewConditionQueue(status.New(leading), client, qps, d.say)
	return d
}

// tick lets the fake time pass until something was written, for 10 seconds of real time at most.
func (d *Dispatcher) tick(t *testing.T, told <-chan string) string {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		d.clock.(*testingclock.FakeClock).Step(tellEvery)
		select {
		case name := <-told:
			return name
		case <-deadline:
			t.Fatal("nobody is told")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestToldAgain: what could not be written is written later, as it is then.
func TestToldAgain(t *testing.T) {
	w := &writes{fail: 2}
	d := speaking(t, 1000, w, queueing.Queue{Name: "a", Closed: true})
	p := pod("p", "a", 1, "")
	d.seeAll(p)
	d.comes(p)
	go d.tell(t.Context())
	if got := d.tick(t, w.called); got != "p" {
		t.Errorf("told %s", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.told["p"]; got != `QueueClosed: queue "a" is closed` {
		t.Errorf("told %q", got)
	}
}

// TestWhatToSay: what is written is what is so then, not what was so when a pod was queued to be written to; and it is
// the same as long as it is so.
func TestWhatToSay(t *testing.T) {
	d := newDispatcher(t, 8, 9, queueing.Queue{Name: "a", Closed: true})
	p := pod("p", "a", 1, "")
	d.seeAll(p)
	d.comes(p)
	d.clock.(*testingclock.FakeClock).Step(time.Minute)
	says := func(want string, pods ...string) {
		t.Helper()
		if got := d.book.News(d.moment()).Pods; !slices.Equal(got, pods) {
			t.Errorf("to be told: %q, want %q", got, pods)
		}
		if saying := d.say("p"); saying.Message != want || len(saying.Pods) != 1 {
			t.Errorf("%d pods are to say %q, want that one says %q", len(saying.Pods), saying.Message, want)
		}
	}
	says(`queue "a" is closed`, "p") // which could not be written
	d.change(func() { d.queueGone("a") })
	says(`queue "a" does not exist`, "p")
	d.clock.(*testingclock.FakeClock).Step(time.Hour)
	says(`queue "a" does not exist`)
	d.lose(p)
	if saying := d.say("p"); len(saying.Pods) > 0 {
		t.Errorf("it is gone, and is to say %q", saying.Message)
	}
}

// TestReworded: a pod in no gang that did not fit, and that something keeps from more nodes, is told what does now; the
// first time it is told when it fails.
func TestReworded(t *testing.T) {
	for gives, want := range map[string]string{
		string(queueing.Behind):     `queue "a" would exceed its capability of 4 nvidia.com/gpu: other jobs of the queue would have to be preempted`,
		string(queueing.Capability): `queue "a" would exceed its capability of 4 nvidia.com/gpu: other jobs of the queue would have to be preempted`,
		v1.PodReasonUnschedulable:   "",
	} {
		d := newDispatcher(t, 100, 9, queueing.Queue{Name: "a", Capability: gpus(4)})
		p := pod("p", "a", 3, "")
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: gives, Message: "other words"}}
		d.seeAll(p)
		d.comes(p)
		d.Failed(p, errors.New("does not fit"))
		if saying := d.say("p"); len(saying.Pods) > 0 {
			t.Errorf("it says %s, its queue has room for it, and it is to say %q", gives, saying.Message)
		}
		d.book.Count("runs", queueing.Usage{Queue: "a", Amount: gpus(2), Runs: true})
		d.book.News(d.moment())
		got := ""
		if saying := d.say("p"); len(saying.Pods) > 0 {
			got = saying.Message
		}
		if got != want {
			t.Errorf("it says %s, and is to say %q, want %q", gives, got, want)
		}
	}
}

// TestRewordedWhilePatient: a pod in no gang that a limit refused in its turn is told what limits it now, also when it
// waits for another turn.
func TestRewordedWhilePatient(t *testing.T) {
	d := newDispatcher(t, 100, 9, queueing.Queue{Name: "a", Capability: gpus(4)})
	p := pod("p", "a", 3, "")
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: string(queueing.Capability), Message: "other words"}}
	d.seeAll(p)
	d.comes(p)
	d.book.Count("runs", queueing.Usage{Queue: "a", Amount: gpus(2), Runs: true})
	d.book.RecordFinding("p", true, false)
	d.Failed(p, unfit(fwk.Unschedulable))
	d.book.News(d.moment())
	d.book.SetQueues(queueing.Queue{Name: "a", Weight: 1, Capability: gpus(4), Closed: true})
	d.expire()
	d.comes(p)
	if news := d.book.News(d.moment()); len(news.Pods) != 1 || d.book.Phase("pod:p") != queueing.Waiting {
		t.Fatalf("news of %q in phase %d, want that it has to be told while it waits", news.Pods, d.book.Phase("pod:p"))
	}
	if saying := d.say("p"); saying.Reason != string(queueing.Closed) {
		t.Errorf("it is to say %q, want that its queue is closed", saying.Message)
	}
}

// TestUnread: while queues are not read yet, users get only that they are not, and nothing that seems to be so; once
// they are read, users get what is so, at once.
func TestUnread(t *testing.T) {
	for queue, want := range map[string]string{"": `QueueTurn: waiting for its turn in queue "default"`, "a": `QueueClosed: queue "a" is closed`} {
		t.Run("queue "+queue, func(t *testing.T) {
			d := newDispatcher(t, 8, 0)
			d.opened = false
			p := pod("p", queue, 1, "")
			d.seeAll(p)
			d.comes(p)
			told := func() string {
				t.Helper()
				if len(d.book.News(d.moment()).Pods) == 0 {
					return ""
				}
				saying := d.say("p")
				return saying.Reason + ": " + saying.Message
			}
			step := func(sentence, want string, passes time.Duration) {
				t.Helper()
				d.clock.(*testingclock.FakeClock).Step(passes)
				if got := told(); got != want {
					t.Errorf("%s: told %q, want %q", sentence, got, want)
				}
			}
			step("they may be read in a moment", "", 9*time.Second)
			step("they are not", "QueuesNotRead: waiting for queues and pods to be read; see the scheduler's log", time.Second)
			step("it was told", "", time.Hour)
			d.change(func() {
				d.book.SetQueues(queueing.Queue{Name: "a", Weight: 1, Closed: true})
				d.opened = true
			})
			step("they are read", want, 0)
		})
	}
}

// explaining notes the gangs for which Explain is called.
type explaining struct {
	noGangs
	keys chan string
}

func (e explaining) Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool) {
	want := gangstate.PlacementRequest{Pods: []*v1.Pod{pod}}
	if key, _, ok := gangspec.KeyOf(pod); ok {
		want.Job = key.String()
	}
	return want, true
}

func (e explaining) Explain(_ context.Context, _ string, keys []gangspec.Key) {
	for _, key := range keys {
		select {
		case e.keys <- key.Name:
		default:
		}
	}
}

// TestGangsAreToldFirst: a gang does not wait until thousands of pods have been written.
func TestGangsAreToldFirst(t *testing.T) {
	w := &writes{}
	d := speaking(t, 1, w, queueing.Queue{Name: "a", Closed: true})
	e := explaining{keys: make(chan string, 10)}
	d.gangs = e
	for i := range 3000 {
		p := pod(fmt.Sprint("p", i), "a", 1, "")
		d.seeAll(p)
		d.comes(p)
	}
	go d.tell(t.Context())
	d.tick(t, w.called)
	late := inGang(pod("late", "a", 1, ""), "late")
	d.seeAll(late)
	d.comes(late)
	if got := d.tick(t, e.keys); got != "late" {
		t.Errorf("told %s", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) > 1000 {
		t.Errorf("%d pods were told before it", len(w.told))
	}
}
