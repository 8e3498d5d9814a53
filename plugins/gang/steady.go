package gang

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// limitHolds is for how long a gang counts as limited by its queue once the queue would let it have more nodes.
const limitHolds = 5 * time.Second

// limits are the gangs that their queues keep from more nodes, or did a short while ago. While other gangs come before one and go, the
// answer changes with each of them; all its members would be told each time, and autoscalers would begin what they give up a
// second later. So a gang is told at once that nodes do not help, and that they do only after that was so for [limitHolds]. It
// is safe for concurrent use, and whoever asks how often changes nothing.
type limits struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[gang.Key]limit
}

// limit is what a queue said, and since when it says so no more; zero where it still does.
type limit struct {
	reason, message string
	over            time.Time
}

func newLimits(c clock.PassiveClock) *limits { return &limits{clock: c, last: map[gang.Key]limit{}} }

// steady returns what a gang is to be told where its queue says this now; an empty reason is nothing.
func (l *limits) steady(key gang.Key, reason, message string) (string, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason != "" {
		l.last[key] = limit{reason: reason, message: message}
		return reason, message
	}
	was, known := l.last[key]
	if known && was.over.IsZero() {
		was.over = l.clock.Now()
		l.last[key] = was
	}
	if !known || l.clock.Since(was.over) >= limitHolds {
		delete(l.last, key)
		return "", ""
	}
	return was.reason, was.message
}

// over reports whether a gang is told of a limit that is over: soon it is to be told something else.
func (l *limits) over(key gang.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.last[key].over.IsZero()
}

// forget forgets a gang that has nothing to be told.
func (l *limits) forget(key gang.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, key)
}
