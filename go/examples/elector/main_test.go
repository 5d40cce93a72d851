package main

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The test runs all durations of docs/any-controller.md in a fifth of their time.
const faster = 5

// step is the answer to a request. It comes after a part of the limit of a request.
type step struct {
	part float64
	err  error
}

// slow is a Lease at a slow API server. After the steps it answers no request.
type slow struct {
	limit   time.Duration
	steps   []step
	renewed time.Time
}

func (s *slow) request(ctx context.Context) error {
	next := step{1, errors.New("no answer")}
	if len(s.steps) > 0 {
		next, s.steps = s.steps[0], s.steps[1:]
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(next.part * float64(s.limit))):
		return next.err
	}
}

func (s *slow) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: s.Identity()}, nil, s.request(ctx)
}

func (s *slow) Create(ctx context.Context, _ resourcelock.LeaderElectionRecord) error {
	return s.request(ctx)
}

func (s *slow) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := s.request(ctx)
	if err == nil {
		s.renewed = record.RenewTime.Time
	}
	return err
}

func (s *slow) RecordEvent(string) {}

func (s *slow) Identity() string { return "one" }

func (s *slow) Describe() string { return "a slow API server" }

func TestALeaderStopsInTimeUnlessItsReleaseIsSlow(t *testing.T) {
	missing, lost := apierrors.NewNotFound(schema.GroupResource{}, ""), errors.New("no answer")
	for name, example := range map[string]struct {
		renewDeadline time.Duration
		releases      bool
		inTime        bool
	}{
		"the durations of the page":               {renewDeadline, false, true},
		"the same durations, and a release":       {renewDeadline, true, false},
		"a shorter renew deadline, and a release": {4 * time.Second, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := &slow{limit: example.renewDeadline / 2 / faster, steps: []step{
				{0, missing}, {0, nil}, // the creation
				{0.9, lost}, {0.9, nil}, {0, nil}, // the renewal
				{1, lost}, {2, lost}, // the next renewal
				{0.9, nil}, {1, lost}, // the release
			}}
			leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: leaseDuration / faster, RenewDeadline: example.renewDeadline / faster,
				RetryPeriod: retryPeriod / faster, ReleaseOnCancel: example.releases,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
			})
			if led := faster * time.Since(lock.renewed); (led < leaseDuration) != example.inTime || led < leaseDuration*4/5 {
				t.Errorf("stopped %s after its last renewal", led)
			}
		})
	}
}
