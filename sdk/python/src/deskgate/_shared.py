"""What both clients share: when to try again, how events are read, what a body is."""

from __future__ import annotations

import json
import os
import random
import uuid
from typing import Any, Iterator, Mapping, Optional, Union

import httpx

from .errors import ConfigurationError, DeskgateError, NoAnswerError, ProblemError

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


def setting(value: Optional[str], variable: str, what: str) -> str:
    """A setting that is given, or stands in the environment."""
    found = value or os.environ.get(variable)
    if not found:
        raise ConfigurationError(f"{what} is missing: give it, or set {variable}")
    return found


def pause(tries: int, answer: Optional[httpx.Response]) -> float:
    """Seconds before the next try: as the answer says, or twice as long each time; and up to a second at random, so that programs
    that failed together do not come back together."""
    after = answer.headers.get("retry-after", "") if answer is not None else ""
    seconds = float(after) if after.isdigit() else float(2**tries)
    return seconds + random.random()


def new_key() -> str:
    return f"py-{uuid.uuid4()}"


def body_of_input(
    text: Input,
    *,
    data: Optional[Mapping[str, Any]],
    files: Optional[list[Union[str, Mapping[str, Any]]]],
    output: Optional[Mapping[str, Any]],
    metadata: Optional[Mapping[str, str]],
    queue_ttl_s: Optional[int],
    max_duration_s: Optional[int],
) -> dict[str, Any]:
    """The body of a submission."""
    given: dict[str, Any] = {"text": text} if isinstance(text, str) else dict(text)
    if data is not None:
        given["data"] = data
    if files:
        given["files"] = [{"file_id": file if isinstance(file, str) else file["file_id"]} for file in files]
    optional = {"output": output, "metadata": metadata, "queue_ttl_s": queue_ttl_s, "max_duration_s": max_duration_s}
    return {"input": given, **{name: value for name, value in optional.items() if value is not None}}


def problem_of(answer: httpx.Response) -> ProblemError:
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
    return ProblemError(document, answer.status_code)


def no_answer(error: Exception) -> NoAnswerError:
    return NoAnswerError(f"no answer after {MAX_TRIES} tries: {error or type(error).__name__}")


def params(**values: Any) -> dict[str, Any]:
    """The parameters that were given."""
    return {name: value for name, value in values.items() if value is not None}


class EventReader:
    """Reads server-sent events line by line (HTML standard, section 9.2.6)."""

    def __init__(self) -> None:
        self._kind = ""
        self._data: list[str] = []

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


def chunks(data: bytes, size: int = 1 << 20) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
