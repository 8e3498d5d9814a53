package fairshare

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

var _ gangpoint.VictimRounds = &FairShare{}

// VictimRounds returns rounds in which a preemptor looks for victims in its own queue first; then,
// if its queue stays within what it deserves, it takes back what other queues have beyond
// theirs. It copies the standings of all queues, once for a search.
func (pl *FairShare) VictimRounds(_ context.Context, preemptor gangpoint.Gang, _ victim.Vector) []gangpoint.Round {
	return pl.dispatcher.rounds(preemptor)
}

func (d *Dispatcher) rounds(preemptor gangpoint.Gang) []gangpoint.Round {
	d.lock()
	own := d.queueOf(preemptor.Pods[0])
	d.mu.Unlock()
	preempt := gangpoint.Round{Name: "preempt", Done: "preempted", Order: victim.Preempt(), Queue: d.counted, MinRuntime: d.minRuntime}
	preempt.Tiers = tiersOf(d.args.Tiers, config.Preemptable,
		func(pod *v1.Pod) bool { queue := d.counted(pod); return queue == own || queue == "" },
		map[config.PolicyName]judge{config.PolicyPriority: lessImportant(preemptor.Priority), config.PolicyDRF: d.fairer(preemptor)})
	if d.scattered(preemptor.Pods, own) {
		return []gangpoint.Round{preempt} // what one queue deserves, another may not take back
	}
	return append([]gangpoint.Round{preempt}, d.reclaims(own, preemptor)...)
}

// scattered reports whether any of some pods is in another queue than the first.
func (d *Dispatcher) scattered(pods []*v1.Pod, first string) bool {
	defer d.lock()()
	return slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return d.queueOf(pod) != first })
}

// reclaims returns the rounds that take back what other queues have beyond their share, in
// one pool of nodes after the other that the preemptor may use.
func (d *Dispatcher) reclaims(own string, preemptor gangpoint.Gang) []gangpoint.Round {
	if !reclaims(d.args.Tiers) {
		return nil // no policy defines what queues deserve
	}
	d.lock()
	needs := d.needs(preemptor)
	d.mu.Unlock()
	gone := sync.OnceValue(d.gone)
	var rounds []gangpoint.Round
	for _, need := range needs {
		if c := d.claim(own, preemptor, need); c != nil {
			rounds = append(rounds, d.reclaim(c, gone)...)
		}
	}
	return rounds
}

// needs returns what a preemptor asks for with each of the options that its job may take now, at least
// one.
func (d *Dispatcher) needs(preemptor gangpoint.Gang) []dispatch.Vector {
	pods := preemptor.Pods[:min(preemptor.Min, len(preemptor.Pods))]
	var usages []dispatch.Usage
	for _, pod := range pods {
		usage, counted := d.book.Counted(string(pod.UID))
		if !counted {
			usage = dispatch.Usage{Amount: amountOf(pod)}
		}
		usages = append(usages, usage)
	}
	choices := []dispatch.Choice{{}}
	if len(usages) > 0 && d.book.Phase(usages[0].Job) == dispatch.Admitted {
		choices = d.book.Choices(usages[0].Job)
	}
	needs := make([]dispatch.Vector, len(choices))
	for i, choice := range choices {
		needs[i] = dispatch.Vector{}
		for _, usage := range usages {
			needs[i].Add(usage.Option(choice.At), 1)
		}
	}
	return needs
}

