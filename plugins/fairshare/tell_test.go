package fairshare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// writes are what pods are told. The first so many fail.
type writes struct {
	mu     sync.Mutex
	fail   int
	told   map[string]string
	called chan string
}

func (w *writes) write(_ context.Context, pod *v1.Pod, reason, message string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail > 0 {
		w.fail--
		return errors.New("the API server is away")
	}
	w.told[pod.Name] = reason + ": " + message
	select {
	case w.called <- pod.Name:
	default:
	}
	return nil
}

// speaking is a Dispatcher that tells pods, so many per second.
func speaking(t *testing.T, qps int32, w *writes, queues ...dispatch.Queue) *Dispatcher {
	t.Helper()
	d := newDispatcher(t, 8, 9, queues...)
	w.told, w.called = map[string]string{}, make(chan string, 100)
	d.teller = newTeller(d, qps, w.write)
	leading := make(chan struct{})
	close(leading)
	d.leading = leading
	return d
}

// tick lets time pass until something was told, or a second of everybody's.
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
	d := speaking(t, 1000, w, dispatch.Queue{Name: "a", Closed: true})
	p := pod("p", "a", 1, "")
	d.seeAll(p)
	d.offer(p)
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

// TestToldOnceItIs: nothing counts as told that was not written.
func TestToldOnceItIs(t *testing.T) {
	w := &writes{fail: 1}
	d := speaking(t, 1000, w, dispatch.Queue{Name: "a", Closed: true})
	p := pod("p", "a", 1, "")
	d.seeAll(p)
	d.offer(p)
	d.clock.(*testingclock.FakeClock).Step(time.Minute)
	job := "pod:p"
	told := func(d *Dispatcher) string {
		_, message := d.book.Said("p")
		return message
	}
	if err := d.teller.job(t.Context(), job); err == nil || told(d) != "" {
		t.Errorf("error %v, told %q; want one, and nothing", err, told(d))
	}
	d.change(func() { d.queueGone("a") })
	if err := d.teller.job(t.Context(), job); err != nil || told(d) != `queue "a" does not exist` {
		t.Errorf("error %v, told %q", err, told(d))
	}
	if err := d.teller.job(t.Context(), job); err != nil || len(w.called) != 1 {
		t.Errorf("error %v, told %d times, want once", err, len(w.called))
	}
}

// TestUnread: what seems to be so while queues are not read yet nobody is told, but that they are not; and once they are,
// what is so, at once.
func TestUnread(t *testing.T) {
	for queue, want := range map[string]string{"": `QueueTurn: waiting for its turn in queue "default"`, "a": `QueueClosed: queue "a" is closed`} {
		t.Run("queue "+queue, func(t *testing.T) {
			d := newDispatcher(t, 8, 0)
			d.opened = false
			p := pod("p", queue, 1, "")
			d.seeAll(p)
			d.offer(p)
			told := func() string {
				t.Helper()
				notice, due := d.book.Untold("pod:p", d.moment())
				if !due {
					return ""
				}
				d.book.Told(notice, d.moment())
				return string(notice.Reason) + ": " + notice.Message
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
				d.book.SetQueue(dispatch.Queue{Name: "a", Weight: 1, Closed: true})
				d.opened = true
			})
			step("they are read", want, 0)
		})
	}
}

// explaining notes the gangs that are to be explained.
type explaining struct {
	noGangs
	keys chan string
}

func (e explaining) Wants(pod *v1.Pod) (gang.Want, bool) {
	want := gang.Want{Pods: []*v1.Pod{pod}}
	if key, _, ok := gang.KeyOf(pod); ok {
		want.Job = key.String()
	}
	return want, true
}

func (e explaining) Explain(_ context.Context, _ string, keys []gang.Key) {
	for _, key := range keys {
		select {
		case e.keys <- key.Name:
		default:
		}
	}
}

// TestGangsAreToldFirst: a gang does not wait until thousands of pods have been told.
func TestGangsAreToldFirst(t *testing.T) {
	w := &writes{}
	d := speaking(t, 1, w, dispatch.Queue{Name: "a", Closed: true})
	e := explaining{keys: make(chan string, 10)}
	d.roster = e
	for i := range 300 {
		p := pod(fmt.Sprint("p", i), "a", 1, "")
		d.seeAll(p)
		d.offer(p)
	}
	go d.tell(t.Context())
	d.tick(t, w.called)
	late := inGang(pod("late", "a", 1, ""), "late")
	d.seeAll(late)
	d.offer(late)
	if got := d.tick(t, e.keys); got != "late" {
		t.Errorf("told %s", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) > 20 {
		t.Errorf("%d pods were told before it", len(w.told))
	}
}
