package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// claimAt is a claim in this version, as the API server returns it.
func claimAt(version int, status string) string {
	return fmt.Sprintf(`{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
		"metadata": {"name": "a", "uid": "u", "resourceVersion": "%d"}, "status": %s}`, version, status)
}

func event(kind, object string) string {
	return fmt.Sprintf(`{"type": %q, "object": %s}`, kind, object)
}

var expired = event("ERROR", `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}`)

// serve is a lock with a hold and a claim, at a server with this handler.
func serve(t *testing.T, handler http.HandlerFunc) *Lock {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		response.Header().Set("Content-Type", "application/json")
		handler(response, request)
	}))
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	lock := holding(t)
	lock.claims, lock.leases = client.Resource(claimResource).Namespace("shop"), client.Resource(leaseResource).Namespace("shop")
	lock.identity, lock.made, lock.claim = "me", boottime(), &claim{}
	lock.claim.Metadata.Name, lock.claim.Metadata.UID = "a", "u"
	return lock
}

// served is a lock at a server with one claim in version 5. The server has forgotten that version, and counts heartbeats.
func served(t *testing.T, ttl time.Duration, status, events string) (*Lock, *atomic.Int32) {
	t.Helper()
	beats := &atomic.Int32{}
	lock := serve(t, func(response http.ResponseWriter, request *http.Request) {
		query := request.URL.Query()
		switch {
		case strings.Contains(request.URL.Path, "/leases"):
			beats.Add(1)
			_, _ = io.Copy(response, request.Body)
		case query.Get("watch") != "" && query.Get("resourceVersion") != "0":
			_, _ = io.WriteString(response, expired)
		case query.Get("watch") != "":
			_, _ = io.WriteString(response, events)
			if !strings.Contains(events, "ERROR") && events != "" {
				_ = http.NewResponseController(response).Flush()
				<-request.Context().Done()
			}
		case strings.HasSuffix(request.URL.Path, "/distributedlocks"):
			_, _ = io.WriteString(response, `{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList", "items": []}`)
		default:
			_, _ = io.WriteString(response, claimAt(5, status))
		}
	})
	lock.options.TTL, lock.hold = ttl, nil
	if err := lock.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	return lock, beats
}

func TestOnlyAChangeEndsThePauseOfAWaitingClaim(t *testing.T) {
	current := event("ADDED", claimAt(5, "{}"))
	for name, events := range map[string]string{
		"the version that was read": current,
		"a forgotten version":       expired,
		"a watch that has ended":    "",
	} {
		lock, _ := served(t, 600*time.Millisecond, "{}", events)
		began := time.Now()
		if err := lock.awaitChange(context.Background()); err != nil || time.Since(began) < lock.options.TTL/6 {
			t.Errorf("%s: after %s, %v", name, time.Since(began), err)
		}
	}
	lock, _ := served(t, time.Hour, "{}", current+event("MODIFIED", claimAt(6, "{}")))
	began := time.Now()
	if err := lock.awaitChange(context.Background()); err != nil || time.Since(began) >= rereadAfter {
		t.Errorf("a change: after %s, %v", time.Since(began), err)
	}
}

// Otherwise the operator would renew a hold under which no process leads.
func TestAProcessSendsNoHeartbeatForAHoldThatItHasLost(t *testing.T) {
	held := heldStatus + "}"
	for status, sends := range map[string]bool{held: false, "{}": true} {
		lock, beats := served(t, 600*time.Millisecond, status, event("ADDED", claimAt(5, status)))
		lock.former = "n1"
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		if _, _, err := lock.Get(ctx); err == nil {
			t.Error("it leads")
		}
		cancel()
		if (beats.Load() > 0) != sends {
			t.Errorf("%d heartbeats with %s", beats.Load(), status)
		}
	}
	// While its record is valid, the elector calls Update before Get.
	lock, beats := served(t, 30*time.Second, held, "")
	lock.former = "n1"
	if err := update(lock, time.Second); err == nil || beats.Load() != 0 {
		t.Errorf("%d heartbeats, %v", beats.Load(), err)
	}
}

