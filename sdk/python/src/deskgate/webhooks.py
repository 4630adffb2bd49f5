"""Verifies callbacks of Deskgate (Standard Webhooks)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from typing import Any, Mapping, Optional, Union

from .errors import VerificationError

TOLERANCE_SECONDS = 300
"""How old a callback may be."""


def verify(
    headers: Mapping[str, str],
    body: Union[bytes, str],
    secret: str,
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: Optional[float] = None,
) -> dict[str, Any]:
    """The event of a callback, if it is genuine.

    `body` is what came, before anything parses it. `secret` begins with `whsec_`. Remember `headers["webhook-id"]`, as a callback may
    come twice.

    Raises `VerificationError` if it was not signed with the secret, or is too old.
    """
    named = {name.lower(): value for name, value in headers.items()}
    try:
        event_id, timestamp, signatures = (named[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        if not re.fullmatch("[0-9]{1,15}", timestamp):
            raise ValueError("webhook-timestamp is no time")
        moment = int(timestamp)
        key = base64.b64decode(secret[len("whsec_") :] if secret.startswith("whsec_") else secret, validate=True)
    except (KeyError, ValueError) as error:
        raise VerificationError(f"the callback cannot be verified: {error}") from None
    if not key:
        raise VerificationError("the secret is empty: no callback can be verified with it")
    if abs((time.time() if now is None else now) - moment) > tolerance_seconds:
        raise VerificationError("the callback is too old, or from the future")
    content = body.encode() if isinstance(body, str) else body
    digest = hmac.digest(key, f"{event_id}.{timestamp}.".encode() + content, hashlib.sha256)
    wanted = b"v1," + base64.b64encode(digest)
    if not any(hmac.compare_digest(wanted, given.encode("utf-8", "replace")) for given in signatures.split(" ")):
        raise VerificationError("the callback was not signed with this secret")
    event: dict[str, Any] = json.loads(content)
    return event
