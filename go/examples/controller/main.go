// A controller that leads under a lock of the redlock-operator, and counts in a ConfigMap. Each write stores its fencing
// token in an annotation, so a former leader cannot count after its successor has begun.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	redlock "github.com/redlock-operator/redlock-operator/go"
)

const tokenAnnotation = "example.com/fencing-token"

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // also after a loss of the lock, so that no code of this process runs after it
	}
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	lock, err := redlock.New(ctx, config, redlock.Options{Namespace: os.Getenv("NAMESPACE"), Key: os.Getenv("KEY"), TTL: 15 * time.Second})
	if err != nil {
		return err
	}
	timing := lock.Timing()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true, // the process ends with the manager
		LeaseDuration:                       &timing.LeaseDuration,
		RenewDeadline:                       &timing.RenewDeadline,
		RetryPeriod:                         &timing.RetryPeriod,
		Metrics:                             metrics.Options{BindAddress: "0"},
		// All runnables and reconcilers get contexts that are derived from this one.
		BaseContext: func() context.Context { return redlock.NewContext(context.Background(), lock) },
	})
	if err != nil {
		return err
	}
	counter := &counter{lock: lock, client: mgr.GetClient(), reader: mgr.GetAPIReader(), namespace: os.Getenv("NAMESPACE")}
	if err := mgr.Add(counter); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// counter runs on the leader only.
type counter struct {
	lock      *redlock.Lock
	client    client.Client
	reader    client.Reader
	namespace string
}

var _ manager.LeaderElectionRunnable = (*counter)(nil)

func (c *counter) NeedLeaderElection() bool { return true }

func (c *counter) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		began := time.Now()
		token, err := redlock.TokenFromContext(ctx)
		if err == nil {
			// The time was read before the token, so this process held the lock at that time.
			fmt.Println("leads", began.UnixMicro(), token, c.lock.Identity())
			err = c.count(ctx, token)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "not counted:", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// count refuses a token that is smaller than an earlier one. The API server refuses the write if the object has changed
// since it was read.
func (c *counter) count(ctx context.Context, token int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	counts := &corev1.ConfigMap{}
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: "counter"}, counts)
	if apierrors.IsNotFound(err) {
		counts.ObjectMeta = metav1.ObjectMeta{Namespace: c.namespace, Name: "counter"}
		return c.client.Create(ctx, counts)
	}
	if err != nil {
		return err
	}
	if largest, _ := strconv.ParseInt(counts.Annotations[tokenAnnotation], 10, 64); largest > token {
		return fmt.Errorf("a leader with token %d has been here, and this one has %d", largest, token)
	}
	count, _ := strconv.Atoi(counts.Data["count"])
	counts.Annotations = map[string]string{tokenAnnotation: strconv.FormatInt(token, 10)}
	counts.Data = map[string]string{"count": strconv.Itoa(count + 1)}
	return c.client.Update(ctx, counts)
}
