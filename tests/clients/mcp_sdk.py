# The MCP SDK calls published services: mcp_sdk.py ORIGIN KEY MODE. Prints what came of it as JSON.
import asyncio
import json
import sys

import httpx2
from mcp import MCPError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

origin, key, mode = sys.argv[1:4]
headers = {"Authorization": f"Bearer {key}", "X-Gateway-Subject": "customer-1"}
seen = {}


def told(result):
    return [result.is_error, result.structured_content, result.content[0].text]


async def failure(call):
    try:
        answer = await call
    except MCPError as error:
        return [error.code, error.message]
    return ["no error", str(answer)]


async def until(reached):
    for _ in range(600):
        found = await reached()
        if found is not None:
            return found
        await asyncio.sleep(0.1)
    raise TimeoutError("waited in vain")


async def main():
    http = httpx2.AsyncClient(headers=headers, timeout=60)
    transport = streamable_http_client(f"{origin}/mcp", http_client=http)
    async with http, Client(transport, mode=mode) as client:
        seen["version"] = client.protocol_version
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        seen["tools"] = sorted(tools)
        hints = tools["ask_shop"].annotations
        seen["hints"] = [tools["ask_shop"].title, hints.read_only_hint, hints.destructive_hint]

        progress = []

        async def note(done, total, message):
            progress.append([done, message])

        answer = await client.call_tool("ask_shop", {"text": "orders"}, progress_callback=note)
        seen["answer"] = [answer.is_error, answer.structured_content["text"], answer.structured_content["phase"], answer.content[0].text]
        seen["progress"] = [
            len(progress) > 0,
            [done for done, _ in progress] == sorted({done for done, _ in progress}),
            all(message for _, message in progress),
        ]
        typed = await client.call_tool("ask_typed", {"text": "count"})
        seen["data"] = typed.structured_content["data"]

        named = {"text": "once", "request_id": "order-1"}
        first, second = [await client.call_tool("ask_shop", named) for _ in range(2)]
        seen["repeated"] = first.structured_content["run_id"] == second.structured_content["run_id"]
        other = await client.call_tool("ask_shop", {"text": "twice", "request_id": "order-1"})
        seen["reused"] = [other.is_error, "idempotency_key_reused" in other.content[0].text]
        talk = [await client.call_tool("ask_shop", {"text": "hello", "conversation": "c"}) for _ in range(2)]
        seen["conversation"] = [said.structured_content["state"] for said in talk]

        going = await client.call_tool("ask_slow", {"text": "wait", "wait_seconds": 1})
        run_id = going.structured_content["run_id"]
        seen["going"] = [going.is_error, going.structured_content["phase"] != "final", "deskgate_run" in going.structured_content["next"]]
        read = await client.call_tool("deskgate_run", {"run_id": run_id, "wait_seconds": 0})
        seen["read"] = [read.is_error, read.structured_content["run_id"] == run_id]
        busy = await client.call_tool("ask_slow", {"text": "wait", "conversation": "busy", "wait_seconds": 0})
        refused = await client.call_tool("ask_slow", {"text": "too", "conversation": "busy", "wait_seconds": 0})
        seen["busy"] = [busy.is_error, refused.is_error, "conversation_busy" in refused.content[0].text]
        for run in [run_id, busy.structured_content["run_id"]]:
            stopped = await client.call_tool("deskgate_stop", {"run_id": run, "reason": "no longer needed"})
            assert not stopped.is_error, stopped
        ended = await client.call_tool("deskgate_run", {"run_id": run_id})
        seen["stopped"] = [ended.is_error, ended.structured_content["state"], ended.structured_content["error"]["code"]]

        async def state_of(run):
            return (await client.call_tool("deskgate_run", {"run_id": run, "wait_seconds": 0})).structured_content["state"]

        # A call that its client gives up once its run has started: the notification of the older era stops it, and the closed stream
        # of the newer one does not.
        started = asyncio.Event()

        async def watch(done, total, message):
            if "works on it" in message:
                started.set()

        name = {"text": "wait", "request_id": f"given-up-{mode}"}
        waiting = asyncio.create_task(client.call_tool("ask_slow", name, progress_callback=watch))
        await started.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        given_up = (await client.call_tool("ask_slow", name | {"wait_seconds": 0})).structured_content["run_id"]

        async def over():
            state = await state_of(given_up)
            return state if state in ("cancelled", "cancelling") or client.protocol_version == "2026-07-28" else None

        seen["given up"] = await until(over)
        await client.call_tool("deskgate_stop", {"run_id": given_up})

        seen["unknown tool"] = await failure(client.call_tool("ask_nobody", {"text": "x"}))
        wrong = await client.call_tool("ask_shop", {"text": "", "speed": 3})
        said = wrong.content[0].text
        seen["wrong"] = [wrong.is_error, "- text: " in said, "- speed: " in said]
        missing = await client.call_tool("deskgate_run", {"run_id": run_id[:-4] + "0000"})
        seen["missing"] = [missing.is_error, "not_found" in missing.content[0].text]


asyncio.run(main())
print(json.dumps(seen))
