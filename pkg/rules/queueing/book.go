package queueing

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// Book is all queues, what is used and all jobs. It is not safe for concurrent use.
type Book struct {
	limits   Limits
	policies Policies
	// victims returns how many pods have not ended that are evicted for a holder.
	victims func(hold.Holder) int
	accounts
	line
	// missed are the jobs that did not fit, which others may have to wait for.
	missed map[string]*missed
	// overLimit is how many of the admitted jobs are over a limit, at most 1: other pods make way for each
	// by itself, but need not for what several ask for together.
	overLimit int
	// wishes are the nodes that jobs would have.
	wishes wishes
	// effects are the effects of the input that is being handled.
	effects Effects
}

// accounts are the resources of the cluster, what each queue and gang uses of them, and the share of each queue.
type accounts struct {
	total  Vector
	queues map[string]*queue
	usages map[string]Usage
	// running is what each gang has running, and promised is what is promised to each job.
	running  map[string]Vector
	promised map[string]Needs
	// asked is what each gang asks for or has, and evicted are the gangs that were evicted.
	asked   map[string]Vector
	evicted map[string]*evictedGang
	shares  map[string]share.Share
	// stale: the shares have to be recomputed.
	stale bool
	// retryFailed: since retry last looked at failed jobs, the limits of a queue have changed, or a pod on a node has
	// moved to another queue. reclaimable: a pod runs where a place was promised to it, and may be reclaimed there.
	retryFailed, reclaimable bool
}

// line is the jobs. Those that wait are in lists of their queues, too.
type line struct {
	jobs map[string]*job
	// arrivals is how many jobs have come.
	arrivals uint64
	// admitted is how many jobs have their turn.
	admitted int
	// timed are the jobs that time can move.
	timed map[string]*job
	// holding is how many pods of a job are held, of those for which any are.
	holding map[*job]int
	// candidates are gangs that have not come to the gate and would if it was their turn. members are they and the jobs
	// that wait, by gang.
	candidates map[string]*job
	members    map[string]map[*job]bool
	// urgent are the jobs that wait and have begun, candidates too.
	urgent map[*job]bool
}

// queue is the state of a queue. One that is counted in and not described has no spec, and exists
// as long as any usage or job is in it, and until the next [Book.Tick].
type queue struct {
	spec *Queue
	path []string // from share.Ancestors; nil where it does not lead to the top
	// noWay is why it does not, for users; empty where it does.
	noWay string
	// requested and idle are its own; running is what it and all queues below it have running, and used is that and what
	// is admitted.
	requested, idle, running, used Vector
	// inVain is the part of requested that jobs ask for that are too large.
	inVain Vector
	// turns is what of used is admitted.
	turns Vector
	// mine is what it has running itself, and what is admitted to it.
	mine Vector
	// byPriority is what it has running itself, by the priority of the pods that have it.
	byPriority map[int32]Vector
	waiting    map[kind]*list
}

// allocated returns what a queue has running itself.
func (q *queue) allocated() Vector {
	sum := Vector{}
	for _, amount := range q.byPriority {
		sum.Add(amount, 1)
	}
	return sum
}

// NewBook returns a book with the queue of the given name, which has weight 1 unless it is described otherwise. victims
// returns how many pods have not ended that are evicted for a holder.
func NewBook(standard string, victims func(hold.Holder) int) *Book {
	b := &Book{
		victims: victims, missed: map[string]*missed{},
		accounts: accounts{
			total: Vector{}, queues: map[string]*queue{}, usages: map[string]Usage{}, running: map[string]Vector{},
			promised: map[string]Needs{}, asked: map[string]Vector{}, evicted: map[string]*evictedGang{}, stale: true,
		},
		line: line{
			jobs: map[string]*job{}, timed: map[string]*job{}, holding: map[*job]int{}, candidates: map[string]*job{},
			members: map[string]map[*job]bool{}, urgent: map[*job]bool{},
		},
	}
	b.SetQueues(Queue{Name: standard, Weight: 1})
	return b
}

