// A manager of controller-runtime without code for the redlock-operator. It uses the released leader election over a Lease
// with the usual flags, and prints lines while it leads. The gate of the operator's chart admits only the pod that holds a
// lock to the Lease, see docs/any-controller.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	elect := flag.Bool("leader-elect", false, "lead alone")
	duration := flag.Duration("leader-elect-lease-duration", 15*time.Second, "how long a candidate waits for a leader that does not renew")
	deadline := flag.Duration("leader-elect-renew-deadline", 10*time.Second, "how long a leader tries to renew")
	retry := flag.Duration("leader-elect-retry-period", 2*time.Second, "how long a candidate waits between two attempts")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	options := ctrl.Options{
		LeaderElection:          *elect,
		LeaderElectionNamespace: os.Getenv("NAMESPACE"),
		LeaderElectionID:        os.Getenv("LEASE"),
		LeaseDuration:           duration,
		RenewDeadline:           deadline,
		RetryPeriod:             retry,
		Metrics:                 metrics.Options{BindAddress: "0"},
	}
	if err := run(ctrl.SetupSignalHandler(), options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // no code of this process runs after the loss
	}
}

func run(ctx context.Context, options ctrl.Options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// A test runs this outside a pod, with the token of a pod.
	if token := os.Getenv("TOKEN"); token != "" {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = token
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	// By default a runnable runs on the leader only.
	if err := mgr.Add(manager.RunnableFunc(lead)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func lead(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		fmt.Printf("leads %d\n", time.Now().UnixMicro())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
