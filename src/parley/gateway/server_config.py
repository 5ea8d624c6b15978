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
    """How many of them may have sent no request yet; the oldest make room for new ones."""
    head_seconds: Positive = 10
    """How long the head of a request may take to arrive."""
    requests_per_minute: Positive = 60_000
    """How many requests and connections a token may make, unless its quota says otherwise."""
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