// queue returns the queue of a name, which exists from then on.
func (b *Book) queue(name string) *queue {
	q := b.queues[name]
	if q == nil {
		q = &queue{
			requested: Vector{}, inVain: Vector{}, idle: Vector{}, running: Vector{}, used: Vector{}, turns: Vector{},
			mine: Vector{}, byPriority: map[int32]Vector{}, waiting: map[kind]*list{},
			noWay: textNotFound(name), // it is not described yet
		}
		b.queues[name] = q
	}
	return q
}

// forgetQueues forgets the queues that are not described and that nothing is in, and returns them. If any is not
// described it costs a look at usages until one is found in each.
func (b *Book) forgetQueues() []string {
	unused := map[string]bool{}
	for name, q := range b.queues {
		if q.spec == nil {
			unused[name] = true
		}
	}
	for _, u := range b.usages {
		if len(unused) == 0 {
			return nil
		}
		delete(unused, u.Queue)
	}
	for _, jobs := range []map[string]*job{b.timed, b.candidates} {
		for _, j := range jobs {
			delete(unused, j.Queue)
			for _, option := range j.Options {
				for queue := range option {
					delete(unused, queue)
				}
			}
			for _, asked := range j.turn.pods {
				delete(unused, asked.Queue)
			}
		}
	}
	for name := range unused {
		delete(b.queues, name)
	}
	return slices.Sorted(maps.Keys(unused))
}

// SetTotal sets the capacity of the cluster. The shares change only if it does.
func (b *Book) SetTotal(total Vector) {
	if !maps.Equal(b.total, total) {
		b.total, b.stale = maps.Clone(total), true
	}
}

// SetQueues describes queues. It costs time by all that is counted, but nothing if all are
// described like this already.
func (b *Book) SetQueues(specs ...Queue) (changed bool) {
	for _, spec := range specs {
		if q := b.queues[spec.Name]; q != nil && q.spec != nil {
			if reflect.DeepEqual(*q.spec, spec) {
				continue
			}
			b.retryFailed = b.retryFailed || !q.spec.sameLimits(spec)
		}
		b.queue(spec.Name).spec = &spec
		changed = true
	}
	if changed {
		b.relink()
	}
	return changed
}

// RemoveQueue removes the description of a queue. What is counted in it stays counted.
func (b *Book) RemoveQueue(name string) {
	if q := b.queues[name]; q != nil {
		q.spec = nil
		b.retryFailed = true
		b.relink()
	}
}

// relink finds the ancestors of all queues, and adds up what is used.
func (b *Book) relink() {
	b.stale, b.wishes = true, newWishes(b.jobs)
	for _, q := range b.queues {
		q.running, q.used, q.turns, q.mine = Vector{}, Vector{}, Vector{}, Vector{}
	}
	described := b.described()
	for name, q := range b.queues {
		q.path, q.noWay = nil, ""
		if path, err := share.Ancestors(described, name); err == nil {
			q.path = path
		} else if q.spec != nil {
			q.noWay = share.TextNoWay(described, name, path, err)
		} else {
			q.noWay = textNotFound(name)
		}
	}
	for _, u := range b.usages {
		switch {
		case u.Runs:
			b.run(u.Queue, u.Amount, 1)
		case u.Promised, u.Held:
			b.use(u.Queue, u.Amount, 1)
		}
	}
	for _, j := range b.jobs {
		switch j.phase {
		case Waiting:
			b.relist(j)
		case Admitted:
			b.chargeAll(j, 1)
		case Outside, Failed:
		}
	}
}

