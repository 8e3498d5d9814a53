package gang

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/cyclestate"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// Reasons of nodes that Filter refuses.
const (
	// ErrReasonPlan is the reason of nodes that the gang's plan does not give to
	// the pod.
	ErrReasonPlan = "node(s) were not the one that the gang's plan gives to the pod"
	// ErrReasonDomain is the reason of nodes outside the domain in which the gang, or the
	// pod's slice of it, runs.
	ErrReasonDomain = "node(s) were outside the topology domain of the gang"
)

var visitKey fwk.StateKey = "lockstep.dev/" + Name

// visitState is what PreFilter found out about a pod, for the later extension
// points of its cycle.
type visitState struct {
	verdict gangstate.Verdict
	node    string // with Follow
	// attempt is the attempt of a gang of one, which needs no plan, and began when it began.
	attempt *gangstate.Attempt
	began   time.Time
	// extra: the gang runs without this member.
	extra bool
	place place
}

// Clone shares the state: after PreFilter only PreScore writes it.
func (s *visitState) Clone() fwk.StateData { return s }

// visitOf returns what PreFilter has written; nil if it did not get to the pod.
func visitOf(state fwk.CycleState) *visitState {
	return cyclestate.Read[*visitState](state, visitKey)
}

// PreFilter finds out what the cycle of this pod is for. For the leader of a group it
// makes the plan, and costs what the plan costs. For all other pods it is a
// look-up.
func (pl *Gang) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	_ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if err := gangspec.CheckPod(pod); err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if whatif.IsSimulated(state) || pl.gangs.InNoGang(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	var v gangstate.Cycle
	pl.gangs.WithGangs(func(s *gangstate.Gangs) { v = s.BeginCycle(pod) })
	if v.Verdict == gangstate.Lead {
		if v.Need = onlyNeed(v.Attempt); v.Need == nil || len(pl.outranked(v.Attempt)) > 0 {
			node, status := pl.lead(ctx, state, v.Attempt)
			if !status.IsSuccess() {
				state.Write(visitKey, &visitState{verdict: gangstate.Lead})
				return nil, status
			}
			v.Verdict, v.Node = gangstate.Follow, node
		}
	}
	visit := &visitState{verdict: v.Verdict, extra: v.Extra}
	if v.Verdict == gangstate.Lead {
		v.Verdict = gangstate.Alone // nothing to plan
		visit.verdict, visit.attempt, visit.began = v.Verdict, v.Attempt, pl.clock.Now()
	}
	state.Write(visitKey, visit)
	switch v.Verdict {
	case gangstate.Outside:
		return nil, fwk.NewStatus(fwk.Skip)
	case gangstate.Wait:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, v.Reason)
	case gangstate.Follow:
		ledger.Grant(state, pl.gangs.Holder(v.Group))
		visit.node = v.Node
		return &fwk.PreFilterResult{NodeNames: sets.New(v.Node)}, nil
	}
	pl.holds.Adopt(pl.gangs.Holder(hold.SinglePod(pod.UID)), []types.UID{pod.UID}) // room that was made for its gang
	one := gangstate.SinglePodAttempt(pod, *v.Need)
	if v.Attempt != nil {
		one.PreemptionDelay, one.Missed = v.Attempt.PreemptionDelay, v.Attempt.Missed
	}
	planner.WriteAttempt(state, one)
	visit.place = pl.placeOf(one)
	return nil, nil
}

// onlyNeed returns the gang of an attempt that needs no plan: it is the only one of its group, and one pod is all there
// is to place. It is scheduled as kube-scheduler schedules any pod.
func onlyNeed(a *gangstate.Attempt) *gangstate.Need {
	need := &a.Gangs[0]
	if len(a.Gangs) > 1 || need.Min != 1 || len(need.Pending) != 1 || len(need.Placed) > 0 || len(need.Floor) > 0 {
		return nil
	}
	return need
}

