package redlock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"

	redlock "github.com/redlock-operator/redlock-operator/go"
	"github.com/redlock-operator/redlock-operator/go/internal/servers"
)

// contend runs the unmodified loop of client-go. It prints the token and the time while it leads, and the time of its stop.
func contend(key string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	fatal(err)
	if token := os.Getenv(inPod); token != "" {
		config.BearerToken, config.BearerTokenFile = "", token
	}
	lock, err := redlock.New(ctx, config, redlock.Options{Namespace: servers.Namespace, Key: key, TTL: ttl})
	fatal(err)
	timing := lock.Timing()
	lead := func(ctx context.Context) {
		for ctx.Err() == nil {
			// The time is read before the token, so this process held the lock at the printed time.
			now := time.Now()
			if token, err := redlock.TokenFromContext(ctx); err == nil {
				fmt.Println("leads", token, now.UnixMicro())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: timing.LeaseDuration, RenewDeadline: timing.RenewDeadline, RetryPeriod: timing.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			// The context is the elector's own, because these tests measure when the unmodified loop ends it.
			OnStartedLeading: func(ctx context.Context) { lead(redlock.NewContext(ctx, lock)) },
			OnStoppedLeading: func() { fmt.Println("stopped", 0, time.Now().UnixMicro()) },
			OnNewLeader:      func(identity string) { fmt.Println("follows", 0, time.Now().UnixMicro(), identity) },
		},
	})
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newPod creates a pod whose service account is an administrator. It returns the UID of the pod, and a file with its token.
func newPod(t *testing.T, name string) (uid types.UID, file string) {
	t.Helper()
	client, err := dynamic.NewForConfig(alone.Config)
	if err != nil {
		t.Fatal(err)
	}
	core := func(resource string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(servers.Namespace)
	}
	create := func(to dynamic.ResourceInterface, text string, subresources ...string) *unstructured.Unstructured {
		t.Helper()
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		made, err := to.Create(context.Background(), object, metav1.CreateOptions{}, subresources...)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	create(core("serviceaccounts"), fmt.Sprintf(`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": %q}}`, name))
	bindings := client.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"})
	create(bindings, fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": %q},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": [{"kind": "ServiceAccount", "name": %[1]q, "namespace": %q}]}`, name, servers.Namespace))
	pod := create(core("pods"), fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q},
		"spec": {"serviceAccountName": %[1]q, "containers": [{"name": "main", "image": "none"}]}}`, name))
	request := create(core("serviceaccounts"), fmt.Sprintf(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": {"name": %q}, "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": %[1]q, "uid": %q}}}`,
		name, pod.GetUID()), "token")
	token, _, _ := unstructured.NestedString(request.Object, "status", "token")
	file = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return pod.GetUID(), file
}

// process is one contender.
type process struct {
	*exec.Cmd
	mu                  sync.Mutex
	first, last         map[int64]time.Time
	stopped             time.Time
	leads               int64
	follows, complaints []string
	done                chan struct{}
}

func start(t *testing.T, key string, environment ...string) *process {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(append(os.Environ(), contender+"="+key, "KUBECONFIG="+alone.Kubeconfig), environment...)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	complaints, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: command, first: map[int64]time.Time{}, last: map[int64]time.Time{}, done: make(chan struct{})}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Add(2)
	go func() {
		defer reading.Done()
		for lines := bufio.NewScanner(complaints); lines.Scan(); {
			p.mu.Lock()
			p.complaints = append(p.complaints, lines.Text())
			p.mu.Unlock()
		}
	}()
	go func() {
		defer reading.Done()
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.record(lines.Text())
		}
	}()
	go func() { reading.Wait(); _ = command.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("process %d:\n%s", command.Process.Pid, strings.Join(p.complaints, "\n"))
		}
	})
	return p
}

func (p *process) record(line string) {
	var what, more string
	var token, micros int64
	_, _ = fmt.Sscan(line, &what, &token, &micros, &more)
	at := time.UnixMicro(micros)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch what {
	case "leads":
		if _, ok := p.first[token]; !ok {
			p.first[token] = at
		}
		p.last[token], p.leads = at, token
	case "stopped":
		p.stopped = at
	case "follows":
		p.follows = append(p.follows, more)
	}
}

func (p *process) read(read func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	read()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon + ttl); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// leader waits until one of the processes leads with a token above `than`.
func leader(t *testing.T, than int64, processes ...*process) (leads *process, token int64) {
	t.Helper()
	eventually(t, "one leads", func() bool {
		for _, p := range processes {
			p.read(func() {
				if p.leads > than {
					leads, token = p, p.leads
				}
			})
		}
		return leads != nil
	})
	return leads, token
}

func (p *process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}
