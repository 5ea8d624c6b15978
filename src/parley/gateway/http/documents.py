"""The documents of the API: OpenAPI 3.1 for requests, AsyncAPI 3.0 for frames and events.

Both are made from the rows in `app.py` and from the classes that the code reads and writes. `scripts/gen_gateway.py`
writes them to docs/gateway, and the server serves them at `/openapi.json` and `/asyncapi.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, get_origin

import msgspec

from parley.gateway.http.api_types import ErrorReply
from parley.gateway.http.app import AFTER, PARTIAL, route
from parley.gateway.http.auth import Auth
from parley.gateway.http.routes import JSON, SOCKETS, Endpoint, Parameter
from parley.gateway.questions import Question, QuestionDecided
from parley.gateway.subscriber import Resync
from parley.protocol.base import Json, Role
from parley.protocol.schema import build_schema, list_messages
from parley.version import __version__

LICENSE = {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
SCHEMAS = "#/components/schemas/"
SOCKET_SECURITY: Json = {
    "token": {"type": "http", "scheme": "bearer"},
    "subprotocol": {
        "type": "httpApiKey",
        "name": "Sec-WebSocket-Protocol",
        "in": "header",
        "description": "The subprotocols `parley` and `parley.token.TOKEN`, for browsers. A client that can set "
        "neither sends the token in its first frame, as `Auth`.",
    },
}
"""How a client of a socket sends its token."""
NUMBERED = Parameter(
    "numbered", "Every frame is NUMBER<TAB>LINE; the number is empty for lines that are not stored.", bool
)
CWD = Parameter("cwd", "The working directory of the new session.")


@cache
def encode(build: Callable[[], Json]) -> bytes:
    """The document of `build_openapi` or `build_asyncapi`."""
    return msgspec.json.format(msgspec.json.encode(build()), indent=2) + b"\n"


# OpenAPI.


def build_openapi() -> Json:
    types = [ErrorReply, *(kind for row in route.rows for kind in (row.takes, row.gives) if kind is not None)]
    found, schemas = msgspec.json.schema_components(types, ref_template=SCHEMAS + "{name}")
    refs = {repr(kind): schema for kind, schema in zip(types, found, strict=True)}
    paths: Json = {}
    for path, rows in sorted(route.by_path().items()):
        paths[path] = {method.lower(): describe_operation(row, refs) for method, row in rows.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Parley gateway",
            "version": __version__,
            "summary": "Sessions over HTTP.",
            "description": "The lines of a session are described by /asyncapi.json.",
            "license": LICENSE,
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def describe_operation(row: Endpoint, refs: Json) -> Json:
    operation: Json = {
        "operationId": row.name,
        "summary": row.summary,
        "tags": [row.path.removeprefix("/v1/code").split("/")[1]],
    }
    if row.is_open:
        replies = {str(status): describe_reply(row.gives, row.media, refs) for status in (200, *row.others)}
        return {**operation, "security": [], "responses": replies}
    if row.scope is not None:
        operation["security"] = [{"token": [str(row.scope)]}]
    places = re.findall(r"{(\w+)}", row.path)
    parameters = [Parameter(name, "", place="path") for name in places] + list(row.parameters)
    if parameters:
        operation["parameters"] = [describe_parameter(parameter) for parameter in parameters]
    if row.takes is not None:
        content = {JSON: {"schema": refs[repr(row.takes)]}}
        operation["requestBody"] = {"required": is_body_required(row.takes), "content": content}
    operation["responses"] = {
        str(row.status): describe_reply(row.gives, row.media, refs),
        "default": {**describe_reply(ErrorReply, JSON, refs), "description": "The request was refused."},
    }
    return operation


def is_body_required(kind: Any) -> bool:
    """A body whose fields all have defaults may be left out."""
    fields = () if get_origin(kind) is dict else msgspec.structs.fields(kind)
    return any(field.required for field in fields)


def describe_reply(kind: Any, media: str, refs: Json) -> Json:
    if kind is None:
        return {"description": "Done."}
    return {"description": "The reply.", "content": {media: {"schema": refs[repr(kind)]}}}


def describe_parameter(parameter: Parameter) -> Json:
    found: Json = {"name": parameter.name, "in": parameter.place, "schema": msgspec.json.schema(parameter.type)}
    if parameter.description:
        found["description"] = parameter.description
    if parameter.place == "path":
        found["required"] = True
    return found


# AsyncAPI.


def build_asyncapi() -> Json:
    protocol = move_references(build_schema()["$defs"])
    own = [QuestionDecided, Resync, Auth, Question]
    _, schemas = msgspec.json.schema_components(own, ref_template=SCHEMAS + "{name}")
    lines = list_messages().values()
    from_clients = [cls.__name__ for cls in lines if Role.HOST in cls.senders] + [Auth.__name__]
    from_server = [cls.__name__ for cls in lines if Role.ENGINE in cls.senders]
    from_server += [QuestionDecided.__name__, Resync.__name__]
    names = sorted({*from_clients, *from_server})
    channels: Json = {}
    operations: Json = {}

    def add(key: str, channel: Json, sent: list[str], received: list[str]) -> None:
        channels[key] = channel
        for action, part in (("send", sent), ("receive", received)):
            if part:
                operations[f"{action}{key[0].upper()}{key[1:]}"] = {
                    "action": action,
                    "channel": {"$ref": f"#/channels/{key}"},
                    "messages": [{"$ref": f"#/channels/{key}/messages/{name}"} for name in part],
                }

    new, existing, editor = SOCKETS
    socket = describe_socket(new.path, new.summary, names, (CWD, NUMBERED, PARTIAL))
    add("newSession", socket, from_server, from_clients)
    socket = describe_socket(existing.path, existing.summary, names, (AFTER, NUMBERED, PARTIAL))
    add("session", socket, from_server, from_clients)
    socket = describe_socket(editor.path, "The Agent Client Protocol, one JSON-RPC message per frame.", ["Rpc"], ())
    add("editor", socket, ["Rpc"], ["Rpc"])
    for key, path, sent in (
        ("events", "/sessions/{session_id}/events", from_server),
        ("questions", "/questions/events", ["Question"]),
    ):
        add(key, describe_channel(path, "Server-sent events.", sent), sent, [])
    messages = {name: {"name": name, "payload": {"$ref": SCHEMAS + name}} for name in [*names, "Question"]}
    messages["Rpc"] = {"name": "Rpc", "payload": {"type": "object", "required": ["jsonrpc"]}}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Parley gateway",
            "version": __version__,
            "description": "The lines of sessions over WebSocket and server-sent events. A frame is one line with its "
            "line end. Unknown types and fields are passed on. /openapi.json describes the requests.",
            "license": LICENSE,
        },
        "servers": {
            "local": {
                "host": "127.0.0.1:8787",
                "protocol": "ws",
                "security": [{"$ref": f"#/components/securitySchemes/{name}"} for name in SOCKET_SECURITY],
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": dict(sorted({**protocol, **schemas}.items())),
            "securitySchemes": SOCKET_SECURITY,
        },
    }


def move_references(schema: Any) -> Any:
    """A schema whose parts are in the components of an AsyncAPI document, where a discriminator has another form."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", SCHEMAS) if key == "$ref" else move_references(value)
            for key, value in schema.items()
            if key != "discriminator"
        }
    return [move_references(item) for item in schema] if isinstance(schema, list) else schema


def describe_channel(path: str, summary: str, messages: list[str]) -> Json:
    channel: Json = {
        "address": path,
        "summary": summary,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
    }
    if places := re.findall(r"{(\w+)}", path):
        channel["parameters"] = {name: {"description": "The id of the session."} for name in places}
    return channel


def describe_socket(path: str, summary: str, messages: list[str], query: tuple[Parameter, ...]) -> Json:
    properties = {each.name: {**msgspec.json.schema(each.type), "description": each.description} for each in query}
    bindings = {"ws": {"method": "GET", "query": {"type": "object", "properties": properties}}}
    return {**describe_channel(path, summary, messages), "bindings": bindings}