// described returns the queues that have a description, as package share takes them.
func (b *Book) described() map[string]share.Queue {
	list, awaited := make(map[string]share.Queue, len(b.queues)), b.Awaited()
	for name, q := range b.queues {
		if q.spec != nil {
			request, idle := q.requested, q.idle
			if more := awaited[name]; more != nil || !q.inVain.Zero() {
				request = maps.Clone(request)
				request.Add(more, 1)
				request.Add(q.inVain, -1)
				allocated := q.allocated()
				for name := range q.inVain {
					request[name] = max(request[name], allocated[name]) // options of a job may have parts in common
				}
			}
			if b.closed(q) {
				request, idle = q.allocated(), nil // it gets nothing more
			}
			list[name] = share.Queue{
				Name: name, Parent: q.spec.Parent, Weight: q.spec.Weight,
				Deserved: b.deserves(q.spec), Guarantee: q.spec.Guarantee, Capability: q.spec.Capability,
				Request: request, Idle: idle,
			}
		}
	}
	return list
}

// use adds n times an amount to what a queue and its ancestors use.
func (b *Book) use(name string, amount Vector, n int64) {
	b.wishes.stale, b.wishes.changed = true, true
	b.queues[name].mine.Add(amount, n)
	for _, q := range b.upwards(name) {
		q.used.Add(amount, n)
	}
}

// run adds n times an amount to what a queue and its ancestors have running, and use.
func (b *Book) run(name string, amount Vector, n int64) {
	b.use(name, amount, n)
	for _, q := range b.upwards(name) {
		q.running.Add(amount, n)
	}
}

// upwards returns a queue and its ancestors.
func (b *Book) upwards(name string) []*queue {
	q := b.queues[name]
	if q.noWay != "" {
		return []*queue{q}
	}
	all := make([]*queue, len(q.path))
	for i, at := range q.path {
		all[i] = b.queues[at]
	}
	return all
}

// Own returns the name under which the own pods of a queue that has children stand beside these. No
// queue has such a name.
func Own(queue string) string { return queue + "/" }

// MinRuntime returns how long gangs of a queue are left alone once they run, as it says itself, or the first of its
// ancestors that does; false if none does.
func (b *Book) MinRuntime(queue string) (time.Duration, bool) {
	for _, at := range b.Path(queue) {
		if least := b.queues[at].spec.MinRuntime; least != nil {
			return *least, true
		}
	}
	return 0, false
}

// Standings returns the standing of all queues, and of the own pods of queues that have children.
// The result is a snapshot: it does not change later.
func (b *Book) Standings() map[string]share.Balance {
	shares := b.Shares()
	all := make(map[string]share.Balance, len(b.queues))
	for name, q := range b.queues {
		one := share.Balance{Path: q.path, Running: maps.Clone(q.running), Deserved: shares[name].Deserved,
			Contested: shares[name].Contested, Share: share.Dominant(q.running, b.total)}
		if q.spec != nil {
			one.Stated, one.NotReclaimable = b.deserves(q.spec), q.spec.NotReclaimable
		}
		if own := shares[name].Own; own != nil {
			one.Path = append([]string{Own(name)}, q.path...)
			all[Own(name)] = share.Balance{Path: one.Path, Running: q.allocated(), Deserved: own.Deserved,
				Contested: own.Contested, NotReclaimable: one.NotReclaimable}
		}
		all[name] = one
	}
	return all
}

// Shares returns what comes to each queue as things are.
func (b *Book) Shares() map[string]share.Share {
	if b.stale {
		b.shares, b.stale = share.Deserve(b.total, b.described()), false
	}
	return b.shares
}

// own returns what comes to the own pods of a queue.
func (b *Book) own(queue string) share.Share {
	all := b.Shares()[queue]
	if all.Own != nil {
		return *all.Own
	}
	return all
}

// Path returns a queue and those above it; nil if they do not lead to the top.
func (b *Book) Path(queue string) []string {
	if q := b.queues[queue]; q != nil {
		return q.path
	}
	return nil
}

// Counted returns what is counted under a name.
func (b *Book) Counted(name string) (Usage, bool) {
	u, ok := b.usages[name]
	return u, ok
}