// lead plans a group and stores the plan. It returns the leader's own node.
func (pl *Gang) lead(ctx context.Context, state fwk.CycleState, a *gangstate.Attempt) (string, *fwk.Status) {
	started := pl.clock.Now()
	pl.holds.Adopt(pl.gangs.Holder(a.Group), uidsOf(a.Pending()))
	result, rivals, err := pl.plan(ctx, a)
	took := pl.clock.Since(started)
	planDuration.Observe(took.Seconds())
	if err != nil {
		attempts.WithLabelValues("error").Inc()
		result = &planner.Plan{Outcome: gangstate.Outcome{Why: everyWhy(a, err.Error()), Reason: v1.PodReasonSchedulerError}}
	}
	if !result.Complete && pl.holds.Nominated(pl.gangs.Holder(a.Group)) {
		keepNominations(a, result, pl.holds.NominationsOf(pl.gangs.Holder(a.Group)))
	}
	if result.FromScratch {
		a = a.Fresh // nothing of it counts as placed
	}
	result.Cost = took
	accepted, e := pl.gangs.Planned(a, result.Outcome, result.Demand)
	pl.order.Plan(slices.DeleteFunc(result.Order, func(uid types.UID) bool { _, ok := accepted[uid]; return !ok }))
	if len(accepted) > 0 && len(rivals) > 0 {
		pl.gangs.Yield(ctx, pl.holds.Among(rivals, maps.Values(accepted)))
	}
	pl.Act(ctx, e)
	pl.recordDecision(ctx, a, result, len(accepted))
	klog.FromContext(ctx).V(3).Info("Planned gang", "group", a.Group, "members", a.Members(), "placed", len(accepted),
		"complete", result.Complete, "took", took)
	switch node := accepted[a.Leader]; {
	case err != nil:
		return "", fwk.AsStatus(err)
	case result.Complete && node != "":
		attempts.WithLabelValues("planned").Inc()
		return node, nil
	case result.Complete:
		// The plan placed others and left the leader out; they are on their way.
		attempts.WithLabelValues("planned").Inc()
		return "", fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the gang's plan does not include this member yet")
	}
	attempts.WithLabelValues("unschedulable").Inc()
	pl.claims.Enqueue(a.Pending()...) // what was allocated for them before may tie them to nodes where they do not fit
	if result.Hopeless {
		pl.turns.Hopeless(leaderOf(a))
	}
	planner.WriteAttempt(state, pl.mayEvictFor(a.Without(accepted)))
	return "", fwk.NewStatus(fwk.UnschedulableAndUnresolvable, leaderWhy(a, result.Why))
}

// withinCeilings returns those of some members of an attempt that could be placed without a queue exceeding its
// ceiling, and whether these are all. No ceiling keeps a group of which a part of the minimum runs.
func (pl *Gang) withinCeilings(a *gangstate.Attempt, members []*v1.Pod) (within []*v1.Pod, all bool) {
	if a.Rank.Begun {
		return members, true
	}
	within = pl.turns.Within(pl.gangs.Holder(a.Group), members)
	return within, len(within) == len(members)
}

// placedMembers returns the members of an attempt that a plan places.
func placedMembers(a *gangstate.Attempt, result *planner.Plan) []*v1.Pod {
	return slices.DeleteFunc(a.Pending(), func(pod *v1.Pod) bool { return result.Nodes[pod.UID] == "" })
}

// keepCeilings takes members out of a plan that their queues have no room for below a ceiling. Such a plan is not
// complete, and what is left of it is held for a NonStrict group. The queues let in a NonStrict group if there is room
// for one member, and a Strict one with the first members of its minimum; the plan may place others.
func (pl *Gang) keepCeilings(a *gangstate.Attempt, result *planner.Plan) {
	within, all := pl.withinCeilings(a, placedMembers(a, result))
	if all {
		return
	}
	nodes := map[types.UID]string{}
	for _, pod := range within {
		if !a.Strict {
			nodes[pod.UID] = result.Nodes[pod.UID]
		}
	}
	result.Nodes = nodes
	if result.Complete {
		result.Complete, result.Why = false, map[gangspec.Key]string{}
		for _, need := range a.Gangs {
			if need.Min > 0 {
				result.Why[need.Key] = fmt.Sprintf("gang %q: the members that fit would exceed the ceilings of their queues",
					need.Key)
			}
		}
	}
}

// mayEvictFor returns the part of an attempt that pods may be evicted for: of a Strict group only the members that its
// queues let in, unless there is room for all below their ceilings.
func (pl *Gang) mayEvictFor(a *gangstate.Attempt) *gangstate.Attempt {
	if !a.Strict {
		return a
	}
	if _, all := pl.withinCeilings(a, a.Pending()); all {
		return a
	}
	return a.OnlyMinimum()
}

// keepNominations takes out of an incomplete plan what would undo the room that is being made for pending members. If
// room is being made for every member that the minimum lacks, nothing is kept of the plan. Otherwise members with a
// nomination, and places on nominated nodes, are taken out. The others of the minimum had places when that room was
// sought, and may have lost them since, as by a restart of the scheduler.
func keepNominations(a *gangstate.Attempt, result *planner.Plan, nominated []hold.Hold) {
	pending := sets.New(uidsOf(a.Pending())...)
	nominated = slices.DeleteFunc(nominated, func(one hold.Hold) bool { return !pending.Has(one.For) })
	whole := result.FromScratch || len(nominated) >= a.Members()
	maps.DeleteFunc(result.Nodes, func(pod types.UID, node string) bool {
		return whole || slices.ContainsFunc(nominated, func(one hold.Hold) bool { return one.For == pod || one.Node == node })
	})
	result.FromScratch = false
}

