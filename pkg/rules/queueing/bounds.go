package queueing

import (
	"fmt"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Bound is a limit of one resource that a job has to keep.
type Bound struct {
	// Reason is Overused or Capability.
	Reason Reason
	// Queue is the queue that has the limit: that of the job or, for Capability, one above it.
	Queue    string
	Resource v1.ResourceName
	// Used is what the queue uses of it besides the job, and Need what the job asks for. Most is
	// the share, which the queue has to be below before the job is admitted, or the ceiling, which
	// it may not be above afterwards.
	Used, Need, Most int64
	// Ahead is the part of Used that jobs that come before ask for, and do not have.
	Ahead int64
	// Freed is what other pods would give back in a what-if. A job that takes no more than that may
	// be above the share.
	Freed int64
	// Alone: there is no other queue to share with, and the share is all that the cluster has.
	Alone bool
}

// Exceeded reports whether the job would not keep the bound if this much less were used.
func (b Bound) Exceeded(less int64) bool {
	if less += b.Freed; b.Reason == Overused {
		return b.Used-less >= b.Most && (b.Freed == 0 || b.Freed < b.Need)
	}
	return b.Used-less+b.Need > b.Most
}

// behindOthers reports whether only jobs that come before, and wait as well, keep the job from room below a
// ceiling.
func (b Bound) behindOthers() bool { return b.Reason == Capability && !b.Exceeded(b.Ahead) }

// Code returns the reason that users are told: Overused, Capability or Behind.
func (b Bound) Code() Reason {
	if b.behindOthers() {
		return Behind
	}
	return b.Reason
}

// String describes a bound that is exceeded, for users.
func (b Bound) String() string {
	switch {
	case b.Reason == Overused && b.Alone:
		return fmt.Sprintf("the cluster has no free %s: %s used of %s", resource.Title(b.Resource), only(b.Resource, b.Used),
			only(b.Resource, b.Most))
	case b.Reason == Overused:
		stands := "at"
		if b.Used > b.Most {
			stands = "above"
		}
		return fmt.Sprintf("queue %q is %s its share: %s used, its share is %s", b.Queue, stands, only(b.Resource, b.Used),
			only(b.Resource, b.Most))
	case b.behindOthers():
		return b.Brief()
	}
	return fmt.Sprintf("queue %q would exceed its capability of %s: %s used, %s asked for",
		b.Queue, only(b.Resource, b.Most), only(b.Resource, b.Used), only(b.Resource, b.Need))
}

// Brief describes a bound that is exceeded, without what changes all the time.
func (b Bound) Brief() string {
	switch {
	case b.Reason == Overused && b.Alone:
		return fmt.Sprintf("the cluster has no free %s: other jobs would have to be preempted", resource.Title(b.Resource))
	case b.Reason == Overused:
		return fmt.Sprintf("queue %q has its share of %s: other jobs of the queue would have to be preempted",
			b.Queue, resource.Title(b.Resource))
	case b.behindOthers():
		return fmt.Sprintf("queue %q would exceed its capability of %s together with earlier jobs that wait for nodes",
			b.Queue, only(b.Resource, b.Most))
	}
	awaited := "other jobs of the queue would have to be preempted"
	if b.Need > b.Most {
		awaited = only(b.Resource, b.Need) + " asked for"
	}
	return fmt.Sprintf("queue %q would exceed its capability of %s: %s", b.Queue, only(b.Resource, b.Most), awaited)
}

// only formats an amount of one resource, also 0.
func only(name v1.ResourceName, amount int64) string {
	if amount == 0 {
		return "0 " + resource.Title(name)
	}
	return Vector{name: amount}.String()
}

// bounds returns the limits of a job: the shares of its queues first, then the ceilings from its
// queues up. The shares of queues above do not matter: if a sibling has more than its own, the
// queue may take that back.
func (b *Book) bounds(j *job) iter.Seq[Bound] {
	return func(yield func(Bound) bool) {
		queues := j.queues()
		for _, at := range queues {
			q := b.queues[at]
			if q == nil || q.spec == nil {
				continue // it is gone, and has no limits
			}
			fair, alone := b.own(at).Fair, len(b.queues) == 1 && len(q.spec.Deserved) == 0
			for _, name := range j.needs {
				if ceiling, ok := q.spec.Capability[name]; ok && fair[name] >= ceiling {
					continue // the ceiling says so
				}
				need := j.part()[at][name]
				if need == 0 {
					continue
				}
				used := q.mine[name] - b.promised[j.Name][at][name]
				if j.phase == Admitted {
					used -= j.need()[at][name]
				}
				if b.promised[j.Name][at][name] >= need && !b.makesWay(j) {
					continue // others have made way
				}
				if b.judges(q.spec, name) && !yield(Bound{Reason: Overused, Queue: at, Resource: name, Used: used, Need: need,
					Most: fair[name], Alone: alone}) {
					return
				}
			}
		}
		for i, queue := range queues {
			for _, c := range b.ceilingsAbove(queue) {
				need := b.at(j.part(), c.queue, c.name)
				if need == 0 || i > 0 && b.above(queues[:i], c.queue) {
					continue // it does not matter, or was there already
				}
				if !yield(Bound{Reason: Capability, Queue: c.queue, Resource: c.name,
					Used: c.of.used[c.name] - b.has(j.Name, c.queue, c.name), Need: need, Most: c.most}) {
					return
				}
			}
		}
	}
}

// makesWay reports whether pods that are evicted for a job have not all ended.
func (b *Book) makesWay(j *job) bool {
	return slices.ContainsFunc(j.Holders, func(holder hold.Holder) bool { return b.victims(holder) > 0 })
}

// above reports whether a queue is one of some others, or above one.
func (b *Book) above(queues []string, at string) bool {
	return slices.ContainsFunc(queues, func(queue string) bool { return slices.Contains(b.Path(queue), at) })
}

// has returns the part of a job, by its name, in the usage of a queue and those below it: what it asks for if it has
// its turn, and what is promised to it.
func (b *Book) has(job, at string, name v1.ResourceName) int64 {
	sum := b.at(b.promised[job], at, name)
	if j := b.jobs[job]; j != nil && j.phase == Admitted {
		sum += b.at(j.need(), at, name)
	}
	return sum
}

// exceeded returns the first bound that a job does not keep as things are.
func (b *Book) exceeded(j *job) (Bound, bool) {
	for bound := range b.bounds(j) {
		if bound.Exceeded(0) {
			return bound, true
		}
	}
	return Bound{}, false
}

// hardLimit returns the first bound that keeps a job from its turn. A bound that other pods can
// make way for does not: pods of its own queue that the job may preempt, as far as is known; or, if
// its queue has a right to what it asks for and only a ceiling above is in its way, pods of
// siblings, from which that may be reclaimed.
func (b *Book) hardLimit(j *job) (Bound, bool) {
	var yields Vector
	for bound := range b.bounds(j) {
		if !bound.Exceeded(0) || bound.Reason == Capability && !bound.Exceeded(b.heldByPartialHolders(j, bound)) {
			continue
		}
		if j.patient() || b.overLimit > 0 {
			return bound, true
		}
		if yields == nil && !j.Ready {
			yields = b.yields(j) // no pod of its queue makes way for a member beyond a minimum
		}
		yield := b.at(Needs{j.Queue: yields}, bound.Queue, bound.Resource)
		if bound.Reason == Overused && bound.Queue == j.Queue && yield >= bound.Need {
			continue // one takes the other's place
		}
		if bound.Exceeded(yield) && !b.reclaims(j, bound.Queue) {
			return bound, true
		}
	}
	return Bound{}, false
}

// heldByPartialHolders returns how much of the resource of a bound is held under it by jobs that come after a job and
// have not all that they need: they give that back for the job.
func (b *Book) heldByPartialHolders(j *job, bound Bound) (sum int64) {
	if !j.yieldSuspendedUntil.IsZero() {
		return 0
	}
	for _, h := range b.partialHolders(j) {
		sum += b.heldUnder(h, bound)
	}
	return sum
}

// heldUnder returns how much of the resource of a bound a job holds under it.
func (b *Book) heldUnder(h *job, bound Bound) (sum int64) {
	for pod := range h.counted {
		if u := b.usages[pod]; u.Held && !u.Runs && slices.Contains(b.Path(u.Queue), bound.Queue) {
			sum += u.Amount[bound.Resource]
		}
	}
	return sum
}

// partialHolders returns the jobs that hold something, have not all that they need, and come after a job; the last
// first.
func (b *Book) partialHolders(j *job) (list []*job) {
	for h := range b.holding {
		if h != j && (h.phase == Waiting || h.phase == Failed) && b.compare(j, h) < 0 {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(x, y *job) int { return b.compare(y, x) })
	return list
}

// releases returns the jobs that have to give back what they hold so that a job whose turn has begun stays below the
// ceilings of its queues: the last in order, as many as it takes.
func (b *Book) releases(j *job) (releases []Job) {
	if j.Begun || !j.yieldSuspendedUntil.IsZero() {
		return nil
	}
	chosen := map[*job]bool{}
	for bound := range b.bounds(j) {
		var freed int64
		for h := range chosen {
			freed += b.heldUnder(h, bound)
		}
		for _, h := range b.partialHolders(j) {
			if bound.Reason != Capability || !bound.Exceeded(freed) {
				break
			}
			if gives := b.heldUnder(h, bound); gives > 0 && !chosen[h] {
				freed += gives
				chosen[h], releases = true, append(releases, h.Job)
			}
		}
	}
	j.turn.released = len(releases) > 0
	return releases
}

// yields returns what a job's queue itself has running that may make way for the job.
func (b *Book) yields(j *job) Vector {
	sum := Vector{}
	for priority, amount := range b.queues[j.Queue].byPriority {
		if b.policies.Preempt == Anything || b.policies.Preempt == Lower && priority < j.Priority {
			sum.Add(amount, 1)
		}
	}
	return sum
}

// reclaims reports whether siblings may have to free a queue above a job's own for it: each of its
// queues has a right to all that it asks for there.
func (b *Book) reclaims(j *job, above string) bool {
	if !b.policies.Reclaim || slices.Contains(j.queues(), above) {
		return false
	}
	for bound := range b.bounds(j) {
		if bound.Reason == Overused && bound.Used+bound.Need > b.own(bound.Queue).Deserved[bound.Resource] {
			return false
		}
	}
	return true
}

// tooLarge reports whether a job alone exceeds a ceiling, whichever option it takes.
func (b *Book) tooLarge(j *job) bool {
	parts := j.Parts
	if len(parts) == 0 {
		parts = j.Options
	}
	return !slices.ContainsFunc(parts, func(need Needs) bool {
		for queue := range need {
			if slices.ContainsFunc(b.ceilingsAbove(queue), func(c *ceiling) bool {
				return b.at(need, c.queue, c.name) > c.most
			}) {
				return false
			}
		}
		return true
	})
}

// overLimitBounds returns the bounds of a job whose turn it is although its queue is at a limit: other pods
// have to make way first, for all that it asks for. There are none if they have, or if it was not at one.
func (b *Book) overLimitBounds(j *job) []Bound {
	if j == nil || !j.turn.overLimit {
		return nil
	}
	if _, exceeded := b.exceeded(j); !exceeded {
		return nil
	}
	return slices.Collect(b.bounds(j.asOneUnit()))
}

// Ceilings returns the ceilings of a job that will be placed without its turn, if it would exceed one with each of its
// options: those of all that the first asks for. Otherwise it returns the options with which it would not. The share is
// a matter of turns, and counts only while pods are evicted for the job: until they have made way.
func (b *Book) Ceilings(offered Job) (exceeded []Bound, keeps []Choice) {
	j := newJob(offered)
	making := b.makesWay(j)
	shut := b.Shut(j.queues()...).Reason
	ceilings := func(j *job) (ceilings []Bound) {
		if shut == NotFound || shut == ParentMissing || j.Begun {
			return nil
		}
		for bound := range b.bounds(j) {
			if bound.Reason == Capability || making {
				ceilings = append(ceilings, bound)
			}
		}
		return ceilings
	}
	for at := range j.Options {
		j.take(at)
		if _, over := Exceeds(ceilings(j)); !over {
			keeps = append(keeps, Choice{At: at, Need: j.Options[at]})
		} else if exceeded == nil {
			exceeded = ceilings(j.asOneUnit())
		}
	}
	if len(keeps) > 0 {
		return nil, keeps
	}
	return exceeded, nil
}

// CeilingsOfAll returns, for each choice, the ceilings that the whole job would exceed. It returns nil unless parts of
// the job may be placed one by one and none has a place yet. A job that has its turn is known by its name.
func (b *Book) CeilingsOfAll(offered Job, choices []Choice) (ceilings [][]Bound) {
	j := b.jobs[offered.Name]
	if j == nil || j.phase != Admitted {
		j = newJob(offered)
	}
	if len(j.Parts) == 0 || j.Begun {
		return nil
	}
	for _, choice := range choices {
		var of []Bound
		for bound := range b.bounds(j.with(choice)) {
			if bound.Reason == Capability {
				of = append(of, bound)
			}
		}
		ceilings = append(ceilings, of)
	}
	return ceilings
}

// Choices returns the options with which an admitted job is above no limit as things are; if there are none, the option
// that it was charged with before. The job is charged with the first one returned, which is the previous option if that
// is still possible. exceeded are the bounds of the job if its turn has begun although its queue is at a limit, and
// other pods have still to make way.
func (b *Book) Choices(name string) (exceeded []Bound, keeps []Choice) {
	j := b.jobs[name]
	if j == nil || j.phase != Admitted {
		return nil, nil
	}
	keeps = b.choose(j)
	return b.overLimitBounds(j), keeps
}

// choose charges an admitted job with the first of the options that it returns, see [Book.Choices].
func (b *Book) choose(j *job) []Choice {
	if len(j.Options) == 1 {
		return []Choice{{Need: j.turn.lacks}}
	}
	charged := Choice{At: j.at, Need: j.turn.lacks}
	var keeps []Choice
	for at := range j.Options {
		b.retake(j, at)
		switch one := (Choice{At: at, Need: j.turn.lacks}); {
		case !j.Begun && b.exceedsBound(j):
		case at == charged.At:
			keeps = slices.Insert(keeps, 0, one)
		default:
			keeps = append(keeps, one)
		}
	}
	switch {
	case len(keeps) == 0:
		keeps = append(keeps, charged)
	case keeps[0].At != charged.At && j.turn.overLimit:
		j.turn.overLimit = false // no pod has to make way now
		b.overLimit--
	}
	b.retake(j, keeps[0].At)
	return keeps
}

// Choice is an option of a job.
type Choice struct {
	// At is its number, from 0.
	At int
	// Need is what the job still asks for with it, until the next input.
	Need Needs
}

// Pools returns the pools in which something is asked for.
func (c Choice) Pools() map[string]bool {
	pools := map[string]bool{}
	for _, name := range c.Need.names() {
		of, _ := resource.Split(name)
		pools[of] = true
	}
	return pools
}

// exceedsBound reports whether a job does not keep one of its bounds as things are.
func (b *Book) exceedsBound(j *job) bool {
	_, over := b.exceeded(j)
	return over
}

// Exceeds returns the first of some bounds that is exceeded; false if none is.
func Exceeds(bounds []Bound) (Bound, bool) {
	if i := slices.IndexFunc(bounds, func(b Bound) bool { return b.Exceeded(0) }); i >= 0 {
		return bounds[i], true
	}
	return Bound{}, false
}
