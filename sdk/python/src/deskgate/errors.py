"""What can go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from .types import Run


class DeskgateError(Exception):
    """Anything that this package raises by itself."""

    run_id: str | None = None
    """The run that was waited for when it happened, if it was accepted by then."""


class ConfigurationError(DeskgateError):
    """The client lacks its address, its key or its subject."""


class NoAnswerError(DeskgateError):
    """The gateway was asked as often as makes sense, and gave no answer. The request may have arrived: send it again under the same
    `idempotency_key`."""

    def __init__(self, message: str, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
        """The key of the request, if it was to create something."""


class WaitTimeoutError(DeskgateError, TimeoutError):
    """A run has not ended in the time that was given. It goes on."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"{run['run_id']} has not ended: it is {run['state']}")
        self.run = run
        """Its record as it was read last."""
        self.run_id = run["run_id"]


class StreamBrokenError(DeskgateError):
    """A stream broke again and again without a new event. The run goes on; follow it again later, behind `last`."""

    def __init__(self, last: int) -> None:
        super().__init__(f"the stream broke again and again behind event {last}")
        self.last = last


class ProblemError(DeskgateError):
    """A refusal of the gateway: a problem document (RFC 9457). Branch on `code`."""

    def __init__(self, problem: Mapping[str, Any], status: int, idempotency_key: str | None = None) -> None:
        super().__init__(f"{problem['code']}: {problem.get('detail', '')}")
        self.idempotency_key = idempotency_key
        """The key of the request, if it was to create something: what may succeed later is sent again under it."""
        self.problem = dict(problem)
        """The whole document, with the members that belong to its code."""
        self.status = status
        """The status of the answer."""

    @property
    def code(self) -> str:
        """What kind of problem it is; `/problems/{code}` of a gateway explains it."""
        return str(self.problem["code"])

    @property
    def detail(self) -> str:
        """What was wrong, for people."""
        return str(self.problem.get("detail", ""))

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return bool(self.problem.get("retryable"))

    @property
    def request_id(self) -> str | None:
        """The name of the request in the gateway's log."""
        return self.problem.get("request_id")

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What is wrong, place by place."""
        return list(self.problem.get("errors", []))


class RunError(DeskgateError):
    """A run that ended without a result: failed, stopped or expired."""

    def __init__(self, run: Run) -> None:
        error: Mapping[str, Any] = run.get("error") or {}
        super().__init__(f"{run['run_id']} {run['state']}: {error.get('message', 'it has no result')}")
        self.run = run
        """Its record."""
        self.code: str = error.get("code", run["state"])
        """Why: the code of its error, or its state."""
        self.effects: str | None = error.get("effects")
        """Whether anything outside the run may have changed: `none`, `possible` or `known`."""
        self.retryable: bool = bool(error.get("retryable"))
        """Whether the same work may succeed under a new key."""


class VerificationError(DeskgateError):
    """What was to be verified is not genuine, or too old."""
