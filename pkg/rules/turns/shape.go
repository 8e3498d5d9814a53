package turns

import "github.com/lockstep-sh/lockstep/pkg/rules/resource"

// Shape is what an attempt asked for. The zero Shape compares with none.
type Shape struct {
	// Key stands for everything about the attempt except how much it asked for: two attempts with
	// one key differ in nothing else that decides whether they fit, or which pods may be evicted
	// for them. 0 means unknown.
	Key uint64
	// Members had to find a place, and each asked for Request.
	Members int
	Request resource.Vector
}

// asksNoLessThan reports whether what does not fit other does not fit s either.
func (s Shape) asksNoLessThan(other Shape) bool {
	if s.Key == 0 || s.Key != other.Key || s.Members < other.Members {
		return false
	}
	for name, amount := range other.Request {
		if s.Request[name] < amount {
			return false
		}
	}
	return true
}
