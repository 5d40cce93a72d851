// node-redlock for the end-to-end tests. Commands come on stdin, one per line; tests/e2e/libraries.rs says which.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
// [snippet]
import Redis from "ioredis";
import Redlock from "redlock";

function connect(urls, ca) {
  const members = urls.map((url) => {
    const member = new Redis(url, {
      enableReadyCheck: false, // it asks INFO, which lock clients may not
      autoResendUnfulfilledCommands: false, // a SET must not come again after a reconnect, when nobody waits for it
      maxRetriesPerRequest: 0, // a member that is away has not voted: do not wait for it
      commandTimeout: 200,
      connectTimeout: 500,
      retryStrategy: () => 200,
      ...(ca && { tls: { ca } }),
    });
    member.on("error", () => {}); // without a listener Node prints, or ends
    return member;
  });
  return { members, redlock: new Redlock(members, { retryCount: 0 }) };
}

// const { redlock } = connect(readFileSync("/client/urls", "utf8").trim().split("\n"));
// let lock = await redlock.acquire(["shop/reindex"], 10_000); // throws when it is taken
// lock = await lock.extend(10_000);                           // work until lock.expiration
// await lock.release();
// [end]

const ca = process.env.REDLOCK_CA && readFileSync(process.env.REDLOCK_CA);
const { members, redlock } = connect(process.env.REDLOCK_URLS.trim().split(/\s+/), ca);
let lock;

const held = () => (lock.expiration > Date.now() ? `held ${Date.now()} ${lock.expiration}` : "refused");

async function answer(command, ...words) {
  switch (command) {
    case "acquire":
      lock = await redlock.acquire([words[0]], Number(words[1]));
      return held();
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

for await (const line of createInterface({ input: process.stdin })) {
  const words = line.split(" ");
  const said = await answer(...words).catch((error) =>
    error.name === "ExecutionError" && words[0] === "acquire" ? "refused" : `error ${error.name} ${error.message}`,
  );
  console.log(said.replaceAll("\n", " "));
}
process.exit(0);
