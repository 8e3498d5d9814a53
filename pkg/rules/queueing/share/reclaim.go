package share

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Balance is what a queue has, and what it deserves.
type Balance struct {
	// Path is the queue and its ancestors, itself first; empty if they do not lead to the top. The
	// path of a queue that has children begins with its own pods, as if they were in a queue below it.
	Path []string
	// Running is what it and all below it have running.
	Running Vector
	// Deserved is what it is entitled to; Stated are the resources of which its owner states how
	// much that is, if that counts.
	Deserved, Stated Vector
	// Contested are the resources of which it and its siblings ask for more than there is for
	// them.
	Contested map[v1.ResourceName]bool
	// Share is the largest part of a resource that it has running.
	Share float64
	// NotReclaimable: other queues may not reclaim what it has.
	NotReclaimable bool
}

// Reclaim is what queues may take back from others for a job that does not fit.
type Reclaim struct {
	// need is what the job asks for in all its queues.
	need      Vector
	standings map[string]Balance
	// promised is what each queue, and all below it, will have beside what runs.
	promised map[string]Vector
	// claims are the queues in which the job asks for something, and their ancestors.
	claims map[string]claim
}

// claim is what a job asks for in a queue and those below it, and how much more that queue deserves than it has:
// negative if it has more.
type claim struct{ need, room Vector }

// NewReclaim returns what queues may take back for a job, by what it asks for in each of them. The standings have to
// stay as they are; promised is what each queue, and all below it, will have beside what runs. It returns nil if one of
// the queues, with its part of the job, would have more than it deserves of a contested resource that the part needs:
// nothing is reclaimed for that.
func NewReclaim(needs map[string]Vector, standings map[string]Balance, promised map[string]Vector) *Reclaim {
	r := &Reclaim{need: Vector{}, standings: standings, promised: promised, claims: map[string]claim{}}
	for queue, need := range needs {
		r.need.Add(need, 1)
		for _, at := range standings[queue].Path {
			c, known := r.claims[at]
			if !known {
				c = claim{need: Vector{}, room: Vector{}}
				c.room.Add(standings[at].Deserved, 1)
				c.room.Add(standings[at].Running, -1)
				c.room.Add(promised[at], -1)
				r.claims[at] = c
			}
			c.need.Add(need, 1)
		}
	}
	for queue, need := range needs {
		path := standings[queue].Path
		if len(path) == 0 {
			return nil
		}
		for name := range need {
			if r.limits(path[0], name) {
				return nil
			}
		}
	}
	return r
}

// limits reports whether a queue that claims would have more than it deserves with its part of the job, of a contested
// resource.
func (r *Reclaim) limits(at string, name v1.ResourceName) bool {
	return r.standings[at].Contested[name] && !r.inside(at, name)
}

// inside reports whether a queue that claims has no more of a resource than it deserves, its part of the job included.
func (r *Reclaim) inside(at string, name v1.ResourceName) bool {
	c := r.claims[at]
	return c.need[name] <= 0 || c.need[name] <= c.room[name]
}

// fromOutside returns how much of a resource may come from outside a queue that claims, where its part of the job
// exceeds what it deserves: the room in its share, and what the other queues' parts of the job need.
func (r *Reclaim) fromOutside(at string, name v1.ResourceName) int64 {
	c := r.claims[at]
	return max(c.room[name], 0) + r.need[name] - c.need[name]
}

// apart returns the part of a queue's path on which nothing is claimed, and the queues that claim and are not above it.
func (r *Reclaim) apart(path []string) (theirs, ours []string) {
	for _, at := range path {
		if _, claims := r.claims[at]; claims {
			break
		}
		theirs = append(theirs, at)
	}
	for at := range r.claims {
		if !slices.Contains(path, at) {
			ours = append(ours, at)
		}
	}
	return theirs, ours
}

