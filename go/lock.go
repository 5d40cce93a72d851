package redlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrNotHeld is the error of a process that has no certain hold of the lock at this moment.
var ErrNotHeld = errors.New("the lock is not held")

const (
	// Timeout of a request without a hold.
	patience = 5 * time.Second
	// A waiting claim is read again after this time, even without an event.
	rereadAfter = 10 * time.Second
	// The elector records this event when a term has ended, after its release.
	termEnded = "stopped leading"
)

// Options select a lock.
type Options struct {
	// Namespace and Key name the lock.
	Namespace, Key string
	// TTL is the time to live without a renewal. Default: 30s.
	//
	// With 30s a leader survives 4 s without an API server in every case, with 60s 11 s. See docs/go.md.
	TTL time.Duration
	// Skew is the maximum difference of the clocks of the quorum, the API server and this machine. Default: 1s.
	Skew time.Duration
	// Quorum is "name" or "namespace/name" of a RedisQuorum. Default: the operator's default quorum.
	Quorum string
	// Container names the container that leads, in a pod with several.
	Container string
}

// Lock is a resourcelock.Interface on a claim. One LeaderElector uses it.
type Lock struct {
	options  Options
	timing   Timing
	identity string
	// The user name of this process at the API server.
	user string
	// The pod of the token that the requests carry, if it is in the namespace.
	pod            *pod
	claims, leases dynamic.ResourceInterface
	clock          apiClock

	// Only the elector's goroutine uses these.
	claim                   *claim
	reported, reportedCause string
	former                  string
	made, lastLook          time.Duration
	beaten                  time.Duration
	hasBeaten, swept        bool
	failing, inTerm         bool
	// The version that ended the last watch. If the next one begins with it, the API server's cache is late.
	stale string
	// The error of an elector that would stop too late. Every later call returns it.
	refused error
	// The claim of an unanswered creation, which the next attempt repeats with the same name.
	wanted *unstructured.Unstructured

	mu   sync.Mutex
	hold *hold
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a lock.
//
// It reads the time of the API server, and fails if the clock of this machine certainly differs by more than Options.Skew.
func New(ctx context.Context, config *rest.Config, options Options) (*Lock, error) {
	if options.TTL == 0 {
		options.TTL = 30 * time.Second
	}
	if options.Skew == 0 {
		options.Skew = time.Second
	}
	if options.Namespace == "" || options.Key == "" {
		return nil, errors.New("set Namespace and Key of the lock")
	}
	if options.Skew < 0 {
		return nil, fmt.Errorf("the Skew %s is negative: set the largest difference of the clocks", options.Skew)
	}
	durations, err := timing(options.TTL, options.Skew)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	// A restarted process must not have the same name, because an elector compares only identities.
	lock := &Lock{options: options, timing: durations, identity: host + "_" + string(uuid.NewUUID())}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := lock.connect(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Describe(), err)
	}
	if lock.user, lock.pod, err = identify(ctx, client, config); err != nil {
		return nil, fmt.Errorf("lock %s: the API server has not reported the user: %w", lock.Describe(), err)
	}
	// The operator searches for the pod in the namespace of the claim.
	if lock.pod != nil && lock.pod.namespace != options.Namespace {
		lock.pod = nil
	}
	if err := lock.clock.checkWall(options.Skew); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Describe(), err)
	}
	return lock, nil
}

// Timing has the durations for the LeaderElector. The lock refuses an elector that would stop later.
func (l *Lock) Timing() Timing { return l.timing }

// Identity is the unique name of this process.
func (l *Lock) Identity() string { return l.identity }

// Describe names the lock.
func (l *Lock) Describe() string { return l.options.Namespace + "/" + l.options.Key }

// RecordEvent ends the hold of a term that has ended. The next term needs another hold, which has a larger token.
//
// It writes no Event, because the operator keeps the history of the lock in the status of the claim.
func (l *Lock) RecordEvent(event string) {
	if event == termEnded {
		l.lose("its term has ended")
		l.inTerm = false
	}
}

// Create always fails, because Get makes the claim.
func (l *Lock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return errors.New("the claim is there already")
}

// Token is the fencing token of the hold. It fails with [ErrNotHeld] when the lock is not certain at this moment.
func (l *Lock) Token() (int64, error) {
	token, _, err := l.certain(boottime())
	return token, err
}

// Get makes a claim, and waits until the claim is held or another leader appears.
//
// It names this process only in a term, because LeaderElector.IsLeader compares the record with the identity. After a
// record without a holder the elector calls Update, which begins a term or fails.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.refused != nil {
		return nil, nil, l.refused
	}
	l.mu.Lock()
	if l.hold != nil && l.hold.lost != nil {
		// A term must not continue with another hold.
		if l.inTerm {
			defer l.mu.Unlock()
			return nil, nil, l.hold.lost
		}
		// The claim stays in use, and can queue again. It does not lead again under the lost hold.
		l.former, l.hold = l.hold.nonce, nil
		l.mu.Unlock()
		return l.record("")
	}
	leads := l.hold != nil
	l.mu.Unlock()
	if leads {
		if l.inTerm {
			return l.record(l.identity)
		}
		return l.record("")
	}
	record, raw, err := l.wait(ctx)
	if apierrors.IsNotFound(err) {
		// The elector takes such an error for a missing lock, and calls Create.
		err = errors.New(err.Error())
	}
	return record, raw, err
}

