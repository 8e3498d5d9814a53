package fairshare

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

var _ extensionpoints.VictimRounds = &FairShare{}

// VictimRounds returns rounds in which a preemptor looks for victims in its own queue first; then, if each of its
// queues stays within what it deserves, it takes back what other queues have beyond theirs. Members beyond the minimum
// of their gang only take back surplus. It copies the standings of all queues, once for a search.
func (pl *FairShare) VictimRounds(_ context.Context, preemptor extensionpoints.Gang,
	_ victim.Vector) []extensionpoints.Round {
	return pl.dispatcher.rounds(preemptor)
}

func (d *Dispatcher) rounds(preemptor extensionpoints.Gang) []extensionpoints.Round {
	own := d.QueueOf(preemptor.Pods[0])
	if preemptor.Beyond {
		rounds := d.reclaims(preemptor)
		for i := range rounds {
			rounds[i].Surplus = true
		}
		return rounds
	}
	preempt := extensionpoints.Round{Name: "preempt", Done: "preempted", Order: victim.Preempt(), Queue: d.counted,
		MinRuntime: d.minRuntime}
	lower := judge{permits: func(pod *v1.Pod) bool { return corev1helpers.PodPriority(pod) < preemptor.Priority }}
	preempt.Tiers = tiersOf(d.args.Tiers, config.Preemptable,
		func(pod *v1.Pod) bool { queue := d.counted(pod); return queue == own || queue == "" },
		map[config.PolicyName]judge{config.PolicyPriority: lower, config.PolicyDRF: d.fairer(preemptor)})
	return append([]extensionpoints.Round{preempt}, d.reclaims(preemptor)...)
}

// reclaims returns the rounds that take back what other queues have beyond their share, in
// one pool of nodes after the other that the preemptor may use.
func (d *Dispatcher) reclaims(preemptor extensionpoints.Gang) []extensionpoints.Round {
	if !reclaims(d.args.Tiers) {
		return nil // no policy defines what queues deserve
	}
	d.lock()
	needs := d.needs(preemptor)
	d.mu.Unlock()
	gone, queueOf := sync.OnceValue(d.gone), sync.OnceValue(d.queuesOfHolders)
	var rounds []extensionpoints.Round
	for _, need := range needs {
		if c := d.claim(preemptor, need); c != nil {
			rounds = append(rounds, d.reclaim(slices.Sorted(maps.Keys(need)), c, gone, queueOf)...)
		}
	}
	return rounds
}

// needs returns what a preemptor asks for in each queue, with each of the options that its job may take now, at least
// one.
func (d *Dispatcher) needs(preemptor extensionpoints.Gang) []queueing.Needs {
	pods := preemptor.Pods[:min(preemptor.Min, len(preemptor.Pods))]
	var usages []queueing.Usage
	for _, pod := range pods {
		usage, counted := d.book.Counted(string(pod.UID))
		if !counted {
			usage = queueing.Usage{Queue: d.queueOf(pod), Amount: d.claims.Amount(pod)}
		}
		usages = append(usages, usage)
	}
	choices := []queueing.Choice{{}}
	if len(usages) > 0 && d.book.Phase(usages[0].Job) == queueing.Admitted {
		_, choices = d.book.Choices(usages[0].Job)
	}
	needs := make([]queueing.Needs, len(choices))
	for i, choice := range choices {
		needs[i] = queueing.Needs{}
		for _, usage := range usages {
			needs[i].Add(usage.Queue, usage.Option(choice.At), 1)
		}
	}
	return needs
}

