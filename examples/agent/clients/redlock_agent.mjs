// A client of `redlock agent` in one file. It needs only Node 18. Copy it into your program.
//
//   const agent = new Agent("http://127.0.0.1:4040");       // or "unix:/shared/agent.sock"
//   const leads = await agent.leader();                      // null unless this process leads
//   const held = await agent.acquire("shop/nightly", { wait: 30 });
//   while (held && await held.renew()) await step(held.token); // a short step, which ends before held.remaining() does
//   await held?.release();
//
// Use one process for each agent, because an agent serves the process that registered last.
import { once } from "node:events";
import http from "node:http";
import { fileURLToPath } from "node:url";

const MARGIN = 20_000; // the longest time in milliseconds that a request can take beyond its own wait

// Milliseconds on a clock that no user can set. It stops while the machine is suspended.
const now = () => performance.now();

/** The agent refused a request, or does not answer. */
export class AgentError extends Error {}

/** A lock that this process holds. Work only while remaining() is above zero. */
class Held {
  constructor(agent, path, answer, asked) {
    Object.assign(this, { agent, path, token: answer.fencingToken, deadline: asked + answer.validForMs });
  }

  /** Milliseconds for which the lock is certain, as of the last answer. */
  remaining() {
    return Math.max(0, this.deadline - now());
  }

  /** Renews the validity with a request to the agent. False if the lock is lost, or if its validity has ended without an answer. */
  async renew() {
    const asked = now();
    try {
      const { status, answer } = await this.agent.ask("POST", `${this.path}/renew`, { token: this.token });
      if (status === 200 && answer.fencingToken === this.token) this.deadline = asked + answer.validForMs;
      else if (status !== 503) this.deadline = 0;
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
    }
    return this.remaining() > 0;
  }

  /** Releases the lock. Stop your work first. */
  async release() {
    this.deadline = 0;
    await this.agent.ask("POST", `${this.path}/release`, { token: this.token });
  }
}

export class Agent {
  #instance = "none";
  #target;

  constructor(address) {
    if (address.startsWith("unix:")) this.#target = { socketPath: address.slice(5), host: "localhost" };
    else this.#target = { host: new URL(address).hostname.replace(/[[\]]/g, ""), port: new URL(address).port || 80 };
  }

  /** The lock of the agent's option --lock or --election, or null while this process does not lead. */
  async leader() {
    const asked = now();
    try {
      const { status, answer } = await this.#served("GET", "/leader");
      if (status !== 200) return null;
      const held = new Held(this, `/locks/${encodeURIComponent(answer.lock)}`, answer, asked);
      return held.remaining() > 0 ? held : null;
    } catch (error) {
      if (error instanceof AgentError) return null;
      throw error;
    }
  }

  /** Takes a lock `<namespace>/<key>`, with times in seconds. Null if another holder still has it after `wait` (at most 60 s). */
  async acquire(lock, { wait = 0, ttl = 0, holdFor = 0 } = {}) {
    const path = `/locks/${encodeURIComponent(lock)}`;
    const millis = (seconds) => seconds && `${Math.round(seconds * 1000)}ms`;
    const times = { wait: millis(wait), ttl: millis(ttl), holdFor: millis(holdFor) };
    const asked = now();
    const { status, answer } = await this.#served("POST", `${path}/acquire`, times, wait);
    if (["HeldByOther", "NotHeld", "HeldBefore"].includes(answer.reason)) return null;
    if (status !== 200) throw new AgentError(answer.detail ?? status);
    const held = new Held(this, path, answer, asked);
    // The validity of this answer begins before the wait. One more request makes it begin now.
    return (await held.renew()) ? held : null;
  }

  /** Releases all locks of this program. Call it when the program has ended its work. */
  async close() {
    await this.ask("POST", "/unregister");
  }

  /** Sends a request as a registered instance, and registers it if needed. A restarted agent has no instances. */
  async #served(method, path, query, wait) {
    const first = await this.ask(method, path, query, wait);
    if (!["NotServed", "NotRegistered"].includes(first.answer.reason)) return first;
    this.#instance = (await this.ask("POST", "/register")).answer.instance ?? "none";
    return this.ask(method, path, query, wait);
  }

  async ask(method, path, query = {}, wait = 0) {
    const named = Object.entries({ ...query, instance: this.#instance }).filter(([, value]) => value);
    const full = path === "/register" ? path : `${path}?${new URLSearchParams(named)}`;
    try {
      const signal = AbortSignal.timeout(wait * 1000 + MARGIN);
      const request = http.request({ ...this.#target, method, path: full, headers: { "X-Redlock": "1" }, signal });
      request.end();
      const [response] = await once(request, "response", { signal });
      let text = "";
      for await (const part of response) text += part;
      return { status: response.statusCode, answer: text.startsWith("{") ? JSON.parse(text) : {} };
    } catch (error) {
      throw new AgentError(`the agent does not answer: ${error.message}`);
    }
  }
}

// Without a lock argument: works while it leads. With a lock: takes it, waits for a line of input, and releases it.
async function main(address, lock) {
  const agent = new Agent(address);
  for (; !lock; await new Promise((resolve) => setTimeout(resolve, 200))) {
    const leads = await agent.leader();
    if (leads) console.log(`works with token ${leads.token}`);
  }
  const held = await agent.acquire(lock, { wait: 1.5 });
  if (!held) {
    console.error("taken");
    process.exit(1);
  }
  console.log(`works with token ${held.token}`);
  await Promise.race([once(process.stdin, "data"), once(process.stdin, "end")]);
  if (!(await held.renew())) throw new Error("lost");
  await agent.close();
  process.exit(0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(...process.argv.slice(2));
