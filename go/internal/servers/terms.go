package servers

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// EndsATerm checks that client-go's elector records this event as the last one of a term, after its release.
func EndsATerm(t testing.TB, event string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock := &memory{}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { cancel() }, OnStoppedLeading: func() {}},
	})
	if !slices.Equal(lock.calls, []string{"became leader", "release", event}) {
		t.Errorf("a term: %q", lock.calls)
	}
}

// memory is a lock without a server. Only the goroutine of its elector uses it.
type memory struct {
	record *resourcelock.LeaderElectionRecord
	calls  []string
}

func (m *memory) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if m.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	}
	return m.record, nil, nil
}

func (m *memory) Create(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	m.record = &record
	return nil
}

func (m *memory) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	m.record = &record
	if record.HolderIdentity == "" {
		m.calls = append(m.calls, "release")
	}
	return nil
}

func (m *memory) RecordEvent(event string) { m.calls = append(m.calls, event) }

func (m *memory) Identity() string { return "one" }

func (m *memory) Describe() string { return "a lock without a server" }
