# Good requests beside refused ones with large bodies: refused.py URL KEY SUBJECT SERVICE COUNT [CERTIFICATE]. As many callers whose bodies
# are refused as others, each with connections of its own. Prints what came of them as one JSON object.
import collections
import json
import sys
import threading

import requests

url, key, subject, service, count = sys.argv[1:6]
verify = sys.argv[6] if len(sys.argv) > 6 else True
CALLERS = 8
credentials = {"Authorization": f"Bearer {key}", "X-Gateway-Subject": subject}
seen = {"refused": collections.Counter(), "good": collections.Counter()}
lock = threading.Lock()


def note(kind, ask):
    try:
        answer = ask()
        what = str(answer.status_code) if answer.content else f"{answer.status_code} without a body"
    except requests.exceptions.RequestException as error:
        what = type(error).__name__
    with lock:
        seen[kind][what] += 1


def refused(caller):
    session = requests.Session()
    session.trust_env = False
    for turn in range(int(count) // CALLERS):
        # Some are thrown away, some are not, and some are more than anybody may send.
        body = b"x" * (200_000, 600_000, 1_500_000)[turn % 3]
        headers = credentials | {"Idempotency-Key": "x", "Content-Type": "application/json"} if turn % 2 else {}
        path = f"/agent-endpoints/{service}/runs" if turn % 3 == 2 else "/agent-endpoints/ep_x/runs"
        note("refused", lambda: session.post(url + path, data=body, headers=headers, verify=verify, timeout=60))


def good(caller):
    session = requests.Session()
    session.trust_env = False
    for turn in range(int(count) // CALLERS):
        if turn % 2:
            note("good", lambda: session.get(f"{url}/capabilities", headers=credentials, verify=verify, timeout=60))
            continue
        headers = credentials | {"Idempotency-Key": f"{caller}-{turn}"}
        body = {"input": {"text": "hello"}}
        path = f"{url}/agent-endpoints/{service}/runs"
        note("good", lambda: session.post(path, json=body, headers=headers, verify=verify, timeout=60))


callers = [threading.Thread(target=role, args=(caller,)) for caller in range(CALLERS) for role in (refused, good)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
print(json.dumps(seen), flush=True)
