"""pottery for the end-to-end tests. Commands come on stdin,one per line. tests/e2e/libraries.rs lists them."""

import os
import sys
import threading
import time

# [snippet]
import redis
from pottery import Redlock
from redis.backoff import NoBackoff
from redis.retry import Retry


class PlainRedlock(Redlock):
    """pottery adds "redlock:" to the beginning of every key. This class uses the key unchanged. Acquire it with
    blocking=False in a loop of your own, because the blocking mode splits the key at its colon."""

    @property
    def key(self):
        return self.plain_key

    @key.setter
    def key(self, value):
        self.plain_key = value


def connect(urls, ca=None):
    options = {"socket_timeout": 0.2, "socket_connect_timeout": 0.5, "retry": Retry(NoBackoff(), 0)}
    if ca:
        options["ssl_ca_certs"] = ca
    return {redis.Redis.from_url(url, **options) for url in urls}


def reindex(masters, key):
    lock = PlainRedlock(key=key, masters=masters, auto_release_time=2)
    if not lock.acquire(blocking=False):
        return False  # another client has it, or too few members answer
    ...  # work, for at most lock.locked() seconds
    lock.extend()  # raises when the lock is lost. num_extensions limits the number of extensions (default: 3)
    ...  # work
    lock.release()
    return True


# [end]


def now():
    return int(time.time() * 1000)


def held(lock):
    asked = now()
    remaining = int(lock.locked() * 1000)
    return f"held {now()} {asked + remaining}" if remaining else "refused"


def work(masters, key, until, measured):
    """Acquires and releases its own key repeatedly, until the time has passed."""
    failed, acquires, releases = measured
    while time.perf_counter() < until:
        lock = PlainRedlock(key=key, masters=masters, auto_release_time=10)
        began = time.perf_counter()
        try:
            taken = lock.acquire(blocking=False)
        except Exception:  # every error is a failed attempt
            taken = False
        if not taken:
            failed.append(began)
            continue
        locked = time.perf_counter()
        try:
            lock.release()
        except Exception:  # a failed release ends the cycle, too
            pass
        acquires.append(locked - began)
        releases.append(time.perf_counter() - locked)


def quantiles(times):
    ordered = sorted(times) or [0]
    return " ".join(str(round(ordered[int((len(ordered) - 1) * part)] * 1e6)) for part in (0.5, 0.99))


def cycles(masters, workers, milliseconds):
    measured = failed, acquires, releases = [], [], []
    until = time.perf_counter() + milliseconds / 1000
    threads = [threading.Thread(target=work, args=(masters, f"pottery{n}", until, measured)) for n in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"cycles {len(acquires)} {len(failed)} {quantiles(acquires)} {quantiles(releases)}"


def answer(masters, state, command, *words):
    if command == "acquire":
        ttl = int(words[1]) / 1000
        lock = PlainRedlock(key=words[0], masters=masters, auto_release_time=ttl, num_extensions=1000)
        if not lock.acquire(blocking=False):
            return "refused"
        state["lock"] = lock
        return held(lock)
    if command == "cycles":
        return cycles(masters, int(words[0]), int(words[1]))
    if command == "example":
        return str(reindex(masters, words[0])).lower()
    if command == "extend":
        state["lock"].extend()
        return held(state["lock"])
    if command == "release":
        state.pop("lock").release()
        return "released"
    return "unsupported"


def main():
    masters = connect(os.environ["REDLOCK_URLS"].split(), os.environ.get("REDLOCK_CA"))
    state = {}
    for line in sys.stdin:
        try:
            print(answer(masters, state, *line.split()), flush=True)
        except Exception as error:  # the test reads what went wrong
            print(f"error {type(error).__name__} {error}".replace("\n", " "), flush=True)


main()
