package redlock_test

// [snippet]
import (
	"context"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	redlock "github.com/redlock-operator/redlock-operator/go"
)

func lead(ctx context.Context, config *rest.Config, work func(ctx context.Context, token int64)) error {
	lock, err := redlock.New(ctx, config, redlock.Options{Namespace: "shop", Key: "reindex", TTL: 30 * time.Second})
	if err != nil {
		return err
	}
	timing := lock.Timing()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: timing.LeaseDuration, RenewDeadline: timing.RenewDeadline, RetryPeriod: timing.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lock.Leading(func(ctx context.Context) {
				if token, err := redlock.TokenFromContext(ctx); err == nil {
					work(ctx, token) // until ctx ends
				}
			}),
			OnStoppedLeading: func() { os.Exit(1) }, // no code of this process runs after the loss
		},
	})
	return nil
}

// [end]

var _ = lead
