package redlock

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime is a clock that no one sets and that also runs in suspend.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every supported kernel has this clock
	}
	return time.Duration(now.Nano())
}
