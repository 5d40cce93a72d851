package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redlock-operator/redlock-operator/go/internal/servers"
)

const (
	example = "REDLOCK_TEST_EXAMPLE"
	soon    = time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(example) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start runs the example as a process, and returns the tokens that it prints.
func start(t *testing.T, alone *servers.Servers) (*exec.Cmd, <-chan int64) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), example+"=yes", "KUBECONFIG="+alone.Kubeconfig, "NAMESPACE="+servers.Namespace, "KEY=example")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	tokens := make(chan int64, 10_000)
	go func() {
		defer close(tokens)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var at, token int64
			if _, err := fmt.Sscanf(lines.Text(), "leads %d %d", &at, &token); err == nil {
				tokens <- token
			}
		}
		_ = command.Wait()
	}()
	return command, tokens
}

func leads(t *testing.T, tokens <-chan int64) int64 {
	t.Helper()
	select {
	case token, ok := <-tokens:
		if !ok {
			t.Fatal("it has ended")
		}
		return token
	case <-time.After(soon):
		t.Fatal("it does not lead")
	}
	return 0
}

// The module's own tests check the oldest client-go.
func TestThisClientGoEndsATermWithTheSameEvent(t *testing.T) {
	servers.EndsATerm(t, "stopped leading")
}

func TestAManagerLeadsUnderTheLockAndTheNextOneFollows(t *testing.T) {
	_ = os.Getenv("REDLOCK_KINDS") // see the module's own tests
	if os.Getenv(servers.Program) == "" {
		t.Skipf("set %s to a kube-apiserver", servers.Program)
	}
	alone, err := servers.Start("../../../crds")
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Stop()
	operator := alone.Operate(t, "example", 15*time.Second)
	one, ones := start(t, alone)
	first := leads(t, ones)
	_, twos := start(t, alone)
	if err := one.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second := leads(t, twos)
	if second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	if grants := operator.Grants(); len(grants) != 2 || grants[0].Ended != "Released" || grants[1].Token != second {
		t.Errorf("%+v", grants)
	}
}
