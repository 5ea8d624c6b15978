"""The bodies of requests, converted at once: what a backend sends that has encoded nothing before."""

from __future__ import annotations

from collections.abc import Collection

from parley.models.backends import openai, responses
from parley.models.base import ModelRequest
from parley.protocol.base import Json


def chat_body(request: ModelRequest, name: str, declared: Collection[str], dropped: Collection[str] = ()) -> Json:
    fields = openai.build_fields(request, name, declared, dropped)
    keeps = openai.keeps_reasoning(declared, dropped)
    if "tools" in fields:
        fields["tools"] = [converted for tool in request.tools for converted in openai.convert_tool(tool)]
    messages = (converted for message in request.messages for converted in openai.convert_message(message, keeps))
    return {**fields, "messages": [*openai.system_messages(request), *messages]}


def responses_body(request: ModelRequest, name: str, dropped: Collection[str] = ()) -> Json:
    fields = responses.build_fields(request, name, dropped)
    if "tools" in fields:
        fields["tools"] = [converted for tool in request.tools for converted in responses.convert_tool(tool)]
    has_phase = "phase" not in dropped
    items = (item for message in request.messages for item in responses.convert_message(message, name, has_phase))
    return {**fields, "input": list(items)}
