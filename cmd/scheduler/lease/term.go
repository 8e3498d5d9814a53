package lease

import "time"

// Instant is a moment on the boot clock: the time since the machine was started, the
// time in which it was suspended included.
type Instant time.Duration

// marginShare is the part of a lease's length, one in so many, by which it ends earlier
// for its holder than for others. It covers clocks that do not run at the same rate, and
// the way of the last request.
const marginShare = 10

// Term is how long a lease is surely held. The zero Term is one that ended long ago.
type Term struct {
	// End is the first moment at which another process may hold the lease.
	End Instant
}

// NewTerm returns the term that follows from a renewal. Others may take the lease when
// they have seen no renewal for its length; they cannot have seen this one before it was
// sent.
func NewTerm(sent Instant, length time.Duration) Term {
	return Term{End: sent + Instant(length-length/marginShare)}
}

// Left returns how long the lease is held yet; 0 or less where it is not.
func (t Term) Left(now Instant) time.Duration { return time.Duration(t.End - now) }

// Extend returns the later of two terms: renewals may be answered out of order.
func (t Term) Extend(other Term) Term {
	if other.End > t.End {
		return other
	}
	return t
}
