package redlock

import (
	"context"
	"time"
)

type contextKey struct{}

// bound is a lock in a context. A token of 0 means the current hold of the lock.
type bound struct {
	lock  *Lock
	token int64
}

// NewContext adds the lock to a context. With that context, and contexts derived from it, code can call [TokenFromContext].
//
// It is for controller-runtime: return the result from BaseContext in the Options of the manager. With client-go use
// [Lock.Leading].
func NewContext(ctx context.Context, lock *Lock) context.Context {
	return context.WithValue(ctx, contextKey{}, bound{lock: lock})
}

// TokenFromContext is the fencing token of the hold under which this code runs.
//
// It fails with [ErrNotHeld] when the lock is not certain at this moment, when the context has ended, and when the
// context has no lock.
func TokenFromContext(ctx context.Context) (int64, error) {
	found, ok := ctx.Value(contextKey{}).(bound)
	if !ok {
		return 0, ErrNotHeld
	}
	token, _, err := found.lock.certain(boottime())
	// The elector ends the context of a term before the next hold begins. So the context is checked after the hold.
	if err != nil || found.token != 0 && token != found.token || ctx.Err() != nil {
		return 0, ErrNotHeld
	}
	return token, nil
}

// Leading wraps an OnStartedLeading.
//
// Its context carries the token of this term. It ends with the term of the elector, or when this process detects the
// end of the hold. The function is not called if the hold has already ended.
func (l *Lock) Leading(lead func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		token, err := TokenFromContext(NewContext(ctx, l))
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancelCause(context.WithValue(ctx, contextKey{}, bound{l, token}))
		defer cancel(nil)
		go l.endWith(ctx, cancel)
		lead(ctx)
	}
}

// endWith ends a context when its hold is no longer certain.
func (l *Lock) endWith(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		if _, err := TokenFromContext(ctx); err != nil {
			cancel(err)
			return
		}
		_, left, _ := l.certain(boottime())
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, l.timing.RetryPeriod)):
		}
	}
}
