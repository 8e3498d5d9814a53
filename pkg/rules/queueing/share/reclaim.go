package share

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Standing is what a queue has, and what it deserves.
type Standing struct {
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
	// Kept: other queues may not reclaim what it has.
	Kept bool
}

// Reclaim is what a queue may take back from others for a job that does not fit.
type Reclaim struct {
	queue     string
	need      Vector
	standings map[string]Standing
	// path are the queue and its ancestors, and room is how much more each of them deserves than it has; negative if it
	// has more.
	path []string
	room []Vector
}

// NewReclaim returns what a queue may take back for a job. The standings have to stay as they are; promised is what
// each queue, and all below it, will have beside what runs. It returns nil where the queue would have more than it
// deserves with the job, of a resource that the job needs and that is contested: nothing is reclaimed for that.
func NewReclaim(queue string, need Vector, standings map[string]Standing, promised map[string]Vector) *Reclaim {
	r := &Reclaim{queue: queue, need: need, standings: standings, path: standings[queue].Path}
	for _, at := range r.path {
		room := Vector{}
		room.Add(standings[at].Deserved, 1)
		room.Add(standings[at].Running, -1)
		room.Add(promised[at], -1)
		r.room = append(r.room, room)
	}
	if len(r.path) == 0 {
		return nil
	}
	for name := range need {
		if r.limits(0, name) {
			return nil
		}
	}
	return r
}

// limits reports whether one of the queues of the path would have more than it deserves with the job, of a contested
// resource.
func (r *Reclaim) limits(level int, name v1.ResourceName) bool {
	return r.standings[r.path[level]].Contested[name] && !r.inside(level, name)
}

// inside reports whether one of the queues of the path has no more of a resource than it deserves, the job included.
func (r *Reclaim) inside(level int, name v1.ResourceName) bool {
	return r.need[name] <= 0 || r.need[name] <= r.room[level][name]
}

// apart returns the part of a queue's path that the reclaiming queue is not on, and how many queues of its own path are
// not above the other.
func (r *Reclaim) apart(path []string) (theirs []string, ours int) {
	for i, at := range path {
		if ours := slices.Index(r.path, at); ours >= 0 {
			return path[:i], ours
		}
	}
	return path, len(r.path)
}

// Permits reports whether a queue may lose pods for the job at all.
func (r *Reclaim) Permits(queue string) bool {
	theirs, ours := r.apart(r.standings[queue].Path)
	if queue == "" || queue == r.queue || slices.ContainsFunc(theirs, func(at string) bool { return r.standings[at].Kept }) {
		return false
	}
	for level := range ours {
		for name := range r.need {
			if r.limits(level, name) && r.room[level][name] <= 0 {
				return false // this ancestor has its share: only what is below it can be taken
			}
		}
	}
	return true
}

// own returns the standing of a queue's own pods.
func (r *Reclaim) own(queue string) Standing {
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
	most := 0.0
	for name, amount := range r.need {
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
//  3. An ancestor of the reclaiming queue that would have more than it deserves with the job gets no more from outside
//     than it lacks without. The rest comes from below it.
type Budget struct {
	*Reclaim
	parts bool
	// left is what each queue has beyond what it deserves.
	left map[string]Vector
	// outside is what was taken from outside each queue of the path.
	outside []Vector
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
func (r *Reclaim) Budget(now map[string]Standing, parts bool) *Budget {
	b := &Budget{Reclaim: r, parts: parts, left: make(map[string]Vector, len(now)), outside: make([]Vector, len(r.path)), short: Vector{}}
	for name, s := range now {
		left := Vector{}
		left.Add(s.Running, 1)
		left.Add(r.standings[name].Deserved, -1)
		b.left[name] = left
	}
	for level := range b.outside {
		b.outside[level] = Vector{}
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
	for level := range ours {
		for name := range b.need {
			if b.limits(level, name) && b.outside[level][name]+amount[name] > max(b.room[level][name], 0) {
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
	for level := range ours {
		b.outside[level].Add(amount, n)
	}
}

// affords reports whether a queue can give an amount. It notes in short by how much the queue comes below what it
// deserves by weight.
func (b *Budget) affords(
	queue string, amount Vector, overshoots bool, ours int, contested map[v1.ResourceName]bool, short Vector,
) bool {
	gives, lends, keeps := false, false, true
	for name, needed := range b.need {
		if needed <= 0 || amount[name] <= 0 {
			continue
		}
		_, stated := b.standings[queue].Stated[name]
		missing := max(amount[name]-b.left[queue][name], 0)
		beyond := missing == 0 || (b.parts || overshoots) && b.left[queue][name] > 0 && (stated || b.short[name]+missing < needed)
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

// insideAll reports whether the queues of the path up to a level have no more of a resource than they deserve, the job
// included.
func (b *Budget) insideAll(levels int, name v1.ResourceName) bool {
	for level := range levels {
		if !b.inside(level, name) {
			return false
		}
	}
	return true
}