// Permits reports whether a queue may lose pods for the job at all.
func (r *Reclaim) Permits(queue string) bool {
	theirs, ours := r.apart(r.standings[queue].Path)
	if len(theirs) == 0 || slices.ContainsFunc(theirs, func(at string) bool { return r.standings[at].NotReclaimable }) {
		return false
	}
	for _, at := range ours {
		for name := range r.need {
			if r.limits(at, name) && r.fromOutside(at, name) <= 0 {
				return false // this ancestor has its share: only what is below it can be taken
			}
		}
	}
	return true
}

// own returns the standing of a queue's own pods.
func (r *Reclaim) own(queue string) Balance {
	s := r.standings[queue]
	if len(s.Path) > 0 {
		s = r.standings[s.Path[0]]
	}
	return s
}

// Excess returns the largest ratio of what a queue's own pods have to what these deserve, of the resources that the job
// needs.
func (r *Reclaim) Excess(queue string) float64 {
	s := r.own(queue)
	return r.excess(s.Running, s.Deserved)
}

// excess returns the largest ratio of what a queue has to what it deserves, of the resources that the job needs.
func (r *Reclaim) excess(has, deserved Vector) float64 {
	most := 0.0
	for name, amount := range r.need {
		switch has := has[name]; {
		case amount <= 0 || has <= 0:
		case deserved[name] <= 0:
			return math.Inf(1)
		default:
			most = max(most, float64(has)/float64(deserved[name]))
		}
	}
	return most
}

// TakesHolds reports whether gangs of a queue that hold places while they wait for more give these back for the job:
// the queue may lose pods for it, and with what is promised it has more than it deserves, and so has each of its
// ancestors that is not above the reclaiming queue.
func (r *Reclaim) TakesHolds(queue string) bool {
	theirs, _ := r.apart(r.standings[queue].Path)
	return r.Permits(queue) && !slices.ContainsFunc(theirs, func(at string) bool {
		has := Vector{}
		has.Add(r.standings[at].Running, 1)
		has.Add(r.promised[at], 1)
		return r.excess(has, r.standings[at].Deserved) <= 1
	})
}

// Job is what a job has running in a queue.
type Job struct {
	// Name is unique. It orders jobs that started at the same time.
	Name string
	// Started is when the first of it started; zero is long ago.
	Started time.Time
	Amount  Vector
}

// Overshooting returns the names of those of a queue's jobs with which it has more than it deserves, of a resource that
// they have and that the reclaiming job needs: the jobs are added up in the order in which they started.
func (r *Reclaim) Overshooting(queue string, jobs []Job) map[string]bool {
	deserved, sum, overshooting := r.own(queue).Deserved, Vector{}, map[string]bool{}
	byStart := func(a, b Job) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Name, b.Name)) }
	for _, j := range slices.SortedFunc(slices.Values(jobs), byStart) {
		sum.Add(j.Amount, 1)
		for name, needed := range r.need {
			if needed > 0 && j.Amount[name] > 0 && sum[name] > deserved[name] {
				overshooting[j.Name] = true
			}
		}
	}
	return overshooting
}

// Budget counts what queues lose for a job, one victim after the other. Any part of what it grants keeps its limits,
// too:
//
//  1. A queue that gives has more than it deserves, and so has each of its ancestors that is not above the reclaiming
//     queue. None comes below what it deserves of a resource that the job needs and that is contested where the two
//     branches part. A job that overshoots its queue's share, and with parts any, may be the last part, by which a
//     queue comes below: one whose share is stated by any amount, others by less than the job needs, all together.
//  2. Of a resource that is not contested there is enough for all, but the job may lack it in one piece. A queue
//     inside its own share takes it from those that have more than they deserve, and that keep what their owners
//     state.
//  3. An ancestor of a reclaiming queue that would have more than it deserves with its part of the job gets no more
//     from outside than it lacks without. The rest comes from below it.
type Budget struct {
	*Reclaim
	parts bool
	// left is what each queue has beyond what it deserves.
	left map[string]Vector
	// outside is what was taken from outside each queue that claims.
	outside map[string]Vector
	// short is by how much queues came below what they deserve by weight.
	short Vector
	// grants are the victims that are granted.
	grants []grant
}

