//go:build !linux

package redlock

import "time"

var begun = time.Now()

// boottime is a clock that no one sets. On these systems it may stand still in suspend.
func boottime() time.Duration { return time.Since(begun) }
