// A controller without any knowledge of the redlock-operator: client-go's own released leader election over a Lease. It
// prints lines while it leads. The gate of the operator's chart gives its Lease to the pod that holds a lock, see
// docs/any-controller.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 6 * time.Second
	retryPeriod   = 2 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientConfig()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lease := metav1.ObjectMeta{Namespace: os.Getenv("NAMESPACE"), Name: os.Getenv("LEASE")}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  lease,
			Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: os.Getenv("IDENTITY")},
		},
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() { os.Exit(1) }, // nothing of this process may go on
		},
	})
}

// clientConfig is the configuration of the pod, or of KUBECONFIG with the token of a pod and, if it is set, the address in API_SERVER.
func clientConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags(os.Getenv("API_SERVER"), os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	if token := os.Getenv("TOKEN"); token != "" {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = token
	}
	// Like controller-runtime. Without a limit a slow answer could make a leader long after its Lease.
	config.Timeout = renewDeadline / 2
	return config, nil
}

func lead(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		fmt.Printf("leads %d\n", time.Now().UnixMicro())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
