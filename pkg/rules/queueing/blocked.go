package queueing

import (
	"maps"
	"slices"
	"time"
)

// Blocked returns why a job that waits, or did not fit, would not be admitted to more nodes either: one of its queues
// lets no job in, or the job is beyond a ceiling, as [Book.beyond] finds, and at the cost of that. An empty reason
// means that it would be. A stronger reason replaces a weaker one at once. A weaker one, which is no reason or only the
// jobs ahead of it, replaces a stronger one once [Book.News] has found it for [tellOther]: otherwise the reason would
// change as other jobs come and go, and autoscalers would ask for nodes and give up a second later. For the same reason
// nothing replaces it while the job has its turn.
func (b *Book) Blocked(name string) (Reason, string) {
	j := b.jobs[name]
	switch {
	case j == nil || j.phase == Outside:
		return "", ""
	case j.phase == Admitted: // it is as it was, until its attempt says otherwise
	case j.blocked.take(b.blockOf(j)):
		j.blocked.unheard, b.wishes.changed = true, true // the caller need not be the one that reports it
	}
	return j.blocked.reason, j.blocked.words
}

// blocked is what keeps a job from more nodes, or did a short while ago.
type blocked struct {
	block
	// eased is since when less than block keeps it; zero if block still does. next is the most that has kept it since.
	eased time.Time
	next  block
	// unheard: [Book.News] has not returned it yet.
	unheard bool
}

// block is what keeps a job from more nodes, in words without what changes all the time; the zero value is nothing.
type block struct {
	reason Reason
	words  string
}

// weight is higher for what is worse: 0 for nothing, 1 for jobs that come before and would have the nodes, since room
// that there is now helps then, and 2 for limits of queues.
func (b block) weight() int {
	switch b.reason {
	case "":
		return 0
	case Behind:
		return 1
	default:
		return 2
	}
}

// blockOf returns what keeps a job from more nodes.
func (b *Book) blockOf(j *job) block {
	queues := slices.Sorted(maps.Keys(b.missing(j)))
	if reason, words := b.Shut(append(queues, j.Queue)...); reason != "" {
		return block{reason, words}
	}
	if bound, beyond := b.beyond(j.Name); beyond {
		return block{bound.Code(), bound.Brief()}
	}
	return block{}
}

// take sets what keeps a job from more nodes, unless that is less than before, and reports whether it is new.
func (b *blocked) take(now block) (isNew bool) {
	if now.weight() < b.weight() {
		return false
	}
	isNew = now != b.block
	*b = blocked{block: now, unheard: b.unheard}
	return isNew
}

// ease records that less limits a job than before, and reports whether that counts by now: at once, or once it has been
// so for long enough. What counts then is the strongest limit seen in that time.
func (b *blocked) ease(less block, now time.Time, atOnce bool) bool {
	if b.eased.IsZero() {
		b.eased = now
	}
	if less.weight() >= b.next.weight() {
		b.next = less
	}
	switch {
	case atOnce:
		*b = blocked{block: less}
	case now.Sub(b.eased) < tellOther:
		return false
	default:
		*b = blocked{block: b.next}
	}
	return true
}

// blockedChanges returns the jobs that did not fit and for which [Book.Blocked] has changed since the last call,
// because a queue has changed, which counts at once, or because jobs have come or gone. It costs a look at all jobs if
// any of that has happened.
func (b *Book) blockedChanges(at Moment) (news News) {
	atOnce := b.wishes.relinked
	if !b.wishes.changed && !atOnce {
		return news
	}
	b.wishes.changed, b.wishes.relinked = false, false
	for _, j := range b.timed {
		if failed := j.phase == Failed || j.phase == Waiting && !j.tried.IsZero(); !failed {
			continue
		}
		before, unheard := j.blocked.reason, j.blocked.unheard
		if !b.renew(j, at, atOnce) {
			continue
		}
		j.blocked.unheard = false
		switch {
		case j.Together:
			news.Members = slices.AppendSeq(news.Members, maps.Keys(j.counted)) // gangs that start together are one job
		case j.phase != Failed:
		case before != "" && j.blocked.reason != "" && !unheard:
			news.Jobs = append(news.Jobs, j.Name)
		default:
			news.Again = append(news.Again, j.Pod)
		}
	}
	return news
}

// renew finds out what keeps a job from more nodes, and reports whether there is something to
// report.
func (b *Book) renew(j *job, at Moment, atOnce bool) bool {
	now := b.blockOf(j)
	isNew := j.blocked.take(now) || j.blocked.unheard && now.reason != ""
	if now.weight() < j.blocked.weight() {
		isNew = j.blocked.ease(now, at.Now, atOnce) || isNew
		b.wishes.changed = b.wishes.changed || now.weight() < j.blocked.weight() // it has to be eased later
	}
	return isNew
}
