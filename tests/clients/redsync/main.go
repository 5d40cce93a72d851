// redsync for the end-to-end tests. Commands come on stdin,one per line. tests/e2e/libraries.rs lists them.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
)

// [snippet]
import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func connect(urls []string, ca []byte) (*redsync.Redsync, []*redis.Client, error) {
	var members []*redis.Client
	var pools []redsyncredis.Pool
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			return nil, nil, err
		}
		if ca != nil {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(ca)
			options.TLSConfig = &tls.Config{RootCAs: roots, ServerName: strings.Split(options.Addr, ":")[0]}
		}
		options.MaxRetries = -1 // a repeated SET fails because of the key that the first one set
		options.DialTimeout, options.ReadTimeout = 500*time.Millisecond, 200*time.Millisecond
		// These options disable commands that lock clients cannot use.
		options.DisableIdentity = true
		options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		member := redis.NewClient(options)
		members, pools = append(members, member), append(pools, goredis.NewPool(member))
	}
	return redsync.New(pools...), members, nil
}

func reindex(locks *redsync.Redsync, key string) bool {
	// Do not use redsync.WithSetNXOnExtend, because it acquires an expired lock again.
	lock := locks.NewMutex(key, redsync.WithExpiry(2*time.Second), redsync.WithTries(1))
	if lock.Lock() != nil {
		return false // another client has it, or too few members answer
	}
	defer lock.Unlock()
	// Work until lock.Until(). Extend makes this time later.
	if extended, _ := lock.Extend(); !extended {
		return false // the lock is lost
	}
	// Work.
	return time.Now().Before(lock.Until())
}

// [end]

type client struct {
	locks   *redsync.Redsync
	members []*redis.Client
	lock    *redsync.Mutex
}

func (c *client) held() string {
	now := time.Now()
	if !now.Before(c.lock.Until()) {
		return "refused"
	}
	return fmt.Sprintf("held %d %d", now.UnixMilli(), c.lock.Until().UnixMilli())
}

// The measurements of one worker.
type measured struct {
	failed             int
	acquires, releases []time.Duration
}

// Acquires and releases its own key repeatedly, until the time has passed.
func work(locks *redsync.Redsync, key string, until time.Time) (m measured) {
	for time.Now().Before(until) {
		lock := locks.NewMutex(key, redsync.WithExpiry(10*time.Second), redsync.WithTries(1))
		began := time.Now()
		if lock.Lock() != nil {
			m.failed++
			continue
		}
		held := time.Now()
		lock.Unlock()
		m.acquires = append(m.acquires, held.Sub(began))
		m.releases = append(m.releases, time.Since(held))
	}
	return m
}

func quantiles(times []time.Duration) string {
	if len(times) == 0 {
		return "0 0"
	}
	slices.Sort(times)
	at := func(part float64) int64 { return times[int(float64(len(times)-1)*part)].Microseconds() }
	return fmt.Sprint(at(0.5), " ", at(0.99))
}

func cycles(locks *redsync.Redsync, workers, milliseconds int) string {
	until := time.Now().Add(time.Duration(milliseconds) * time.Millisecond)
	each := make([]measured, workers)
	var running sync.WaitGroup
	for n := range workers {
		running.Go(func() { each[n] = work(locks, fmt.Sprint("redsync", n), until) })
	}
	running.Wait()
	var all measured
	for _, m := range each {
		all.failed += m.failed
		all.acquires, all.releases = append(all.acquires, m.acquires...), append(all.releases, m.releases...)
	}
	return fmt.Sprint("cycles ", len(all.acquires), " ", all.failed, " ", quantiles(all.acquires), " ", quantiles(all.releases))
}

func (c *client) answer(words []string) (string, error) {
	ctx := context.Background()
	switch words[0] {
	case "acquire":
		ttl, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		expiry := redsync.WithExpiry(time.Duration(ttl) * time.Millisecond)
		c.lock = c.locks.NewMutex(words[1], expiry, redsync.WithTries(1), redsync.WithTimeoutFactor(0.1))
		if c.lock.Lock() != nil {
			return "refused", nil
		}
		return c.held(), nil
	case "cycles":
		workers, first := strconv.Atoi(words[1])
		milliseconds, second := strconv.Atoi(words[2])
		if err := errors.Join(first, second); err != nil {
			return "", err
		}
		return cycles(c.locks, workers, milliseconds), nil
	case "example":
		return fmt.Sprint(reindex(c.locks, words[1])), nil
	case "extend":
		if ok, err := c.lock.Extend(); !ok {
			return "", errors.Join(errors.New("not extended"), err)
		}
		return c.held(), nil
	case "release":
		if ok, err := c.lock.Unlock(); !ok {
			return "", errors.Join(errors.New("not released"), err)
		}
		return "released", nil
	case "raw":
		member, err := strconv.Atoi(words[1])
		if err != nil {
			return "", err
		}
		var command []any
		for _, word := range words[2:] {
			command = append(command, word)
		}
		answer, err := c.members[member].Do(ctx, command...).Result()
		if err == redis.Nil {
			return "ok", nil
		}
		return fmt.Sprint("ok ", answer), err
	}
	return "unsupported", nil
}

func run() error {
	var ca []byte
	if file := os.Getenv("REDLOCK_CA"); file != "" {
		read, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		ca = read
	}
	locks, members, err := connect(strings.Fields(os.Getenv("REDLOCK_URLS")), ca)
	if err != nil {
		return err
	}
	c := &client{locks: locks, members: members}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		said, err := c.answer(strings.Fields(lines.Text()))
		if err != nil {
			said = fmt.Sprint("error ", err)
		}
		fmt.Println(strings.ReplaceAll(said, "\n", " "))
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
