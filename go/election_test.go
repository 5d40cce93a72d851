package redlock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"

	redlock "github.com/redlock-operator/redlock-operator/go"
	"github.com/redlock-operator/redlock-operator/go/internal/servers"
)

const (
	ttl  = 15 * time.Second
	soon = 30 * time.Second
	// The test binary runs one contender when this is set.
	contender = "REDLOCK_TEST_CONTENDER"
)

var alone *servers.Servers

func TestMain(m *testing.M) {
	if key := os.Getenv(contender); key != "" {
		contend(key)
		return
	}
	os.Exit(func() int {
		// Go keeps the result of a test until a file of the module or a variable that it reads changes. The kinds are elsewhere.
		_ = os.Getenv("REDLOCK_KINDS")
		if os.Getenv(servers.Program) != "" {
			var err error
			if alone, err = servers.Start("../crds"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer alone.Stop()
		}
		return m.Run()
	}())
}

// contend runs client-go's loop as it is. While it leads it prints its token and the time, and in the end how it ended.
func contend(key string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	fatal(err)
	lock, err := redlock.New(ctx, config, redlock.Options{Namespace: servers.Namespace, Key: key, TTL: ttl})
	fatal(err)
	timing := lock.Timing()
	lead := func(ctx context.Context) {
		for ctx.Err() == nil {
			// The time is read before the token: what is printed was true then.
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
			// The context is the elector's own here, so that these tests see when the unmodified loop ends it.
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

// process is one contender.
type process struct {
	*exec.Cmd
	mu            sync.Mutex
	first, last   map[int64]time.Time
	stopped       time.Time
	leads         int64
	follows, said []string
	done          chan struct{}
}

func start(t *testing.T, key string) *process {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), contender+"="+key, "KUBECONFIG="+alone.Kubeconfig)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errors, err := command.StderrPipe()
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
		for lines := bufio.NewScanner(errors); lines.Scan(); {
			p.mu.Lock()
			p.said = append(p.said, lines.Text())
			p.mu.Unlock()
		}
	}()
	go func() {
		defer reading.Done()
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.hear(lines.Text())
		}
	}()
	go func() { reading.Wait(); _ = command.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("process %d:\n%s", command.Process.Pid, strings.Join(p.said, "\n"))
		}
	})
	return p
}

func (p *process) hear(line string) {
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

// check holds what the processes believed against what was granted.
func check(t *testing.T, operator *servers.Operator, processes ...*process) {
	t.Helper()
	grants := operator.Grants()
	t.Logf("granted: %+v", grants)
	byToken := map[int64]servers.Grant{}
	for index, grant := range grants {
		byToken[grant.Token] = grant
		if index > 0 && grant.Token <= grants[index-1].Token {
			t.Errorf("token %d after %d", grant.Token, grants[index-1].Token)
		}
	}
	type term struct{ first, last time.Time }
	var terms []term
	for _, p := range processes {
		p.read(func() {
			for token, first := range p.first {
				last, grant := p.last[token], byToken[token]
				if first.Before(grant.From) || last.After(grant.Until) {
					t.Errorf("token %d: led from %s to %s, granted from %s to %s", token, first, last, grant.From, grant.Until)
				}
				for _, other := range terms {
					if first.Before(other.last) && other.first.Before(last) {
						t.Errorf("two led at once: %v and %v", other, term{first, last})
					}
				}
				terms = append(terms, term{first, last})
			}
		})
	}
	if len(terms) == 0 {
		t.Error("no one has led")
	}
}

func need(t *testing.T) {
	t.Helper()
	if alone == nil {
		t.Skipf("set %s to a kube-apiserver", servers.Program)
	}
}

func TestTheNextProcessFollowsAKilledLeaderAndAReleaseIsTheHoldersWord(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "failover", ttl)
	one, two := start(t, "failover"), start(t, "failover")
	killed, token := leader(t, 0, one, two)
	other := one
	if killed == one {
		other = two
	}
	eventually(t, "the other one knows who leads", func() (knows bool) {
		other.read(func() { knows = len(other.follows) > 0 })
		return knows
	})
	// Longer than a ttl: it is renewed.
	eventually(t, "it leads on", func() (leads bool) {
		killed.read(func() { leads = killed.last[token].Sub(killed.first[token]) > ttl+time.Second })
		return leads
	})
	killed.signal(t, syscall.SIGKILL)
	_, second := leader(t, token, other)
	third := start(t, "failover")
	eventually(t, "the third one waits", func() (waits bool) {
		third.read(func() { waits = len(third.follows) > 0 })
		return waits
	})
	other.signal(t, syscall.SIGTERM)
	leader(t, second, third)
	<-other.done
	check(t, operator, one, two, third)
	grants := operator.Grants()
	if grants[0].Ended != "HeartbeatLost" || grants[1].Ended != "Released" || !grants[2].From.Before(grants[1].Until) {
		t.Error("the first hold ends with its heartbeat, and the second one by its release before its validity has ended")
	}
}