// reclaim returns the rounds of a claim of some queues: first no queue comes below what it deserves, then some may by a
// part.
func (d *Dispatcher) reclaim(claiming []string, c *share.Reclaim, gone func() map[types.UID]bool,
	queueOf func() map[hold.Holder]string) []extensionpoints.Round {
	overshooting := sync.OnceValue(func() map[types.UID]bool { return d.overshooting(c, gone()) })
	overshoots := func(pods []victim.Pod) bool {
		return !slices.ContainsFunc(pods, func(pod victim.Pod) bool { return !overshooting()[pod.UID] })
	}
	// The queues go first that have most beyond what they deserve.
	excess := func(a, b *victim.Gang) int { return cmp.Compare(c.Excess(b.Queue), c.Excess(a.Queue)) }
	order := victim.Reclaim(excess, overshoots)
	makesWay := func(holder hold.Holder) bool {
		queue, known := queueOf()[holder]
		return known && c.TakesHolds(queue)
	}
	var rounds []extensionpoints.Round
	for _, parts := range []bool{false, true} {
		round := extensionpoints.Round{Name: "reclaim", Done: fmt.Sprintf(`reclaimed for queue "%s"`,
			strings.Join(claiming, `" and "`)), Order: order, Queue: d.counted, MinRuntime: d.minRuntime, MakesWay: makesWay}
		over := judge{permits: func(pod *v1.Pod) bool { return c.Excess(d.counted(pod)) > 1 }}
		round.Tiers = tiersOf(d.args.Tiers, config.Reclaimable, func(pod *v1.Pod) bool { return c.Permits(d.counted(pod)) },
			map[config.PolicyName]judge{config.PolicyProportion: over, config.PolicyCapacity: over})
		for i := range round.Tiers {
			round.Tiers[i].Budget = func(ending map[types.UID]bool) victim.Budget {
				return &budget{d.budget(c, ending, gone(), parts), d, overshoots}
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}

// reclaims reports whether any policy decides which queues have more than they deserve.
func reclaims(tiers []config.PolicyTier) bool {
	return slices.ContainsFunc(config.Asked(tiers, config.Reclaimable), func(names []config.PolicyName) bool {
		return slices.Contains(names, config.PolicyProportion) || slices.Contains(names, config.PolicyCapacity)
	})
}

// counted returns the queue in which a pod is counted; empty for pods of other schedulers.
func (d *Dispatcher) counted(pod *v1.Pod) string {
	defer d.lock()()
	usage, _ := d.book.Counted(string(pod.UID))
	return usage.Queue
}

// queuesOfHolders returns the queue of each holder for whose pods places are held. It costs a look-up for each place.
func (d *Dispatcher) queuesOfHolders() map[hold.Holder]string {
	defer d.lock()()
	queues := map[hold.Holder]string{}
	for uid := range d.places {
		usage, counted := d.book.Counted(string(uid))
		if one, held := d.holds.HoldOf(uid); held && counted {
			queues[one.Holder] = usage.Queue
		}
	}
	return queues
}

// minRuntime returns how long the queue in which a pod is counted leaves its gangs alone once they run; false where it
// does not set that.
func (d *Dispatcher) minRuntime(pod *v1.Pod) (time.Duration, bool) {
	defer d.lock()()
	usage, _ := d.book.Counted(string(pod.UID))
	return d.book.MinRuntime(usage.Queue)
}

// gone returns the pods that count as running but no longer exist: other handlers of pod events
// may have seen that first. It costs a look-up for each pod.
func (d *Dispatcher) gone() map[types.UID]bool {
	defer d.lock()()
	gone := map[types.UID]bool{}
	for uid, counted := range d.usage.Pods() {
		if usage, ok := d.book.Counted(string(uid)); !ok || !usage.Runs {
			continue
		}
		if pod, err := d.pods.Pods(counted.Object.Namespace).Get(counted.Object.Name); err != nil || pod.UID != uid {
			gone[uid] = true
		}
	}
	return gone
}

// claim returns what queues may take back for a preemptor; nil for nothing. Pods for which a node is held count as
// running.
func (d *Dispatcher) claim(preemptor extensionpoints.Gang, need queueing.Needs) *share.Reclaim {
	mine := map[types.UID]bool{}
	for _, pod := range preemptor.Pods {
		mine[pod.UID] = true
	}
	defer d.lock()()
	standings, promised := d.book.Standings(), map[string]resource.Vector{}
	for uid := range d.places {
		usage, ok := d.book.Counted(string(uid))
		if !ok || usage.Runs || mine[uid] {
			continue
		}
		for _, at := range standings[usage.Queue].Path {
			resource.AddTo(promised, at, usage.Amount, 1)
		}
	}
	return share.NewReclaim(need, standings, promised)
}

// budget is what queues may lose for a claim.
type budget struct {
	*share.Budget
	d *Dispatcher
	// overshoots reports whether all of some pods are of jobs that overshoot the share of their queue.
	overshoots func([]victim.Pod) bool
}

// budget returns what queues may lose, as they stand now, without what ends anyway.
func (d *Dispatcher) budget(claim *share.Reclaim, ending, gone map[types.UID]bool, parts bool) *share.Budget {
	defer d.lock()()
	b := claim.Budget(d.book.Standings(), parts)
	leaving := map[types.UID]bool{}
	maps.Copy(leaving, gone)
	maps.Copy(leaving, ending)
	for uid := range leaving {
		if usage, ok := d.book.Counted(string(uid)); ok && usage.Runs {
			b.Leave(usage.Queue, usage.Amount)
		}
	}
	return b
}

// Take grants pods of a gang, whose queue pays for all of them, each in the pool of its node.
func (b *budget) Take(gang *victim.Gang, pods []victim.Pod) bool {
	return b.Budget.Take(gang.Queue, b.d.amounts(pods), b.overshoots(pods))
}

// Return gives pods of a gang back to its queue.
func (b *budget) Return(gang *victim.Gang, pods []victim.Pod) {
	b.Budget.Return(gang.Queue, b.d.amounts(pods))
}

// amounts returns what victims have.
func (d *Dispatcher) amounts(pods []victim.Pod) resource.Vector {
	defer d.lock()()
	amount := resource.Vector{}
	for _, pod := range pods {
		usage, _ := d.book.Counted(string(pod.UID))
		amount.Add(usage.Amount, 1)
	}
	return amount
}
