package fairshare

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// policiesOf returns the policies of the book for the tiers of a configuration. TaskOrder comes after JobOrder:
// it compares jobs, and each member beyond a minimum is a job.
func policiesOf(tiers []config.PolicyTier) queueing.Policies {
	flat := func(question config.PolicyQuestion) []config.PolicyName {
		return slices.Concat(config.Asked(tiers, question)...)
	}
	p := queueing.Policies{
		QueueOrder: flat(config.QueueOrder), JobOrder: append(flat(config.JobOrder), flat(config.TaskOrder)...),
		Overused: flat(config.Overused),
		Rules: share.Rules{Stated: config.HasPolicy(tiers, config.PolicyCapacity),
			Weighted: config.HasPolicy(tiers, config.PolicyProportion)},
		Reclaim: reclaims(tiers),
	}
	for _, names := range config.Asked(tiers, config.Preemptable) {
		if p.Preempt = max(p.Preempt, queueing.Lower); !slices.Contains(names, config.PolicyPriority) {
			p.Preempt = queueing.Anything
		}
	}
	return p
}

// judge is a policy's view of which pods may be evicted for a preemptor.
type judge struct {
	// permits judges one pod by itself; nil permits any.
	permits func(*v1.Pod) bool
	// budget judges all victims together; nil for no limit.
	budget func(ending map[types.UID]bool) victim.Budget
}

// tiersOf returns the tiers of a round, one for each tier of the configuration in which some
// policy answers the question: of the pods that the round is about, those that all policies permit.
// Policies that need nothing but the pod are judged here, the others by judges.
func tiersOf(tiers []config.PolicyTier, question config.PolicyQuestion, about func(*v1.Pod) bool,
	judges map[config.PolicyName]judge) []extensionpoints.Tier {
	var list []extensionpoints.Tier
	for _, names := range config.Asked(tiers, question) {
		permits := []func(*v1.Pod) bool{about}
		tier := extensionpoints.Tier{Gangs: slices.Contains(names, config.PolicyGang)}
		for _, name := range names {
			j := judges[name]
			if name == config.PolicyConformance {
				j.permits = func(pod *v1.Pod) bool { return !extensionpoints.Critical(pod) }
			}
			if j.permits != nil {
				permits = append(permits, j.permits)
			}
			if j.budget != nil {
				tier.Budget = j.budget
			}
		}
		tier.Permits = func(pod *v1.Pod) bool {
			return !slices.ContainsFunc(permits, func(permit func(*v1.Pod) bool) bool { return !permit(pod) })
		}
		list = append(list, tier)
	}
	return list
}

// warnings returns warnings about tiers that work, but do more harm than users may want.
func warnings(tiers []config.PolicyTier) []string {
	var list []string
	for _, question := range []config.PolicyQuestion{config.Preemptable, config.Reclaimable} {
		for _, names := range config.Asked(tiers, question) {
			if !slices.Contains(names, config.PolicyGang) {
				list = append(list, fmt.Sprintf("the tier of %v answers %s without gang: it breaks gangs", names, question))
			}
			if !slices.Contains(names, config.PolicyConformance) {
				list = append(list,
					fmt.Sprintf("the tier of %v answers %s without conformance: it evicts pods that the system needs",
						names, question))
			}
		}
	}
	return list
}

// fairer is the policy drf: a job may lose pods as long as its dominant share stays no smaller than
// the preemptor's is then.
type fairer struct {
	d     *Dispatcher
	floor float64
	// lost is what each job has lost.
	lost map[string]queueing.Vector
}

// fairer returns the judge of the policy drf, with what the preemptor has, and all of it that must be placed.
func (d *Dispatcher) fairer(preemptor extensionpoints.Gang) judge {
	d.lock()
	need := d.needs(preemptor)[0].Total()
	floor := d.book.JobShare(d.usage.GangOf(preemptor.Pods[0]), need)
	d.mu.Unlock()
	fresh := func() *fairer { return &fairer{d: d, floor: floor, lost: map[string]queueing.Vector{}} }
	return judge{
		permits: func(pod *v1.Pod) bool { return fresh().Take(nil, []victim.Pod{{UID: pod.UID}}) },
		budget: func(ending map[types.UID]bool) victim.Budget {
			f := fresh()
			for uid := range ending {
				f.lose(uid, 1)
			}
			return f
		},
	}
}

// Take grants pods if their jobs keep enough.
func (f *fairer) Take(_ *victim.Gang, pods []victim.Pod) bool {
	fair := true
	for _, pod := range pods {
		share, known := f.lose(pod.UID, 1)
		fair = fair && known && share >= f.floor
	}
	if !fair {
		f.Return(nil, pods)
	}
	return fair
}

// Return gives pods back to their jobs.
func (f *fairer) Return(_ *victim.Gang, pods []victim.Pod) {
	for _, pod := range pods {
		f.lose(pod.UID, -1)
	}
}

// lose takes a pod n times off its job, and returns the share that is left. A pod that is in
// no gang is a job by itself, of which nothing is left.
func (f *fairer) lose(uid types.UID, n int64) (share float64, known bool) {
	defer f.d.lock()()
	usage, ok := f.d.book.Counted(string(uid))
	if !ok || !usage.Runs {
		return 0, false
	}
	if usage.Gang == "" {
		return 0, true
	}
	resource.AddTo(f.lost, usage.Gang, usage.Amount, -n)
	return f.d.book.JobShare(usage.Gang, f.lost[usage.Gang]), true
}
