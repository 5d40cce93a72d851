package redlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/redlock-operator/redlock-operator/go/internal/servers"
)

func status(t *testing.T, status string) *claim {
	t.Helper()
	object := &unstructured.Unstructured{}
	text := `{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": "a", "uid": "u"}, "status": ` + status + `}`
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	read, err := claimOf(object)
	if err != nil || read.Metadata.UID != "u" {
		t.Fatal(read, err)
	}
	return read
}

const heldStatus = `{
	"holder": {"identity": "me", "nonce": "n1", "quorum": {"name": "q"}}, "fencingToken": 1795284168033127, "validUntil": "2026-01-01T00:00:10.500Z",
	"conditions": [{"type": "Held", "status": "True", "reason": "Held", "message": ""}]`

func TestOnlyAHeldClaimWithThisHolderIsHeld(t *testing.T) {
	held := status(t, heldStatus+"}")
	if state := held.read("me", "", ""); state.held == nil || state.held.token != 1795284168033127 || state.held.validUntil.UnixMilli()%60000 != 10500 {
		t.Fatalf("%+v", state)
	}
	if state := held.read("me", "", "n1"); state.held == nil {
		t.Fatalf("the current hold: %+v", state)
	}
	for name, ended := range map[string]claimState{
		"another hold":     held.read("me", "", "n0"),
		"another identity": held.read("other", "", ""),
		"another pod":      held.read("", "uid", ""),
		"ending":           status(t, heldStatus+`, "ending": {"reason": "Broken", "message": "by alice"}}`).read("me", "", "n1"),
		"finished":         status(t, `{"conditions": [{"type": "Finished", "status": "True"}]}`).read("me", "", ""),
		"not held any more": status(t, `{"conditions": [{"type": "Held", "status": "False", "reason": "Queued", "message": "x"}]}`).
			read("me", "", "n1"),
	} {
		if ended.ended == "" || ended.held != nil {
			t.Errorf("%s: %+v", name, ended)
		}
	}
	refused := status(t, `{"conditions": [{"type": "Accepted", "status": "False", "reason": "TTLTooLong", "message": "too long"}]}`).read("me", "", "")
	if refused.ended != "" || refused.trouble != "False, TTLTooLong: too long" || status(t, `{}`).read("me", "", "").trouble != silence {
		t.Errorf("%+v", refused)
	}
	late := status(t, `{"conditions": [{"type": "Held", "status": "False", "reason": "WaitTimeout"}, {"type": "Finished", "status": "True"}]}`)
	if state := late.read("me", "", ""); !state.timedOut() {
		t.Errorf("%+v", state)
	}
	for name, waits := range map[string]claimState{
		"no answer":   status(t, `{}`).read("me", "", ""),
		"queued":      status(t, `{"conditions": [{"type": "Held", "status": "False", "reason": "Queued", "message": "x"}]}`).read("me", "", ""),
		"no validity": status(t, strings.Replace(heldStatus, `"2026-01-01T00:00:10.500Z"`, "null", 1)+"}").read("me", "", "n1"),
		"no token":    status(t, strings.Replace(heldStatus, "1795284168033127", "0", 1)+"}").read("me", "", ""),
	} {
		if waits.ended != "" || waits.held != nil || (waits.trouble != "") != (name == "no answer") {
			t.Errorf("%s: %+v", name, waits)
		}
	}
}

func TestAnElectorStopsBeforeAQuarterOfTheTTLIsUsedUp(t *testing.T) {
	skew := time.Second
	for _, ttl := range []time.Duration{10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, time.Hour} {
		timing, err := timing(ttl, skew)
		if err != nil {
			t.Fatal(err)
		}
		if most := ttl/4 - skew - publication; timing.needed() > most {
			t.Errorf("ttl %s: %s needed, and %s may be left between publications", ttl, timing.needed(), most)
		}
		// The longest RetryPeriod that the elector accepts.
		retry := time.Duration(float64(timing.RenewDeadline) / 1.2)
		if timing.RetryPeriod >= retry || retry+timing.RenewDeadline >= timing.needed() {
			t.Errorf("ttl %s: %+v", ttl, timing)
		}
		if timing.LeaseDuration < time.Second || timing.LeaseDuration <= timing.RenewDeadline {
			t.Errorf("ttl %s: client-go refuses %+v", ttl, timing)
		}
	}
	// docs/go.md has these times. The leader continues until its validity is below the needed minimum, and then for RenewDeadline.
	for ttl, outage := range map[time.Duration]time.Duration{15: 1300, 30: 4000, 60: 11000} {
		timing, _ := timing(ttl*time.Second, skew)
		if goesOn := ttl*time.Second/4 - skew - publication - timing.needed() + timing.RenewDeadline; goesOn < outage*time.Millisecond {
			t.Errorf("ttl %ds: without an API server it leads for %s", ttl, goesOn)
		}
	}
	if _, err := timing(9*time.Second, skew); err == nil || !strings.Contains(err.Error(), "10s or more") {
		t.Error(err)
	}
}

