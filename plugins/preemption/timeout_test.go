package preemption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// hasty is a clock on which time passes whenever it is looked at.
type hasty struct {
	*clocktesting.FakeClock
	step time.Duration
}

func (h *hasty) Now() time.Time {
	h.Step(h.step)
	return h.FakeClock.Now()
}

// hurry makes the time of a search pass while it looks at the clock so many times.
func (s *stage) hurry(looks int) *hasty {
	clock := &hasty{clocktesting.NewFakeClock(time.Now()), time.Second}
	s.clock, s.args.SearchTimeout.Duration = clock, time.Duration(looks)*time.Second
	return clock
}

// singles returns nodes that are full of pods of one GPU each, in no gang.
func singles(nodes, gpus int) (list []*v1.Node, pods []*v1.Pod) {
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		list = append(list, node(name, gpus, fmt.Sprint("r", i)))
		for j := range gpus {
			pods = append(pods, member(fmt.Sprintf("v%02d%02d", i, j), 0, 0, 10, 1, name))
		}
	}
	return list, pods
}

// alone makes pods stay on nodes of their own, which sums of resources do not tell: away from others, and each other.
func alone(others, pods []*v1.Pod) []*v1.Pod {
	for _, pod := range slices.Concat(others, pods) {
		pod.Labels = map[string]string{"alone": "no"}
	}
	for i, pod := range pods {
		apart := &st.PodWrapper{Pod: *pod}
		pods[i] = apart.PodAntiAffinityIn("alone", v1.LabelHostname, []string{"no"}, st.PodAntiAffinityWithRequiredReq).Obj()
	}
	return pods
}

// TestSearchTimeout: a search whose time is up takes victims that it has found and that suffice; else it finds none,
// says so, and the preemptor looks again soon.
func TestSearchTimeout(t *testing.T) {
	nodes, pods := singles(4, 8)
	none, more := 0, 0
	for looks := 1; ; looks++ {
		s := newStage(t, nodes, pods)
		s.hurry(looks)
		d := s.demand(t, gangspec.Spec{}, alone(pods, members("p", 3, 3, 100, 1))...)
		f, err := s.search(s.ctx, d)
		switch {
		case err != nil:
			t.Fatal(err)
		case f == nil && !d.cutShort:
			t.Fatalf("%d looks: no victims, and not for want of time", looks)
		case f == nil:
			none++
		case len(f.plan.Nodes) != 3 || len(f.victims) < 24:
			t.Errorf("%d looks: %d victims for %d members", looks, len(f.victims), len(f.plan.Nodes))
		case len(f.victims) > 24 && !d.cutShort:
			t.Errorf("%d looks: %d victims, and not for want of time", looks, len(f.victims))
		case d.cutShort:
			more++
			if note := preempting(d, f, s.cutShortMessage(d)).Note; !strings.HasSuffix(note, "; fewer victims might do: the search was cut short after the searchTimeout of "+s.args.SearchTimeout.Duration.String()) {
				t.Errorf("%d looks: the event says %q", looks, note)
			}
		}
		if !d.cutShort {
			break
		}
	}
	if none == 0 || more == 0 {
		t.Errorf("%d searches that found nothing and %d that were not done tell little", none, more)
	}
}

// lingering returns two rounds in which each look at a pod takes a second. The second permits to evict all.
type lingering struct {
	opinion
	clock *clocktesting.FakeClock
}

func (r *lingering) VictimRounds(context.Context, extensionpoints.Gang, victim.Vector) (rounds []extensionpoints.Round) {
	for _, all := range []bool{false, true} {
		rounds = append(rounds, extensionpoints.Round{Name: "test", Order: victim.Preempt(), Tiers: []extensionpoints.Tier{{
			Permits: func(*v1.Pod) bool { r.clock.Step(time.Second); return all },
		}}})
	}
	return rounds
}

