# OpenAI's SDK behind a line that cuts answers at any byte: openai_cuts.py ORIGIN KEY SERVICE REQUESTS. Prints what came of it as JSON.
import json
import random
import socket
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import openai

origin, key, service, requests = sys.argv[1:5]
requests = int(requests)
gateway = (urlsplit(origin).hostname, urlsplit(origin).port)
chance = random.Random(7)
cuts = 0


def serve(caller):
    """Passes one request on, and its answer as far as the line lasts: the first two attempts are cut."""
    global cuts
    request = b""
    while b"\r\n\r\n" not in request:
        request += caller.recv(65536)
    head, body = request.split(b"\r\n\r\n", 1)
    length = int(next(line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")))
    while len(body) < length:
        body += caller.recv(65536)
    attempt = int(next(line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"x-stainless-retry-count:")))
    # An answer is about 1,200 bytes long.
    left = chance.randrange(1400) if attempt < 2 else None
    with socket.create_connection(gateway) as line:
        head = head.replace(b"Connection: keep-alive", b"Connection: close")
        line.sendall(head + b"\r\n\r\n" + body)
        while left != 0 and (piece := line.recv(65536 if left is None else left)):
            caller.sendall(piece)
            left = None if left is None else left - len(piece)
    if left == 0:
        cuts += 1
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()


listener = socket.create_server(("127.0.0.1", 0))


def listen():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


threading.Thread(target=listen, daemon=True).start()
subject = {"X-Gateway-Subject": "customer-1"}
client = openai.OpenAI(
    base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/openai/v1", api_key=key, default_headers=subject, max_retries=3, timeout=60
)


def ask(number):
    return client.responses.create(model=service, input=f"question {number}", store=number % 2 == 0).output_text


with ThreadPoolExecutor(16) as workers:
    answers = list(workers.map(ask, range(requests)))
runs, cursor = 0, None
with httpx.Client(base_url=f"{origin}/api/v1", headers={"Authorization": f"Bearer {key}", **subject}, trust_env=False) as plain:
    while True:
        page = plain.get("/runs", params={"limit": 100, **({"cursor": cursor} if cursor else {})}).json()
        runs += len(page["data"])
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
right = sum(answer == f"Answer to question {number}." for number, answer in enumerate(answers))
print(json.dumps({"right": right, "runs": runs, "cuts": cuts}))
