package redlock

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// within sets the deadline of a request: while a lock is held, two requests fit into one round of the elector.
func (l *Lock) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.nonce() != "" {
		return context.WithTimeout(ctx, l.timing.RenewDeadline/3)
	}
	return context.WithTimeout(ctx, patience)
}

// connect makes the client, and checks that the API server serves claims to this user.
func (l *Lock) connect(ctx context.Context, config *rest.Config) (dynamic.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.Timeout, config.RateLimiter, config.QPS, config.Burst = 0, nil, 20, 40
	// With HTTP/1.1 a timeout of a request also closes its connection, so no later request waits on a dead connection.
	config.NextProtos = []string{"http/1.1"}
	config.Wrap(l.clock.observe)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	httpClient.Transport = bounded(httpClient.Transport)
	client, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	l.claims = client.Resource(claimResource).Namespace(l.options.Namespace)
	l.leases = client.Resource(leaseResource).Namespace(l.options.Namespace)
	_, err = l.claims.List(ctx, metav1.ListOptions{LabelSelector: keyLabel + "=" + label(l.options.Key), Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the CustomResourceDefinition %s is missing, so install the operator: %w", claimResource.GroupResource(), err)
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("bind the ClusterRole redlock-operator-holder to this user in the namespace of the lock: %w", err)
	}
	return client, err
}

// bounded ends each request with its context.
//
// The transport of client-go runs a credential plugin without a context, so it can return long after the deadline.
func bounded(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		type answer struct {
			response *http.Response
			err      error
		}
		answers, ctx := make(chan answer), request.Context()
		go func() {
			response, err := next.RoundTrip(request)
			select {
			case answers <- answer{response, err}:
			case <-ctx.Done():
				if err == nil {
					_ = response.Body.Close()
				}
			}
		}()
		select {
		case it := <-answers:
			return it.response, it.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// refresh reads the claim, and creates it if it does not exist.
func (l *Lock) refresh(ctx context.Context) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	if l.claim == nil {
		return l.create(ctx)
	}
	object, err := l.claims.Get(ctx, l.claim.Metadata.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && string(object.GetUID()) != l.claim.Metadata.UID {
		gone := "it is gone"
		l.claim.Metadata.DeletionTimestamp = &gone
		return nil
	}
	if err != nil {
		return err
	}
	l.lastLook = boottime()
	l.claim, err = claimOf(object)
	return err
}

func (l *Lock) create(ctx context.Context) error {
	if err := l.clock.checkWall(l.options.Skew); err != nil {
		return err
	}
	if err := l.sweep(ctx); err != nil {
		return err
	}
	if l.wanted == nil {
		l.wanted = newClaim(&l.options, l.identity, l.user, l.pod)
	}
	object, err := l.claims.Create(ctx, l.wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// No other process uses this name, so an earlier creation was carried out.
		object, err = l.claims.Get(ctx, l.wanted.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("no claim was made in namespace %s: %w", l.options.Namespace, err)
	}
	l.wanted, l.hasBeaten, l.made = nil, false, boottime()
	l.claim, err = claimOf(object)
	return err
}

// sweep deletes the waiting claims of earlier processes of this container. Such a claim could otherwise get the lock for
// one ttl.
func (l *Lock) sweep(ctx context.Context) error {
	if l.pod == nil || l.swept {
		return nil
	}
	claims, err := l.ofKey(ctx, "")
	if err != nil {
		return err
	}
	for _, other := range claims {
		of := other.Spec.Claim
		if of.PodUID == l.pod.uid && of.Container == l.options.Container && other.Status.Holder == nil {
			// A claim without the name of its creator cannot be deleted. It does not keep this process from waiting.
			if err := l.delete(ctx, other, true); err != nil && !apierrors.IsForbidden(err) {
				return err
			}
		}
	}
	l.swept = true
	return nil
}

// delete deletes this claim by its UID if that is known, and on request only in the version that was read.
func (l *Lock) delete(ctx context.Context, claim *claim, ifUnchanged bool) error {
	only := &metav1.Preconditions{}
	if uid := types.UID(claim.Metadata.UID); uid != "" {
		only.UID = &uid
	}
	if ifUnchanged {
		only.ResourceVersion = &claim.Metadata.ResourceVersion
	}
	err := l.claims.Delete(ctx, claim.Metadata.Name, metav1.DeleteOptions{Preconditions: only})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ofKey lists the claims that this package has made on this key.
//
// With version 0 the API server answers from its cache.
func (l *Lock) ofKey(ctx context.Context, version string) ([]*claim, error) {
	list, err := l.claims.List(ctx, metav1.ListOptions{LabelSelector: keyLabel + "=" + label(l.options.Key), ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	claims := make([]*claim, 0, len(list.Items))
	for index := range list.Items {
		claim, err := claimOf(&list.Items[index])
		if err != nil {
			return nil, err
		}
		claims = append(claims, claim)
	}
	return claims, nil
}

// leader is the identity of the current holder, if it uses this package. Only the elector's OnNewLeader needs it.
func (l *Lock) leader(ctx context.Context) string {
	ctx, cancel := l.within(ctx)
	defer cancel()
	claims, err := l.ofKey(ctx, "0")
	if err != nil {
		return ""
	}
	for _, other := range claims {
		if other.Status.Holder != nil && other.Metadata.UID != l.claim.Metadata.UID {
			return other.Metadata.Annotations[identityAnnotation]
		}
	}
	return ""
}

// awaitChange waits for a change of the claim, or for the time until its next reading.
//
// A waiting claim changes rarely, and the API server forgets its version. A watch from that version would end immediately, so the watch begins
// with the current object.
func (l *Lock) awaitChange(ctx context.Context) error {
	watching, cancel := context.WithTimeout(ctx, min(rereadAfter, l.options.TTL/6))
	defer cancel()
	one := fields.OneTermEqualSelector("metadata.name", l.claim.Metadata.Name).String()
	events, err := l.claims.Watch(watching, metav1.ListOptions{FieldSelector: one, ResourceVersion: "0"})
	if err != nil {
		return err
	}
	defer events.Stop()
	changes := events.ResultChan()
	var paused <-chan time.Time
	for {
		select {
		case <-watching.Done():
			return ctx.Err()
		case <-paused:
			return ctx.Err()
		case event, open := <-changes:
			object, ok := event.Object.(*unstructured.Unstructured)
			switch {
			case !open || event.Type == watch.Error || !ok:
				changes = nil // an ended watch must not shorten the time until the next reading
			case object.GetResourceVersion() == l.claim.Metadata.ResourceVersion:
			case object.GetResourceVersion() == l.stale:
				// This version also ended the last watch, so it is older than the claim that was read since.
				paused = time.After(l.timing.RetryPeriod)
			default:
				l.stale = object.GetResourceVersion()
				return ctx.Err()
			}
		}
	}
}

// beat renews the heartbeat of this process, three times per period. It begins while the claim waits.
func (l *Lock) beat(ctx context.Context) error {
	if l.claim == nil || l.hasBeaten && boottime()-l.beaten < l.options.TTL/6 {
		return nil
	}
	ctx, cancel := l.within(ctx)
	defer cancel()
	begun := boottime()
	lease := newLease(l.claim, l.options.TTL, time.Now())
	patch, err := lease.MarshalJSON()
	if err != nil {
		return err
	}
	if l.hasBeaten {
		_, err = l.leases.Patch(ctx, lease.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = l.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	switch {
	case err == nil:
		l.hasBeaten, l.beaten = true, begun
	case apierrors.IsAlreadyExists(err): // the answer of an earlier creation was lost
		l.hasBeaten, l.beaten = true, 0
	case apierrors.IsNotFound(err):
		l.hasBeaten = false
	}
	// Without this permission the lock would be lost one ttl later. After other errors the next call tries again.
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("no heartbeat can be sent, which the ClusterRole of holders allows: %w", err)
	}
	return nil
}