func (l *Lock) record(holder string) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record := &resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: int(l.timing.LeaseDuration / time.Second), RenewTime: metav1.Now(),
	}
	raw, err := json.Marshal(record)
	return record, raw, err
}

func (l *Lock) wait(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		if err := l.refresh(ctx); err != nil {
			return nil, nil, l.ended(ctx, err)
		}
		state := l.claim.read(l.identity, l.podUID(), "")
		if state.held != nil && state.held.nonce != l.former {
			if err := l.clock.checkWall(l.options.Skew); err != nil {
				return nil, nil, err
			}
			// A record without a holder makes the elector write its own record, which begins the term.
			l.reported, l.reportedCause = "", ""
			return l.record("")
		}
		if state.ended != "" && !state.runsOut {
			name := l.claim.Metadata.Name
			l.claim = nil
			if state.timedOut() {
				continue
			}
			return nil, nil, fmt.Errorf("claim %s of lock %s has ended, and another one is made: %s", name, l.Describe(), state.ended)
		}
		// The elector logs each error, so Get returns one error per cause. The cause is the text before the message.
		if cause, _, _ := strings.Cut(state.trouble, ":"); cause != l.reportedCause && (cause != silence || boottime()-l.made > rereadAfter) {
			if l.reportedCause = cause; cause != "" {
				return nil, nil, fmt.Errorf("claim %s of lock %s waits: %s", l.claim.Metadata.Name, l.Describe(), state.trouble)
			}
		}
		if leader := l.leader(ctx); leader != "" && leader != l.reported {
			l.reported = leader
			return l.record(leader)
		}
		// The operator grants no claim whose heartbeat has stopped. A heartbeat would also prolong the former hold, which must expire.
		if state.held == nil {
			if err := l.beat(ctx); err != nil {
				return nil, nil, l.ended(ctx, err)
			}
		}
		if err := l.awaitChange(ctx); err != nil {
			return nil, nil, l.ended(ctx, err)
		}
	}
}

// ended withdraws a waiting claim whose elector has stopped.
func (l *Lock) ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	gone := l.claim
	if gone == nil && l.wanted != nil {
		// The API server has perhaps created the claim.
		gone = &claim{}
		gone.Metadata.Name = l.wanted.GetName()
	}
	if gone == nil {
		return err
	}
	l.claim, l.wanted = nil, nil
	// A deleted claim is released. A lost hold must expire instead, so its claim stays.
	if holder := gone.Status.Holder; holder != nil && holder.Nonce == l.former {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	// The operator has perhaps granted the claim now. No code has led under this hold, so a deletion can release it.
	return errors.Join(err, l.delete(ctx, gone, false))
}

// Update renews, or releases if the record names no holder.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return l.release(ctx)
	}
	err := l.renew(ctx, record)
	if err != nil && !l.inTerm && ctx.Err() != nil {
		l.lose("its elector has stopped")
		err = l.ended(ctx, err)
	}
	l.failing = err != nil
	// A term begins with the first success, and ends with termEnded.
	l.inTerm = l.inTerm || err == nil
	return err
}

func (l *Lock) renew(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.refused == nil {
		l.refused = l.timing.check(ctx, record, l.inTerm)
	}
	if l.refused != nil {
		l.lose("the durations of its LeaderElector are refused")
		return l.refused
	}
	_, left, err := l.certain(boottime())
	if err != nil && l.nonce() != "" {
		return err // without a heartbeat, so that the lost hold expires
	}
	var failed error
	// If enough of the validity is left, no request is needed. Otherwise, or a tenth of the ttl after the last reading, the claim is read again.
	if err != nil || left < l.timing.needed()+l.options.TTL/4 || boottime()-l.lastLook > l.options.TTL/10 {
		// If the API server does not answer, the current validity stays in force.
		if failed = l.refresh(ctx); failed == nil {
			l.take(l.claim.read(l.identity, l.podUID(), l.nonce()))
		}
	}
	// Without a hold, a heartbeat would prolong the former one.
	if l.nonce() != "" {
		if err := l.beat(ctx); err != nil {
			if !l.inTerm {
				return err
			}
			failed = err
		}
	}
	err = l.decide(boottime())
	if err != nil && failed != nil {
		return fmt.Errorf("%w: %v", err, failed)
	}
	return err
}

// release releases the lock, unless a renewal has failed. After a failure the elector calls it while code can still run.
//
// It sets its own deadline, because older versions of client-go pass a context without one.
func (l *Lock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	token, _, err := l.certain(boottime())
	if err != nil || l.failing {
		return fmt.Errorf("lock %s is not released, and runs out: %w", l.Describe(), ErrNotHeld)
	}
	// This comes before the request, so that no code uses the token afterwards.
	l.lose("it was released")
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"%d"}}}`, l.claim.Metadata.UID, releaseAnnotation, token)
	_, err = l.claims.Patch(ctx, l.claim.Metadata.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsForbidden(err) && l.pod == nil {
		return l.delete(ctx, l.claim, false)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (l *Lock) podUID() string {
	if l.pod == nil {
		return ""
	}
	return l.pod.uid
}
