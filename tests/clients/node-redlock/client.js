// node-redlock for the end-to-end tests. Commands come on stdin,one per line. tests/e2e/libraries.rs lists them.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
// [snippet]
import Redis from "ioredis";
import Redlock from "redlock";

function connect(urls, ca) {
  const members = urls.map((url) => {
    const member = new Redis(url, {
      enableReadyCheck: false, // the check needs INFO, which lock clients cannot use
      autoResendUnfulfilledCommands: false, // do not repeat a SET after a reconnect, because no caller waits for it
      maxRetriesPerRequest: 0, // do not wait for an unreachable member
      commandTimeout: 200,
      connectTimeout: 500,
      retryStrategy: () => 200,
      ...(ca && { tls: { ca } }),
    });
    member.on("error", () => {}); // without a listener Node prints the error, or exits
    return member;
  });
  return { members, redlock: new Redlock(members, { retryCount: 0 }) };
}

async function reindex(redlock, key) {
  // Throws an ExecutionError when another client has it, or too few members answer.
  let lock = await redlock.acquire([key], 2_000);
  if (lock.expiration < Date.now()) return false; // the acquisition took too long. redlock does not check this
  /* work, until lock.expiration */
  lock = await lock.extend(2_000); // throws when the lock is lost
  /* work */
  await lock.release();
  return true;
}
// [end]

const ca = process.env.REDLOCK_CA && readFileSync(process.env.REDLOCK_CA);
const { members, redlock } = connect(process.env.REDLOCK_URLS.trim().split(/\s+/), ca);
let lock;

const held = () => (lock.expiration > Date.now() ? `held ${Date.now()} ${lock.expiration}` : "refused");

/** Acquires and releases its own key repeatedly, until the time has passed. */
async function work(key, until, measured) {
  while (performance.now() < until) {
    const began = performance.now();
    const mine = await redlock.acquire([key], 10_000).catch(() => undefined);
    if (!mine) {
      measured.failed++;
      continue;
    }
    const held = performance.now();
    await mine.release().catch(() => {});
    measured.acquires.push(held - began);
    measured.releases.push(performance.now() - held);
  }
}

function quantiles(times) {
  times.sort((a, b) => a - b);
  const at = (part) => Math.round((times[Math.floor((times.length - 1) * part)] ?? 0) * 1000);
  return `${at(0.5)} ${at(0.99)}`;
}

async function cycles(workers, milliseconds) {
  const measured = { failed: 0, acquires: [], releases: [] };
  const until = performance.now() + milliseconds;
  await Promise.all(Array.from({ length: workers }, (_, n) => work(`node-redlock${n}`, until, measured)));
  const { failed, acquires, releases } = measured;
  return `cycles ${acquires.length} ${failed} ${quantiles(acquires)} ${quantiles(releases)}`;
}

async function answer(command, ...words) {
  switch (command) {
    case "acquire":
      lock = await redlock.acquire([words[0]], Number(words[1]));
      return held();
    case "cycles":
      return cycles(Number(words[0]), Number(words[1]));
    case "example":
      return String(await reindex(redlock, words[0]));
    case "extend":
      lock = await lock.extend(Number(words[0]));
      return held();
    case "release":
      await lock.release();
      return "released";
    case "raw":
      return `ok ${await members[Number(words[0])].call(...words.slice(1))}`;
    default:
      return "unsupported";
  }
}

const taken = { acquire: "refused", example: "false" };
for await (const line of createInterface({ input: process.stdin })) {
  const words = line.split(" ");
  const said = await answer(...words).catch((error) =>
    error.name === "ExecutionError" && words[0] in taken ? taken[words[0]] : `error ${error.name} ${error.message}`,
  );
  console.log(said.replaceAll("\n", " "));
}
process.exit(0);