func uidsOf(pods []*v1.Pod) []types.UID {
	uids := make([]types.UID, len(pods))
	for i, pod := range pods {
		uids[i] = pod.UID
	}
	return uids
}

// plan makes a plan, if need be in place of what the group holds, or at the expense of the groups that it outranks: as
// few as suffice, the last first. It returns those that have to make way where they hold something on the plan's nodes.
func (pl *Gang) plan(ctx context.Context,
	a *gangstate.Attempt) (result *planner.Plan, rivals []hold.Holder, err error) {
	p := pl.ready()
	if why := pl.cannotClaim(a); why != "" {
		return &planner.Plan{Outcome: gangstate.Outcome{Why: everyWhy(a, why),
			Reason: v1alpha1.ReasonMemberRejected}}, nil, nil
	}
	result, err = p.Plan(ctx, a, nil)
	if err != nil {
		return nil, nil, err
	}
	if a.Strict && result.Complete {
		if _, all := pl.withinCeilings(a, placedMembers(a, result)); !all {
			least, err := p.Plan(ctx, a.OnlyMinimum(), nil) // with which the queues let it in
			if err != nil {
				return nil, nil, err
			}
			if least.Complete {
				result = least
			}
		}
	}
	found := result.Complete
	pl.keepCeilings(a, result)
	if found && !result.LostPlace || pl.holds.Empty() {
		return result, nil, nil
	}
	complete := func(a *gangstate.Attempt, other *planner.Plan) bool {
		_, all := pl.withinCeilings(a, placedMembers(a, other))
		return other.Complete && all
	}
	outranked := pl.outranked(a)
	if fresh := a.Fresh; fresh != nil {
		other, err := p.Plan(ctx, fresh, nil)
		if err != nil {
			return nil, nil, err
		}
		other.FromScratch = true
		if complete(fresh, other) {
			return other, nil, nil
		}
		if result.LostPlace {
			pl.keepCeilings(fresh, other)
			a, result, found = fresh, other, false
		}
	}
	if found {
		return result, nil, nil // a member that lost its place finds out
	}
	for i := range outranked {
		rivals = outranked[:i+1]
		other, err := p.Plan(ctx, a, rivals)
		if err != nil {
			return nil, nil, err
		}
		if complete(a, other) {
			return other, rivals, nil
		}
	}
	return result, nil, nil
}

// outranked lists the groups of all profiles that hold capacity without being complete and come after that of an
// attempt, by the priorities of their queues and then by rank, the last first.
func (pl *Gang) outranked(a *gangstate.Attempt) []hold.Holder {
	if pl.holds.Empty() {
		return nil
	}
	return a.Outranks(pl.gangs.Holder(a.Group), pl.gangs.PartialHolders(), pl.turns.CompareQueues)
}

func everyWhy(a *gangstate.Attempt, message string) map[gangspec.Key]string {
	why := map[gangspec.Key]string{}
	for _, need := range a.Gangs {
		why[need.Key] = fmt.Sprintf("gang %q could not be planned: %s", need.Key, message)
	}
	return why
}

// leaderOf returns the member that represents an attempt.
func leaderOf(a *gangstate.Attempt) *v1.Pod {
	pending := a.Pending()
	if i := slices.IndexFunc(pending, func(pod *v1.Pod) bool { return pod.UID == a.Leader }); i >= 0 {
		return pending[i]
	}
	return nil
}

// leaderWhy returns the message that the leader's own pod gets: that of the first
// gang which does not fit.
func leaderWhy(a *gangstate.Attempt, why map[gangspec.Key]string) string {
	for _, need := range a.Gangs {
		if message := why[need.Key]; message != "" && need.Min > 0 {
			return message
		}
	}
	return "the gang does not fit"
}

// PreFilterExtensions returns none: Filter reads what it checks of a node
// from the node.
func (pl *Gang) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps a member on the node of its plan and in the domain of its gang. It costs
// a map look-up.
func (pl *Gang) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	visit := visitOf(state)
	if visit == nil {
		return nil
	}
	if visit.node != "" && visit.node != info.Node().Name {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonPlan)
	}
	if !visit.place.allows(info.Node()) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonDomain)
	}
	return nil
}