func TestAnElectorWithOtherDurationsIsRefused(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, 15 * time.Second, 30 * time.Second} {
		timing, _ := timing(ttl, time.Second)
		if err := timing.check(context.Background(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 15}, false); err == nil {
			t.Errorf("client-go's default of 15 s with a ttl of %s", ttl)
		}
	}
	for _, ttl := range []time.Duration{7500 * time.Millisecond, 7900 * time.Millisecond} {
		if _, err := timing(ttl, 200*time.Millisecond); err == nil {
			t.Errorf("a ttl of %s, whose LeaseDuration is client-go's default in whole seconds", ttl)
		}
	}
	timing, _ := timing(30*time.Second, time.Second)
	fits := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 60}
	for left, refused := range map[time.Duration]bool{timing.RenewDeadline: false, 10 * time.Second: true} {
		ctx, cancel := context.WithTimeout(context.Background(), left)
		defer cancel()
		if err := timing.check(ctx, fits, true); (err != nil) != refused {
			t.Errorf("a RenewDeadline of %s: %v", left, err)
		}
	}
}

// at is a moment of the boot-time clock, and server a moment of the API server's clock.
func at(millis int) time.Duration { return time.Duration(millis) * time.Millisecond }

func server(millis int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(millis)) }

func TestTheRemainingValidityIsNeverTakenForLongerThanItIs(t *testing.T) {
	const ttl, skew = 10 * time.Second, time.Second
	// The server's clock is 5 s ahead of the boot-time clock. One answer leaves a second of doubt.
	first := spanOf(server(5_000), at(400), at(500))
	if until := first.until(server(14_000), at(500), at(500), ttl, skew); until > at(8_000) || until < at(6_900) {
		t.Errorf("%s", until)
	}
	// A second one shortly before the server's second ends narrows it.
	both := first.narrowed(spanOf(server(5_000), at(900), at(950)))
	if width := both.most - both.least; width > at(601) || both.most < at(5_000)+server(0).Sub(time.Unix(0, 0)) {
		t.Errorf("%s", width)
	}
	// The interval widens with its age.
	if later := both.aged(at(950) + 1000*time.Second); later.most-both.most != 500*time.Millisecond {
		t.Errorf("%s", later.most-both.most)
	}
	// No hold lasts longer than a ttl after its first reading, even if the server's clock was set back.
	if until := both.until(server(3_600_000), at(3_000), at(1_000), ttl, skew); until != at(10_000) {
		t.Errorf("%s", until)
	}
	// An answer that contradicts the estimate replaces it.
	set := spanOf(server(65_000), at(2_000), at(2_100))
	if both.narrowed(set) != set {
		t.Error("the clock was set, and the old estimate is still in use")
	}
}

func TestAWallClockIsWrongOnlyIfItCertainlyIs(t *testing.T) {
	estimate := spanOf(server(5_000), at(0), at(100))
	for millis, least := range map[int]time.Duration{5_500: 0, 4_500: 0, 7_100: time.Second, 2_000: 2900 * time.Millisecond, 3_700_000: time.Hour} {
		if apart := estimate.apart(server(millis), at(100)); apart < least || least == 0 && apart != 0 && apart > at(500) {
			t.Errorf("%d: %s", millis, apart)
		}
	}
}

