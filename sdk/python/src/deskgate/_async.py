"""The asynchronous client."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time as clock
from contextlib import asynccontextmanager
from typing import Any, AsyncGenerator, AsyncIterator, BinaryIO, List, Mapping, Optional, Union, cast

import httpx
from typing_extensions import Unpack

from ._shared import (
    AGAIN,
    FINAL_EVENTS,
    MAX_TRIES,
    NO_ANSWERS,
    STEADY_SECONDS,
    TIMEOUT,
    WAIT_SECONDS,
    EventReader,
    Input,
    Work,
    address,
    body_of,
    in_header,
    new_key,
    no_answer,
    of_run,
    params,
    pause,
    problem_of,
    read_json,
    remaining,
    segment,
    setting,
)
from .errors import ConfigurationError, DeskgateError, RunError, StreamBrokenError, WaitTimeoutError
from .types import (
    Artifact,
    Capabilities,
    ControlOperation,
    Conversation,
    Delivery,
    File,
    OnBusy,
    Run,
    Service,
)


class AsyncDeskgate:
    """The asynchronous client of one gateway, for one application key.

    `base_url`, `key` and `subject` stand in `DESKGATE_URL`, `DESKGATE_KEY` and `DESKGATE_SUBJECT` unless they are given. The subject is your
    own name of the user for whom you call; a key that is bound to one needs none. `for_subject` makes a client for another one.

    Each request is sent up to five times where that helps, work always under one Idempotency-Key: so it is done once, whatever happens to the
    connection.
    """

    def __init__(
        self,
        base_url: Optional[str] = None,
        key: Optional[str] = None,
        *,
        subject: Optional[str] = None,
        http: Optional[httpx.AsyncClient] = None,
    ) -> None:
        self._base_url = address(setting(base_url, "DESKGATE_URL", "the gateway's address"))
        self._key = in_header(setting(key, "DESKGATE_KEY", "the application key"), "the application key")
        named = os.environ.get("DESKGATE_SUBJECT") or None if subject is None else subject
        self._subject = None if named is None else in_header(named, "the subject")
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient(timeout=TIMEOUT)
        self.services = AsyncServices(self)
        self.runs = AsyncRuns(self)
        self.conversations = AsyncConversations(self)
        self.files = AsyncFiles(self)
        self.deliveries = AsyncDeliveries(self)

    def for_subject(self, subject: str) -> AsyncDeskgate:
        """A client for another subject, over the same connections."""
        return AsyncDeskgate(self._base_url, self._key, subject=subject, http=self._http)

    async def __aenter__(self) -> AsyncDeskgate:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections, if they are this client's own."""
        if self._owns_http:
            await self._http.aclose()

    async def capabilities(self) -> Capabilities:
        """What the gateway and the key can do, and the limits."""
        return cast(Capabilities, await self._call("GET", "/capabilities"))

    async def operation(self, operation_id: str) -> ControlOperation:
        """A stop or a reset as it is now."""
        return cast(ControlOperation, await self._call("GET", f"/control-operations/{segment(operation_id)}"))

    def _headers(self, more: Optional[Mapping[str, str]] = None) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._key}", "User-Agent": "deskgate-python/0.1.0"}
        if self._subject:
            headers["X-Gateway-Subject"] = self._subject
        return {**headers, **(more or {})}

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: Optional[bytes] = None,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        key: Optional[str] = None,
    ) -> Any:
        """The JSON of an answer; `None` if it has no body. Under a key the request creates something."""
        named = self._headers(headers)
        if key is not None:
            named["Idempotency-Key"] = key
        failed: Optional[Exception] = None
        for tries in range(MAX_TRIES):
            answer = None
            try:
                answer = await self._http.request(
                    method,
                    f"{self._base_url}/api/v1{path}",
                    json=body,
                    content=content,
                    params=query,
                    headers=named,
                    timeout=TIMEOUT,
                    follow_redirects=False,
                )
                if answer.is_success:
                    return read_json(answer)
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
                # It is no matter of the line. What it says may repeat a header.
                raise ConfigurationError(f"the request cannot be sent: {type(error).__name__}") from None
            except NO_ANSWERS as error:
                failed, answer = error, None
            if answer is not None and (answer.status_code not in AGAIN or tries + 1 == MAX_TRIES):
                raise problem_of(answer, key)
            if tries + 1 < MAX_TRIES:
                await asyncio.sleep(pause(tries, answer))
        raise no_answer(failed, key) from failed

    async def _pages(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[Any]:
        """The records of a list, page by page, newest first."""
        cursor: Optional[str] = None
        while True:
            page = await self._call("GET", path, query=params(**query, cursor=cursor))
            for record in page["data"]:
                yield record
            cursor = page.get("next_cursor")
            if not cursor:
                return


class AsyncServices:
    """The published services."""

    def __init__(self, client: AsyncDeskgate) -> None:
        self._client = client

    async def list(self) -> List[Service]:
        """The services that the key may use."""
        return cast("List[Service]", (await self._client._call("GET", "/agent-endpoints"))["endpoints"])


class AsyncRuns:
    """Runs: work, and what became of it."""

    def __init__(self, client: AsyncDeskgate) -> None:
        self._client = client

    async def submit(
        self,
        service_id: str,
        input: Input,
        *,
        wait: int = 0,
        idempotency_key: Optional[str] = None,
        **work: Unpack[Work],
    ) -> Run:
        """Submits work, once. The run is stored durably when this returns, and may not have begun.

        `input` is the text, or the whole object. `wait`: seconds to wait for the end, up to 60. Keep an `idempotency_key` of your own with your
        work, and a later process can ask again for the same run; without it one is made for this call.
        """
        body = body_of(input, work)
        path, key = f"/agent-endpoints/{segment(service_id)}/runs", idempotency_key or new_key()
        return cast(Run, await self._client._call("POST", path, body=body, query=params(wait=wait or None), key=key))

    async def ask(
        self,
        service_id: str,
        input: Input,
        *,
        timeout: Optional[float] = None,
        idempotency_key: Optional[str] = None,
        **work: Unpack[Work],
    ) -> Run:
        """Submits work, waits for its end, and returns the run if it succeeded. Takes what `submit` takes, but for `wait`.

        Raises `RunError` if it did not succeed, and `WaitTimeoutError` if it has not ended in `timeout` seconds; then it goes on. Errors that come
        after it was accepted have its `run_id`.
        """
        ends_at = None if timeout is None else clock.monotonic() + timeout
        wait = min(WAIT_SECONDS, int(remaining(ends_at)))
        run = await self.submit(service_id, input, wait=wait, idempotency_key=idempotency_key, **work)
        try:
            if run["phase"] != "final":
                run = await self.wait(run["run_id"], timeout=None if timeout is None else remaining(ends_at))
        except DeskgateError as error:
            raise of_run(error, run["run_id"]) from error.__cause__
        return succeeded(run)

    async def read(self, run_id: str, *, wait: int = 0) -> Run:
        """A run as it is now. `wait`: seconds to wait for a change, up to 60."""
        return cast(Run, await self._client._call("GET", f"/runs/{segment(run_id)}", query=params(wait=wait or None)))

    async def wait(self, run_id: str, *, timeout: Optional[float] = None) -> Run:
        """A run once it has ended, however it ended.

        Raises `WaitTimeoutError`, a `TimeoutError`, if it has not ended in `timeout` seconds; then it goes on.
        """
        ends_at = None if timeout is None else clock.monotonic() + timeout
        while True:
            left = remaining(ends_at)
            run = await self.read(run_id, wait=min(WAIT_SECONDS, int(left)))
            if run["phase"] == "final":
                return run
            if ends_at is not None and clock.monotonic() >= ends_at:
                raise WaitTimeoutError(run)
            if left < 1:
                await asyncio.sleep(remaining(ends_at) if left > 0 else 0.01)

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """What happens in a run, until it has ended: every stored event once and in order, behind the event `after`, although the connection
        breaks. Between them come events that are not stored and have no `sequence`, as the pieces of a message (`message.delta`).

        Raises `StreamBrokenError` if the connection breaks five times soon after each other without a new event.
        """
        last, breaks = after, 0
        while breaks < MAX_TRIES:
            reader, began = EventReader(), clock.monotonic()
            async with self._stream(run_id, last) as pieces:
                if pieces is None:
                    return
                try:
                    async for piece in pieces:
                        for event in reader.read(piece):
                            if "sequence" in event:
                                last, breaks = event["sequence"], 0
                            yield event
                            if event["type"] in FINAL_EVENTS:
                                return
                except NO_ANSWERS:
                    pass
            # A stream that lasted is no sign of a gateway that is gone.
            breaks = 0 if clock.monotonic() - began > STEADY_SECONDS else breaks + 1
            await asyncio.sleep(pause(0, None))
        raise StreamBrokenError(last)

    @asynccontextmanager
    async def _stream(self, run_id: str, after: int) -> AsyncIterator[Optional[AsyncIterator[bytes]]]:
        """The bytes of a stream; `None` if there is nothing behind its last event."""
        client = self._client
        headers = client._headers({"Accept": "text/event-stream", "Last-Event-ID": str(after)})
        url, failed = f"{client._base_url}/api/v1/runs/{segment(run_id)}/events", None
        for tries in range(MAX_TRIES):
            answer = None
            try:
                request = client._http.build_request("GET", url, headers=headers, timeout=TIMEOUT)
                answer = await client._http.send(request, stream=True, follow_redirects=False)
                if not answer.is_success:
                    await answer.aread()
            except NO_ANSWERS as error:
                failed, answer = error, None
            if answer is not None and answer.is_success:
                try:
                    yield None if answer.status_code == 204 else answer.aiter_bytes()
                finally:
                    await answer.aclose()
                return
            if answer is not None and (answer.status_code not in AGAIN or tries + 1 == MAX_TRIES):
                raise problem_of(answer)
            if tries + 1 < MAX_TRIES:
                await asyncio.sleep(pause(tries, answer))
        raise no_answer(failed) from failed

    async def stop(self, run_id: str, *, reason: Optional[str] = None, idempotency_key: Optional[str] = None) -> ControlOperation:
        """Asks for a run to be stopped. The device confirms it: wait for the run to see what became of it."""
        path, key = f"/runs/{segment(run_id)}/stop", idempotency_key or new_key()
        return cast(ControlOperation, await self._client._call("POST", path, body=params(reason=reason), key=key))

    def list(self, **filters: Any) -> AsyncIterator[Run]:
        """The runs of this subject, newest first, without inputs and results. `filters` are those of the API: `endpoint_id`, `state`, `phase`…"""
        return self._client._pages("/runs", filters)

    async def delete_content(self, run_id: str) -> None:
        """Deletes the input and the result of a run that has ended, for good."""
        await self._client._call("DELETE", f"/runs/{segment(run_id)}/content")

    async def download(self, run_id: str, artifact: Artifact, to: BinaryIO) -> int:
        """Writes a file that a run handed out, and returns its size. A connection that breaks is taken up behind the last byte; `to` must be able
        to go back, as a file can.

        Raises `DeskgateError` if the bytes are others than the run's record says.
        """
        client, size = self._client, artifact["size"]
        url = f"{client._base_url}/api/v1/runs/{segment(run_id)}/artifacts/{segment(artifact['artifact_id'])}"
        digest, done, etag, start = hashlib.sha256(), 0, "", to.tell()
        failed: Optional[Exception] = None
        for tries in range(MAX_TRIES):
            behind = {"Range": f"bytes={done}-", "If-Range": etag} if done and etag else {}
            # Bytes that a proxy recodes cannot be counted.
            headers = client._headers({"Accept-Encoding": "identity", **behind})
            answer, is_broken = None, False
            try:
                request = client._http.build_request("GET", url, headers=headers, timeout=TIMEOUT)
                answer = await client._http.send(request, stream=True, follow_redirects=False)
                if answer.is_success:
                    if answer.status_code == 200 and done:
                        to.seek(start)
                        to.truncate()
                        digest, done = hashlib.sha256(), 0
                    etag = answer.headers.get("etag", "")
                    async for piece in answer.aiter_bytes():
                        to.write(piece)
                        digest.update(piece)
                        done += len(piece)
                else:
                    await answer.aread()
            except NO_ANSWERS as error:
                failed, is_broken = error, True
            finally:
                if answer is not None:
                    await answer.aclose()
            if done == size:
                if digest.hexdigest() != artifact["sha256"]:
                    raise DeskgateError(f"the bytes of {artifact['artifact_id']} are others than its record says")
                return done
            if answer is not None and not is_broken and (answer.status_code not in AGAIN or tries + 1 == MAX_TRIES):
                raise problem_of(answer)
            if tries + 1 < MAX_TRIES:
                await asyncio.sleep(pause(tries, answer))
        raise no_answer(failed) from failed


class AsyncConversations:
    """Conversations: messages that see what was said before."""

    def __init__(self, client: AsyncDeskgate) -> None:
        self._client = client

    async def open(self, service_id: str, conversation_key: str, *, idempotency_key: Optional[str] = None) -> Conversation:
        """The conversation of this name with a service, made if there is none."""
        body = {"endpoint_id": service_id, "conversation_key": conversation_key}
        answer = await self._client._call("POST", "/conversations", body=body, key=idempotency_key or new_key())
        return cast(Conversation, answer)

    async def read(self, conversation_id: str) -> Conversation:
        """A conversation as it is now."""
        return cast(Conversation, await self._client._call("GET", f"/conversations/{segment(conversation_id)}"))

    async def say(
        self,
        conversation: Conversation,
        input: Input,
        *,
        on_busy: OnBusy = "reject",
        wait: int = 0,
        idempotency_key: Optional[str] = None,
        **work: Unpack[Work],
    ) -> Run:
        """Sends a message, once; it becomes a run. `on_busy`: what becomes of it while the conversation works on another one: `reject`,
        `enqueue` or `interrupt`."""
        body = body_of(input, work)
        body.update(expected_generation=conversation["generation"], on_busy=on_busy)
        path, key = f"/conversations/{segment(conversation['conversation_id'])}/messages", idempotency_key or new_key()
        return cast(Run, await self._client._call("POST", path, body=body, query=params(wait=wait or None), key=key))

    def list(self, **filters: Any) -> AsyncIterator[Conversation]:
        """The conversations of this subject, newest first. `filters`: `endpoint_id` and `conversation_key`."""
        return self._client._pages("/conversations", filters)

    def messages(self, conversation_id: str, **filters: Any) -> AsyncIterator[Run]:
        """What was said, and what came of it: the runs of a conversation, newest first."""
        return self._client._pages(f"/conversations/{segment(conversation_id)}/messages", filters)

    async def reset(self, conversation: Conversation, *, idempotency_key: Optional[str] = None) -> ControlOperation:
        """Begins a conversation anew: what was said before is forgotten."""
        path, key = f"/conversations/{segment(conversation['conversation_id'])}/reset", idempotency_key or new_key()
        body = {"expected_generation": conversation["generation"]}
        return cast(ControlOperation, await self._client._call("POST", path, body=body, key=key))


class AsyncFiles:
    """Files that runs are given."""

    def __init__(self, client: AsyncDeskgate) -> None:
        self._client = client

    async def upload(
        self,
        content: Union[bytes, BinaryIO],
        name: str,
        *,
        media_type: str = "application/octet-stream",
        idempotency_key: Optional[str] = None,
    ) -> File:
        """Uploads a file, of 64 MiB at most. The digest of the bytes goes with it, so that other bytes are never stored."""
        data = content if isinstance(content, bytes) else content.read()
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        headers = {"Content-Type": media_type, "Content-Digest": f"sha-256=:{digest}:"}
        query, key = {"name": name}, idempotency_key or new_key()
        answer = await self._client._call("POST", "/files", content=data, query=query, headers=headers, key=key)
        return cast(File, answer)

    async def read(self, file_id: str) -> File:
        """What is known of a file."""
        return cast(File, await self._client._call("GET", f"/files/{segment(file_id)}"))

    async def delete(self, file_id: str) -> None:
        """Deletes a file that no run has."""
        await self._client._call("DELETE", f"/files/{segment(file_id)}")

    def list(self) -> AsyncIterator[File]:
        """The files of this subject, newest first."""
        return self._client._pages("/files", {})


class AsyncDeliveries:
    """Callbacks on their way."""

    def __init__(self, client: AsyncDeskgate) -> None:
        self._client = client

    def list(self, **filters: Any) -> AsyncIterator[Delivery]:
        """The deliveries of this subject, newest first. `filters`: `run_id` and `state`."""
        return self._client._pages("/deliveries", filters)


def succeeded(run: Run) -> Run:
    """The run, if it succeeded. Raises `RunError` if it did not."""
    if run["state"] != "succeeded":
        raise RunError(run)
    return run
