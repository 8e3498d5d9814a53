package reservationstate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// story is a Reservation to which things happen at random. The status is updated only now and then, so
// that several things come together.
type story struct {
	t     *testing.T
	rand  *rand.Rand
	now   time.Time
	r     *v1alpha1.Reservation
	pods  []Consumer
	nodes map[string]Node
	made  int
	log   []string
}

func TestStories(t *testing.T) {
	for seed := range uint64(200) {
		s := &story{t: t, rand: rand.New(rand.NewPCG(seed, 0)), now: made, nodes: map[string]Node{}}
		s.r = reserve(1+s.rand.Int32N(4), ttl(s.some(48)), func(r *v1alpha1.Reservation) { r.Spec.AllocateOnce = new(s.rand.IntN(2) == 0) })
		if s.rand.IntN(3) == 0 {
			starts(s.some(24))(s.r)
		}
		for range 60 {
			s.happen()
			if s.rand.IntN(2) == 0 {
				s.look()
			}
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, s.log)
			}
		}
	}
}

// some returns a number of hours, or none.
func (s *story) some(hours int) time.Duration { return time.Duration(s.rand.IntN(hours)) * time.Hour }

func (s *story) node() string { return fmt.Sprintf("n%d", s.rand.IntN(5)) }

// happen lets one thing happen.
func (s *story) happen() {
	what := ""
	switch s.rand.IntN(10) {
	case 0, 1:
		s.now = s.now.Add(s.some(6) + time.Duration(s.rand.IntN(2))*time.Millisecond)
		what = "time goes on"
	case 2, 3:
		what = s.place()
	case 4, 5:
		s.made++
		c := user(fmt.Sprintf("w%d", s.made), s.rand.Int32N(5), s.node(), 1+s.rand.Int64N(3))
		c.Created = s.now
		if i := slices.IndexFunc(s.r.Status.Placements, func(p v1alpha1.ReservationPlacement) bool { return p.Index == c.Index }); i >= 0 && s.rand.IntN(4) > 0 {
			c.Node = s.r.Status.Placements[i].NodeName
		}
		s.pods = append(s.pods, c)
		what = fmt.Sprintf("pod %s uses %d on %s", c.Name, c.Index, c.Node)
	case 6:
		if len(s.pods) > 0 {
			i := s.rand.IntN(len(s.pods))
			what = s.pods[i].Name + " ends"
			s.pods[i].Ended = true
			if s.rand.IntN(2) == 0 {
				s.pods = slices.Delete(s.pods, i, i+1)
			}
		}
	case 7, 8:
		node, is := s.node(), Node(s.rand.IntN(3))
		s.nodes[node] = is
		what = fmt.Sprintf("node %s is %d", node, is)
	case 9:
		what = s.edit()
	}
	s.log = append(s.log, fmt.Sprintf("%s: %s\n", s.now.Sub(made), what))
}

// place finds a place for placements without one, as the scheduler does: for all of them, or none.
func (s *story) place() string {
	if Ended(s.r.Status.Phase) || expired(s.r, s.now) || s.now.Before(Start(s.r)) {
		return "nothing is sought"
	}
	for i := range int32(Replicas(s.r)) {
		if slices.ContainsFunc(s.r.Status.Placements, func(p v1alpha1.ReservationPlacement) bool { return p.Index == i }) {
			continue
		}
		node := s.node()
		s.nodes[node] = NodeThere
		s.r.Status.Placements = append(s.r.Status.Placements, v1alpha1.ReservationPlacement{Index: i, NodeName: node, Allocatable: amount(1+s.rand.Int64N(4), 1)})
	}
	s.r.Status.Phase = v1alpha1.ReservationAvailable
	return "placed"
}

// edit changes a part of the spec that may be changed, or deletes the Reservation.
func (s *story) edit() string {
	switch s.rand.IntN(8) {
	case 0, 1, 2:
		s.r.Spec.TTL = &metav1.Duration{Duration: s.some(48)}
		return "ttl " + s.r.Spec.TTL.Duration.String()
	case 3:
		s.r.Spec.Expires = new(metav1.NewTime(s.now.Add(s.some(48) - 6*time.Hour)))
		return "expires " + s.r.Spec.Expires.String()
	case 4:
		s.r.Spec.Expires = nil
		return "does not expire"
	case 5:
		s.r.DeletionTimestamp = new(metav1.NewTime(s.now))
		return "deleted"
	default:
		return "nothing"
	}
}

