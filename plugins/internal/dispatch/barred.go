package dispatch

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Barred returns why a job that waits, or did not fit, would not be admitted to more nodes either: one of its queues lets nobody
// in, or the job is beyond a ceiling, as [Book.Beyond] finds, and costs. An empty reason is that it would. That it would not counts at
// once; that it would, when [Book.Rebarred] has found so for [tellOther]. So a job before which others come and go is told the same
// all the time, and autoscalers do not begin what they give up a second later.
func (b *Book) Barred(name string) (Reason, string) {
	j := b.jobs[name]
	if j == nil || j.phase != Waiting && j.phase != Failed {
		return "", ""
	}
	if _, isNew := b.look(j); isNew {
		j.barred.unheard, b.wishes.unheard = true, true // whoever asks need not be who tells
	}
	return j.barred.reason, j.barred.words
}

// barred is what keeps a job from more nodes, or did a short while ago.
type barred struct {
	bar
	reason Reason
	words  string
	// over is since when nothing does; zero where it still does. unheard: [Book.Rebarred] has not told of it yet.
	over    time.Time
	unheard bool
}

// look takes in what keeps a job from more nodes, and reports whether anything does, and is new.
func (b *Book) look(j *job) (is, isNew bool) {
	now, reason, words := b.barOf(j)
	if now == (bar{}) {
		return false, false
	}
	isNew = now != j.barred.bar
	j.barred = barred{bar: now, reason: reason, words: words, unheard: j.barred.unheard}
	return true, isNew
}

// lift takes in that nothing keeps a job from more nodes any more, and reports whether that counts by now: at once, or since it
// has been so for long enough.
func (b *barred) lift(now time.Time, atOnce bool) bool {
	if b.over.IsZero() {
		b.over = now
	}
	if !atOnce && now.Sub(b.over) < tellOther {
		return false
	}
	*b = barred{}
	return true
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
// asked last: a queue has been described anew, which counts at once, or jobs that come before have come or gone. Pods in no gang of
// which it does are alone: they have to come again, since they are told as they fail. It costs a look at all jobs where anything of
// that has changed, and is to be asked every second or so.
func (b *Book) Rebarred(at Moment) (pods, alone []string) {
	if !b.wishes.moved() && !b.relinked && !b.lingers {
		return nil, nil
	}
	atOnce := b.relinked
	b.relinked, b.lingers = false, false
	for _, j := range b.timed {
		if failed := j.phase == Failed || j.phase == Waiting && !j.tried.IsZero(); !failed {
			continue
		}
		is, isNew := b.look(j)
		isNew = isNew || is && j.barred.unheard
		if was := j.barred.bar != (bar{}); was && !is {
			isNew = j.barred.lift(at.Now, atOnce)
			b.lingers = b.lingers || !isNew
		}
		if !isNew {
			continue
		}
		j.barred.unheard = false
		switch {
		case j.Gang:
			pods = slices.AppendSeq(pods, maps.Keys(j.counted)) // gangs that start together are one job
		case j.phase == Failed:
			alone = append(alone, j.Pod)
		}
	}
	b.wishes.unheard = false // what was reckoned here has been heard
	slices.Sort(pods)
	slices.Sort(alone)
	return pods, alone
}
