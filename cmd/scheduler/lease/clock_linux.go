package lease

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// bootTime reads the boot clock.
func bootTime() Instant {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Errorf("reading the boot clock: %w", err)) // there since Linux 2.6.39
	}
	return Instant(now.Nano())
}
