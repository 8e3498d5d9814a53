package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// found is room that can be made.
type found struct {
	plan      *planner.Plan
	selection victim.Selection
	harm      victim.Harm
	// victims are the pods to evict: those selected, and what is left of broken gangs.
	victims []*v1.Pod
	// from is where they stood, as far as that was looked up.
	from  map[types.UID]string
	gangs map[string]eviction.Candidate
	// outrank are the holders that have to make way.
	outrank []hold.Holder
	domain  string
	// round is the name of the round that found them, and done what it does to them.
	round, done string
	// claim names the decision in the ledger once it is acted upon.
	claim uint64
	// relies are victims of other preemptors, not being deleted yet, where the preemptor is to go.
	relies []types.UID
	// waits: it is enough to wait for pods that are ending anyhow.
	waits bool
}

// numbers returns the numbers of a selection that users read.
func (f *found) numbers(d *demand) string {
	gain, cost := f.selection.Gain(), f.selection.Cost()
	text := fmt.Sprintf("need %s, gain %.2f, cost %.2f", d.need, gain, cost)
	if cost > 0 {
		text += fmt.Sprintf(", ROI %.2f", gain/cost)
	}
	return text
}

// search looks for room: first in the place of what others of lower priority are nominated to, or
// hold without being complete, since that costs no pod; then where promises make way; then by
// evictions beside all that is held; then by both. A preemptor that may not evict has only the first
// two. Nil is no room.
func (pl *GangPreemption) search(ctx context.Context, d *demand) (*found, error) {
	own := pl.holder(d)
	if pl.args.EvictionCooldown.Duration > 0 && !pl.goesOn(d) {
		pl.Underway.Conclude(own)
	}
	outranked := slices.DeleteFunc(pl.Holds.NominatedBelow(d.priority), func(holder hold.Holder) bool { return holder == own })
	outranked = append(outranked, pl.Gangs.Hoards(d.priority, "")...)
	if len(outranked) > 0 {
		if result, err := pl.searchBeside(ctx, d, outranked, nil, nil); err != nil || result != nil {
			return result, err
		}
	}
	if promises := pl.yielding(d); len(promises) > 0 {
		if result, err := pl.searchPromised(ctx, d, outranked, promises); err != nil || result != nil {
			return result, err
		}
	}
	if d.never || d.delayed {
		return nil, nil
	}
	for _, round := range pl.points.Rounds(ctx, d.gang, d.need) {
		result, err := pl.searchBeside(ctx, d, nil, nil, &round)
		if err == nil && result == nil && len(outranked) > 0 {
			result, err = pl.searchBeside(ctx, d, outranked, nil, &round)
		}
		if err != nil || result != nil {
			return result, err
		}
	}
	return nil, nil
}

// searchBeside looks for room as if the holders that are outranked held nothing, on other nodes than
// those to be avoided, and by evicting the pods that a round permits; nil permits none.
func (pl *GangPreemption) searchBeside(ctx context.Context, d *demand, outrank []hold.Holder, avoid sets.Set[string], round *gangpoint.Round) (best *found, err error) {
	room, err := pl.planner.Room(ctx, d.attempt, outrank)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, room.Close(ctx)) }()
	infos := make([]fwk.NodeInfo, room.Len())
	for i := range infos {
		infos[i] = room.Node(i)
	}
	if why, err := pl.points.Refuse(ctx, d.gang, infos); err != nil || why != "" {
		return nil, err
	}
	gangs, err := pl.newCandidates(ctx, d, room, round)
	if err != nil {
		return nil, err
	}
	domains, err := pl.domains(ctx, d, room, infos)
	if err != nil {
		return nil, err
	}
	for i := range domains {
		domains[i].nodes = slices.DeleteFunc(slices.Clone(domains[i].nodes), func(node int) bool { return avoid.Has(infos[node].Node().Name) })
	}
	s := &searching{pl: pl, d: d, room: room, gangs: gangs, round: round}
	best, err = s.best(ctx, domains)
	d.spare(gangs.Spared())
	if best == nil || err != nil {
		return nil, err
	}
	best.outrank = outrank
	for _, node := range best.nodes() {
		best.relies = append(best.relies, gangs.promised[node]...)
	}
	if best.round = "make way"; round != nil {
		best.round, best.done = round.Name, round.Done
	}
	best.waits = len(best.victims)+len(outrank) == 0
	if best.waits && len(gangs.Ending) == 0 {
		return nil, nil // no eviction helps against what keeps the gang from its place
	}
	return best, nil
}

// searching is a search under way.
type searching struct {
	pl    *GangPreemption
	d     *demand
	room  *planner.Room
	gangs *candidates
	round *gangpoint.Round // nil: no pod is evicted
}

// freed returns what a node would have more if all pods went that may be evicted.
func (s *searching) freed(node int) (victim.Vector, int) {
	if s.round == nil {
		return nil, 0
	}
	return s.gangs.freed(node)
}