func TestOnlyAProcessInATermIsNamedAsLeader(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for name, former := range map[string]error{"a hold before its term": nil, "a lost hold": ErrNotHeld} {
		lock, _ := served(t, 30*time.Second, heldStatus+"}", "")
		lock.hold = &hold{published: published{nonce: "n1", token: 7}, lost: former}
		if record, _, err := lock.Get(ctx); err != nil || record.HolderIdentity != "" {
			t.Errorf("%s: %v, %v", name, record, err)
		}
	}
	lock, _ := served(t, 30*time.Second, heldStatus+"}", "")
	lock.hold, lock.inTerm = &hold{published: published{nonce: "n1", token: 7}}, true
	if record, _, err := lock.Get(ctx); err != nil || record.HolderIdentity != lock.identity {
		t.Errorf("in a term: %v, %v", record, err)
	}
}

func TestALostHoldGetsNoHeartbeatInTheRestOfItsTerm(t *testing.T) {
	lock, beats := served(t, 30*time.Second, heldStatus+"}", "")
	lock.hold = &hold{published: published{nonce: "n1", token: 7}}
	if err := update(lock, time.Second); err == nil || beats.Load() != 0 {
		t.Errorf("%d heartbeats, %v", beats.Load(), err)
	}
}

func TestAnElectorThatStopsLeavesNoClaim(t *testing.T) {
	held := claimAt(5, heldStatus+"}")
	for _, stopsAt := range []string{http.MethodPost, http.MethodGet} {
		ctx, stop := context.WithCancel(context.Background())
		var deleted atomic.Int32
		lock := serve(t, func(response http.ResponseWriter, request *http.Request) {
			isLease := strings.Contains(request.URL.Path, "/leases")
			switch {
			case request.Method == http.MethodDelete:
				deleted.Add(1)
			case request.Method == stopsAt && !isLease:
				stop()
				panic(http.ErrAbortHandler) // the elector gets no answer
			}
			_, _ = io.WriteString(response, held)
		})
		lock.hold = nil
		var err error
		if stopsAt == http.MethodPost {
			lock.claim = nil
			_, _, err = lock.Get(ctx)
		} else {
			err = lock.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 60})
		}
		if err == nil || deleted.Load() != 1 || lock.claim != nil {
			t.Errorf("stopped at a %s: %d deletions, %v", stopsAt, deleted.Load(), err)
		}
	}
}

// client-go runs a credential plugin inside of a request, without its context.
func TestASlowCredentialPluginDoesNotProlongARequest(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1", ExecProvider: &clientcmdapi.ExecConfig{
		Command: "sleep", Args: []string{"3"}, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := New(ctx, config, Options{Namespace: "shop", Key: "reindex"})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

type body struct {
	io.Reader
	closed chan struct{}
}

func (b *body) Close() error { close(b.closed); return nil }

func TestALateAnswerIsClosed(t *testing.T) {
	late := &body{strings.NewReader(""), make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	transport := bounded(roundTripper(func(*http.Request) (*http.Response, error) {
		cancel()
		time.Sleep(50 * time.Millisecond)
		return &http.Response{Body: late}, nil
	}))
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a", nil)
	if _, err := transport.RoundTrip(request); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-late.closed
}

func TestANegativeSkewIsRefused(t *testing.T) {
	_, err := New(context.Background(), &rest.Config{}, Options{Namespace: "shop", Key: "reindex", Skew: -time.Second})
	if err == nil || !strings.Contains(err.Error(), "Skew -1s") {
		t.Error(err)
	}
}

func TestAnErrorOfNewNamesTheRemedy(t *testing.T) {
	for code, remedy := range map[int]string{
		http.StatusNotFound:  "CustomResourceDefinition distributedlocks.redlock-operator.io",
		http.StatusForbidden: "ClusterRole redlock-operator-holder",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { response.WriteHeader(code) }))
		t.Cleanup(server.Close)
		_, err := New(context.Background(), &rest.Config{Host: server.URL}, Options{Namespace: "shop", Key: "reindex"})
		if err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func TestAForbiddenHeartbeatEndsNoTerm(t *testing.T) {
	for _, inTerm := range []bool{false, true} {
		lock := serve(t, func(response http.ResponseWriter, _ *http.Request) { response.WriteHeader(http.StatusForbidden) })
		lock.inTerm = inTerm
		if err := update(lock, time.Second); (err == nil) != inTerm {
			t.Errorf("in a term: %t, %v", inTerm, err)
		}
		lock.hold.until = boottime() + lock.timing.RenewDeadline
		if err := update(lock, time.Second); err == nil || !strings.Contains(err.Error(), "no heartbeat can be sent") {
			t.Errorf("shortly before the end: %v", err)
		}
	}
}

func TestAMissedRenewalNamesTheErrorOfItsLastRequest(t *testing.T) {
	lock := serve(t, func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() })
	lock.inTerm, lock.hasBeaten, lock.beaten = true, true, boottime()
	lock.hold.until = boottime() + lock.timing.RenewDeadline
	began := time.Now()
	err := update(lock, lock.timing.RenewDeadline)
	if err == nil || !strings.Contains(err.Error(), "no renewal") || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		t.Error(err)
	}
	if took := time.Since(began); took < lock.timing.RenewDeadline/3 || took >= lock.timing.RenewDeadline {
		t.Errorf("after %s", took)
	}
}