// grant is a victim: its queue and its amount, and by how much queues come below what they deserve by weight for it.
type grant struct {
	queue         string
	amount, short Vector
}

// Budget returns what queues may lose, with what runs now.
func (r *Reclaim) Budget(now map[string]Balance, parts bool) *Budget {
	b := &Budget{Reclaim: r, parts: parts, left: make(map[string]Vector, len(now)), outside: map[string]Vector{},
		short: Vector{}}
	for name, s := range now {
		left := Vector{}
		left.Add(s.Running, 1)
		left.Add(r.standings[name].Deserved, -1)
		b.left[name] = left
	}
	for at := range r.claims {
		b.outside[at] = Vector{}
	}
	return b
}

// Leave takes off an amount that ends anyway. A queue that no longer exists has nothing left.
func (b *Budget) Leave(queue string, amount Vector) {
	for _, at := range b.standings[queue].Path {
		if left := b.left[at]; left != nil {
			left.Add(amount, -1)
		}
	}
}

// Take grants a victim of a queue, with this amount, if the limits are kept with all that was granted before.
// overshoots: it is of jobs that are [Reclaim.Overshooting].
func (b *Budget) Take(queue string, amount Vector, overshoots bool) bool {
	theirs, ours := b.apart(b.standings[queue].Path)
	if len(theirs) == 0 {
		return false
	}
	short := Vector{}
	for _, at := range theirs {
		if !b.affords(at, amount, overshoots, ours, b.standings[theirs[len(theirs)-1]].Contested, short) {
			return false
		}
	}
	for _, at := range ours {
		for name := range b.need {
			if b.limits(at, name) && b.outside[at][name]+amount[name] > b.fromOutside(at, name) {
				return false
			}
		}
	}
	b.grants = append(b.grants, grant{queue, amount, short})
	b.count(queue, amount, short, 1)
	return true
}

// Return takes back a victim that was granted.
func (b *Budget) Return(queue string, amount Vector) {
	for i, g := range slices.Backward(b.grants) {
		if g.queue == queue && maps.Equal(g.amount, amount) {
			b.grants = slices.Delete(b.grants, i, i+1)
			b.count(queue, amount, g.short, -1)
			return
		}
	}
}

// count counts a victim that is granted, or with -1 one that is taken back.
func (b *Budget) count(queue string, amount, short Vector, n int64) {
	path := b.standings[queue].Path
	for _, at := range path {
		if left := b.left[at]; left != nil {
			left.Add(amount, -n)
		}
	}
	b.short.Add(short, n)
	_, ours := b.apart(path)
	for _, at := range ours {
		b.outside[at].Add(amount, n)
	}
}

// affords reports whether a queue can give an amount. It notes in short by how much the queue comes below what it
// deserves by weight.
func (b *Budget) affords(
	queue string, amount Vector, overshoots bool, ours []string, contested map[v1.ResourceName]bool, short Vector,
) bool {
	gives, lends, keeps := false, false, true
	for name, needed := range b.need {
		if needed <= 0 || amount[name] <= 0 {
			continue
		}
		_, stated := b.standings[queue].Stated[name]
		missing := max(amount[name]-b.left[queue][name], 0)
		beyond := missing == 0 || (b.parts || overshoots) && b.left[queue][name] > 0 &&
			(stated || b.short[name]+missing < needed)
		if beyond && !stated {
			short[name] = max(short[name], missing)
		}
		switch {
		case contested[name] && !beyond:
			return false
		case contested[name]:
			gives = true
		case beyond && b.insideAll(ours, name):
			lends = true
		case stated:
			keeps = false
		}
	}
	return gives || lends && keeps
}

// insideAll reports whether some queues that claim have no more of a resource than they deserve, the job included.
func (b *Budget) insideAll(claiming []string, name v1.ResourceName) bool {
	return !slices.ContainsFunc(claiming, func(at string) bool { return !b.inside(at, name) })
}
