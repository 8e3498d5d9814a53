package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// found is a solution: the victims, and the plan that they make possible.
type found struct {
	plan      *planner.Plan
	selection victim.Selection
	harm      victim.Harm
	// victims are the pods to evict: those selected, and the rest of broken gangs.
	victims []*v1.Pod
	// from is the victims' nodes, as far as known.
	from  map[types.UID]string
	gangs map[string]evictions.Candidate
	// outrank are the holders on the nodes of the plan that must make way.
	outrank []hold.Holder
	domain  string
	// round is the one that found them; the zero value if no pod goes.
	round extensionpoints.Round
	// leaving are victims that were chosen before, on the preemptor's nodes.
	leaving []types.UID
	// preemption is the decision, once there is one.
	preemption *evictions.Preemption
}

// waits reports whether the preemptor fits once pods that are ending have ended.
func (f *found) waits() bool { return len(f.victims)+len(f.outrank) == 0 }

// textWorth says what an eviction gains and costs, for the log.
func (d *demand) textWorth(gain, cost float64) string {
	text := fmt.Sprintf("need %s, gain %.2f, cost %.2f", d.need, gain, cost)
	if cost > 0 {
		text += fmt.Sprintf(", ROI %.2f", gain/cost)
	}
	return text
}

// search looks for a solution, cheapest first: 1. the places of nominations, but for those of other queues, and of
// incomplete holders, which costs no pod; 2. nodes where Reservations make way; 3. evictions; 4. both. A preemptor that
// may not evict has only 1 and 2, and the room of pods that are ending. search returns nil if there is none. The
// deadline of d bounds all of it but the looks at all pods: then the running step ends with its best result, and no
// further step begins.
func (pl *GangPreemption) search(ctx context.Context, d *demand) (*found, error) {
	pause := pl.pauses.current(d.attempt.Group, pl.clock.Now())
	d.overBudget = false
	d.startTimer(pl.clock, pause.searchTime(pl.args.SearchTimeout.Duration))
	if d.pauses {
		return pl.searchRound(ctx, d, nil, nil, nil)
	}
	own := pl.holder(d)
	if pl.args.EvictionCooldown.Duration > 0 && !pl.continues(d) {
		pl.Underway.ConcludeDecisions(own)
	}
	rounds := sync.OnceValue(func() []extensionpoints.Round { return pl.planner().Rounds(ctx, d.gang, d.need) })
	var outranked []hold.Holder
	if !d.gang.Beyond {
		outranked = slices.DeleteFunc(pl.Holds.NominatedBelow(d.gang.Priority),
			func(holder hold.Holder) bool { return holder == own || pl.inAnotherQueue(holder, d, rounds()) })
		outranked = append(outranked, pl.partialHolders(d, own, rounds)...)
	}
	if len(outranked) > 0 {
		if result, err := pl.searchRound(ctx, d, outranked, nil, nil); err != nil || result != nil || d.timeIsUp() {
			return result, err
		}
	}
	if promises := pl.yielding(d); len(promises) > 0 && !d.gang.Beyond {
		if result, err := pl.searchPromised(ctx, d, outranked, promises); err != nil || result != nil || d.timeIsUp() {
			return result, err
		}
	}
	if d.never || d.delay > 0 {
		return pl.searchRound(ctx, d, nil, nil, nil)
	}
	besides := [][]hold.Holder{nil}
	if len(outranked) > 0 {
		besides = append(besides, outranked)
	}
	for i, round := range rounds() {
		for j, outrank := range besides {
			if i+j > 0 && d.timeIsUp() {
				return nil, nil
			}
			if result, err := pl.searchRound(ctx, d, outrank, nil, &round); err != nil || result != nil {
				return result, err
			}
		}
	}
	return nil, nil
}

// partialHolders lists the gangs that hold places while they wait for more and give these back for a preemptor:
// those of lower priority in its queue, and those of which a round says so.
func (pl *GangPreemption) partialHolders(d *demand, own hold.Holder,
	rounds func() []extensionpoints.Round) (holders []hold.Holder) {
	for holder, rank := range pl.Gangs.PartialHolders() {
		lower := rank.Priority < d.gang.Priority && !pl.inAnotherQueue(holder, d, rounds())
		if holder != own && (lower || slices.ContainsFunc(rounds(), func(round extensionpoints.Round) bool {
			return round.MakesWay != nil && round.MakesWay(holder)
		})) {
			holders = append(holders, holder)
		}
	}
	slices.SortFunc(holders, hold.Holder.Compare)
	return holders
}

// inAnotherQueue reports whether places are held for pods of another queue than a preemptor's. They do not make way:
// between queues priority does not count, and those that were evicted for them would have gone in vain.
func (pl *GangPreemption) inAnotherQueue(holder hold.Holder, d *demand, rounds []extensionpoints.Round) bool {
	if len(rounds) == 0 || rounds[0].Queue == nil {
		return false
	}
	queueOf := rounds[0].Queue
	return slices.ContainsFunc(pl.Holds.HoldsOf(holder), func(one hold.Hold) bool {
		pod, exists := pl.evictor.Pod(one.For)
		return exists && queueOf(pod) != "" && queueOf(pod) != queueOf(d.leader)
	})
}

