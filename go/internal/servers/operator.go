package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

var (
	locks  = schema.GroupVersionResource{Group: "redlock-operator.io", Version: "v1alpha1", Resource: "distributedlocks"}
	leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

const releaseAnnotation = "redlock-operator.io/release"

// Grant is one hold that an Operator has granted.
type Grant struct {
	Claim string
	Token int64
	// From is the time of its publication, and Until the end of the last published validity.
	From, Until time.Time
	// Ended is the reason of its end. It is empty while the lock is held.
	Ended string
}

// Operator replaces the operator in tests. It has no members, and only writes statuses. Tests with it cover a client's use of
// a status, and no part of Redlock.
type Operator struct {
	// Silent stops all publications.
	Silent atomic.Bool
	// Break ends the hold with this token.
	Break atomic.Int64
	// Requeue puts a claim back into the queue after the end of its hold, as the operator does after a loss of the members.
	Requeue atomic.Bool

	t      testing.TB
	client dynamic.Interface
	key    string
	ttl    time.Duration
	beat   string
	beatAt time.Time
	mu     sync.Mutex
	grants []Grant
}

// Operate starts an Operator, which runs until the test ends.
func (s *Servers) Operate(t testing.TB, key string, ttl time.Duration) *Operator {
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	operator := &Operator{t: t, client: client, key: key, ttl: ttl}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := operator.pass(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
				t.Logf("the stand-in for the operator: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return operator
}

// Grants returns all holds until now, the oldest first.
func (o *Operator) Grants() []Grant {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.grants)
}

func (o *Operator) pass(ctx context.Context) error {
	if o.Silent.Load() {
		return nil
	}
	list, err := o.client.Resource(locks).Namespace(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var waiting, held *unstructured.Unstructured
	last := o.last()
	for index := range list.Items {
		lock := &list.Items[index]
		key, _, _ := unstructured.NestedString(lock.Object, "spec", "key")
		isFinished := condition(lock, "Finished") == "True"
		switch {
		case key != o.key || isFinished:
		case last != nil && last.Claim == lock.GetName() && last.Ended == "":
			held = lock
		case waiting == nil || lock.GetCreationTimestamp().Time.Before(waiting.GetCreationTimestamp().Time):
			waiting = lock
		}
	}
	switch {
	case last != nil && last.Ended == "":
		return o.renewOrEnd(ctx, held, *last)
	case waiting != nil:
		token := time.Now().UnixMicro()
		o.beat, o.beatAt = "", time.Now()
		return o.publish(ctx, waiting, Grant{Claim: waiting.GetName(), Token: token, From: time.Now()})
	}
	return nil
}

// renewOrEnd renews a hold or ends it.
func (o *Operator) renewOrEnd(ctx context.Context, lock *unstructured.Unstructured, grant Grant) error {
	if lock == nil {
		o.record(grant, "Deleted")
		return nil
	}
	if word := lock.GetAnnotations()[releaseAnnotation]; word != "" {
		if word != fmt.Sprint(grant.Token) {
			o.t.Errorf("released with token %s, the hold has %d", word, grant.Token)
		}
		return o.finish(ctx, lock, grant, "Released")
	}
	if o.Break.Load() == grant.Token {
		if time.Now().After(grant.Until) {
			return o.finish(ctx, lock, grant, "Broken")
		}
		return o.status(ctx, lock, map[string]any{
			"ending": map[string]any{"since": stamp(time.Now()), "reason": "Broken", "message": "a test has broken it"},
		})
	}
	lease, err := o.client.Resource(leases).Namespace(Namespace).Get(ctx, grant.Claim, metav1.GetOptions{})
	if err == nil {
		if beat, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime"); beat != o.beat {
			o.beat, o.beatAt = beat, time.Now()
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	if time.Now().After(grant.Until) {
		return o.finish(ctx, lock, grant, "HeartbeatLost")
	}
	return o.publish(ctx, lock, grant)
}

func (o *Operator) publish(ctx context.Context, lock *unstructured.Unstructured, grant Grant) error {
	// A hold is valid for one ttl after the last heartbeat. A renewal is published if it adds at least a tenth of the ttl.
	until := o.beatAt.Add(o.ttl)
	if until.Sub(grant.Until) < o.ttl/10 {
		return nil
	}
	grant.Until = until
	uid := ""
	identity, _, _ := unstructured.NestedString(lock.Object, "spec", "claim", "identity")
	if name, found, _ := unstructured.NestedString(lock.Object, "spec", "claim", "podName"); found {
		identity = name
		uid, _, _ = unstructured.NestedString(lock.Object, "spec", "claim", "podUID")
	}
	holder := map[string]any{"identity": identity, "nonce": fmt.Sprintf("%040x", grant.Token)}
	if uid != "" {
		holder["podUID"] = uid
	}
	// The record comes before the write, because a process can act as soon as it reads the status.
	o.record(grant, "")
	return o.status(ctx, lock, map[string]any{
		"holder": holder, "fencingToken": grant.Token, "validUntil": stamp(until), "conditions": conditions("True", "Held", "False"),
	})
}

func (o *Operator) finish(ctx context.Context, lock *unstructured.Unstructured, grant Grant, why string) error {
	finished := "True"
	if o.Requeue.Load() {
		finished = "False"
	}
	err := o.status(ctx, lock, map[string]any{
		"holder": nil, "fencingToken": nil, "validUntil": nil, "ending": nil, "conditions": conditions("False", why, finished),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	o.record(grant, why)
	return nil
}

func (o *Operator) last() *Grant {
	if grants := o.Grants(); len(grants) > 0 {
		return &grants[len(grants)-1]
	}
	return nil
}

func (o *Operator) record(grant Grant, ended string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	grant.Ended = ended
	if count := len(o.grants); count > 0 && o.grants[count-1].Token == grant.Token {
		o.grants[count-1] = grant
	} else {
		o.grants = append(o.grants, grant)
	}
}

func (o *Operator) status(ctx context.Context, lock *unstructured.Unstructured, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = o.client.Resource(locks).Namespace(Namespace).Patch(ctx, lock.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func conditions(held, reason, finished string) []any {
	one := func(kind, status string) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": stamp(time.Now())}
	}
	return []any{one("Held", held), one("Finished", finished)}
}

func condition(lock *unstructured.Unstructured, kind string) string {
	found, _, _ := unstructured.NestedSlice(lock.Object, "status", "conditions")
	for _, one := range found {
		if fields, ok := one.(map[string]any); ok && fields["type"] == kind {
			status, _ := fields["status"].(string)
			return status
		}
	}
	return ""
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
