//go:build !linux

package lease

import "time"

var start = time.Now()

// bootTime reads Go's monotonic clock, which outside Linux may stand still while the
// machine is suspended. Time in which the process is stopped counts.
func bootTime() Instant { return Instant(time.Since(start)) }