// searchRound searches as if the outranked holders held nothing, without the nodes to avoid, by evicting the pods that
// a round permits; nil permits none.
func (pl *GangPreemption) searchRound(ctx context.Context, d *demand, outrank []hold.Holder, avoid sets.Set[string],
	round *extensionpoints.Round) (best *found, err error) {
	d.beginLook()
	defer d.endLook()
	room, err := pl.planner().Simulate(ctx, d.attempt, outrank)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, room.Discard(ctx)) }()
	infos := make([]fwk.NodeInfo, room.Len())
	for i := range infos {
		infos[i] = room.Node(i)
	}
	if why, err := pl.planner().Refuse(ctx, d.gang, infos); err != nil || why != "" {
		return nil, err
	}
	s, err := pl.newSearch(ctx, d, room, round)
	if err != nil || round == nil && len(outrank)+len(s.Ending) == 0 {
		return nil, err
	}
	domains, err := pl.domains(ctx, d, room, infos)
	if err != nil {
		return nil, err
	}
	for i := range domains {
		domains[i].nodes = slices.DeleteFunc(slices.Clone(domains[i].nodes),
			func(node int) bool { return avoid.Has(infos[node].Node().Name) })
	}
	best, err = s.bestDomain(ctx, domains)
	d.protectedUntil = times.Earlier(d.protectedUntil, s.ProtectedUntil())
	if best == nil || err != nil {
		return nil, err
	}
	best.outrank = pl.Holds.Among(outrank, slices.Values(best.nodes()))
	for _, node := range best.nodes() {
		best.leaving = append(best.leaving, s.victims[node]...)
	}
	if round != nil {
		best.round = *round
	}
	if best.waits() && len(s.Ending) == 0 {
		return nil, nil // no eviction helps against what keeps the gang out
	}
	return best, nil
}

// bestDomain tries as many domains as it may and returns the solution with the least harm, the first of equals. A part
// of the cluster that is no domain is better only if its victims are of a lower kind or priority.
func (s *searching) bestDomain(ctx context.Context, domains []domain) (*found, error) {
	var best *found
	tried := 0
	for i, domain := range domains {
		if domain.counts && tried == int(s.pl.args.MaxDomains) {
			s.d.untried++
			continue
		}
		enough := best != nil && (len(best.victims) == 0 || !domain.counts && best.harm.Kind == victim.Safe)
		if enough || i > 0 && s.d.timeIsUp() {
			s.d.untried += len(domains) - i
			return best, nil
		}
		result, simulated, err := s.tryDomain(ctx, domain, i == 0 || !domain.counts)
		if err != nil {
			return nil, fmt.Errorf("trying %s: %w", domain.name, err)
		}
		s.recordDomain(domain, result, simulated)
		if simulated && domain.counts {
			tried++
		}
		if result == nil {
			continue
		}
		compare := victim.Harm.Compare
		if !domain.counts {
			compare = victim.Harm.CompareKind
		}
		if best == nil || compare(result.harm, best.harm) < 0 {
			best = result
		}
		if domain.settles {
			s.d.untried += len(domains) - i - 1
			return best, nil
		}
	}
	return best, nil
}

// tryDomain looks for victims in a domain, and leaves the simulation unchanged. simulated: bounds did not rule the
// domain out. Bounds are part of the round's look: they ask about each pod once. untimed: so is the choice of
// candidates, until the preemptor is first tried.
func (s *searching) tryDomain(ctx context.Context, domain domain, untimed bool) (result *found, simulated bool,
	err error) {
	s.d.beginLook()
	defer s.d.endLook()
	// Bounds first, since they are cheap: in most domains the evictable pods do not suffice.
	if s.room.ShortWithout(domain.nodes, s.freed) > 0 {
		return nil, false, nil
	}
	usable, err := s.restrict(ctx, domain)
	if err != nil || usable == nil {
		return nil, usable == nil, err
	}
	if s.room.ShortWithout(usable, s.freed) > 0 {
		return nil, false, nil
	}
	if untimed {
		s.d.beginLook()
	}
	var gangs []victim.Gang
	if s.round != nil {
		gangs = s.gangsOn(usable)
		if domain.counts && s.room.ShortWithout(usable, s.freedBy(gangs).of) > 0 {
			return nil, false, nil // some evictable pods may not go without their gang
		}
	}
	result, err = s.selectAndPlace(ctx, gangs)
	s.d.endLook()
	again := err == nil && (result == nil || result.harm.Kind == victim.Whole)
	if again && s.preferFewerNodes(gangs) && !s.d.timeIsUp() {
		// The surplus may suffice if it is taken from fewer nodes.
		var other *found
		if usable, err = s.restrict(ctx, domain); usable != nil {
			other, err = s.selectAndPlace(ctx, gangs)
		}
		if other != nil && (result == nil || other.harm.Compare(result.harm) < 0) {
			result = other
		}
	}
	if result != nil {
		result.domain = domain.name
		if !domain.counts {
			result.domain = fmt.Sprintf("%d of %d nodes", len(result.nodes()), s.room.Len())
		}
	}
	return result, true, err
}

