"""Verifies receipts: what a desktop signed about how a run ended. Needs `pip install deskgate[receipts]`."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from typing import Any, Mapping, Optional

from .errors import VerificationError

try:
    import rfc8785
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError as missing:  # pragma: no cover
    raise ImportError("receipts need more packages: pip install 'deskgate[receipts]'") from missing


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _sha256(value: Any) -> str:
    try:
        return hashlib.sha256(rfc8785.dumps(value)).hexdigest()
    except rfc8785.CanonicalizationError as error:
        raise VerificationError(f"the record cannot be verified: {error}") from None


def fingerprint(public_key: bytes) -> str:
    """The fingerprint of a key, as `deskgate identity show` says it."""
    wire = struct.pack(">I11sI32s", 11, b"ssh-ed25519", 32, public_key)
    return "SHA256:" + base64.b64encode(hashlib.sha256(wire).digest()).decode().rstrip("=")


def verify(run: Mapping[str, Any], device_fingerprint: str, *, input: Optional[Mapping[str, Any]] = None) -> dict[str, Any]:
    """What the device says of a run that has ended, if the run's record is what it signed.

    `device_fingerprint` comes from the device's owner, not from the gateway. `input` is the object as you sent it; without it the record's
    own is compared.

    Whether it was your application and subject that asked, this does not say; `deskgate verify-receipt` does.

    Raises `VerificationError` if there is no receipt, it is of another device, or the record says something else.
    """
    receipt = run.get("receipt")
    if not isinstance(receipt, str):
        raise VerificationError("the run has no receipt: its outcome is the gateway's word alone")
    try:
        head, payload, signature = receipt.split(".")
        header: dict[str, Any] = json.loads(_bytes(head))
        said: dict[str, Any] = json.loads(_bytes(payload))
        jwk = header["jwk"]
        key = _bytes(jwk["x"])
        if (header["typ"], header["alg"], jwk["kty"], jwk["crv"]) != ("deskgate-receipt+jwt", "EdDSA", "OKP", "Ed25519"):
            raise ValueError("it is of another kind")
        Ed25519PublicKey.from_public_bytes(key).verify(_bytes(signature), f"{head}.{payload}".encode())
    except InvalidSignature:
        raise VerificationError("the signature of the receipt is not valid") from None
    except (ValueError, KeyError, TypeError) as error:
        raise VerificationError(f"the receipt cannot be read: {error}") from None
    if fingerprint(key) != device_fingerprint:
        raise VerificationError("the receipt is of another device")
    names = ("run_id", "endpoint_id", "endpoint_version", "conversation_id", "generation", "state")
    expected = {name: run.get(name) for name in names}
    expected.update(v=1, kind="outcome", error_sha256=_sha256(run["error"]) if "error" in run else None)
    # What was deleted is not there to be compared.
    if "result" in run or "content_deleted_at" not in run:
        expected["result_sha256"] = _sha256(run["result"]) if "result" in run else None
    differs = [name for name, value in expected.items() if said.get(name) != value]
    for known in (run.get("input"), None if input is None else _as_stored(input, run)):
        if known is not None and _sha256(known) != said.get("input_sha256"):
            differs.append("input")
    if differs:
        raise VerificationError(f"the device did not sign this: {', '.join(dict.fromkeys(differs))}")
    return said


def _as_stored(input: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """An input as it is kept: its files have a name, a size and a digest, which the gateway adds."""
    files, kept = input.get("files"), (run.get("input") or {}).get("files")
    if not files or not kept or [file["file_id"] for file in files] != [file["file_id"] for file in kept]:
        return dict(input)
    return {**input, "files": kept}
