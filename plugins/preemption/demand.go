package preemption

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// demand is what capacity is sought for.
type demand struct {
	attempt *gangstate.Attempt
	// leader is the pod that represents it.
	leader *v1.Pod
	// gang is the attempt as extension points see it: its pods are the pending members, and its priority is the lowest of
	// theirs, which must exceed that of a victim.
	gang extensionpoints.Gang
	// own are the gangs of the attempt, and those that start together with them: parts of them may run, and a preemptor
	// does not evict itself.
	own map[evictions.Owner]bool
	// need is the request of the minimum, and the PodGroup's minResources beside it, of the resources in either.
	need      victim.Vector
	resources map[v1.ResourceName]bool
	// affinity are the required affinity terms of the pending members.
	affinity []fwk.AffinityTerm
	never    bool
	// delay is how long it is until it may evict pods; not positive if it may. delayMessage is for users: why it may not.
	delay        time.Duration
	delayMessage string
	// pauses: it only takes the places of pods that are ending.
	pauses bool
	// ending are the pods that were ending when it searched.
	ending map[types.UID]bool
	// protectedUntil is when the first of the gangs protected in the searches so far may be evicted; zero for none.
	protectedUntil time.Time
	timer
	// overBudget: the search found victims whose queues, or jobs, may not lose so much.
	overBudget bool
	// tried are the domains searched for victims, and untried the number of others.
	tried   []decisions.Domain
	untried int
}

// demandOf reads what a pod that did not fit stands for.
func (pl *GangPreemption) demandOf(state fwk.CycleState, pod *v1.Pod) (*demand, error) {
	d := &demand{leader: pod, own: map[evictions.Owner]bool{}, need: victim.Vector{},
		resources: map[v1.ResourceName]bool{}}
	if d.attempt = planner.AttemptOf(state); d.attempt == nil {
		d.attempt = pl.singleAttempt(pod)
	}
	d.gang = planner.GangOf(d.attempt)
	if want, undecided := pl.Gangs.Wants(pod); undecided && want.Alone && want.Ready {
		d.gang.Beyond = true
	}
	for _, need := range d.attempt.Gangs {
		d.never = d.never || need.Spec.NeverPreempts
		for _, f := range pl.Gangs.Running(pl.fw.ProfileName(), need.Key) {
			// including those that start together with it
			d.own[evictions.Owner{Profile: pl.fw.ProfileName(), Gang: f.Key}] = true
		}
		for _, placed := range need.Placed {
			d.own[evictions.OwnerOf(pl.Gangs, placed.Pod)] = true
		}
		for i, member := range need.Pending {
			d.own[evictions.OwnerOf(pl.Gangs, member)] = true
			d.never = d.never || member.Spec.PreemptionPolicy != nil && *member.Spec.PreemptionPolicy == v1.PreemptNever
			info, err := framework.NewPodInfo(member)
			if err != nil {
				return nil, fmt.Errorf("reading affinity of pod %s/%s: %w", member.Namespace, member.Name, err)
			}
			if i == 0 || !equality.Semantic.DeepEqual(member.Spec.Affinity, need.Pending[i-1].Spec.Affinity) {
				d.affinity = append(d.affinity, info.GetRequiredAffinityTerms()...)
			}
			request := ledger.DemandOf(info).Request
			for name := range request {
				d.resources[name] = true
			}
			if i < need.Min {
				d.addNeed(request)
			}
		}
		beyond := planner.BeyondMinimum(need)
		for name := range beyond {
			d.resources[name] = true
		}
		d.addNeed(beyond)
	}
	return d, nil
}

// singleAttempt returns the attempt to place one pod that did not fit. A pod without a gang is a gang of one, with its
// own preemption delay.
func (pl *GangPreemption) singleAttempt(pod *v1.Pod) *gangstate.Attempt {
	a := gangstate.SinglePodAttempt(pod, gangstate.Need{
		Key: gangspec.Key{Namespace: pod.Namespace, Name: pod.Name}, Spec: gangspec.Spec{Min: 1},
	})
	if !pl.Gangs.IsEvictedAlone(pod) {
		return a // its gang runs and lacks it
	}
	if _, exists := pl.evictor.Pod(pod.UID); !exists {
		return a // a reserve pod never exists, so its end would be missed
	}
	if delay, _ := gangspec.PreemptionDelayOf(pod); delay > 0 {
		first, _ := pl.firstMisses.LoadOrStore(pod.UID, pl.clock.Now())
		a.PreemptionDelay, a.Missed = delay, first.(time.Time)
	}
	return a
}

// delayEvictions makes the preemptor evict no pod for some time, if it may before that.
func (d *demand) delayEvictions(delay time.Duration, message string) {
	if delay > d.delay {
		d.delay, d.delayMessage = delay, message
	}
}

// addNeed adds to the need. Sums saturate.
func (d *demand) addNeed(more victim.Vector) {
	for name, amount := range more {
		d.need[name] = resource.Plus(d.need[name], amount)
	}
}

// String names the preemptor for users.
func (d *demand) String() string {
	first := d.attempt.Gangs[0]
	if first.Spec.Min > 1 || len(d.attempt.Gangs) > 1 || d.attempt.Group != hold.SinglePod(d.leader.UID) {
		return fmt.Sprintf("gang %s (priority %d)", first.Key, d.gang.Priority)
	}
	return fmt.Sprintf("pod %s/%s (priority %d)", d.leader.Namespace, d.leader.Name, d.gang.Priority)
}
