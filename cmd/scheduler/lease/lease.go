package lease

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lookEvery is the interval of looking whether the lease has run out while nothing is
// written.
const lookEvery = 500 * time.Millisecond

// reason is why writes are refused.
type reason string

const (
	notHeld   reason = "not_held"   // it was never held: this process stands by
	lapsed    reason = "lapsed"     // it ran out
	taken     reason = "taken"      // another process holds it
	givenBack reason = "given_back" // the process goes down
)

// RefusedError is the error of a write that was not sent.
type RefusedError struct {
	// Lease is its namespace/name.
	Lease string
	// Why is what became of the lease.
	Why string
	// Request is its method and path.
	Request string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("lease %s %s: %s is not sent", e.Lease, e.Why, e.Request)
}

// Lease is the lease of this process. It is safe for concurrent use.
type Lease struct {
	name string
	now  func() Instant
	// end ends the process.
	end  func(error)
	once sync.Once

	mu    sync.Mutex
	state reason // why writes are refused; "" while it is held
	term  Term
	by    string // the process that took it
	// inFlight is the number of writes that are not answered yet; idle is closed when
	// there are none.
	inFlight int
	idle     chan struct{}
	// doubtUntil is when the last write that ended without an answer can no longer be stored.
	doubtUntil Instant
}

// New makes the lease of a process, which does not hold it yet. name is for messages. end
// is called, once, when it was held and is lost; it is expected not to return.
func New(name string, end func(error)) *Lease {
	registerMetrics()
	idle := make(chan struct{})
	close(idle)
	return &Lease{name: name, now: bootTime, end: end, state: notHeld, idle: idle}
}

// Watch ends the process when the lease has run out, also where nothing is written. It
// returns when ctx is done.
func (l *Lease) Watch(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if r, why := l.look(); r == lapsed {
				l.lose(why)
			}
		}
	}
}

// look returns why writes are refused now, in a word and in words; "" if they are not.
func (l *Lease) look() (reason, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal(l.now())
}

// refusal does what look does, with the lock held.
func (l *Lease) refusal(now Instant) (reason, string) {
	switch {
	case l.state == notHeld:
		return notHeld, "is not held by this process"
	case l.state == taken:
		return taken, "is held by " + l.by
	case l.state == givenBack:
		return givenBack, "is being given back"
	case l.term.Left(now) <= 0:
		return lapsed, fmt.Sprintf("ran out %s ago", -l.term.Left(now).Round(time.Millisecond))
	}
	return "", ""
}

// lose ends the process.
func (l *Lease) lose(why string) {
	l.once.Do(func() { l.end(fmt.Errorf("lease %s %s", l.name, why)) })
}

// renewed notes a renewal that was sent then and succeeded.
func (l *Lease) renewed(sent Instant, length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == notHeld {
		l.state = ""
	}
	l.term = l.term.Extend(NewTerm(sent, length))
}

// seen notes the holder of the lease. If another process holds the lease that was held
// here, that is the end.
func (l *Lease) seen(holder string) {
	l.mu.Lock()
	held := l.state == ""
	if held {
		l.state, l.by = taken, holder
	}
	_, why := l.refusal(l.now())
	l.mu.Unlock()
	if held {
		l.lose(why)
	}
}

// begin admits a write, and returns how long the lease is held yet; or why not.
func (l *Lease) begin(request string) (time.Duration, error) {
	l.mu.Lock()
	now := l.now()
	r, why := l.refusal(now)
	if r == "" {
		if l.inFlight++; l.inFlight == 1 {
			l.idle = make(chan struct{})
		}
		defer l.mu.Unlock()
		return l.term.Left(now), nil
	}
	l.mu.Unlock()
	refused.WithLabelValues(string(r)).Inc()
	if r == lapsed {
		l.lose(why)
	}
	return 0, &RefusedError{Lease: l.name, Why: why, Request: request}
}

// done notes that a write that begin admitted has ended. Without an answer it may still
// be stored, until then.
func (l *Lease) done(answered bool, until Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !answered {
		l.doubtUntil = max(l.doubtUntil, until)
	}
	if l.inFlight--; l.inFlight == 0 {
		close(l.idle)
	}
}

// leaving refuses writes from now on, and returns once those that were sent are answered.
// It fails where some are not: the lease has to run out then, so that the next leader does
// not begin before they are stored.
func (l *Lease) leaving(ctx context.Context) error {
	l.mu.Lock()
	if l.state == "" {
		l.state = givenBack
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); l.inFlight > 0 || l.doubtUntil > now {
		return fmt.Errorf("giving back lease %s: %d writes are under way and some may still be stored for %s, "+
			"so it is left to run out",
			l.name, l.inFlight, max(0, time.Duration(l.doubtUntil-now)).Round(time.Millisecond))
	}
	return nil
}

// over returns an error once the lease was held and no longer is.
func (l *Lease) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.state == taken || l.state != notHeld && l.term.Left(now) <= 0 {
		r, why := l.refusal(now)
		if r == givenBack {
			why = "was given back"
		}
		return &RefusedError{Lease: l.name, Why: why, Request: "what is left to be sent"}
	}
	return nil
}