// restrict makes a domain the nodes to place on. It returns those that some member could use if the pods on it were
// gone; nil if the time is up before that is known.
func (s *searching) restrict(ctx context.Context, domain domain) (usable []int, err error) {
	s.d.endLook()
	bounded, cancel := context.WithTimeout(ctx, s.d.deadline.Sub(s.pl.clock.Now()))
	defer cancel()
	usable, err = s.room.Restrict(bounded, domain.nodes, int(s.pl.args.Workers))
	if bounded.Err() != nil && ctx.Err() == nil {
		s.d.cutShort = true
		return nil, nil
	}
	return usable, err
}

// selectAndPlace chooses victims on the restricted nodes, and places the preemptor there, in the simulation. It
// returns nil if the preemptor does not fit.
func (s *searching) selectAndPlace(ctx context.Context, gangs []victim.Gang) (result *found, err error) {
	start := s.room.Checkpoint()
	defer func() { err = errors.Join(err, s.room.Rollback(ctx, start)) }()
	problem := victim.Problem{
		Need: s.d.need, Gangs: gangs, Allowed: s.Budgets.Allowed(),
		Threshold: float64(s.pl.args.ROIThresholdPercent) / 100,
		Expired:   func() bool { return s.d.timeIsUp() },
	}
	if len(s.d.affinity) > 0 {
		problem.Attracts = func(pod victim.Pod) bool { return s.pl.attracts(ctx, s.d, s.Pod(pod.UID)) }
	}
	if s.round != nil {
		problem.Order = s.round.Order
		if tier := s.tier; tier != nil && tier.Budget != nil {
			problem.Budget = func() victim.Budget { return tier.Budget(s.Ending) }
		}
	}
	selection, ok, err := s.choose(ctx, problem)
	s.d.overBudget = s.d.overBudget || selection.OverBudget
	if err != nil || !ok {
		return nil, err
	}
	plan, err := s.room.Place(ctx)
	if err != nil {
		return nil, err
	}
	if !plan.Complete {
		return nil, fmt.Errorf("placing the preemptor: it does not fit where it just did")
	}
	result = &found{plan: plan, selection: selection, harm: selection.Harm(), gangs: s.Known(),
		from: map[types.UID]string{}}
	chosen := selection.Pods()
	if s.pl.args.EvictBrokenGangs {
		chosen = append(chosen, selection.Remnants...)
	}
	for _, pod := range chosen {
		result.victims = append(result.victims, s.Pod(pod.UID))
		if at, ok := s.Place(pod.UID); ok {
			result.from[pod.UID] = s.room.Node(at.Node).Node().Name
		}
	}
	return result, nil
}

// attracts reports whether a required affinity of the preemptor selects a pod.
func (pl *GangPreemption) attracts(ctx context.Context, d *demand, pod *v1.Pod) bool {
	namespace := interpodaffinity.GetNamespaceLabelsSnapshot(klog.FromContext(ctx), pod.Namespace, pl.namespaces)
	return slices.ContainsFunc(d.affinity, func(term fwk.AffinityTerm) bool { return term.Matches(pod, namespace) })
}

// choose asks the victim selectors of the profile first, then package victim.
func (s *searching) choose(ctx context.Context, problem victim.Problem) (victim.Selection, bool, error) {
	for _, selector := range s.pl.planner().Selectors {
		ids, decided := selector.GangVictimSelector(ctx, s.d.gang, s.d.need, problem.Gangs)
		if !decided {
			continue
		}
		rank := map[string]int{}
		for i, id := range ids {
			rank[id] = i
		}
		problem.Gangs = slices.DeleteFunc(slices.Clone(problem.Gangs),
			func(g victim.Gang) bool { _, ok := rank[g.ID]; return !ok })
		problem.Order = victim.Ranked(func(g *victim.Gang) int { return rank[g.ID] })
		break
	}
	return problem.Select(trial{s, ctx})
}

// trial removes and restores victims in the simulation of a search.
type trial struct {
	*searching
	ctx context.Context
}

// Remove takes pods off their nodes.
func (t trial) Remove(pods []victim.Pod) error { return t.each(pods, t.room.Remove) }

// Restore brings them back.
func (t trial) Restore(pods []victim.Pod) error { return t.each(pods, t.room.Restore) }

// MayFit returns false if bounds rule out that the preemptor fits.
func (t trial) MayFit() bool { return t.room.MayFit() }

// Fits reports whether the preemptor's minimum fits. It ends the look.
func (t trial) Fits() (bool, error) {
	t.d.endLook()
	return t.room.Fits(t.ctx)
}

func (t trial) each(pods []victim.Pod, do func(context.Context, fwk.PodInfo, int) error) error {
	for _, pod := range pods {
		if at, ok := t.Place(pod.UID); ok {
			if err := do(t.ctx, at.Info, at.Node); err != nil {
				return err
			}
		}
	}
	return nil
}
