"""A client of `redlock agent` in one file. It needs only Linux and Python 3.8. Copy it into your program.

    agent = Agent("http://127.0.0.1:4040")              # or "unix:/shared/agent.sock"
    held = agent.leader()                               # None unless this process leads
    held = agent.acquire("shop/nightly", wait=30)       # None if another holder still has it
    while held and held.renew():
        step(held.token)                                # a short step, which ends before held.remaining() does

Use one process for each agent, because an agent serves the process that registered last.
"""
import http.client, json, socket, sys, time
from urllib.parse import quote, urlencode, urlsplit

MARGIN = 20  # the longest time in seconds that a request can take beyond its own wait


def now():
    """Seconds on the boot-time clock. All containers of a machine have the same one, and it also runs during suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class AgentError(Exception):
    """The agent refused a request, or does not answer."""


class Held:
    """A lock that this process holds. Work only while remaining() is above zero."""

    def __init__(self, agent, path, answer, asked):
        self._agent, self._path, self.token = agent, path, answer["fencingToken"]
        self._deadline = asked + answer["validForMs"] / 1000

    def remaining(self):
        """Seconds for which the lock is certain, as of the last answer."""
        return max(0.0, self._deadline - now())

    def renew(self):
        """Renews the validity with a request to the agent. False if the lock is lost, or if its validity has ended without an answer."""
        asked = now()
        try:
            status, answer = self._agent._ask("POST", self._path + "/renew", token=self.token)
        except AgentError:
            return self.remaining() > 0
        if status == 200 and answer["fencingToken"] == self.token:
            self._deadline = asked + answer["validForMs"] / 1000
        elif status != 503:
            self._deadline = 0.0
        return self.remaining() > 0

    def release(self):
        """Releases the lock. Stop your work first."""
        self._deadline = 0.0
        self._agent._ask("POST", self._path + "/release", token=self.token)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Agent:
    def __init__(self, address):
        self._address, self._instance = address, "none"

    def leader(self):
        """The lock of the agent's option --lock or --election, or None while this process does not lead."""
        asked = now()
        try:
            status, answer = self._served("GET", "/leader")
        except AgentError:
            return None
        held = Held(self, "/locks/" + quote(answer.get("lock", ""), safe=""), answer, asked) if status == 200 else None
        return held if held and held.remaining() > 0 else None

    def acquire(self, lock, wait=0, ttl=None, hold_for=None):
        """Takes a lock `<namespace>/<key>`. None if another holder still has it after `wait` seconds (at most 60)."""
        path = "/locks/" + quote(lock, safe="")
        seconds = {"wait": wait, "ttl": ttl, "holdFor": hold_for}
        times = {name: f"{round(span * 1000)}ms" for name, span in seconds.items() if span}
        asked = now()
        status, answer = self._served("POST", path + "/acquire", wait, **times)
        if status != 200:
            if answer.get("reason") in ("HeldByOther", "NotHeld", "HeldBefore"):
                return None
            raise AgentError(answer.get("detail", status))
        held = Held(self, path, answer, asked)
        # The validity of this answer begins before the wait. One more request makes it begin now.
        return held if held.renew() else None

    def close(self):
        """Releases all locks of this program. Call it when the program has ended its work."""
        self._ask("POST", "/unregister")

    def _served(self, method, path, patience=0, **query):
        """Sends a request as a registered instance, and registers it if needed. A restarted agent has no instances."""
        status, answer = self._ask(method, path, patience, **query)
        if answer.get("reason") in ("NotServed", "NotRegistered"):
            self._instance = self._ask("POST", "/register")[1].get("instance", "none")
            status, answer = self._ask(method, path, patience, **query)
        return status, answer

    def _ask(self, method, path, patience=0, **query):
        if path != "/register":
            query["instance"] = self._instance
            path += "?" + urlencode({name: value for name, value in query.items() if value})
        try:
            connection = self._connect(patience + MARGIN)
            connection.request(method, path, headers={"X-Redlock": "1"})
            response = connection.getresponse()
            text = response.read()
            connection.close()
            return response.status, json.loads(text) if text.startswith(b"{") else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AgentError(f"{self._address} does not answer: {error}") from error

    def _connect(self, timeout):
        if not self._address.startswith("unix:"):
            return http.client.HTTPConnection(urlsplit(self._address).netloc, timeout=timeout)
        connection = http.client.HTTPConnection("localhost", timeout=timeout)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout)
        connection.sock.connect(self._address[5:])
        return connection


def main(address, lock=None):
    """Without a lock argument: works while it leads. With a lock: takes it, waits for a line of input, and releases it."""
    agent = Agent(address)
    while lock is None:
        leads = agent.leader()
        if leads:
            print("works with token", leads.token, flush=True)
        time.sleep(0.2)
    held = agent.acquire(lock, wait=1.5)
    if held is None:
        sys.exit("taken")
    print("works with token", held.token, flush=True)
    sys.stdin.readline()
    assert held.renew()
    agent.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
