package redlock

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime is a clock that no user can set, and that also runs during suspend.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every supported kernel has this clock
	}
	return time.Duration(now.Nano())
}
