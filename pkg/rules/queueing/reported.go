package queueing

import (
	"maps"
	"slices"
	"time"
)

const (
	// tellAfter is how long a job waits for its turn before its users are told why: most wait only for a moment.
	tellAfter = 2 * time.Second
	// tellUnread is how long that is while it is not known whose turn it is.
	tellUnread = 10 * time.Second
	// tellOther is for how long a job waits for another reason before users are told, unless it is a stronger one. A job
	// that waits for its turn is looked at as often, once its users were told why.
	tellOther = 5 * time.Second
	// tellAgain is how long users have a reason in the same words: numbers may change all the time.
	tellAgain = 30 * time.Second
)

// unread is what users are told while it is not known whose turn it is.
var unread = Wait{Unread, "waiting for queues and pods to be read; see the scheduler's log"}

// reported is why a job waits as its users are told. It does not change with each job that comes or goes: hundreds of
// pods may have it in their conditions, and autoscalers would ask for nodes and give up a second later.
type reported struct {
	Wait
	// since is since when they are told that.
	since time.Time
	// next is the strongest that was found since nextSince, in which time Wait was not so; zero if it still is.
	next      Wait
	nextSince time.Time
	// news: [Book.News] has not listed it yet.
	news bool
}

// update takes in why the job waits now. Users are told something else
//   - at once if the reason is stronger, or if atOnce, since a user has changed a queue;
//   - if it is another reason, once that of which they were told has not been found for tellOther: the strongest that
//     was found meanwhile;
//   - if it is the same reason in other words, after tellAgain.
func (r *reported) update(now Wait, at time.Time, atOnce bool) {
	switch same := now.Reason == r.Reason; {
	case now == r.Wait, same && !atOnce && at.Sub(r.since) < tellAgain:
		r.nextSince = time.Time{}
		return
	case same, atOnce, now.weight() > r.weight():
	default:
		if r.nextSince.IsZero() {
			r.next, r.nextSince = now, at
		}
		if now.weight() >= r.next.weight() {
			r.next = now
		}
		if at.Sub(r.nextSince) < tellOther {
			return
		}
		now = r.next
	}
	*r = reported{Wait: now, since: at, news: true}
}

// weight ranks reasons: 0 for none, 1 for others, 2 for jobs that come before and would have the nodes, since room that
// there is now helps then, and 3 for limits of queues.
func (w Wait) weight() int {
	switch {
	case w.Reason == "":
		return 0
	case w.Reason == Behind:
		return 2
	case IsLimit(string(w.Reason)):
		return 3
	default:
		return 1
	}
}

// Waits returns why a job waits for its turn, as its users are told; nothing if it does not wait, or not for long.
func (b *Book) Waits(name string) Wait {
	if j := b.jobs[name]; j != nil && j.phase == Waiting {
		return j.waits.Wait
	}
	return Wait{}
}

// Limit returns why a job that did not fit would not be admitted to more nodes either, as its users are told; nothing
// if it would be. In the job's next turn that stays as it is, until its attempt says otherwise.
func (b *Book) Limit(name string) Wait {
	if j := b.jobs[name]; j != nil && j.phase != Outside {
		return j.limit.Wait
	}
	return Wait{}
}

// News lists the jobs whose users must be told something new.
type News struct {
	// Members are pods of gangs.
	Members []string
	// Again are pods in no gang that have to come again, and get their reason as they fail: something keeps them from more
	// nodes now, and nothing did before, or the other way round.
	Again []string
	// Pods are other pods in no gang.
	Pods []string
}

// News finds out why jobs wait now, and lists those whose users must be told something new since the last call. Call
// it about once a second. It costs a look at all jobs that wait for their turn, and at those that did not fit if jobs
// have come or gone, or queues have changed.
func (b *Book) News(at Moment) (news News) {
	relinked := b.wishes.relinked
	changed := b.wishes.changed || relinked
	b.wishes.changed, b.wishes.relinked = false, false
	for _, j := range b.timed {
		told, before := &j.limit, j.limit.Reason
		switch {
		case j.phase == Waiting && j.tried.IsZero():
			told = &j.waits
			b.updateWaits(j, at, relinked)
		case changed && (j.phase == Waiting || j.phase == Failed): // pods' conditions say what was tried
			now := b.limitOf(j)
			j.limit.update(now, at.Now, relinked)
			b.wishes.changed = b.wishes.changed || now != j.limit.Wait // that has to be seen later
		}
		if !told.news {
			continue
		}
		told.news = false
		switch {
		case j.Together:
			news.Members = slices.AppendSeq(news.Members, maps.Keys(j.counted)) // gangs that start together are one job
		case told == &j.waits, before != "" && told.Reason != "":
			news.Pods = append(news.Pods, j.Pod)
		case j.phase == Failed:
			news.Again = append(news.Again, j.Pod)
		}
	}
	for _, pods := range [][]string{news.Members, news.Again, news.Pods} {
		slices.Sort(pods)
	}
	return news
}

// updateWaits finds out why a job waits for its turn. That others come first is told only where something has changed:
// it may be over in a moment.
func (b *Book) updateWaits(j *job, at Moment, atOnce bool) {
	now, pause := unread, tellUnread // a queue that seems not to be there may not have been read
	if at.Synced {
		pause = tellAfter
	}
	atOnce = atOnce || j.waits.Reason == Unread
	if at.Now.Sub(j.since) < pause || !atOnce && at.Now.Before(j.lookAgain) {
		return
	}
	if at.Synced {
		now = b.Why(j.Name, true)
	}
	if j.waits.Reason != "" {
		j.lookAgain = at.Now.Add(tellOther)
	}
	if now.Reason != Turn || atOnce {
		j.waits.update(now, at.Now, atOnce)
	}
}
