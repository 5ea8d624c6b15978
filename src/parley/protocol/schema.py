"""The JSON Schema of the wire protocol, from the message classes; the same as TypeScript; and output profiles.

The schema cannot express that unknown messages, subtypes, blocks and fields are kept.

Its `version` is the version of Claude Code whose protocol it describes and a digest of the definitions: the digest
changes whenever a definition does. `x-capabilities` are those of
`messages/system.py`, `x-profiles` those below: which messages an engine sends with which options.

    to_typescript(build_schema())       -> "export interface Assistant { ... }"

Objects have an index signature, because unknown fields are kept and never refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from parley.protocol.base import Json, Message, Role, Struct, catalogue
from parley.protocol.blocks import KINDS, Block
from parley.protocol.messages.dialects import JsonRpc
from parley.protocol.messages.requests import list_requests
from parley.protocol.messages.system import CAPABILITIES
from parley.version import PROTOCOL_LEVEL

NEVER_SENT = frozenset(
    {"auth_status", "error", "tool_use_summary", "system/files_persisted", "system/local_command_output"}
    | {"system/mirror_error", "system/notification", "system/plugin_install", "system/worker_shutting_down"}
)
"""Messages that Parley reads but its engine does not send."""
OF_DIALECTS = frozenset(
    {"control", "jsonrpc", "system/consolidation", "system/error", "system/heartbeat_ack", "system/hook_execution"}
    | {"system/injected", "system/interrupted", "system/permission_request", "system/queued", "system/tool_result"}
)
"""Messages that only a dialect has."""
CONTROL = ("control_cancel_request", "control_request", "control_response", "keep_alive")


class OutputProfile(Struct, frozen=True, kw_only=True):
    """The messages that an engine sends with some options."""

    options: str
    """How it is chosen."""
    help: str
    adds: tuple[str, ...] = ()
    """The messages besides those of the default."""
    messages: tuple[str, ...] = ()
    """All its messages, if it has not those of the default."""


PROFILES = {
    "default": OutputProfile(options="--output-format stream-json --verbose", help="What every client gets."),
    "partial-messages": OutputProfile(
        options="--include-partial-messages",
        help="Also the events of the model's stream.",
        adds=("stream_event", "system/thinking_tokens"),
    ),
    "hook-events": OutputProfile(
        options="--include-hook-events",
        help="Also the runs of hooks of every event. The default has only those of SessionStart.",
        adds=("system/hook_progress", "system/hook_response", "system/hook_started"),
    ),
    "session-state": OutputProfile(
        options="CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1",
        help="Also every change between idle, running and requires_action, and of the session's goal.",
        adds=("active_goal", "system/session_state_changed"),
    ),
    "prompt-suggestions": OutputProfile(
        options="--prompt-suggestions", help="Also a suggested next prompt.", adds=("prompt_suggestion",)
    ),
    "session-mirror": OutputProfile(
        options="--session-mirror", help="Also every line of the transcript.", adds=("transcript_mirror",)
    ),
    "spec001": OutputProfile(
        options="--dialect spec001",
        help="The dialect spec001.",
        messages=(
            *("assistant", *CONTROL, "result", "stream_event", "system/error", "system/hook_execution", "system/init"),
            *("system/permission_request", "system/session_state_changed", "transcript_mirror", "user"),
        ),
    ),
    "miriad": OutputProfile(
        options="--stdio",
        help="The dialect miriad.",
        messages=(
            *("assistant", "control_response", "result", "system/consolidation", "system/error"),
            *("system/heartbeat_ack", "system/injected", "system/interrupted", "system/queued", "system/status"),
            "system/tool_result",
        ),
    ),
    "jsonrpc": OutputProfile(options="--dialect jsonrpc", help="miriad in JSON-RPC.", messages=("jsonrpc",)),
}
"""By name. Those that add something to the default can be combined."""


def list_profile(profile: OutputProfile, sent: Iterable[str]) -> list[str]:
    """The names of the messages of a profile. `sent`: those that an engine may send at all."""
    if profile.messages:
        return sorted(profile.messages)
    optional = {name for other in PROFILES.values() for name in other.adds if not name.startswith("system/hook_")}
    return sorted((set(sent) - NEVER_SENT - OF_DIALECTS - optional) | set(profile.adds))


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
    return [name_message(*key) for key, cls in list_messages().items() if Role.ENGINE in cls.senders]


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


IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
SCALARS = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
OBJECT, ANY = "JsonObject", "unknown"
HEAD = """\
/* {title}, version {version}.
 * Generated from the classes of the messages; do not edit.
 * The unions have the known members only: an engine may send others, and a client should ignore them. */

export type JsonObject = {{ [key: string]: unknown }};
"""


def to_typescript(document: Json) -> str:
    """The types of all definitions, and `Line`, which is any line."""
    parts = [HEAD.format(title=document["title"], version=document["version"])]
    parts += [declare(name, shape) for name, shape in document["$defs"].items()]
    if "anyOf" in document:
        parts.append(f"/** Any line. */\nexport type Line ={join_lines(map(type_of, document['anyOf']))};\n")
    return "\n".join(parts)


def declare(name: str, shape: Json) -> str:
    """The declaration of one definition."""
    comment = f"/** {clean(shape['description'])} */\n" if shape.get("description") else ""
    if "properties" not in shape:
        return f"{comment}export type {name} ={join_lines(map(type_of, filter(is_known, shape['anyOf'])))};\n"
    return f"{comment}export interface {name} {{\n" + "".join(fields(shape)) + "}\n"


def is_known(shape: Json) -> bool:
    """Whether a member of a union has a name. With a member for all others, no `switch` could tell them apart."""
    return "$ref" in shape


def fields(shape: Json) -> Iterator[str]:
    required = shape.get("required", ())
    for name, value in shape["properties"].items():
        key = name if IDENTIFIER.fullmatch(name) else json.dumps(name)
        if value.get("description"):
            yield f"  /** {clean(value['description'])} */\n"
        yield f"  {key}{'' if name in required else '?'}: {type_of(value)};\n"
    if "jsonrpc" in shape["properties"]:
        yield "  type?: undefined;\n"  # tells it apart from all other lines
    yield "  [key: string]: unknown;\n"


def type_of(shape: Json) -> str:
    """A schema as a type."""
    match shape:
        case {"$ref": ref}:
            return str(ref.rpartition("/")[2])
        case {"enum": values}:
            return join_types(json.dumps(value) for value in values)
        case {"anyOf": shapes}:
            return join_types(map(type_of, shapes))
        case {"type": "array", "items": item}:
            return array_of(type_of(item))
        case {"type": "object", "properties": _}:
            return "{ " + "".join(part.strip() + " " for part in fields(shape)) + "}"
        case {"type": "object", "additionalProperties": dict() as item}:
            return f"{{ [key: string]: {type_of(item)} }}"
        case {"type": [*types]}:
            return join_types(type_of({"type": kind}) for kind in types)
        case {"type": "array"}:
            return "unknown[]"
        case {"type": "object"}:
            return OBJECT
        case {"type": str() as kind}:
            return SCALARS[kind]
    return ANY


def array_of(item: str) -> str:
    return f"({item})[]" if " | " in item else f"{item}[]"


def join_types(types: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(types))


def join_lines(types: Iterable[str]) -> str:
    return "".join(f"\n  | {each}" for each in dict.fromkeys(types))


def clean(text: str) -> str:
    return " ".join(text.replace("*/", "* /").split())
