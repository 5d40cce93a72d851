package redlock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/leaderelection"

	redlock "github.com/redlock-operator/redlock-operator/go"
	"github.com/redlock-operator/redlock-operator/go/internal/servers"
)

const (
	ttl  = 15 * time.Second
	soon = 30 * time.Second
	// The test binary runs one contender when this is set.
	contender = "REDLOCK_TEST_CONTENDER"
	// The file with a pod's token, which a contender in that pod sends.
	inPod = "REDLOCK_TEST_POD"
)

var (
	alone   *servers.Servers
	started = sync.OnceValue(func() (err error) {
		alone, err = servers.Start("../crds")
		return err
	})
)

func TestMain(m *testing.M) {
	if key := os.Getenv(contender); key != "" {
		contend(key)
		return
	}
	code := m.Run()
	if alone != nil {
		alone.Stop()
	}
	os.Exit(code)
}

// check compares the terms of the processes with the grants.
func check(t *testing.T, operator *servers.Operator, processes ...*process) {
	t.Helper()
	grants := operator.Grants()
	t.Logf("granted: %+v", grants)
	byToken := map[int64]servers.Grant{}
	for index, grant := range grants {
		byToken[grant.Token] = grant
		if index > 0 && grant.Token <= grants[index-1].Token {
			t.Errorf("token %d after %d", grant.Token, grants[index-1].Token)
		}
	}
	type term struct{ first, last time.Time }
	var terms []term
	for _, p := range processes {
		p.read(func() {
			for token, first := range p.first {
				last, grant := p.last[token], byToken[token]
				if first.Before(grant.From) || last.After(grant.Until) {
					t.Errorf("token %d: led from %s to %s, granted from %s to %s", token, first, last, grant.From, grant.Until)
				}
				for _, other := range terms {
					if first.Before(other.last) && other.first.Before(last) {
						t.Errorf("two led at once: %v and %v", other, term{first, last})
					}
				}
				terms = append(terms, term{first, last})
			}
		})
	}
	if len(terms) == 0 {
		t.Error("no process has led")
	}
}

// need starts one API server for all tests.
func need(t *testing.T) {
	t.Helper()
	// Go caches the result of a test until a file of the module or a variable that it reads changes. The CRDs are outside of the module, so
	// this variable has their checksum.
	_ = os.Getenv("REDLOCK_KINDS")
	if os.Getenv(servers.Program) == "" {
		t.Skipf("set %s to a kube-apiserver", servers.Program)
	}
	if err := started(); err != nil {
		t.Fatal(err)
	}
}

func TestTheNextProcessFollowsAKilledLeaderAndAReleaseIsTheHoldersWord(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "failover", ttl)
	one, two := start(t, "failover"), start(t, "failover")
	killed, token := leader(t, 0, one, two)
	other := one
	if killed == one {
		other = two
	}
	eventually(t, "the other process follows the leader", func() (knows bool) {
		other.read(func() { knows = len(other.follows) > 0 })
		return knows
	})
	// The time is longer than a ttl, so the lock is renewed.
	eventually(t, "it leads for more than a ttl", func() (leads bool) {
		killed.read(func() { leads = killed.last[token].Sub(killed.first[token]) > ttl+time.Second })
		return leads
	})
	killed.signal(t, syscall.SIGKILL)
	_, second := leader(t, token, other)
	third := start(t, "failover")
	eventually(t, "the third one waits", func() (waits bool) {
		third.read(func() { waits = len(third.follows) > 0 })
		return waits
	})
	other.signal(t, syscall.SIGTERM)
	leader(t, second, third)
	<-other.done
	check(t, operator, one, two, third)
	grants := operator.Grants()
	if grants[0].Ended != "HeartbeatLost" || grants[1].Ended != "Released" || !grants[2].From.Before(grants[1].Until) {
		t.Error("the first hold ends with its heartbeat, and the second one by its release before its validity has ended")
	}
}

func TestALeaderStopsBeforeAValidityThatIsNotRenewedEnds(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "silence", ttl)
	one := start(t, "silence")
	leader(t, 0, one)
	operator.Silent.Store(true)
	<-one.done
	endedInTime(t, operator, one)
}

