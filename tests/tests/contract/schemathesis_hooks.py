"""Leaves out the requests of which the document cannot say that they are refused."""

import schemathesis

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1


@schemathesis.hook
def filter_body(context, body):
    """Numbers beyond 64 bits are refused in every member, also in those that are a caller's own."""
    return is_kept(body)


def is_kept(value):
    if isinstance(value, dict):
        return all(is_kept(member) for member in value.values())
    if isinstance(value, list):
        return all(is_kept(member) for member in value)
    return not isinstance(value, int) or MIN_INTEGER <= value <= MAX_INTEGER


@schemathesis.hook
def map_body(context, body):
    """Which schemas are supported is said in words: whatever object was made up becomes one that is."""
    output = body.get("output") if isinstance(body, dict) else None
    if isinstance(output, dict) and isinstance(output.get("schema"), dict):
        output["schema"] = {"type": "object", "required": sorted(name for name in output["schema"] if name.isascii())[:3]}
    return body


@schemathesis.deserializer("application/octet-stream")
def bytes_of_a_file(_context, response):
    return response.content.decode("latin-1")
