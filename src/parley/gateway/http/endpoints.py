"""What a route of the API is: one row says who may use it, what it takes and what it gives.

The application, the OpenAPI document and the check of scopes are made from the same rows (`routes.py` has them).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from parley.gateway.security.access import Principal, Scope
from parley.protocol.base import Struct

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"


class Parameter(Struct, frozen=True):
    """A parameter of the URL, or a header."""

    name: str
    description: str
    type: Any = str
    place: str = "query"


class Endpoint(Struct, frozen=True, kw_only=True):
    """A route that needs a token."""

    method: str
    path: str
    handler: Callable[[Any, Request, Principal], Awaitable[Response]]
    """A method of `Api`."""
    summary: str
    scope: Scope | None = None
    """What every request needs; None if that depends on the request."""
    takes: Any = None
    """The class of the body."""
    gives: Any = None
    """The class of the reply; None for none."""
    status: int = 200
    media: str = JSON
    parameters: tuple[Parameter, ...] = ()


class OpenEndpoint(Struct, frozen=True, kw_only=True):
    """A GET that needs no token."""

    path: str
    handler: Callable[[Any, Request], Awaitable[Response]]
    summary: str
    gives: Any
    others: tuple[int, ...] = ()
    """Further statuses that have the same body."""


class SocketEndpoint(Struct, frozen=True, kw_only=True):
    """A WebSocket."""

    path: str
    name: str
    handler: Callable[..., Awaitable[None]]
    summary: str
