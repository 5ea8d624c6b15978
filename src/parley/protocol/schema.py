"""The JSON Schema of the wire protocol, from the message classes.

The schema cannot express that unknown messages, subtypes, blocks and fields are kept.

Its `version` is the version of Claude Code whose protocol it describes and a digest of the definitions: the digest
changes whenever a definition does. `x-capabilities` and `x-profiles` are those of
`capabilities.py` and `profiles.py`.
"""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from parley.protocol.base import Json, Message, Struct, catalogue
from parley.protocol.blocks import KINDS, Block
from parley.protocol.capabilities import CAPABILITIES
from parley.protocol.connection import SENDERS, Role
from parley.protocol.messages.dialects import JsonRpc
from parley.protocol.messages.requests import list_requests
from parley.protocol.profiles import PROFILES, list_profile
from parley.version import PROTOCOL_LEVEL

REFERENCE = re.compile(r'"#/\$defs/(\w+)"')

PASSED_ON = {
    "Text": ("citations", "cache_control"),
    "ToolUse": ("cache_control", "caller"),
    "ToolResult": ("cache_control",),
    "Image": ("cache_control",),
    "Document": ("title", "context", "citations", "cache_control"),
    "ServerToolUse": ("cache_control", "caller"),
    "ServerToolResult": ("cache_control", "caller"),
}
"""Fields that the API has and the engine passes on unread."""
TYPES = {str: "string", dict: "object", list: "array", bool: "boolean", type(None): "null"}


def build_schema() -> Json:
    """The schema of a line, draft 2020-12: one entry per message, with their parts under `$defs`."""
    lines = list_messages()
    requests = dict(sorted(list_requests().items()))
    classes: list[type[Struct]] = [*lines.values(), *requests.values()]
    classes += [cls.answer for cls in requests.values() if cls.answer]
    found, defs = msgspec.json.schema_components(classes, schema_hook=schema_hook, ref_template="#/$defs/{name}")
    refs = dict(zip(classes, found, strict=True))
    for (_, subkind), cls in lines.items():
        if subkind or cls is JsonRpc:
            # The field has a default in the class, but a line must have it.
            defs[cls.__name__]["required"].append("subtype" if subkind else "jsonrpc")
    for request in requests.values():
        if request.answer:
            defs[request.__name__]["x-answer"] = refs[request.answer]
    defs |= {f"{cls.__name__}Block": block_schema(cls) for cls in KINDS.values()}
    defs["Block"] = open_union("type", [{"$ref": f"#/$defs/{name}"} for name in block_names()], sorted(KINDS))
    defs["Payload"] = open_union("subtype", [refs[cls] for cls in requests.values()], list(requests))
    return describe_document([refs[cls] for cls in lines.values()], dict(sorted(defs.items())))


def describe_document(choices: list[Json], defs: Json) -> Json:
    digest = sha256(msgspec.json.encode([choices, defs])).hexdigest()[:12]
    sent = list_sent()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:parley:protocol:{PROTOCOL_LEVEL}",
        "title": "A line of the agent wire protocol",
        "version": f"{PROTOCOL_LEVEL}+{digest}",
        "x-capabilities": CAPABILITIES,
        "x-profiles": {
            name: {"options": profile.options, "help": profile.help, "messages": list_profile(profile, sent)}
            for name, profile in PROFILES.items()
        },
        "anyOf": choices,
        "$defs": defs,
    }


def list_sent() -> list[str]:
    """The names of the messages that an engine may send."""
    return [
        name_message(*key) for key, cls in list_messages().items() if Role.ENGINE in SENDERS.get(cls, {Role.ENGINE})
    ]


def name_message(kind: str, subkind: str | None) -> str:
    return f"{kind}/{subkind}" if subkind else kind


def build_part(document: Json, name: str) -> Json:
    """The schema of one definition, with the definitions that it refers to."""
    needed, waiting = {name}, [name]
    while waiting:
        for other in REFERENCE.findall(msgspec.json.encode(document["$defs"][waiting.pop()]).decode()):
            if other not in needed:
                needed.add(other)
                waiting.append(other)
    kept = {"$schema", "version"} & document.keys()
    return {
        **{key: document[key] for key in sorted(kept)},
        "$id": f"{document['$id']}:{name}",
        "title": document["$defs"][name].get("title", name),
        "$ref": f"#/$defs/{name}",
        "$defs": {each: shape for each, shape in document["$defs"].items() if each in needed},
    }


def list_messages() -> dict[tuple[str, str | None], type[Message]]:
    """The catalogue in alphabetical order."""
    return dict(sorted(catalogue().items(), key=lambda item: (item[0][0], item[0][1] or "")))


def schema_hook(kind: type) -> Json:
    """msgspec's schema hook for values that keep their JSON object."""
    return {"$ref": "#/$defs/Block" if issubclass(kind, Block) else "#/$defs/Payload"}


def open_union(tag: str, members: list[Json], known: list[str]) -> Json:
    """One of the members, or an object with an unknown tag."""
    other = {"type": "object", "properties": {tag: {"type": "string", "not": {"enum": known}}}, "required": [tag]}
    return {"anyOf": [*members, other]}


def block_names() -> list[str]:
    return sorted({f"{cls.__name__}Block" for cls in KINDS.values()})


def block_schema(cls: type[Block]) -> Json:
    kinds = sorted(kind for kind, known in KINDS.items() if known is cls)
    properties: Json = {"type": {"enum": kinds}}
    for key in cls.keys:
        types = [TYPES[kind] for kind in key.types]
        properties[key.name] = {"type": types[0] if len(types) == 1 else types}
    properties |= {name: {} for name in PASSED_ON.get(cls.__name__, ())}
    required = ["type", *(key.name for key in cls.keys if key.required)]
    description = {"description": cls.__doc__} if cls.__doc__ else {}
    return {
        "title": f"{cls.__name__}Block",
        **description,
        "type": "object",
        "properties": properties,
        "required": required,
    }
