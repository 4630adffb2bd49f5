# Files up and down with httpx: files.py URL KEY SUBJECT FILE up | files.py URL KEY SUBJECT FILE down RUN ARTIFACT. Prints what came of it as JSON.
import asyncio
import hashlib
import json
import sys

import httpx

url, key, subject, path, act = sys.argv[1:6]
credentials = {"Authorization": f"Bearer {key}", "X-Gateway-Subject": subject}
options = {"base_url": url, "headers": credentials, "timeout": 60, "trust_env": False}
HALF = 3_000_000


def pieces():
    with open(path, "rb") as file:
        while piece := file.read(100_000):
            yield piece


async def pieces_in_time():
    for piece in pieces():
        yield piece


def told(answer):
    return [answer.status_code, answer.json().get("sha256") or answer.json().get("code")]


async def asynchronous():
    async with httpx.AsyncClient(**options) as client:
        # Of unknown length, so the body is chunked.
        return told(await client.post("/files", params={"name": "c d.bin"}, content=pieces_in_time()))


def up():
    seen = {}
    with httpx.Client(**options) as client:
        with open(path, "rb") as file:
            first = client.post("/files", params={"name": "a.bin"}, content=file)
        seen["file"], seen["file_id"] = told(first), first.json()["file_id"]
        seen["chunked"] = told(client.post("/files", params={"name": "Größe.bin"}, content=pieces()))
        wrong = {"Content-Digest": "sha-256=:" + "A" * 43 + "=:"}
        seen["wrong digest"] = told(client.post("/files", params={"name": "a.bin"}, content=pieces(), headers=wrong))
        seen["a slash"] = told(client.post("/files", params={"name": "a/b"}, content=pieces()))
        large = client.post("/files", params={"name": "large.bin"}, content=bytes(65 << 20))
        seen["too large"] = told(large)
        form = client.post("/files", params={"name": "a.bin"}, files={"file": b"a form"})
        seen["a form"] = told(form)
        # The connection is good after each refusal.
        seen["again"] = told(client.get(f"/files/{seen['file_id']}"))
    seen["asynchronous"] = asyncio.run(asynchronous())
    return seen


def down(run_id, artifact_id):
    at = f"/runs/{run_id}/artifacts/{artifact_id}"
    begun = hashlib.sha256()
    with httpx.Client(**options) as client:
        with client.stream("GET", at) as answer:
            etag, size = answer.headers["etag"], 0
            # It breaks off somewhere, and goes on from there.
            for piece in answer.iter_raw():
                begun.update(piece)
                size += len(piece)
                if size > HALF:
                    break
        rest = client.get(at, headers={"Range": f"bytes={size}-", "If-Range": etag})
        begun.update(rest.content)
        known = client.get(at, headers={"If-None-Match": etag})
    return {"status": rest.status_code, "sha256": begun.hexdigest(), "known": known.status_code}


print(json.dumps(up() if act == "up" else down(*sys.argv[6:8])), flush=True)
