package registry

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// WithGangs calls do with the gangs of the profile, under their lock. do must not call out. Effects of what it changes
// are carried out with the next Input.
func (p *Profile) WithGangs(do func(s *gangstate.Gangs)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p.gangs)
}

// UpdateGangs passes an input to the gangs of the profile and has its effects carried out. The ledger
// changes together with the state; everything else follows once the lock is free.
func (p *Profile) UpdateGangs(ctx context.Context, f func(s *gangstate.Gangs, now time.Time) gangstate.Effects) {
	p.mu.Lock()
	e := f(p.gangs, p.clock.Now())
	p.settle(&e)
	p.mu.Unlock()
	p.room.ApplyGangEffects(p.name, &e)
	p.adapter.Act(ctx, e)
}

// Planned records the outcome of an attempt. What the gangs accept of the plan is held from now
// on. It returns that, and the effects, which the caller has to carry out.
func (p *Profile) Planned(a *gangstate.Attempt, outcome gangstate.Outcome,
	demand map[types.UID]ledger.Demand) (accepted map[types.UID]string, e gangstate.Effects) {
	p.mu.Lock()
	accepted, e = p.gangs.Planned(a, outcome, p.clock.Now())
	p.settle(&e)
	switch {
	case len(accepted) > 0:
		p.follow(a, accepted, demand, outcome.Complete)
	case outcome.Hopeless:
		p.holds.DropNominations(p.Holder(a.Group)) // it does not need room that was made for it, either
	}
	p.mu.Unlock()
	p.room.ApplyGangEffects(p.name, &e)
	return accepted, e
}

// settle carries out the effects that belong under the lock.
func (p *Profile) settle(e *gangstate.Effects) {
	for _, h := range e.Rehold {
		p.rehold(h)
	}
	if len(e.Unhold) > 0 {
		p.holds.Release(e.Unhold...)
	}
	if e.Freed {
		p.holds.ReportFreed()
	}
}

// rehold puts a member's place into the ledger again, before the scheduler's cache
// forgets the member.
func (p *Profile) rehold(h gangstate.Hold) {
	info, err := framework.NewPodInfo(h.Pod)
	if err != nil {
		return // such a pod was never reserved
	}
	d := ledger.DemandOf(info)
	p.holds.FollowPlan(p.Holder(h.Holder), []types.UID{h.Pod.UID},
		[]hold.Hold{{For: h.Pod.UID, Node: h.Node, Request: d.Request, Ports: d.Ports}})
}

// follow holds what a plan gives to members, in place of what they were nominated to. A complete plan ends all
// nominations of pending members; an incomplete one only those of members that it places.
func (p *Profile) follow(a *gangstate.Attempt, accepted map[types.UID]string, demand map[types.UID]ledger.Demand,
	complete bool) {
	plan := make([]hold.Hold, 0, len(accepted))
	for uid, node := range accepted {
		plan = append(plan, hold.Hold{For: uid, Node: node, Request: demand[uid].Request, Ports: demand[uid].Ports,
			Devices: demand[uid].Devices})
	}
	var pending []types.UID
	for _, pod := range a.Pending() {
		if _, planned := accepted[pod.UID]; planned || complete {
			pending = append(pending, pod.UID)
		}
	}
	p.holds.FollowPlan(p.Holder(a.Group), pending, plan)
}

// Failed notes that the cycle of a pod failed: not every cycle of a leader gets as far as
// PostFilter or Reserve.
func (r *Registry) Failed(ctx context.Context, pod *v1.Pod, why error) {
	if r.InNoGang(pod) {
		return
	}
	r.input(ctx, pod.Spec.SchedulerName, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
		if errors.Is(why, scheduler.ErrNoNodesAvailable) {
			return s.EndedEarly(pod, gangstate.NoNodes, now)
		}
		return s.Failed(pod.UID, now)
	})
}