// endedInTime checks that the loop stopped before the published validity ended, and used a good part of it.
func endedInTime(t *testing.T, operator *servers.Operator, one *process) {
	t.Helper()
	check(t, operator, one)
	// The allowed difference of clocks is subtracted, though here it is zero.
	until := operator.Grants()[0].Until.Add(-time.Second)
	one.read(func() {
		if one.stopped.IsZero() || one.stopped.After(until) || until.Sub(one.stopped) > ttl/3 {
			t.Errorf("stopped at %s, valid until %s", one.stopped, until)
		}
	})
}

func TestALeaderWhoseHoldIsBrokenStopsWhileItIsStillValid(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "broken", ttl)
	one := start(t, "broken")
	_, token := leader(t, 0, one)
	operator.Break.Store(token)
	<-one.done
	check(t, operator, one)
	one.read(func() {
		if until := operator.Grants()[0].Until; !one.stopped.Before(until) {
			t.Errorf("stopped at %s, valid until %s", one.stopped, until)
		}
	})
	eventually(t, "the hold has run out", func() bool { return operator.Grants()[0].Ended != "" })
	if ended := operator.Grants()[0].Ended; ended == "Released" {
		t.Error("a hold that was lost is not the process's to release")
	}
}

func TestAProcessThatWasStoppedDoesNotLeadWhenItGoesOn(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "stopped", ttl)
	one := start(t, "stopped")
	_, token := leader(t, 0, one)
	one.signal(t, syscall.SIGSTOP)
	two := start(t, "stopped")
	leader(t, token, two)
	one.signal(t, syscall.SIGCONT)
	<-one.done
	check(t, operator, one, two)
}

func TestAProcessThatStopsToWaitTakesItsClaimBack(t *testing.T) {
	need(t)
	t.Parallel()
	one := start(t, "waits")
	eventually(t, "it queues", func() bool { return len(claimsOf(t, "waits")) == 1 })
	one.signal(t, syscall.SIGTERM)
	<-one.done
	eventually(t, "its claim is gone", func() bool { return len(claimsOf(t, "waits")) == 0 })
}

