"""What can be changed while the server runs: the TOML file of `--config`, which is read again at SIGHUP."""

from __future__ import annotations

import tomllib
from typing import Annotated

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Struct

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connections: Positive = 10_000
    """How many connections may be open at a time."""
    waiting: Positive = 1000
    """How many of them may have sent no token yet; the oldest of the address with the most make room for new ones."""
    head_seconds: Positive = 10
    """How long the head of a request may take to arrive."""
    head_bytes: Positive = 16 * 1024
    """How long the head of a request may be."""
    line_bytes: Positive = 8 * 1024 * 1024
    """How long the body of a request or a frame may be, once the client has sent its token."""
    requests_per_minute: Positive = 60_000
    """How many requests, connections and lines a token may make or send, unless its quota says otherwise."""
    connections_per_token: Positive = 1000
    """How many requests and connections of a token may be open at a time, unless its quota says otherwise."""
    bytes_per_token: Positive = 64 * 1024 * 1024
    """How much of what a token sends may be waiting for its end, and how much of what is sent to it may be waiting for
    its clients to read it, unless its quota says otherwise."""
    send_seconds: Positive = 60
    """How long a client may take to read 64 kB of what is sent to it."""
    sessions_per_token: Positive = 10_000
    """How many sessions a token may have, unless its quota says otherwise. The administrator has no such limit."""
    wrong_tokens_per_minute: Positive = 60
    """How many wrong tokens an address may send."""


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allow_origin: list[str] = []
    """Origins of pages that may connect, besides those of `--allow-origin`."""
    allow_host: list[str] = []
    """Host names that the server answers to, besides those of `--allow-host`."""
    limits: Limits = Limits()


def read_config(path: str) -> ServerConfig:
    """Raises UsageError."""
    if not path:
        return ServerConfig()
    try:
        with open(path, "rb") as file:
            return msgspec.convert(tomllib.load(file), ServerConfig)
    except OSError as exc:
        raise UsageError(f"cannot read the configuration {path}: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as exc:
        raise UsageError(f"the configuration {path} is wrong: {exc}") from None
