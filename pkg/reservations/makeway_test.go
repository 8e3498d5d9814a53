package reservations

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestYielding: only Reservations of a profile that yields make way, and only for a higher priority.
func TestYielding(t *testing.T) {
	for _, c := range []struct {
		yields       bool
		place        bool
		below        int32
		want         int
		unlookedUpon bool
	}{
		{yields: true, place: true, below: 101, want: 1},
		{yields: true, place: true, below: 100},
		{yields: true, below: 101},
		{place: true, below: 101},
		{yields: true, place: true, below: 101, unlookedUpon: true}, // its priority is not known yet
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			s := newStage(t)
			r := s.make("r", func(r *v1alpha1.Reservation) { r.Spec.Template.Spec.PriorityClassName = "hundred" })
			if c.place {
				on("a")(r)
			}
			profile := yes
			profile.yields = c.yields
			seeking(t, r, profile, s)
			class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "hundred"}, Value: 100}
			if _, err := s.client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if !c.unlookedUpon {
				s.lookNow("r")
			}
			if got := s.Yielding(c.below); len(got) != c.want || c.want > 0 && got[0] != holderOf(r.UID) {
				t.Errorf("%v make way", got)
			}
		})
	}
}

// TestYield: what is given up is written first, and free then; what is spent, elsewhere or of others
// stays.
func TestYield(t *testing.T) {
	conflict := apierrors.NewConflict(v1alpha1.ReservationResource.GroupResource(), "r", errors.New("it has changed"))
	for sentence, c := range map[string]struct {
		fail   []error
		holder hold.Holder
		fails  bool
		held   string
		says   string
	}{
		"on one of its nodes":              {held: "b: 4", says: "1 of 2 placements were preempted by pods of priority 1000; scheduling them again"},
		"somebody else writes meanwhile":   {fail: []error{conflict, conflict}, held: "b: 4", says: "1 of 2 placements were preempted by pods of priority 1000; scheduling them again"},
		"the API server does not answer":   {fail: []error{errors.New("no answer")}, fails: true, held: "a: 3, b: 4"},
		"somebody else is to make way":     {holder: hold.Holder{Profile: "reservation", Group: "other"}, held: "a: 3, b: 4"},
		"a gang that holds something, too": {holder: hold.Holder{Profile: "lockstep-scheduler", Group: "ns/g"}, held: "a: 3, b: 4"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			r := s.make("r", on("a", "b"), shared)
			profile := yes
			profile.yields = true
			api := seeking(t, r, profile, s)
			user := bound(owner("user", "1"), "a", r, 0)
			s.userChanged(user)
			if c.holder.IsNone() {
				c.holder = holderOf(r.UID)
			}
			api.before = func(_ *server, write int) (error, bool) {
				if write <= len(c.fail) {
					return c.fail[write-1], false
				}
				return nil, true
			}
			err := s.Yield(t.Context(), []hold.Holder{c.holder}, []string{"a", "c"}, 1000)
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			if got := s.held(); got != c.held {
				t.Errorf("held %q, want %q", got, c.held)
			}
			if _, says := api.scheduled(); says != c.says {
				t.Errorf("it says %q", says)
			}
			if c.says != "" && (api.object.Status.Phase != v1alpha1.ReservationPending || len(api.object.Status.Placements) != 1) {
				t.Errorf("status %+v", api.object.Status)
			}
			s.podEnded(user)
			if got := s.held(); c.says != "" && got != c.held {
				t.Errorf("held %q after its user has ended", got)
			}
		})
	}
}

// TestUsedMakesNoWay: a single-use placement that a pod has used makes no way, though the status does not say yet that
// it is spent: no other place is sought for it.
func TestUsedMakesNoWay(t *testing.T) {
	for sentence, c := range map[string]struct {
		nodes  []string
		placed string // in the status
	}{
		"one is used, the other makes way": {[]string{"a", "b"}, "0 on a"},
		"only the used one is there":       {[]string{"a"}, "0 on a, 1 on b"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			r := s.make("r", on("a", "b"))
			profile := yes
			profile.yields = true
			api := seeking(t, r, profile, s)
			s.userChanged(bound(owner("user", "4"), "a", r, 0))
			must.Succeed(t, s.Yield(t.Context(), []hold.Holder{holderOf(r.UID)}, c.nodes, 1000))
			var placed []string
			for _, p := range api.object.Status.Placements {
				placed = append(placed, fmt.Sprintf("%d on %s", p.Index, p.NodeName))
			}
			if got := strings.Join(placed, ", "); got != c.placed {
				t.Errorf("placements: %s, want %s", got, c.placed)
			}
		})
	}
}
