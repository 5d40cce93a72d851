// A controller without code for the redlock-operator. It uses client-go's released leader election over a Lease, and
// prints lines while it leads. The gate of the operator's chart admits only the pod that holds a lock to the Lease, see
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
			OnStoppedLeading: func() { os.Exit(1) }, // no code of this process runs after the loss
		},
	})
}

// clientConfig is the configuration of the pod, or that of KUBECONFIG with a pod's token in TOKEN. API_SERVER replaces the address.
func clientConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags(os.Getenv("API_SERVER"), os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	if token := os.Getenv("TOKEN"); token != "" {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = token
	}
	// The same limit as in controller-runtime. Without it a slow answer could start a leader long after its Lease has ended.
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
