package dispatch

import (
	"maps"
	"slices"
)

// Barred returns why a job that waits, or did not fit, would not be admitted to more nodes either: one of its queues lets nobody
// in, or the job is beyond a ceiling, as [Book.Beyond] finds, and costs. An empty reason is that it would.
func (b *Book) Barred(name string) (Reason, string) {
	j := b.jobs[name]
	if j == nil || j.phase != Waiting && j.phase != Failed {
		return "", ""
	}
	queues := slices.Sorted(maps.Keys(j.missing()))
	if reason, why := b.shutOf(append(queues, j.Queue)); reason != "" {
		return reason, why
	}
	if bound, beyond := b.Beyond(name); beyond {
		return bound.Reason, bound.Brief()
	}
	return "", ""
}

// Rebarred returns a pod of each gang that did not fit, and of which [Book.Barred] answers something else than when this was
// asked last: a queue has been described anew, or gangs that come before have come or gone. It costs a look at all jobs where
// anything of that has changed.
func (b *Book) Rebarred() (pods []string) {
	if !b.wishes.moved() && !b.relinked {
		return nil
	}
	b.relinked = false
	for name, j := range b.timed {
		if failed := j.phase == Failed || j.phase == Waiting && !j.tried.IsZero(); !failed || !j.Gang {
			continue
		}
		if _, why := b.Barred(name); why != j.barred {
			j.barred = why
			pods = append(pods, j.Pod)
		}
	}
	slices.Sort(pods)
	return pods
}