func TestALeaderStopsBeforeAValidityThatIsNotRenewedEnds(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "silence", ttl)
	one := start(t, "silence")
	leader(t, 0, one)
	operator.Silent.Store(true)
	<-one.done
	endedInTime(t, operator, one)
}

// endedInTime: the loop has stopped before the published validity ended, and has used a good part of it.
func endedInTime(t *testing.T, operator *servers.Operator, one *process) {
	t.Helper()
	check(t, operator, one)
	until := operator.Grants()[0].Until
	one.read(func() {
		if one.stopped.IsZero() || one.stopped.After(until) || until.Sub(one.stopped) > ttl/3 {
			t.Errorf("stopped at %s, valid until %s", one.stopped, until)
		}
	})
}

func TestALeaderWhoseHoldIsBrokenStopsWhileItIsStillValid(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "broken", ttl)
	one := start(t, "broken")
	_, token := leader(t, 0, one)
	operator.Break.Store(token)
	<-one.done
	check(t, operator, one)
	one.read(func() {
		if until := operator.Grants()[0].Until; !one.stopped.Before(until) {
			t.Errorf("stopped at %s, valid until %s", one.stopped, until)
		}
	})
	eventually(t, "the hold has run out", func() bool { return operator.Grants()[0].Ended != "" })
	if ended := operator.Grants()[0].Ended; ended == "Released" {
		t.Error("a hold that was lost is not the process's to release")
	}
}

func TestAProcessThatWasStoppedDoesNotLeadWhenItGoesOn(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "stopped", ttl)
	one := start(t, "stopped")
	_, token := leader(t, 0, one)
	one.signal(t, syscall.SIGSTOP)
	two := start(t, "stopped")
	leader(t, token, two)
	one.signal(t, syscall.SIGCONT)
	<-one.done
	check(t, operator, one, two)
}

func TestAProcessThatStopsToWaitTakesItsClaimBack(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "waits", ttl)
	operator.Silent.Store(true)
	one := start(t, "waits")
	client, err := dynamic.NewForConfig(alone.Config)
	if err != nil {
		t.Fatal(err)
	}
	claims := client.Resource(schema.GroupVersionResource{Group: "redlock-operator.io", Version: "v1alpha1", Resource: "distributedlocks"})
	count := func() (count int) {
		list, err := claims.Namespace(servers.Namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, claim := range list.Items {
			if strings.HasPrefix(claim.GetName(), "waits-") {
				count++
			}
		}
		return count
	}
	eventually(t, "it queues", func() bool { return count() == 1 })
	one.signal(t, syscall.SIGTERM)
	<-one.done
	eventually(t, "its claim is gone", func() bool { return count() == 0 })
}

// This one comes after the parallel ones have begun to wait, and runs before them: tests of Go do so.
func TestALeaderStopsInTimeWhenTheAPIServerIsFrozen(t *testing.T) {
	need(t)
	operator := alone.Operate(t, "frozen", ttl)
	one := start(t, "frozen")
	leader(t, 0, one)
	if err := alone.APIServer.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The stand-in hangs in a request, so it publishes nothing.
	<-one.done
	if err := alone.APIServer.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	endedInTime(t, operator, one)
}

func TestAnElectorWithClientGosDefaultsIsRefusedBeforeItLeads(t *testing.T) {
	need(t)
	t.Parallel()
	operator := alone.Operate(t, "defaults", 30*time.Second)
	lock, err := redlock.New(context.Background(), alone.Config, redlock.Options{Namespace: servers.Namespace, Key: "defaults"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { t.Error("it leads") },
			OnStoppedLeading: func() {},
		},
	})
	eventually(t, "a grant", func() bool { return len(operator.Grants()) > 0 })
	time.Sleep(time.Second)
	if _, err := lock.Token(); err == nil {
		t.Error("it holds")
	}
}
