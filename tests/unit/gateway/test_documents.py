"""The documents of the API name every route, and no others."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import Route, WebSocketRoute

from parley.gateway.http.app import Api, route
from parley.gateway.http.auth import Gate
from parley.gateway.http.documents import build_asyncapi, build_openapi
from parley.gateway.hub import HubSettings, SessionHub
from parley.gateway.security.tokens import Tokens
from parley.protocol.schema import list_messages


def test_every_route_is_documented_and_every_documented_route_exists(tmp_path: Path) -> None:
    hub = SessionHub(HubSettings(state=tmp_path / "state", root=str(tmp_path)))
    app = Api(Gate(Tokens(None)), hub).app(route)
    served = {
        (one.path, method.lower())
        for one in app.routes
        if isinstance(one, Route)
        for method in (one.methods or set()) - {"HEAD"}
    }
    page = {("/", "get"), ("/console", "get"), ("/console/{path:path}", "get")}
    described = {(path, method) for path, methods in build_openapi()["paths"].items() for method in methods}
    assert served == described | page
    sockets = {one.path for one in app.routes if isinstance(one, WebSocketRoute)}
    assert len(served) + len(sockets) > len(route.rows)
    channels = {channel["address"] for channel in build_asyncapi()["channels"].values() if "bindings" in channel}
    assert sockets == channels
    hub.close()


def test_every_operation_has_its_own_name() -> None:
    names = [operation["operationId"] for path in build_openapi()["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def test_every_message_of_the_protocol_is_in_the_document_of_the_frames() -> None:
    messages = build_asyncapi()["channels"]["session"]["messages"]
    assert {cls.__name__ for cls in list_messages().values()} <= set(messages)
