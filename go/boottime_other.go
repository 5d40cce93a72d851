//go:build !linux

package redlock

import "time"

var begun = time.Now()

// boottime is a clock that no user can set. On these systems it can stand still during suspend.
func boottime() time.Duration { return time.Since(begun) }
