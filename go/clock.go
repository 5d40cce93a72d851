package redlock

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// The drift of the API server's clock against ours. It widens an interval with its age.
const driftPPM = 500

// span has the bounds of the offset from the boot-time clock to the API server's time since 1970, as of `at`.
type span struct{ least, most, at time.Duration }

// spanOf reads one answer. Its Date is cut to seconds, and was written between the two readings of the boot-time clock.
func spanOf(date time.Time, sent, received time.Duration) span {
	unix := time.Duration(date.UnixNano())
	return span{least: unix - received, most: unix + time.Second - sent, at: received}
}

func (s span) aged(now time.Duration) span {
	by := (now - s.at) * driftPPM / 1_000_000
	return span{least: s.least - by, most: s.most + by, at: now}
}

// narrowed is the intersection with a newer answer. If they contradict each other, a clock was set, and the newer one
// is the result.
func (s span) narrowed(newer span) span {
	old := s.aged(newer.at)
	both := span{least: max(old.least, newer.least), most: min(old.most, newer.most), at: newer.at}
	if both.least > both.most {
		return newer
	}
	return both
}

// until is a boot-time moment at which a published validity has certainly not ended.
//
// A validity lasts at most one ttl from first, the time of its first reading, whatever the clocks are.
func (s span) until(validUntil time.Time, now, first, ttl, skew time.Duration) time.Duration {
	until := time.Duration(validUntil.UnixNano()) - s.aged(now).most
	return min(until, first+ttl) - skew
}

// apart is the certain difference between a wall clock and the API server's clock.
func (s span) apart(wall time.Time, now time.Duration) time.Duration {
	offset, aged := time.Duration(wall.UnixNano())-now, s.aged(now)
	return max(aged.least-offset, offset-aged.most, 0)
}

// apiClock estimates the API server's time from the answers that pass through it.
type apiClock struct {
	mu       sync.Mutex
	estimate *span
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (c *apiClock) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		sent := boottime()
		response, err := next.RoundTrip(request)
		// A reply with a server error can come from a proxy, which has another clock.
		if err == nil && response.StatusCode < http.StatusInternalServerError {
			if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
				c.update(spanOf(date, sent, boottime()))
			}
		}
		return response, err
	})
}

func (c *apiClock) update(newer span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.estimate != nil {
		newer = c.estimate.narrowed(newer)
	}
	c.estimate = &newer
}

func (c *apiClock) now() (span, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.estimate == nil {
		return span{}, false
	}
	return *c.estimate, true
}

// checkWall refuses a machine whose clock is certainly wrong.
func (c *apiClock) checkWall(skew time.Duration) error {
	estimate, ok := c.now()
	if !ok {
		return fmt.Errorf("the API server does not report the time")
	}
	now, wall := boottime(), time.Now()
	if apart := estimate.apart(wall, now); apart > skew {
		return fmt.Errorf("the clock of this machine and that of the API server are at least %s apart, and Skew is %s: set the clock", apart, skew)
	}
	return nil
}
