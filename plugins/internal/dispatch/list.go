package dispatch

import (
	"container/heap"
	"strconv"
	"strings"
)

// list is the jobs of a queue that wait and ask for the same: what keeps the first of them
// from its turn keeps all.
type list struct {
	// fresh are those of whose groups nothing runs, in an order that does not change.
	fresh fresh
	// started are the others, which are compared anew each time.
	started map[string]*job
}

// first is the one whose turn it is; nil if there is none.
func (l *list) first(b *Book) *job {
	var best *job
	if l.fresh.Len() > 0 {
		best = l.fresh.jobs[0]
	}
	for _, j := range l.started {
		if best == nil || b.compareJobs(j, best) < 0 {
			best = j
		}
	}
	return best
}

// kindOf names what a job asks for, and whether others may have to make way for it. One that
// has been promised some of it is of a kind of its own.
func (b *Book) kindOf(j *job) string {
	var kind strings.Builder
	j.take(0)
	if b.promised[j.Name] != nil {
		kind.WriteString(j.Name + " ")
	}
	if j.patient() {
		kind.WriteString("patient ")
	}
	if j.making {
		kind.WriteString("making ")
	}
	j.asks(&kind)
	for at := 1; at < len(j.options); at++ {
		j.take(at)
		kind.WriteString(" or ")
		j.asks(&kind)
	}
	j.take(0)
	return kind.String()
}

// asks names what a job asks for.
func (j *job) asks(asks *strings.Builder) {
	for _, queue := range j.queues() {
		asks.WriteString(queue + ":")
		for _, name := range j.needs {
			asks.WriteString(string(name) + "=" + strconv.FormatInt(j.need()[queue][name], 10) + ",")
		}
	}
}

// list has a job wait, unless it is above a ceiling all by itself: it will never have its
// turn, as things are, and keeps nobody else waiting.
func (b *Book) list(j *job) {
	if j.Begun {
		b.urgent[j.Name] = j
		return
	}
	q, kind := b.queues[j.Queue], b.kindOf(j)
	if b.tooLarge(j) {
		kind = hopeless + kind
	}
	j.kind = kind
	l := q.waiting[kind]
	if l == nil {
		l = &list{fresh: fresh{less: b.compareFresh}, started: map[string]*job{}}
		q.waiting[kind] = l
	}
	if j.Group != "" {
		if b.members[j.Group] == nil {
			b.members[j.Group] = map[string]*job{}
		}
		b.members[j.Group][j.Name] = j
	}
	if j.Ready || b.running[j.Group] != nil {
		l.started[j.Name] = j
		j.index = -1
		return
	}
	heap.Push(&l.fresh, j)
}

// hopeless begins the kind of jobs that are too large.
const hopeless = "!"

func (b *Book) unlist(j *job) {
	if j.Begun {
		delete(b.urgent, j.Name)
		return
	}
	q, kind := b.queues[j.Queue], j.kind
	l := q.waiting[kind]
	if delete(b.members[j.Group], j.Name); len(b.members[j.Group]) == 0 {
		delete(b.members, j.Group)
	}
	if j.index < 0 {
		delete(l.started, j.Name)
	} else {
		heap.Remove(&l.fresh, j.index)
	}
	if l.fresh.Len()+len(l.started) == 0 {
		delete(q.waiting, kind)
	}
}

// fresh is a heap.
type fresh struct {
	jobs []*job
	less func(i, j *job) int
}

// Len, Less and Swap are those of package sort.
func (f *fresh) Len() int           { return len(f.jobs) }
func (f *fresh) Less(i, j int) bool { return f.less(f.jobs[i], f.jobs[j]) < 0 }

func (f *fresh) Swap(i, j int) {
	f.jobs[i], f.jobs[j] = f.jobs[j], f.jobs[i]
	f.jobs[i].index, f.jobs[j].index = i, j
}

// Push adds a job at the end.
func (f *fresh) Push(x any) {
	j := x.(*job)
	j.index = len(f.jobs)
	f.jobs = append(f.jobs, j)
}

// Pop takes the last.
func (f *fresh) Pop() any {
	last := f.jobs[len(f.jobs)-1]
	f.jobs = f.jobs[:len(f.jobs)-1]
	return last
}