// client-go takes such an error for a missing lock, and calls Create.
func TestAMissingNamespaceIsNoMissingLock(t *testing.T) {
	for _, failing := range []string{"creation", "watch"} {
		lock := serve(t, func(response http.ResponseWriter, request *http.Request) {
			if request.Method == http.MethodPost || request.URL.Query().Get("watch") != "" {
				response.WriteHeader(http.StatusNotFound)
			}
			_, _ = io.WriteString(response, claimAt(5, "{}"))
		})
		lock.hold = nil
		if failing == "creation" {
			lock.claim = nil
		}
		if _, _, err := lock.Get(context.Background()); err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "could not find") {
			t.Errorf("%s: %v", failing, err)
		}
	}
}

func TestAnOlderVersionCausesNoReadingsWithoutAPause(t *testing.T) {
	lock, _ := served(t, time.Hour, "{}", event("ADDED", claimAt(4, "{}")))
	await := func() (time.Duration, error) {
		began := time.Now()
		err := lock.awaitChange(context.Background())
		return time.Since(began), err
	}
	if pause, err := await(); err != nil || pause >= lock.timing.RetryPeriod {
		t.Errorf("another version is read after %s, %v", pause, err)
	}
	if pause, err := await(); err != nil || pause < lock.timing.RetryPeriod || pause >= rereadAfter {
		t.Errorf("the same one is read after %s, %v", pause, err)
	}
}

func TestOnlyTheNameOfTheLeaderIsReadFromACache(t *testing.T) {
	versions := make(chan string, 2)
	lock := serve(t, func(response http.ResponseWriter, request *http.Request) {
		versions <- request.URL.Query().Get("resourceVersion")
		_, _ = io.WriteString(response, `{"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList", "items": []}`)
	})
	lock.pod = &pod{"shop", "a-1", "u-1"}
	lock.leader(context.Background())
	if err := lock.sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if leader, sweep := <-versions, <-versions; leader != "0" || sweep != "" {
		t.Errorf("%q for the leader, and %q for former claims", leader, sweep)
	}
}

func TestARefusedRenewDeadlineEndsTheWorkOfItsTerm(t *testing.T) {
	lock := holding(t)
	if err := update(lock, time.Second); err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	go lock.Leading(func(ctx context.Context) { close(begun); <-ctx.Done(); close(ended) })(context.Background())
	<-begun
	if err := update(lock, 10*time.Second); err == nil {
		t.Error("a RenewDeadline of 10s")
	}
	<-ended
}