// reclaim returns the rounds of a claim: by the strict budget, then by the one with parts.
func (d *Dispatcher) reclaim(c *claim, gone func() map[types.UID]bool) []gangpoint.Round {
	var rounds []gangpoint.Round
	for _, parts := range []bool{false, true} {
		round := gangpoint.Round{Name: "reclaim", Done: fmt.Sprintf("reclaimed for queue %q", c.own), Order: victim.Reclaim(c.compareQueues), Queue: d.counted, MinRuntime: d.minRuntime}
		over := judge{permits: func(pod *v1.Pod) bool { return c.excess(d.counted(pod)) > 1 }}
		round.Tiers = tiersOf(d.args.Tiers, config.Reclaimable, func(pod *v1.Pod) bool { return c.permits(d.counted(pod)) },
			map[config.PolicyName]judge{config.PolicyProportion: over, config.PolicyCapacity: over})
		for i := range round.Tiers {
			round.Tiers[i].Budget = func(ending map[types.UID]bool) victim.Budget { return d.budget(c, ending, gone(), parts) }
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

// minRuntime returns how long the queue in which a pod is counted leaves its gangs alone once they run; false where it does not
// set that.
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
	for uid, s := range d.seen {
		if usage, ok := d.book.Counted(string(uid)); !ok || !usage.Runs {
			continue
		}
		pod, err := d.pods.Pods(s.namespace).Get(s.name)
		if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
			gone[uid] = true
		}
	}
	return gone
}

// claim is what a queue may take back.
type claim struct {
	own       string
	need      resource.Vector
	standings map[string]dispatch.Standing
	// below is the queue above the preemptor's that already has its share: what is taken back has to come
	// from below it. Empty for none.
	below string
}

// claim returns nil where the queue would have more than it deserves with the preemptor, in
// a resource that the preemptor needs: nothing is reclaimed for that. Pods for which a node is held
// count as running.
func (d *Dispatcher) claim(own string, preemptor gangpoint.Gang, need resource.Vector) *claim {
	mine := map[types.UID]bool{}
	for _, pod := range preemptor.Pods {
		mine[pod.UID] = true
	}
	defer d.lock()()
	c := &claim{own: own, need: need, standings: d.book.Standings()}
	promised := map[string]resource.Vector{}
	for uid := range d.places {
		usage, ok := d.book.Counted(string(uid))
		if !ok || usage.Runs || mine[uid] {
			continue
		}
		for _, at := range c.standings[usage.Queue].Path {
			if promised[at] == nil {
				promised[at] = resource.Vector{}
			}
			promised[at].Add(usage.Amount, 1)
		}
	}
	path := c.standings[own].Path
	if len(path) == 0 {
		return nil
	}
	for i, at := range path {
		if !c.within(at, promised[at]) {
			if i == 0 {
				return nil
			}
			c.below = at
			break
		}
	}
	return c
}

// within reports whether a queue has no more than it deserves with the preemptor, of the resources that the
// preemptor needs and other queues ask for.
func (c *claim) within(queue string, promised resource.Vector) bool {
	s := c.standings[queue]
	for name, amount := range c.need {
		if amount > 0 && s.Contested[name] && s.Running[name]+promised[name]+amount > s.Deserved[name] {
			return false
		}
	}
	return true
}

// permits reports whether a queue may lose pods for the claim.
func (c *claim) permits(queue string) bool {
	s := c.standings[queue]
	kept := slices.ContainsFunc(c.apart(s.Path), func(at string) bool { return c.standings[at].Kept })
	return queue != "" && queue != c.own && !kept && (c.below == "" || slices.Contains(s.Path, c.below))
}

// standing returns the standing of a queue's own pods.
func (c *claim) standing(queue string) dispatch.Standing {
	s := c.standings[queue]
	if len(s.Path) == 0 {
		return s
	}
	return c.standings[s.Path[0]]
}

// compareQueues puts the queues first that have most beyond what they deserve.
func (c *claim) compareQueues(a, b *victim.Gang) int {
	return cmp.Compare(c.excess(b.Queue), c.excess(a.Queue))
}

// excess returns the largest ratio of what runs to what is deserved, of the resources
// that are needed.
func (c *claim) excess(queue string) float64 {
	s := c.standing(queue)
	most := 0.0
	for name, amount := range c.need {
		switch running := s.Running[name]; {
		case amount <= 0 || running <= 0:
		case s.Deserved[name] <= 0:
			return math.Inf(1)
		default:
			most = max(most, float64(running)/float64(s.Deserved[name]))
		}
	}
	return most
}

// budget returns what queues may lose, as they stand now: of what they have beyond what they
// deserve, the part that does not end anyway. No queue, and none above it that is not above the
// preemptor's too, comes below what it deserves of anything that is needed and contested;
// with parts, a queue whose share is stated may, by the last pod or gang that it loses: it has
// more than its share and no smaller part to give.
func (d *Dispatcher) budget(c *claim, ending, gone map[types.UID]bool, parts bool) *budget {
	defer d.lock()()
	b := &budget{claim: c, d: d, parts: parts, left: map[string]resource.Vector{}}
	for name, s := range d.book.Standings() {
		left := resource.Vector{}
		left.Add(s.Running, 1)
		left.Add(c.standings[name].Deserved, -1)
		b.left[name] = left
	}
	leaving := map[types.UID]bool{}
	maps.Copy(leaving, gone)
	maps.Copy(leaving, ending)
	for uid := range leaving {
		if usage, ok := d.book.Counted(string(uid)); ok && usage.Runs {
			b.give(c.standings[usage.Queue].Path, usage.Amount)
		}
	}
	return b
}

// budget counts what is left beyond what queues deserve.
type budget struct {
	*claim
	d     *Dispatcher
	parts bool
	left  map[string]resource.Vector
}

// Take grants pods of a gang, whose queue pays for all of them.
func (b *budget) Take(gang *victim.Gang, pods []victim.Pod) bool {
	amount := b.d.amounts(pods)
	path := b.standings[gang.Queue].Path
	apart := b.apart(path)
	if len(apart) == 0 {
		return false
	}
	// No queue needs a resource that is not contested where the two queues' branches part.
	contested := b.standings[apart[len(apart)-1]].Contested
	for _, at := range apart {
		if !b.affords(at, amount, contested) {
			return false
		}
	}
	b.give(path, amount)
	return true
}

// amounts returns what victims have, each in the pool of its node.
func (d *Dispatcher) amounts(pods []victim.Pod) resource.Vector {
	defer d.lock()()
	amount := resource.Vector{}
	for _, pod := range pods {
		usage, _ := d.book.Counted(string(pod.UID))
		amount.Add(usage.Amount, 1)
	}
	return amount
}

// give takes an amount off what queues have left. A queue that no longer exists has nothing left.
func (b *budget) give(path []string, amount resource.Vector) {
	for _, at := range path {
		if left := b.left[at]; left != nil {
			left.Add(amount, -1)
		}
	}
}

// apart returns the part of a path that the preemptor's queue is not on.
func (c *claim) apart(path []string) []string {
	shared := c.standings[c.own].Path
	if i := slices.IndexFunc(path, func(at string) bool { return slices.Contains(shared, at) }); i >= 0 {
		return path[:i]
	}
	return path
}

// affords reports whether a queue can give an amount: it has something of what is needed and
// contested, and no less than it deserves of any of that afterwards.
func (b *budget) affords(queue string, amount resource.Vector, contested map[v1.ResourceName]bool) bool {
	gives := false
	for name, needed := range b.need {
		if needed <= 0 || amount[name] <= 0 || !contested[name] {
			continue
		}
		left := b.left[queue][name]
		_, stated := b.standings[queue].Stated[name]
		if left < amount[name] && !(b.parts && stated && left > 0) {
			return false
		}
		gives = true
	}
	return gives
}
