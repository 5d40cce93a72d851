package redlock

import (
	"fmt"
	"time"
)

// hold is the hold of one term.
type hold struct {
	published
	// The boot-time clock at the first reading of this validity, and the end of its certain part.
	first, until time.Duration
	// The reason of the loss. A lost hold stays lost.
	lost error
}

// certain returns the token and the remaining time.
//
// A validity that has ended loses the hold, because the caller stops its work. A later publication does not resume it.
func (l *Lock) certain(now time.Duration) (int64, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return 0, 0, ErrNotHeld
	}
	if now >= l.hold.until {
		l.hold.lose("its validity has ended")
	}
	if l.hold.lost != nil {
		return 0, 0, l.hold.lost
	}
	return l.hold.token, l.hold.until - now, nil
}

// take adopts the hold in a status.
func (l *Lock) take(state claimState) {
	estimate, ok := l.clock.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.hold == nil && state.held != nil && state.held.nonce == l.former:
	case l.hold == nil && state.held != nil:
		l.hold = &hold{}
		fallthrough
	case l.hold != nil && state.held != nil && ok:
		now := boottime()
		until := time.Duration(0)
		if state.held.validUntil.Equal(l.hold.validUntil) {
			// A better estimate of the API server's clock can extend the certain part of the same validity, and never shortens it.
			until = l.hold.until
		} else {
			l.hold.first = now
		}
		l.hold.published = *state.held
		l.hold.until = max(until, estimate.until(state.held.validUntil, now, l.hold.first, l.options.TTL, l.options.Skew))
	case l.hold != nil && state.ended != "":
		l.hold.lose("it was taken away: " + state.ended)
	}
}

// lose ends the use of the current hold, if any.
func (l *Lock) lose(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold != nil {
		l.hold.lose(why)
	}
}

func (h *hold) lose(why string) {
	if h.lost == nil {
		h.lost = fmt.Errorf("%w any more: %s", ErrNotHeld, why)
	}
}

// decide returns nil if the elector can lead until its next renewal has failed.
func (l *Lock) decide(now time.Duration) error {
	_, left, err := l.certain(now)
	if err == nil && left < l.timing.needed() {
		return fmt.Errorf("no renewal of lock %s was published in time: %s are left", l.Describe(), left)
	}
	return err
}

func (l *Lock) nonce() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return ""
	}
	return l.hold.nonce
}
