// Package redlock lets a controller in Go lead under a lock of the redlock-operator.
//
// [New] returns a resourcelock.Interface for the leader election of client-go and controller-runtime, which run unmodified.
// It makes a claim (a DistributedLock), and the operator grants and renews that claim. The [fencing token] of the hold
// is in the context of the code that leads: [TokenFromContext].
//
// # What is promised
//
//   - A LeaderElector starts to lead only after the status has named the claim of this process as the holder.
//   - It continues only while the published validity lasts longer than the elector needs to stop. Therefore it has
//     stopped before the validity ends, even if the API server does not answer.
//   - One term of the elector is one hold with one token. After a loss the elector ends its term before this lock can be
//     held again, and the next hold has a larger token. After a term without a release, the hold must expire first.
//   - A release ends exactly the hold of this term. A lost hold is not released: it expires, because the code that led
//     may still run.
//   - A killed process loses the lock automatically. If its requests carry the token of a pod in Options.Namespace, the
//     lock is free when the container has ended. Otherwise it is free at most one ttl, one renewal interval and one
//     second after the last heartbeat.
//
// The conditions are that the clocks of the quorum and of the API server differ by less than Options.Skew, and that the
// machine runs this process. The wall clock of this machine moves no deadline, because the remaining time comes from the
// Date headers of the API server and the boot-time clock, which on Linux also runs during suspend. [New] refuses a machine
// whose wall clock is certainly wrong by more than Options.Skew.
//
// # What is not promised
//
//   - That code has stopped. The elector cancels a context and calls OnStoppedLeading. Code that does not check its
//     context continues. End the process in OnStoppedLeading, as controller-runtime does.
//   - Anything while the process or its machine is stopped or paused. It can act for a moment after it continues.
//     [Lock.Token] and [TokenFromContext] detect the end at the moment of the call, and no later.
//   - That writes in progress at the end of the lock do not arrive later.
//   - Exclusion after a user has set the annotation break-force, or has deleted a claim without a pod, or after a majority
//     of the members has lost the lock while the published validity lasts.
//
// The token covers all of these cases. Pass it to the resource, which must refuse a smaller token.
//
// [fencing token]: https://github.com/redlock-operator/redlock-operator/blob/main/docs/fencing.md
package redlock
