"""What both clients share: when to try again, how events are read, what a body is."""

from __future__ import annotations

import codecs
import json
import os
import random
import re
import time
import uuid
from typing import Any, Mapping, Optional, Sequence, Union

import httpx
from typing_extensions import TypedDict

from .errors import ConfigurationError, DeskgateError, NoAnswerError, ProblemError
from .types import File

MAX_TRIES = 5
"""How often one request is sent."""

WAIT_SECONDS = 30
"""How long one reading of a run waits for its end."""

STEADY_SECONDS = 30
"""How long a stream lasts that does not count as broken at once."""

TIMEOUT = httpx.Timeout(70, connect=15)
"""Longer than any answer is held back, and than any stream is silent."""

AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""The statuses after which the same request may be sent again."""

FINAL_EVENTS = frozenset({"run.succeeded", "run.failed", "run.cancelled", "run.expired"})

Input = Union[str, Mapping[str, Any]]


NO_ANSWERS = (httpx.TransportError, httpx.DecodingError)
"""What happens to a request that gets no answer."""


def setting(value: Optional[str], variable: str, what: str) -> str:
    """A setting that is given, or stands in the environment."""
    found = os.environ.get(variable) if value is None else value
    if not found:
        raise ConfigurationError(f"{what} is missing: give it, or set {variable}")
    return found


def address(url: str) -> str:
    """A gateway's address."""
    if not re.match(r"https?://[^/]", url):
        raise ConfigurationError("the gateway's address begins with https://, or with http:// on this computer")
    return url.rstrip("/")


def in_header(value: str, what: str) -> str:
    """A value that can stand in a header. It is not repeated: it may be a secret."""
    if not re.fullmatch(r"[!-~]+", value):
        raise ConfigurationError(f"{what} has characters that it cannot have, such as a space or the end of a line")
    return value


def segment(identifier: str) -> str:
    """An identifier as a part of a path. Others could lead to another call."""
    if not isinstance(identifier, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", identifier):
        raise DeskgateError("that is no identifier of this API")
    return identifier


def pause(tries: int, answer: Optional[httpx.Response]) -> float:
    """Seconds before the next try: as the answer says, or twice as long each time; and up to a second at random, so that programs
    that failed together do not come back together."""
    after = answer.headers.get("retry-after", "") if answer is not None else ""
    seconds = float(after) if after.isdigit() else float(2**tries)
    return seconds + random.random()


def read_json(answer: httpx.Response) -> Any:
    """The JSON of an answer; `None` if it has no body. What is none counts as no answer."""
    if not answer.content:
        return None
    try:
        return answer.json()
    except ValueError as error:
        raise httpx.DecodingError(f"the answer is no JSON: {error}") from error


def remaining(ends_at: Optional[float]) -> float:
    """Seconds until a moment."""
    return WAIT_SECONDS if ends_at is None else max(0.0, ends_at - time.monotonic())


def new_key() -> str:
    return f"py-{uuid.uuid4()}"


class Work(TypedDict, total=False):
    """What belongs to a piece of work beside its text."""

    data: Optional[Mapping[str, Any]]
    """Data that fits the service's schema of inputs."""
    files: Optional[Sequence[Union[str, File]]]
    """Files that were uploaded, or their identifiers."""
    output: Optional[Mapping[str, Any]]
    """A `name` and a `schema` for the result, where the service takes one."""
    metadata: Optional[Mapping[str, str]]
    """Labels of your own."""
    queue_ttl_s: Optional[int]
    """Seconds that it may wait for a start."""
    max_duration_s: Optional[int]
    """Awake seconds that it may execute."""


def body_of(input: Input, work: Work) -> dict[str, Any]:
    """The body of a submission."""
    unknown = set(work) - set(Work.__annotations__)
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}")
    given: dict[str, Any] = {"text": input} if isinstance(input, str) else dict(input)
    data, files = work.get("data"), work.get("files")
    if data is not None:
        given["data"] = data
    if files:
        given["files"] = [{"file_id": file if isinstance(file, str) else file["file_id"]} for file in files]
    names = ("output", "metadata", "queue_ttl_s", "max_duration_s")
    return {"input": given, **{name: work.get(name) for name in names if work.get(name) is not None}}


def problem_of(answer: httpx.Response, key: Optional[str] = None) -> ProblemError:
    """The error that an answer says. The body must have been read."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "code" not in document:
        document = {
            "code": "no_problem_document",
            "status": answer.status_code,
            "detail": f"the answer has the status {answer.status_code} and is not the gateway's own",
            "retryable": answer.status_code in AGAIN,
        }
    return ProblemError(document, answer.status_code, key)


def no_answer(error: Optional[Exception], key: Optional[str] = None) -> NoAnswerError:
    return NoAnswerError(f"no answer after {MAX_TRIES} tries: {error or type(error).__name__}", key)


def params(**values: Any) -> dict[str, Any]:
    """The parameters that were given."""
    return {name: value for name, value in values.items() if value is not None}


def of_run(error: DeskgateError, run_id: str) -> DeskgateError:
    """An error that came while a run was waited for."""
    error.run_id = run_id
    return error


class EventReader:
    """Reads server-sent events (HTML standard, section 9.2.6). Lines end as it says, and not where Python ends them."""

    def __init__(self) -> None:
        self._text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._kind = ""
        self._data: list[str] = []

    def read(self, piece: bytes) -> list[dict[str, Any]]:
        """The events that are complete with this piece of the stream."""
        lines = re.split("\r\n|\n|\r(?!$)", self._text + self._decoder.decode(piece))
        self._text = lines.pop()
        return [event for line in lines for event in [self.line(line)] if event is not None]

    def line(self, line: str) -> Optional[dict[str, Any]]:
        """An event, once its last line is read."""
        if not line:
            data, kind = "\n".join(self._data), self._kind
            self._data, self._kind = [], ""
            if not data:
                return None
            try:
                event: dict[str, Any] = json.loads(data)
            except ValueError as error:
                raise DeskgateError(f"an event is no JSON: {error}") from error
            event.setdefault("type", kind)
            return event
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        return None