// look updates the status, and checks it.
func (s *story) look() {
	before := s.r.DeepCopy()
	status, again := Next(s.r, Observed{Consumers: s.pods, Nodes: s.nodes}, s.now)
	s.log = append(s.log, fmt.Sprintf("%s: %s, again %s\n", s.now.Sub(made), status.Phase, again.Sub(made)))
	if !equality.Semantic.DeepEqual(before, s.r) {
		s.t.Errorf("the Reservation was changed:\n%s", cmp.Diff(before, s.r))
	}
	shuffled := slices.Clone(s.pods)
	s.rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if other, _ := Next(s.r, Observed{Consumers: shuffled, Nodes: s.nodes}, s.now); !equality.Semantic.DeepEqual(other, status) {
		s.t.Errorf("in another order it is another:\n%s", cmp.Diff(status, other))
	}
	s.r.Status = *status.DeepCopy()
	if same, at := Next(s.r, Observed{Consumers: s.pods, Nodes: s.nodes}, s.now); !equality.Semantic.DeepEqual(same, status) || !at.Equal(again) {
		s.t.Errorf("asked again, it is another, at %s:\n%s", at, cmp.Diff(status, same))
	}
	s.checkEnd(before, again)
	s.checkAmounts()
	if Ended(before.Status.Phase) {
		return
	}
	s.checkPlacements(before)
}

// checkEnd: final is final, and it ends when it should: not before, and not after.
func (s *story) checkEnd(before *v1alpha1.Reservation, again time.Time) {
	at, status := Expiry(before), s.r.Status
	over := !at.IsZero() && !s.now.Before(at)
	switch {
	case Ended(before.Status.Phase):
		if !equality.Semantic.DeepEqual(before.Status, status) {
			s.t.Errorf("it had ended, and has changed:\n%s", cmp.Diff(before.Status, status))
		}
	case !Ended(status.Phase) && (over || before.DeletionTimestamp != nil):
		s.t.Errorf("it is %s after its end, %s", status.Phase, at)
	case !Ended(status.Phase) && !at.IsZero() && (again.IsZero() || again.After(at) || !again.After(s.now)):
		s.t.Errorf("it ends at %s, and is looked at at %s", at, again)
	case status.Phase == v1alpha1.ReservationFailed && !over && before.DeletionTimestamp == nil:
		s.t.Errorf("it has failed before its end, %s", at)
	case status.Phase == v1alpha1.ReservationSucceeded && !IsSingleUse(before):
		s.t.Error("it has succeeded, and was to be used again")
	}
}

// checkAmounts: no more is used than is held, and the sums are sums.
func (s *story) checkAmounts() {
	allocatable, allocated := resource.Vector{}, resource.Vector{}
	for _, p := range s.r.Status.Placements {
		has, used := resource.FromList(p.Allocatable), resource.FromList(p.Allocated)
		for name := range used {
			if used[name] > has[name] {
				s.t.Errorf("placement %d: %d of %d %s are used", p.Index, used[name], has[name], name)
			}
		}
		allocatable.Add(has, 1)
		allocated.Add(used, 1)
	}
	if Ended(s.r.Status.Phase) && len(s.r.Status.Placements) == 0 {
		return
	}
	for what, pair := range map[string][2]resource.Vector{
		"allocatable": {allocatable, resource.FromList(s.r.Status.Allocatable)}, "allocated": {allocated, resource.FromList(s.r.Status.Allocated)},
	} {
		if sum, says := pair[0].String(), pair[1].String(); sum != says {
			s.t.Errorf("%s: %s, the sum is %s", what, says, sum)
		}
	}
}

// checkPlacements: none is made up, those on nodes that are there stay, and the pods on them are its owners.
func (s *story) checkPlacements(before *v1alpha1.Reservation) {
	var want, got []string
	owners, spent := 0, 0
	for _, p := range before.Status.Placements {
		on := slices.DeleteFunc(slices.Clone(s.pods), func(c Consumer) bool { return c.Index != p.Index || c.Node != p.NodeName })
		isSpent := p.Spent || IsSingleUse(before) && len(on) > 0
		if s.nodes[p.NodeName] == NodeGone && !isSpent {
			continue
		}
		if isSpent {
			spent++
		}
		want = append(want, fmt.Sprint(p.Index, p.NodeName, isSpent))
		owners += len(slices.DeleteFunc(on, func(c Consumer) bool { return c.Ended }))
	}
	for _, p := range s.r.Status.Placements {
		got = append(got, fmt.Sprint(p.Index, p.NodeName, p.Spent))
	}
	if !slices.Equal(want, got) {
		s.t.Errorf("placements %v, want %v", got, want)
	}
	if int(s.r.Status.OwnerCount) != owners {
		s.t.Errorf("%d owners, want %d", s.r.Status.OwnerCount, owners)
	}
	phase, whole := s.r.Status.Phase, len(want) == Replicas(before)
	switch {
	case phase == v1alpha1.ReservationAvailable && !whole, phase == v1alpha1.ReservationPending && whole:
		s.t.Errorf("it is %s with %d of %d placements", phase, len(want), Replicas(before))
	case phase == v1alpha1.ReservationSucceeded && spent < Replicas(before), phase == v1alpha1.ReservationAvailable && spent == Replicas(before):
		s.t.Errorf("it is %s with %d of %d placements used", phase, spent, Replicas(before))
	}
}
