"""redlock-py for the end-to-end tests. Commands come on stdin,one per line. tests/e2e/libraries.rs lists them."""

import os
import sys

# [snippet]
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redlock import Redlock


class Member(redis.Redis):
    """A member. Its error is only a missing vote. Otherwise redlock-py releases the lock when any member fails, even if a
    majority voted for it."""

    def set(self, *args, **kwargs):
        try:
            return super().set(*args, **kwargs)
        except redis.RedisError:
            return None


def connect(urls, ca=None):
    options = {"socket_timeout": 0.2, "socket_connect_timeout": 0.5, "retry": Retry(NoBackoff(), 0)}
    if ca:
        options["ssl_ca_certs"] = ca
    return Redlock([Member.from_url(url, **options) for url in urls], retry_count=1)


def reindex(manager, key):
    lock = manager.lock(key, 2_000)
    if not lock:
        return False  # another client has it, or too few members answer
    deadline = time.monotonic() + lock.validity / 1000
    ...  # work, and stop at the deadline, because redlock-py cannot extend a lock
    manager.unlock(lock)
    return time.monotonic() < deadline


# [end]


def now():
    return int(time.time() * 1000)


def answer(manager, state, command, *words):
    if command == "acquire":
        lock = manager.lock(words[0], int(words[1]))
        if not lock:
            return "refused"
        state["lock"] = lock
        return f"held {now()} {now() + lock.validity}"
    if command == "example":
        return str(reindex(manager, words[0])).lower()
    if command == "plain":  # without the class Member
        plain = Redlock([redis.Redis.from_url(url) for url in os.environ["REDLOCK_URLS"].split()], retry_count=1)
        return f"ok {plain.lock(words[0], int(words[1]))}"
    if command == "release":
        manager.unlock(state.pop("lock"))
        return "released"
    if command == "raw":
        try:
            return f"ok {manager.servers[int(words[0])].execute_command(*words[1:])}".replace("\n", " ")
        except redis.RedisError as error:
            return f"error {error}"
    return "unsupported"


def main():
    manager = connect(os.environ["REDLOCK_URLS"].split(), os.environ.get("REDLOCK_CA"))
    state = {}
    for line in sys.stdin:
        try:
            print(answer(manager, state, *line.split()), flush=True)
        except Exception as error:  # the test reads the error
            print(f"error {type(error).__name__} {error}".replace("\n", " "), flush=True)


main()
