"""Validates requests against the types of the vendors' own SDKs: unknown members are refused at every level.

Reads {"format": "responses" | "chat" | "messages", "bodies": [...]} and exits with 1 and the errors of the first body that does not fit.
"""

import importlib
import json
import pkgutil
import sys

import pydantic
import typing_extensions
from pydantic._internal._generate_schema import GenerateSchema
from pydantic_core import core_schema


def as_list(self, type):
    """A schema for an iterable that is validated at once, and not when somebody walks through it."""
    return core_schema.list_schema(self.generate_schema(self._get_first_arg_or_any(type)))


GenerateSchema._iterable_schema = as_list


def typed_dicts(module):
    """Every typed dictionary below a package, made strict."""
    for found in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
        for value in vars(importlib.import_module(found.name)).values():
            if typing_extensions.is_typeddict(value):
                value.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)


def of(format):
    if format == "messages":
        import anthropic.types
        from anthropic.types import message_create_params

        typed_dicts(anthropic.types)
        return message_create_params.MessageCreateParamsStreaming
    import openai.types

    if format == "chat":
        import openai.types.chat
        from openai.types.chat import completion_create_params

        typed_dicts(openai.types.chat)
        typed_dicts(openai.types)
        return completion_create_params.CompletionCreateParamsStreaming
    from openai.types.responses import response_create_params

    typed_dicts(openai.types)
    return response_create_params.ResponseCreateParamsStreaming


def main():
    asked = json.load(sys.stdin)
    adapter = pydantic.TypeAdapter(of(asked["format"]))
    for number, body in enumerate(asked["bodies"]):
        try:
            adapter.validate_python(body)
        except pydantic.ValidationError as error:
            print(f"body {number}: {error}", file=sys.stderr)
            return 1
    return 0


sys.exit(main())