func TestAHoldThatIsLostOnceStaysLost(t *testing.T) {
	now := boottime()
	lock := &Lock{options: Options{TTL: 30 * time.Second, Skew: time.Second}, identity: "me"}
	lock.timing, _ = timing(lock.options.TTL, lock.options.Skew)
	lock.clock.update(spanOf(time.Now(), now, now))
	if err := lock.clock.checkWall(time.Second); err != nil {
		t.Fatal(err)
	}
	if err := lock.decide(now); !errors.Is(err, ErrNotHeld) {
		t.Fatalf("nothing is held: %v", err)
	}
	valid := func(left time.Duration) claimState {
		return claimState{held: &published{nonce: "n", token: 7, validUntil: time.Now().Add(left)}}
	}
	lock.take(valid(20 * time.Second))
	if err := lock.decide(boottime()); err != nil {
		t.Fatal(err)
	}
	// The remaining validity is too short to stop in time. The next publication ends this state.
	lock.take(valid(lock.timing.needed()))
	if err := lock.decide(boottime()); err == nil || errors.Is(err, ErrNotHeld) {
		t.Fatalf("%v", err)
	}
	if token, err := lock.Token(); token != 7 || err != nil {
		t.Fatalf("the lock is still held: %v", err)
	}
	lock.take(valid(20 * time.Second))
	if err := lock.decide(boottime()); err != nil {
		t.Fatal(err)
	}
	lock.take(claimState{ended: "by alice (Broken)"})
	for _, next := range []claimState{{}, valid(20 * time.Second)} {
		lock.take(next)
		if err := lock.decide(boottime()); !errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), "by alice") {
			t.Fatalf("%v", err)
		}
		if _, err := lock.Token(); !errors.Is(err, ErrNotHeld) {
			t.Fatalf("%v", err)
		}
	}
	// In the rounds of a term the elector gets the error of the loss, and makes no other claim.
	lock.inTerm = true
	ctx, cancel := context.WithTimeout(context.Background(), lock.timing.RenewDeadline)
	defer cancel()
	if _, _, err := lock.Get(ctx); !errors.Is(err, ErrNotHeld) {
		t.Fatalf("%v", err)
	}
	if err := lock.Update(ctx, resourcelock.LeaderElectionRecord{}); !errors.Is(err, ErrNotHeld) {
		t.Fatalf("what was lost is not released: %v", err)
	}
	// The next term has another hold, even if the status still has the former one.
	lock.former, lock.hold = lock.hold.nonce, nil
	lock.take(valid(20 * time.Second))
	if _, err := lock.Token(); err == nil {
		t.Fatal("it leads again under the hold that it has lost")
	}
	lock.take(claimState{held: &published{nonce: "n2", token: 8, validUntil: time.Now().Add(20 * time.Second)}})
	if token, err := lock.Token(); token != 8 || err != nil {
		t.Fatal(token, err)
	}
}

func TestAHoldEndsWithItsValidity(t *testing.T) {
	lock := holding(t)
	lock.hold.until = boottime() - 1
	if err := lock.decide(boottime()); !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
	if _, err := lock.Token(); err == nil {
		t.Error("it has a token")
	}
}

// holding is a lock with a hold that is valid for 20 s, and with an estimate of the clock to one second.
func holding(t *testing.T) *Lock {
	t.Helper()
	now := boottime()
	lock := &Lock{options: Options{TTL: 30 * time.Second, Skew: time.Second}}
	lock.timing, _ = timing(lock.options.TTL, lock.options.Skew)
	lock.clock.update(spanOf(time.Now().Truncate(time.Second), now, now))
	lock.take(claimState{held: &published{nonce: "n", token: 7, validUntil: time.Now().Add(20 * time.Second)}})
	return lock
}

// The first Date gives the API server's clock to a second. Later dates must win that second back, because otherwise a
// leader steps down in spite of its renewals.
func TestAValidityIsCountedAgainWhenTheClockIsKnownBetter(t *testing.T) {
	lock := holding(t)
	before, same := lock.hold.until, claimState{held: &lock.hold.published}
	now := boottime()
	lock.clock.update(span{least: lock.clock.estimate.most - 100*time.Millisecond, most: lock.clock.estimate.most - 50*time.Millisecond, at: now})
	lock.take(same)
	if gained := lock.hold.until - before; gained < 40*time.Millisecond {
		t.Errorf("%s more", gained)
	}
	// After the clock is set back, the hold lasts at most one ttl from the first reading.
	lock.clock.update(span{least: lock.clock.estimate.least - time.Hour, most: lock.clock.estimate.least - time.Hour + time.Second, at: boottime()})
	lock.take(same)
	if most := lock.hold.first + 29*time.Second; lock.hold.until > most {
		t.Errorf("%s after the first reading", lock.hold.until-lock.hold.first)
	}
}

// After a pause of the machine the operator can still renew the hold, while the work of the term has ended.
func TestALaterValidityDoesNotResumeAHoldWhoseWorkHasEnded(t *testing.T) {
	for name, sees := range map[string]func(*Lock){
		"Token":   func(lock *Lock) { _, _ = lock.Token() },
		"Leading": func(lock *Lock) { lock.Leading(func(context.Context) { t.Error("it works") })(context.Background()) },
	} {
		lock := holding(t)
		lock.hold.until = boottime() - 1
		sees(lock)
		lock.take(claimState{held: &published{nonce: "n", token: 7, validUntil: time.Now().Add(25 * time.Second)}})
		if err := lock.decide(boottime()); !errors.Is(err, ErrNotHeld) {
			t.Errorf("%s: the elector leads without its work: %v", name, err)
		}
	}
}

