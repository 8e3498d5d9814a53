package dispatch

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Barred returns why a job that waits, or did not fit, would not be admitted to more nodes either: one of its queues lets nobody
// in, or the job is beyond a ceiling, as [Book.Beyond] finds, and costs. An empty reason is that it would. Where that is something
// else than [Book.Rebarred] has found, it looks at the job again: what was answered may be over before it looks.
func (b *Book) Barred(name string) (Reason, string) {
	j := b.jobs[name]
	if j == nil || j.phase != Waiting && j.phase != Failed {
		return "", ""
	}
	now, reason, words := b.barOf(j)
	if now != j.bar {
		j.astray, b.wishes.unheard = true, true
	}
	return reason, words
}

// lets reports whether all queues of a job let jobs in.
func (b *Book) lets(j *job) bool { return b.under(j.Queue).serves && b.serves(j) }

// bar is what keeps a job from more nodes, without what changes all the time; the zero value is nothing.
type bar struct {
	// words tell which queue lets nobody in; the others are of a ceiling.
	words    string
	queue    string
	resource v1.ResourceName
	most     int64
}

// barOf is what keeps a job from more nodes, and what there is to be said of it.
func (b *Book) barOf(j *job) (bar, Reason, string) {
	if !b.lets(j) {
		queues := slices.Sorted(maps.Keys(j.missing()))
		reason, words := b.shutOf(append(queues, j.Queue))
		return bar{words: words}, reason, words
	}
	if bound, beyond := b.Beyond(j.Name); beyond {
		return bar{queue: bound.Queue, resource: bound.Resource, most: bound.Most}, bound.Reason, bound.Brief()
	}
	return bar{}, "", ""
}

// Rebarred returns the pods of gangs that did not fit, and of which [Book.Barred] answers something else than when this was
// asked last, or has answered something else since: a queue has been described anew, or jobs that come before have come or gone.
// Pods in no gang of which it does are alone: they have to come again, since they are told as they fail. It costs a look at all
// jobs where anything of that has changed.
func (b *Book) Rebarred() (pods, alone []string) {
	if !b.wishes.moved() && !b.relinked {
		return nil, nil
	}
	b.relinked = false
	for _, j := range b.timed {
		if failed := j.phase == Failed || j.phase == Waiting && !j.tried.IsZero(); !failed {
			continue
		}
		now, _, _ := b.barOf(j)
		if now == j.bar && !j.astray {
			continue
		}
		switch {
		case j.Gang:
			pods = slices.AppendSeq(pods, maps.Keys(j.counted)) // gangs that start together are one job
		case j.phase == Failed:
			alone = append(alone, j.Pod)
		}
		j.bar, j.astray = now, false
	}
	b.wishes.unheard = false // what was reckoned here has been heard
	slices.Sort(pods)
	slices.Sort(alone)
	return pods, alone
}