// TestSearchTimeoutIsBesideLooks: however long it takes to look at all pods, in each round, the first search finds the
// victims, and no more than are needed; of several racks, at least those in the first.
func TestSearchTimeoutIsBesideLooks(t *testing.T) {
	for sentence, c := range map[string]struct {
		spec     gangspec.Spec
		members  int
		apart    bool  // which sums do not tell
		first    int32 // how many nodes it looks at before all
		cutShort bool
	}{
		"in the whole cluster":                             {members: 3, first: 100},
		"in the whole cluster, after half of it":           {members: 3, first: 2},
		"in the whole cluster, after trials in half of it": {members: 3, first: 2, apart: true},
		"in racks, of which others are not tried":          {spec: gangspec.Spec{RequiredTopology: rack}, members: 1, cutShort: true},
		"in racks that it would rather have, and all":      {spec: gangspec.Spec{Layout: gangspec.Layout{Levels: []gangspec.Level{{Key: rack}}}}, members: 4, first: 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			nodes, pods := singles(4, 8)
			preemptor := members("p", c.members, c.members, 100, 8)
			if c.apart {
				preemptor = alone(pods, members("p", c.members, c.members, 100, 1))
			}
			clock := clocktesting.NewFakeClock(time.Now())
			s := newStageWith(t, &lingering{clock: clock}, nodes, pods)
			s.clock, s.args.SearchTimeout.Duration = clock, time.Second
			s.args.MinCandidateNodesPercentage, s.args.MinCandidateNodesAbsolute = 10, c.first
			d := s.demand(t, c.spec, preemptor...)
			f, err := s.search(s.ctx, d)
			if err != nil || f == nil || len(f.victims) != 8*c.members || d.cutShort != c.cutShort {
				t.Errorf("found %s, cut short: %v, %v, want %d victims", f.names(), d.cutShort, err, 8*c.members)
			}
		})
	}
}

// inquired is a budget of which each question takes a millisecond.
type inquired struct {
	allowance
	clock *clocktesting.FakeClock
}

func (b *inquired) Take(gang *victim.Gang, pods []victim.Pod) bool {
	b.clock.Step(time.Millisecond)
	return b.allowance.Take(gang, pods)
}

// budgeted returns rounds that permit to evict all, but only so many.
type budgeted struct {
	opinion
	rounds, left int
	clock        *clocktesting.FakeClock
}

func (r *budgeted) VictimRounds(context.Context, extensionpoints.Gang, victim.Vector) []extensionpoints.Round {
	return slices.Repeat([]extensionpoints.Round{{Name: "test", Order: victim.Preempt(), Tiers: []extensionpoints.Tier{{
		Permits: func(*v1.Pod) bool { return true },
		Budget:  func(map[types.UID]bool) victim.Budget { return &inquired{allowance{r.left}, r.clock} },
	}}}}, r.rounds)
}

// TestSearchTimeoutOfBudgets: the time is that of the whole search, however many rounds it has, and choices that
// budgets refuse. Beside it there is one look in each round, and the choice that is being made when the time is up.
func TestSearchTimeoutOfBudgets(t *testing.T) {
	const ask = 100 * 8 * time.Millisecond // asks a budget for each pod
	nodes, pods := singles(100, 8)
	for _, left := range []int{1, 7} {
		for _, timeout := range []time.Duration{10 * time.Millisecond, time.Second, 2 * time.Second} {
			clock := clocktesting.NewFakeClock(time.Now())
			s := newStageWith(t, &budgeted{rounds: 20, left: left, clock: clock}, nodes, pods)
			s.clock, s.args.SearchTimeout.Duration = clock, timeout
			d := s.demand(t, gangspec.Spec{}, member("p", 0, 1, 100, 8, ""))
			started := clock.Now()
			f, err := s.search(s.ctx, d)
			if took := clock.Since(started); err != nil || f != nil || !d.cutShort || took > timeout+4*ask {
				t.Errorf("with %d left it took %s of %s, cut short: %v, found %s, %v", left, took, timeout, d.cutShort, f.names(), err)
			}
		}
	}
}

// yields is a holder that makes way.
type yields struct {
	noPromises
	holder hold.Holder
}

func (y yields) Yielding(int32) []hold.Holder { return []hold.Holder{y.holder} }

// TestSearchTimeoutOfPromises: the time is also that of the search for fewer nodes on which promises break.
func TestSearchTimeoutOfPromises(t *testing.T) {
	nodes, _ := singles(64, 1)
	plugin := &slow{clock: clocktesting.NewFakeClock(time.Now())}
	s := newStageWith(t, plugin, nodes, nil)
	s.clock, s.args.SearchTimeout.Duration = plugin.clock, 2*time.Second
	other := hold.Holder{Profile: profile, Group: "default/other"}
	s.Promises = yields{holder: other}
	for _, one := range nodes {
		s.Holds.Nominate(hold.Hold{For: types.UID(one.Name), Holder: other, Node: one.Name, Priority: 1000, Request: victim.Vector{gpu: 1}})
	}
	d := s.demand(t, gangspec.Spec{}, members("p", 64, 64, 100, 1)...)
	f, err := s.search(s.ctx, d)
	if err != nil || f == nil || len(f.outrank) != 1 || plugin.asked != 3 {
		t.Errorf("found %+v in %d searches, %v, want the place of the promises in 3", f, plugin.asked, err)
	}
}

