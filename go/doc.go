// Package redlock lets a controller in Go lead under a lock of the redlock-operator.
//
// [New] gives a resourcelock.Interface for the leader election of client-go and controller-runtime, which run unmodified.
// It makes a claim (a DistributedLock), and the operator grants and renews that claim. The [fencing token] of the hold
// is in the context of the code that leads: [TokenFromContext].
//
// # What is promised
//
//   - A LeaderElector starts to lead only after the status has shown that the claim of this process is held.
//   - It goes on only while the validity that the operator has published lasts longer than the elector needs to stop.
//     So it has stopped before the validity ends, also if the API server does not answer any more.
//   - One term of the elector is one hold with one token. After a loss the elector ends its term before this lock can be
//     held again, and the next hold has a larger token.
//   - A release is the holder's word for exactly the hold of this term. A hold that was lost is not released: it runs
//     out, because the code that led may not have stopped.
//   - A process that is killed loses the lock by itself. In a pod the lock is free when the container has ended.
//     Elsewhere it is free one ttl, one renewal interval and one second after the last heartbeat at the latest.
//
// This holds while the clocks of the quorum and of the API server differ by less than Options.Skew, and while the machine
// of this process runs it. The wall clock of this machine moves no deadline: the time that is left is counted from the
// Date headers of the API server on a clock that also runs in suspend. [New] refuses a machine whose wall clock is
// certainly wrong by more than Options.Skew, and a leader whose wall clock is set by more stops leading.
//
// # What is not promised
//
//   - That code has stopped. The elector cancels a context and calls OnStoppedLeading. Code that does not look at its
//     context goes on. End the process in OnStoppedLeading, as controller-runtime does.
//   - Anything while the process or its machine is stopped or paused. It may act for a moment after it goes on.
//     [Lock.Token] and [TokenFromContext] see that the time is up at the moment of the call, and no later.
//   - That writes which are under way when the lock ends do not arrive later.
//   - Exclusion after a person has set the annotation break-force.
//
// For all of this there is the token: give it to the resource, and let the resource refuse a smaller one.
//
// [fencing token]: https://github.com/redlock-operator/redlock-operator/blob/main/docs/fencing.md
package redlock
