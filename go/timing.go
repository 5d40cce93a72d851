package redlock

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// The allowed time until this process has read a new validity.
	publication = 500 * time.Millisecond
	// The minimum of a quarter of the ttl without skew and publication. Several requests to the API server must fit into it.
	leastBudget = time.Second
	// A longer RenewDeadline has no effect. While the API server does not answer, the leader continues by its current validity.
	longestRenewDeadline = 2 * time.Second
	// The LeaseDuration of client-go and controller-runtime.
	clientGoDefault = 15 * time.Second
)

// Timing has the durations of a LeaderElector that stops before the lock ends.
type Timing struct {
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// timing derives the durations of the elector. The operator keeps at least a quarter of the ttl published.
func timing(ttl, skew time.Duration) (Timing, error) {
	budget := ttl/4 - skew - publication
	if budget < leastBudget {
		least := 4 * (leastBudget + skew + publication)
		return Timing{}, fmt.Errorf("ttl %s is too short to stop in time when clocks may be %s apart: set TTL to %s or more", ttl, skew, least)
	}
	if 2*ttl/time.Second == clientGoDefault/time.Second {
		return Timing{}, fmt.Errorf("with ttl %s the durations are like the defaults of client-go: set another TTL", ttl)
	}
	renew := min(budget*3/8, longestRenewDeadline)
	// No elector waits for LeaseDuration. It identifies the durations of this package, because client-go's default is 15 s.
	return Timing{LeaseDuration: 2 * ttl, RenewDeadline: renew, RetryPeriod: renew / 3}, nil
}

// needed is the minimum validity that a renewal must find.
//
// After a success the elector pauses for RetryPeriod, tries for RenewDeadline, and then stops. It accepts no
// RetryPeriod above RenewDeadline/1.2, so this covers every one.
func (t Timing) needed() time.Duration {
	return 2 * t.RenewDeadline
}

// check refuses an elector that would stop too late.
//
// A try late in a round of a term passes, so the caller keeps the first error.
func (t Timing) check(ctx context.Context, record resourcelock.LeaderElectionRecord, inTerm bool) error {
	if record.LeaseDurationSeconds != int(t.LeaseDuration/time.Second) {
		return fmt.Errorf("the LeaderElector has LeaseDuration %ds: give it the durations of Lock.Timing: %s, %s and %s",
			record.LeaseDurationSeconds, t.LeaseDuration, t.RenewDeadline, t.RetryPeriod)
	}
	// The elector gives each round of renewals a deadline, which is RenewDeadline away at the first try. Before the term a deadline is
	// that of the user.
	if deadline, ok := ctx.Deadline(); inTerm && ok && time.Until(deadline) > t.RenewDeadline {
		return fmt.Errorf("the LeaderElector has a RenewDeadline above %s: give it the durations of Lock.Timing", t.RenewDeadline)
	}
	return nil
}