// TestSearchTimeoutOfDomains: the time is that of the whole search, however many domains it has.
func TestSearchTimeoutOfDomains(t *testing.T) {
	nodes, pods := singles(40, 2)
	s := newStage(t, nodes, pods)
	clock := s.hurry(10)
	s.args.MaxDomains = 1000
	started := clock.FakeClock.Now()
	d := s.demand(t, gangspec.Spec{RequiredTopology: rack}, members("p", 1, 1, 100, 2)...)
	f, err := s.search(s.ctx, d)
	if err != nil || f == nil || len(f.victims) != 2 {
		t.Fatalf("found %+v, %v", f, err)
	}
	if took := clock.FakeClock.Now().Sub(started); took > 15*time.Second || !d.cutShort || d.untried == 0 {
		t.Errorf("it took %s, cut short: %v, %d domains were not tried", took, d.cutShort, d.untried)
	}
}

// TestSearchTimeoutOfClasses: the time is up also while it is found out which nodes the members could use at all, each
// of which keeps away only from pods of its own label.
func TestSearchTimeoutOfClasses(t *testing.T) {
	const n = 600
	nodes, pods := singles(2*n, 1)
	preemptor := members("p", n, n, 100, 1)
	for i, pod := range preemptor {
		own := fmt.Sprint("p", i)
		pod.Labels = map[string]string{"own": own}
		apart := &st.PodWrapper{Pod: *pod}
		preemptor[i] = apart.PodAntiAffinityIn("own", v1.LabelHostname, []string{own}, st.PodAntiAffinityWithRequiredReq).Obj()
	}
	s := newStage(t, nodes, pods)
	s.args.SearchTimeout.Duration = 100 * time.Millisecond
	d := s.demand(t, gangspec.Spec{}, preemptor...)
	started := time.Now()
	_, err := s.search(s.ctx, d)
	if took := time.Since(started); err != nil || !d.cutShort || took > 200*s.args.SearchTimeout.Duration { // it takes minutes otherwise
		t.Errorf("it took %s, cut short: %v, %v", took, d.cutShort, err)
	}
}

// TestMoreTime: a preemptor whose searches are cut short has more time in each, until one finds victims.
func TestMoreTime(t *testing.T) {
	nodes, pods := singles(4, 8)
	s := newStage(t, nodes, pods)
	clock := s.hurry(2)
	preemptor := alone(pods, []*v1.Pod{member("p", 0, 0, 100, 1, "")})[0]
	for searches := 1; ; searches++ {
		d := s.demand(t, gangspec.Spec{}, preemptor)
		f, err := s.search(s.ctx, d)
		must.Succeed(t, err)
		if f != nil {
			if searches == 1 {
				t.Error("its first search has time enough, which tells nothing")
			}
			return
		}
		if !d.cutShort || searches > 5 {
			t.Fatalf("search %d found no victims in %s", searches, d.timeout)
		}
		s.pauses.record(d.attempt.Group, clock.FakeClock.Now(), time.Second, foundTooLate, msgTooLate)
	}
}

// TestTooLate: the preemptor is told that the time was up, not that no eviction would help, and comes again.
func TestTooLate(t *testing.T) {
	nodes, pods := singles(4, 8)
	s := newStage(t, nodes, pods)
	clock := s.hurry(2)
	s.Decisions = decisions.New()
	preemptor := alone(pods, []*v1.Pod{member("p", 0, 0, 100, 1, "")})[0]
	_, status := s.PostFilter(s.ctx, framework.NewCycleState(), preemptor, nil)
	want := "preemption: no victims found within the searchTimeout of 2s; the next search has up to twice as long: if this stays, raise searchTimeout, or lower maxDomains or maxCandidateNodesAbsolute"
	if got := status.Message(); got != want {
		t.Errorf("it is told %q, want %q", got, want)
	}
	if list := s.Decisions.All(); len(list) != 1 || "preemption: "+list[0].Why != want || list[0].Domains[0].Outcome != "cut short: no choice of victims fitted within searchTimeout" {
		t.Errorf("remembered is %+v", list)
	}
	clock.step = 0
	pause := s.pauses.current(hold.SinglePod(preemptor.UID), clock.Now())
	if left := pause.until.Sub(clock.Now()); pause.why != foundTooLate || left <= 0 || left > longestPause {
		t.Errorf("it pauses for %s, cause %d", left, pause.why)
	}
}