// update is an attempt of an elector with this remaining time of its context.
func update(lock *Lock, left time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	lock.lastLook = boottime() // so that no request is needed
	return lock.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 60})
}

func TestALateTryOfARefusedElectorIsRefusedAgain(t *testing.T) {
	lock := holding(t)
	// A program can run its elector under a deadline of its own, for example of one shift.
	if err := update(lock, 8*time.Hour); err != nil {
		t.Errorf("before the term: %v", err)
	}
	refusal := update(lock, 10*time.Second)
	if refusal == nil {
		t.Fatal("a RenewDeadline of 10s")
	}
	if err := update(lock, lock.timing.RenewDeadline/2); err != refusal {
		t.Errorf("a late try: %v", err)
	}
	if _, err := lock.Token(); !errors.Is(err, ErrNotHeld) {
		t.Errorf("it leads: %v", err)
	}
	lock.RecordEvent(termEnded)
	if _, _, err := lock.Get(context.Background()); err != refusal {
		t.Errorf("the next term: %v", err)
	}
}

func TestAHoldEndsWithItsTerm(t *testing.T) {
	servers.EndsATerm(t, termEnded)
	lock := holding(t)
	if err := update(lock, time.Second); err != nil || !lock.inTerm {
		t.Fatal(err)
	}
	lock.RecordEvent("became leader")
	if _, err := lock.Token(); err != nil {
		t.Fatal(err)
	}
	lock.RecordEvent(termEnded)
	lock.take(claimState{held: &published{nonce: "n", token: 7, validUntil: time.Now().Add(25 * time.Second)}})
	if _, err := lock.Token(); !errors.Is(err, ErrNotHeld) || lock.inTerm {
		t.Errorf("the next term has the same token: %v", err)
	}
}

func TestAnEndedContextHasNoToken(t *testing.T) {
	lock := holding(t)
	ctx, cancel := context.WithCancel(NewContext(context.Background(), lock))
	cancel()
	if _, err := TokenFromContext(ctx); !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
	lock.Leading(func(context.Context) { t.Error("called in an ended term") })(ctx)
}

func TestTheTokenInAContextIsThatOfItsTerm(t *testing.T) {
	lock := &Lock{hold: &hold{published: published{token: 7}, until: boottime() + time.Hour}}
	lock.timing.RetryPeriod = time.Millisecond
	if token, err := TokenFromContext(NewContext(context.Background(), lock)); token != 7 || err != nil {
		t.Fatal(token, err)
	}
	if _, err := TokenFromContext(context.Background()); !errors.Is(err, ErrNotHeld) {
		t.Fatal(err)
	}
	called := false
	lock.Leading(func(ctx context.Context) {
		called = true
		if token, err := TokenFromContext(ctx); token != 7 || err != nil {
			t.Error(token, err)
		}
		lock.mu.Lock()
		lock.hold = &hold{published: published{token: 8}, until: boottime() + time.Hour}
		lock.mu.Unlock()
		<-ctx.Done()
		if _, err := TokenFromContext(ctx); !errors.Is(err, ErrNotHeld) || context.Cause(ctx) != ErrNotHeld {
			t.Error("the next term's token reaches the last term's code")
		}
	})(context.Background())
	if !called {
		t.Fatal("not called")
	}
	lock.hold.lose("a test")
	lock.Leading(func(context.Context) { t.Error("called without a hold") })(context.Background())
}

func TestAClaimNamesThePodOrTheProcess(t *testing.T) {
	options := &Options{Namespace: "shop", Key: "Jobs/re.index", TTL: 30 * time.Second, Quorum: "redis/q", Container: "main"}
	spec := func(own *pod) map[string]any {
		claim := newClaim(options, "me", "alice", own)
		if !strings.HasPrefix(claim.GetName(), "jobs-re-index-") || (own != nil) != (len(claim.GetOwnerReferences()) == 1) {
			t.Errorf("%v", claim.Object["metadata"])
		}
		if claim.GetAnnotations()[createdByAnnotation] != "alice" {
			t.Errorf("%v", claim.GetAnnotations())
		}
		found, _, _ := unstructured.NestedMap(claim.Object, "spec", "claim")
		return found
	}
	if of := spec(&pod{"shop", "a-1", "u-1"}); of["podName"] != "a-1" || of["podUID"] != "u-1" || of["container"] != "main" || of["identity"] != nil {
		t.Errorf("%v", of)
	}
	if of := spec(nil); of["identity"] != "me" || of["podName"] != nil || of["heartbeat"] != "15000ms" {
		t.Errorf("%v", of)
	}
	if namePrefix("///") != "lock-" || len(namePrefix(strings.Repeat("a", 200))) != longestPrefix+1 {
		t.Error(namePrefix("///"))
	}
}
