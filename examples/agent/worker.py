"""Works while this instance leads. Its argument is the agent: http://127.0.0.1:4040"""
import json, sys, time, urllib.error, urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # without a proxy, because the agent is on this machine


def ask(method, path):
    request = urllib.request.Request(sys.argv[1] + path, method=method, headers={"X-Redlock": "1"})
    try:
        with direct.open(request, timeout=2) as response:
            return json.load(response)
    except urllib.error.HTTPError as refused:
        return json.load(refused)
    except OSError:
        return {}  # the agent does not answer


instance = "none"
while True:
    asked = time.clock_gettime(time.CLOCK_BOOTTIME)  # before the request, so that a delay only shortens the validity
    answer = ask("GET", f"/leader?instance={instance}")
    deadline = asked + answer.get("validForMs", 0) / 1000
    if answer.get("reason") == "NotServed":  # the application or the agent has just started
        instance = ask("POST", "/register").get("instance")
    elif time.clock_gettime(time.CLOCK_BOOTTIME) < deadline:
        print("works with token", answer["fencingToken"], flush=True)  # work only until the deadline
    time.sleep(0.2)
