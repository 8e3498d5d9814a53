package reservation

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// withClient is a framework that is only asked for its client.
type withClient struct {
	framework.Framework
	client kubernetes.Interface
}

func (w withClient) ClientSet() kubernetes.Interface { return w.client }

// uses reports that every pod uses the same; nil: nothing.
type uses struct {
	Reservations
	what *reservationstate.Allocation
	bind error
	told *[]string
}

func (u uses) PodBound(*v1.Pod) { *u.told = append(*u.told, "bound") }
func (u uses) Release(*v1.Pod)  { *u.told = append(*u.told, "returned") }

func (u uses) Allocation(*v1.Pod) (reservationstate.Allocation, bool) {
	if u.what == nil {
		return reservationstate.Allocation{}, false
	}
	return *u.what, true
}

func (u uses) Bind(context.Context, *v1.Pod, string) error { return u.bind }

// TestWhatIsWritten: what a pod uses is in its annotations when it is bound, and nothing that it does not use. The
// binder writes it where it can, and then it costs no call.
func TestWhatIsWritten(t *testing.T) {
	held := &reservationstate.Allocation{Name: "r", UID: "u", Index: 3}
	for sentence, c := range map[string]struct {
		before string // on the pod
		uses   *reservationstate.Allocation
		notes  bool // the binder can write
		named  bool
		calls  int
		note   string
		after  string
		code   fwk.Code
	}{
		"the binder writes it":                      {uses: held, notes: true, note: held.String(), code: fwk.Skip},
		"the binder cannot":                         {uses: held, calls: 1, after: held.String(), code: fwk.Skip},
		"it uses nothing":                           {notes: true, code: fwk.Skip},
		"it is there already":                       {before: held.String(), uses: held, notes: true, after: held.String(), code: fwk.Skip},
		"what it used in an attempt before is gone": {before: held.String(), notes: true, calls: 1, code: fwk.Skip},
		"somebody has written what it does not use": {before: "nonsense", calls: 1, code: fwk.Skip},
		"what it asked for by name ended meanwhile": {named: true, notes: true, code: fwk.Unschedulable},
		"something else than in an attempt before":  {before: "x", uses: held, notes: true, note: held.String(), after: "x", code: fwk.Skip},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := st.MakePod().Namespace("default").Name("p").UID("p").Obj()
			if c.before != "" {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.ReservationAllocatedAnnotation, c.before)
			}
			client := fake.NewClientset(pod)
			pl := &Reservation{handle: withClient{client: client}, reservations: uses{what: c.uses}, notes: func() bool { return c.notes }}
			state := framework.NewCycleState()
			if c.named {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.ReservationAnnotation, "r")
			}
			if status := pl.Bind(t.Context(), state, pod, "node"); status.Code() != c.code {
				t.Errorf("status %v, want %v", status, c.code)
			}
			if got := len(client.Actions()); got != c.calls {
				t.Errorf("%d calls, want %d", got, c.calls)
			}
			if got := binding.Annotations(state)[v1alpha1.ReservationAllocatedAnnotation]; got != c.note {
				t.Errorf("the binder is to write %q, want %q", got, c.note)
			}
			now, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			if got := now.Annotations[v1alpha1.ReservationAllocatedAnnotation]; err != nil || got != c.after {
				t.Errorf("annotation %q, %v; want %q", got, err, c.after)
			}
		})
	}
}

// TestReservePodsAreBoundHere: no binder ever gets one.
func TestReservePodsAreBoundHere(t *testing.T) {
	pod := st.MakePod().Namespace("default").Name(reservepods.PodName("r", 0)).UID("u/0/1").Obj()
	for _, c := range []struct {
		err  error
		code fwk.Code
	}{{nil, fwk.Success}, {errors.New("it has ended"), fwk.Error}} {
		pl := &Reservation{reservations: uses{bind: c.err}}
		if status := pl.Bind(t.Context(), framework.NewCycleState(), pod, "node"); status.Code() != c.code {
			t.Errorf("status %v where its Reservation says %v", status, c.err)
		}
	}
}

// TestWhatBecameOfABinding: a pod that was bound, or may have been, uses its placement for good.
func TestWhatBecameOfABinding(t *testing.T) {
	pod := st.MakePod().Namespace("default").Name("p").UID("p").Obj()
	for sentence, c := range map[string]struct {
		do   func(pl *Reservation, state fwk.CycleState)
		want string
	}{
		"bound":     {func(pl *Reservation, state fwk.CycleState) { pl.PostBind(t.Context(), state, pod, "node") }, "bound"},
		"not bound": {func(pl *Reservation, state fwk.CycleState) { pl.Unreserve(t.Context(), state, pod, "node") }, "returned"},
		"nobody knows": {func(pl *Reservation, state fwk.CycleState) {
			binding.LeaveOpen(state)
			pl.Unreserve(t.Context(), state, pod, "node")
		}, "bound returned"},
	} {
		var told []string
		c.do(&Reservation{reservations: uses{told: &told}}, framework.NewCycleState())
		if got := strings.Join(told, " "); got != c.want {
			t.Errorf("%s: told %q, want %q", sentence, got, c.want)
		}
	}
}