// best tries as many domains as it may and returns the one with the least harm, or, of equals, the
// first. A part of the cluster that is no domain is better only if the victims there are less
// important, or can be done without.
func (s *searching) best(ctx context.Context, domains []domain) (*found, error) {
	var best *found
	tried := 0
	for i, domain := range domains {
		if domain.counts && tried == int(s.pl.args.MaxDomains) {
			s.d.untried++
			continue
		}
		if best != nil && (len(best.victims) == 0 || !domain.counts && best.harm.Kind == victim.Safe) {
			s.d.untried += len(domains) - i
			return best, nil
		}
		result, simulated, err := s.try(ctx, domain)
		if err != nil {
			return nil, fmt.Errorf("trying %s: %w", domain.name, err)
		}
		s.note(domain, result, simulated)
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

// try looks for victims in a domain, and leaves the room as it was. simulated: arithmetic did not
// rule the domain out.
func (s *searching) try(ctx context.Context, domain domain) (result *found, simulated bool, err error) {
	// Arithmetic first, since it is cheap: what may be evicted is not enough in most domains.
	if s.room.ShortWithout(domain.nodes, s.freed) > 0 {
		return nil, false, nil
	}
	usable, err := s.room.Restrict(ctx, domain.nodes, int(s.pl.args.Workers))
	if err != nil {
		return nil, false, err
	}
	if s.room.ShortWithout(usable, s.freed) > 0 {
		return nil, false, nil
	}
	var gangs []victim.Gang
	if s.round != nil {
		gangs = s.gangs.among(usable)
		if domain.counts && s.room.ShortWithout(usable, s.gangs.freedBy(gangs, s.d.need)) > 0 {
			return nil, false, nil // a pod that may be evicted may not without its gang
		}
	}
	result, err = s.clear(ctx, gangs)
	if err == nil && (result == nil || result.harm.Kind == victim.Whole) && s.gangs.concentrate(gangs, s.d.need) {
		// The surplus may do if it is taken where it lies together.
		if _, err = s.room.Restrict(ctx, domain.nodes, int(s.pl.args.Workers)); err != nil {
			return nil, true, err
		}
		var other *found
		other, err = s.clear(ctx, gangs)
		if other != nil && (result == nil || other.harm.Compare(result.harm) < 0) {
			result = other
		}
	}
	if result != nil {
		result.domain = domain.name
	}
	return result, true, err
}

// clear chooses the victims on the nodes that the room is restricted to, and places the preemptor
// there, all in supposition. Nil is no room.
func (s *searching) clear(ctx context.Context, gangs []victim.Gang) (result *found, err error) {
	start := s.room.Checkpoint()
	defer func() { err = errors.Join(err, s.room.Rollback(ctx, start)) }()
	problem := victim.Problem{Need: s.d.need, Gangs: gangs, Allowed: s.gangs.Budgets.Allowed(), Threshold: float64(s.pl.args.ROIThresholdPercent) / 100}
	if s.round != nil {
		problem.Order = s.round.Order
		if tier := s.gangs.tier; tier != nil && tier.Budget != nil {
			problem.Budget = func() victim.Budget { return tier.Budget(s.gangs.Ending) }
		}
	}
	selection, ok, err := s.choose(ctx, problem)
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
	result = &found{plan: plan, selection: selection, harm: selection.Harm(), gangs: s.gangs.Known(), from: map[types.UID]string{}}
	chosen := selection.Pods()
	if s.pl.args.EvictBrokenGangs {
		chosen = append(chosen, selection.Remnants...)
	}
	for _, pod := range chosen {
		result.victims = append(result.victims, s.gangs.Pod(pod.UID))
		if at, ok := s.gangs.Place(pod.UID); ok {
			result.from[pod.UID] = s.room.Node(at.Node).Node().Name
		}
	}
	return result, nil
}

// choose asks the victim selectors of the profile first, then the library.
func (s *searching) choose(ctx context.Context, problem victim.Problem) (victim.Selection, bool, error) {
	for _, selector := range s.pl.points.Selectors {
		ids, decided := selector.GangVictimSelector(ctx, s.d.gang, s.d.need, problem.Gangs)
		if !decided {
			continue
		}
		rank := map[string]int{}
		for i, id := range ids {
			rank[id] = i
		}
		problem.Gangs = slices.DeleteFunc(slices.Clone(problem.Gangs), func(g victim.Gang) bool { _, ok := rank[g.ID]; return !ok })
		problem.Order = victim.Ranked(func(g *victim.Gang) int { return rank[g.ID] })
		break
	}
	return problem.Select(s.trial(ctx))
}

// trial tries victims in a room.
type trial struct {
	places          func(types.UID) (eviction.Place, bool)
	remove, restore func(fwk.PodInfo, int) error
	fits            func() (bool, error)
}

func (s *searching) trial(ctx context.Context) *trial {
	return &trial{
		places:  s.gangs.Place,
		remove:  func(info fwk.PodInfo, node int) error { return s.room.Remove(ctx, info, node) },
		restore: func(info fwk.PodInfo, node int) error { return s.room.Restore(ctx, info, node) },
		fits:    func() (bool, error) { return s.room.Fits(ctx) },
	}
}

// Remove supposes that pods are gone.
func (t *trial) Remove(pods []victim.Pod) error { return t.each(pods, t.remove) }

// Restore supposes that they are back.
func (t *trial) Restore(pods []victim.Pod) error { return t.each(pods, t.restore) }

// Fits reports whether the preemptor's minimum does.
func (t *trial) Fits() (bool, error) { return t.fits() }

func (t *trial) each(pods []victim.Pod, do func(fwk.PodInfo, int) error) error {
	for _, pod := range pods {
		if at, ok := t.places(pod.UID); ok {
			if err := do(at.Info, at.Node); err != nil {
				return err
			}
		}
	}
	return nil
}
