// A client of `redlock agent` in one file, with the standard library only. Copy it into your program, without main and the imports log and os.
//
//	held, err := NewAgent("http://127.0.0.1:4040").Acquire("shop/nightly", 30*time.Second) // or unix:/shared/agent.sock
//	for held != nil && held.Renew() {
//		step(held.Token) // a short step, which ends before held.Remaining() does
//	}
//
// Use one process for each agent, because an agent serves the process that registered last.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

type answer struct {
	Lock, Instance, Reason, Detail string
	FencingToken, ValidForMs       int64
	status                         int
	err                            error
}

// Agent is a connection of one process to its agent. Use it from one goroutine.
type Agent struct {
	transport         *http.Transport
	address, instance string
}

// Held is a lock that this process holds. Work only while Remaining is above zero.
type Held struct {
	Token    int64
	agent    *Agent
	path     string
	deadline time.Time // on the monotonic clock, which stops while the machine is suspended
}

func NewAgent(address string) *Agent {
	transport := &http.Transport{}
	if file, isFile := strings.CutPrefix(address, "unix:"); isFile {
		address = "http://localhost"
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", file) }
	}
	return &Agent{transport, address, "none"}
}

// Leader is the lock of the agent's option --lock or --election, or nil while this process does not lead.
func (agent *Agent) Leader() *Held {
	asked := time.Now()
	reply := agent.served("GET", "/leader", url.Values{}, 0)
	held := &Held{reply.FencingToken, agent, "/locks/" + url.PathEscape(reply.Lock), asked.Add(reply.validity())}
	if reply.status != http.StatusOK || held.Remaining() <= 0 {
		return nil
	}
	return held
}

// Acquire takes a lock `<namespace>/<key>`. It returns nil if another holder still has it after the wait (at most 60 s).
func (agent *Agent) Acquire(lock string, wait time.Duration) (*Held, error) {
	path := "/locks/" + url.PathEscape(lock)
	asked := time.Now()
	reply := agent.served("POST", path+"/acquire", url.Values{"wait": {fmt.Sprint(wait.Milliseconds(), "ms")}}, wait)
	held := &Held{reply.FencingToken, agent, path, asked.Add(reply.validity())}
	if reply.status == http.StatusOK && held.Renew() { // the validity began before the wait, and Renew makes it begin now
		return held, nil
	} else if reply.err != nil || reply.status == http.StatusOK || reply.Reason == "HeldByOther" || reply.Reason == "NotHeld" || reply.Reason == "HeldBefore" {
		return nil, reply.err
	}
	return nil, fmt.Errorf("the agent refused: %s", reply.Detail)
}

// Close releases all locks of this program. Call it when the program has ended its work.
func (agent *Agent) Close() error { return agent.ask("POST", "/unregister", url.Values{}, 0).err }

// Remaining is the time for which the lock is certain, as of the last answer.
func (held *Held) Remaining() time.Duration { return time.Until(held.deadline) }

// Renew renews the validity with a request to the agent. It is false if the lock is lost, or if its validity has ended without an answer.
func (held *Held) Renew() bool {
	asked := time.Now()
	reply := held.agent.ask("POST", held.path+"/renew", held.token(), 0)
	if reply.status == http.StatusOK && reply.FencingToken == held.Token {
		held.deadline = asked.Add(reply.validity())
	} else if reply.err == nil && reply.status != http.StatusServiceUnavailable {
		held.deadline = time.Time{}
	}
	return held.Remaining() > 0
}

// Release releases the lock. Stop your work first.
func (held *Held) Release() error {
	held.deadline = time.Time{}
	return held.agent.ask("POST", held.path+"/release", held.token(), 0).err
}

func (held *Held) token() url.Values     { return url.Values{"token": {fmt.Sprint(held.Token)}} }
func (a answer) validity() time.Duration { return time.Duration(a.ValidForMs) * time.Millisecond }

// served sends a request as a registered instance, and registers it if needed. A restarted agent has no instances.
func (agent *Agent) served(method, path string, query url.Values, wait time.Duration) answer {
	if reply := agent.ask(method, path, query, wait); reply.Reason != "NotServed" && reply.Reason != "NotRegistered" {
		return reply
	}
	agent.instance = agent.ask("POST", "/register", nil, 0).Instance
	return agent.ask(method, path, query, wait)
}

func (agent *Agent) ask(method, path string, query url.Values, wait time.Duration) (reply answer) {
	if query != nil {
		query.Set("instance", agent.instance)
		path += "?" + query.Encode()
	}
	request, err := http.NewRequest(method, agent.address+path, nil)
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("X-Redlock", "1")
	response, err := (&http.Client{Transport: agent.transport, Timeout: wait + 20*time.Second}).Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&reply) // some answers have no body
	reply.status = response.StatusCode
	return
}

// Without a lock argument: works while it leads. With a lock: takes it, waits for a line of input, and releases it.
func main() {
	agent := NewAgent(os.Args[1])
	for ; len(os.Args) == 2; time.Sleep(200 * time.Millisecond) {
		if leads := agent.Leader(); leads != nil {
			fmt.Println("works with token", leads.Token)
		}
	}
	held, err := agent.Acquire(os.Args[2], 1500*time.Millisecond)
	if held == nil {
		log.Fatal("taken ", err)
	}
	fmt.Println("works with token", held.Token)
	_, _ = fmt.Scanln()
	_ = held.Release()
}
