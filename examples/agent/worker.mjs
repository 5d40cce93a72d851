// Works while this instance leads. Its argument is the agent: http://127.0.0.1:4040
const agent = process.argv[2];

async function ask(method, path) {
  try {
    const options = { method, headers: { "X-Redlock": "1" }, signal: AbortSignal.timeout(2000) };
    return await (await fetch(agent + path, options)).json();
  } catch {
    return {}; // the agent does not answer
  }
}

for (let instance = "none"; ; await new Promise((resolve) => setTimeout(resolve, 200))) {
  const asked = performance.now(); // before the request, so that a delay only shortens the validity
  const answer = await ask("GET", `/leader?instance=${instance}`);
  if (answer.reason === "NotServed") {
    instance = (await ask("POST", "/register")).instance; // the application or the agent has just started
  } else if (performance.now() < asked + (answer.validForMs ?? 0)) {
    console.log(`works with token ${answer.fencingToken}`); // work only until validForMs have passed
  }
}