// PostFilter records members that did not fit. It stops preemption on
// behalf of a single member, which would evict for a pod that cannot start alone, and
// on behalf of members beyond the minimum; for a leader it lets preemption go on only if the next plugin
// makes room for whole gangs.
func (pl *Gang) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	visit := visitOf(state)
	if visit == nil && !pl.gangs.InNoGang(pod) {
		return nil, pl.refusedEarly(ctx, pod)
	}
	if visit == nil {
		pl.unfit(ctx, gangstate.SinglePodAttempt(pod, gangstate.Need{}), pod, false, statuses)
		if gangspec.CheckPod(pod) != nil {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable) // no pod makes way for it
		}
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if visit.attempt != nil {
		// The scheduler itself explains why a single pod waits, and may preempt for it.
		pl.missed(ctx, visit, pod, statuses)
	}
	switch visit.verdict {
	case gangstate.Follow:
		membersUnfit.Inc()
		pl.order.ForgetPlan(pod.UID) // it is tried again once the other members have come
		pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
			return s.Unreserved(pod.UID, now)
		})
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the gang is planned again")
	case gangstate.Lead:
		if pl.preempts && planner.AttemptOf(state) != nil {
			return nil, fwk.NewStatus(fwk.Unschedulable)
		}
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	case gangstate.Wait:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	case gangstate.Alone:
		if visit.attempt == nil {
			pl.unfit(ctx, planner.AttemptOf(state), pod, visit.extra, statuses)
		}
		if pl.ready(); visit.extra && !pl.preempts {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable) // no pod makes way for it
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// unfit records why a pod that is placed alone did not fit; extra: its gang runs without it. It costs a look at each
// node's status.
func (pl *Gang) unfit(ctx context.Context, one *gangstate.Attempt, pod *v1.Pod, extra bool,
	statuses fwk.NodeToStatusReader) {
	why, hopeless := pl.reasons(statuses)
	delay, _ := gangspec.PreemptionDelayOf(pod)
	evictsNone := delay > 0 || extra || one.Gangs[0].Spec.NeverPreempts
	pl.gangs.RecordSingleFailure(pod, turns.AttemptFailure{
		Coupled: podclass.Coupled(pod), Hopeless: hopeless && !podclass.Coupled(pod), EvictsNone: evictsNone,
		Shape: pl.shapeOf(ctx, one, pod, statuses), Why: why,
	})
}

// shapeOf returns what the attempt to place one pod asked for. If that cannot be read, the attempt has failed
// nevertheless; it represents no other.
func (pl *Gang) shapeOf(ctx context.Context, one *gangstate.Attempt, pod *v1.Pod,
	statuses fwk.NodeToStatusReader) turns.Shape {
	shape, err := pl.ready().ShapeOf(ctx, one, statuses)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read what a pod asks for", "pod", klog.KObj(pod))
	}
	return shape
}

// reasons returns a number that stands for the reasons of all nodes, and whether no pod that goes makes any of them
// fit. The domain of a gang may change when its pods go.
func (pl *Gang) reasons(statuses fwk.NodeToStatusReader) (why uint64, hopeless bool) {
	nodes, err := pl.fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return 0, false
	}
	given, hopeless := sets.New[string](), true
	for _, info := range nodes {
		status := statuses.Get(info.Node().Name)
		given.Insert(status.Reasons()...)
		hopeless = hopeless && status.Code() != fwk.Unschedulable && status.Plugin() != Name
	}
	hash := fnv.New64a()
	for _, reason := range sets.List(given) {
		fmt.Fprintln(hash, reason)
	}
	return hash.Sum64(), hopeless
}

// missed records that a gang of one did not fit.
func (pl *Gang) missed(ctx context.Context, visit *visitState, pod *v1.Pod, statuses fwk.NodeToStatusReader) {
	shape := pl.shapeOf(ctx, visit.attempt, pod, statuses)
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
		_, e := s.Planned(visit.attempt, gangstate.Outcome{
			Cost: now.Sub(visit.began), Coupled: podclass.Coupled(pod), Shape: shape, Holder: hold.SinglePod(pod.UID),
		}, now)
		return e
	})
}

// refusedEarly handles a member that another plugin refused in PreFilter before
// this plugin ran: its group's attempt is over.
func (pl *Gang) refusedEarly(ctx context.Context, pod *v1.Pod) *fwk.Status {
	pl.gangs.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
		return s.EndedEarly(pod, func(a *gangstate.Attempt) gangstate.Outcome {
			why := fmt.Sprintf("pod %s was rejected by another plugin before the gang was planned; see its events",
				klog.KObj(pod))
			return gangstate.Outcome{Why: everyWhy(a, why), Reason: v1alpha1.ReasonMemberRejected}
		}, now)
	})
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
}