func TestARestartedContainerClearsItsFormerProcessFromTheQueueAndItsPodLeads(t *testing.T) {
	need(t)
	t.Parallel()
	uid, token := newPod(t, "pod")
	killed := start(t, "pod", inPod+"="+token)
	eventually(t, "it queues", func() bool { return len(claimsOf(t, "pod")) == 1 })
	before := claimsOf(t, "pod")
	killed.signal(t, syscall.SIGKILL)
	<-killed.done
	next := start(t, "pod", inPod+"="+token)
	eventually(t, "its claim alone queues", func() bool {
		after := claimsOf(t, "pod")
		return len(after) == 1 && after[0] != before[0]
	})
	operator := alone.Operate(t, "pod", ttl)
	leader(t, 0, next)
	claim, err := claims(t).Get(context.Background(), operator.Grants()[0].Claim, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if owners := claim.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != uid {
		t.Errorf("%v", owners)
	}
	check(t, operator, next)
}

func claims(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(alone.Config)
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionResource{Group: "redlock-operator.io", Version: "v1alpha1", Resource: "distributedlocks"}
	return client.Resource(kind).Namespace(servers.Namespace)
}

// claimsOf returns the names of the claims on a key.
func claimsOf(t *testing.T, key string) (names []string) {
	t.Helper()
	list, err := claims(t).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range list.Items {
		if strings.HasPrefix(claim.GetName(), key+"-") {
			names = append(names, claim.GetName())
		}
	}
	return names
}

func TestAnElectorHearsWhyItsClaimIsNotServed(t *testing.T) {
	need(t)
	t.Parallel()
	lock, err := redlock.New(context.Background(), alone.Config, redlock.Options{Namespace: servers.Namespace, Key: "refused"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answers := make(chan error, 2)
	go func() {
		for range 2 {
			_, _, err := lock.Get(ctx)
			answers <- err
		}
	}()
	eventually(t, "it queues", func() bool { return len(claimsOf(t, "refused")) == 1 })
	refusal := `{"status": {"conditions": [{"type": "Accepted", "status": "False", "reason": "TTLTooLong", "message": "set a ttl of at most 10s",
		"lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
	_, err = claims(t).Patch(ctx, claimsOf(t, "refused")[0], types.MergePatchType, []byte(refusal), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-answers; err == nil || !strings.Contains(err.Error(), "set a ttl of at most 10s") {
		t.Error(err)
	}
	// Get returns one error per cause, so the second call waits until its elector ends.
	cancel()
	if err := <-answers; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// This test is not parallel, so Go runs it before the parallel tests above continue.
func TestALeaderStopsInTimeWhenTheAPIServerIsFrozen(t *testing.T) {
	need(t)
	operator := alone.Operate(t, "frozen", ttl)
	one := start(t, "frozen")
	leader(t, 0, one)
	if err := alone.APIServer.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The test's operator hangs in a request, so it publishes nothing.
	<-one.done
	if err := alone.APIServer.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	endedInTime(t, operator, one)
}

func TestTheNextTermOfAProcessHasAnotherHoldWithALargerToken(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "again", ttl)
	operator.Requeue.Store(true)
	lock, err := redlock.New(context.Background(), alone.Config, redlock.Options{Namespace: servers.Namespace, Key: "again", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	timing := lock.Timing()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tokens, done := make(chan int64, 10), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: timing.LeaseDuration, RenewDeadline: timing.RenewDeadline, RetryPeriod: timing.RetryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lock.Leading(func(ctx context.Context) {
				token, _ := redlock.TokenFromContext(ctx)
				tokens <- token
				<-ctx.Done()
				if _, err := redlock.TokenFromContext(ctx); err == nil && token == operator.Break.Load() {
					t.Error("the token outlives its term")
				}
			}),
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			elector.Run(ctx)
		}
	}()
	next := func() (token int64) {
		t.Helper()
		eventually(t, "it leads", func() bool {
			select {
			case token = <-tokens:
			default:
			}
			return token != 0
		})
		return token
	}
	first := next()
	operator.Break.Store(first)
	if second := next(); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	// The process leads with the claim that queued again. No other claim is left.
	if claims := claimsOf(t, "again"); len(claims) != 1 {
		t.Errorf("%v", claims)
	}
	cancel()
	<-done
	eventually(t, "the release", func() bool { return operator.Grants()[1].Ended == "Released" })
}

func TestATermWithoutAReleaseIsFollowedByAnotherHold(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "unreleased", ttl)
	lock, err := redlock.New(context.Background(), alone.Config, redlock.Options{Namespace: servers.Namespace, Key: "unreleased", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	timing := lock.Timing()
	var tokens []int64
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), soon+ttl)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: timing.LeaseDuration, RenewDeadline: timing.RenewDeadline, RetryPeriod: timing.RetryPeriod,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: lock.Leading(func(ctx context.Context) {
					token, _ := redlock.TokenFromContext(ctx)
					tokens = append(tokens, token)
					cancel()
				}),
				OnStoppedLeading: func() {},
			},
		})
		cancel()
	}
	grants := operator.Grants()
	if len(tokens) != 2 || tokens[1] <= tokens[0] || grants[0].Ended != "HeartbeatLost" {
		t.Errorf("tokens %v, %+v", tokens, grants)
	}
}

func TestAnElectorWithClientGosDefaultsIsRefusedBeforeItLeads(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "defaults", 30*time.Second)
	lock, err := redlock.New(context.Background(), alone.Config, redlock.Options{Namespace: servers.Namespace, Key: "defaults"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { t.Error("it leads") },
			OnStoppedLeading: func() {},
		},
	})
	eventually(t, "a grant", func() bool { return len(operator.Grants()) > 0 })
	time.Sleep(time.Second)
	if _, err := lock.Token(); err == nil {
		t.Error("it holds")
	}
}
