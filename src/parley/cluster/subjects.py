"""The names of sessions, hosts and shards as subjects of the bus and keys of the registry.

A name of any text becomes one token: letters, digits, `-` and `_` stay, every other byte of its UTF-8 is `=` and two
hexadecimal digits. The empty name is `=`.
"""

from __future__ import annotations

import re

from parley.cluster.base import LogKey

DEFAULT_PREFIX = "parley"
_OTHER = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPE = re.compile(rb"=([0-9A-F]{2})")


def encode_token(name: str) -> str:
    """A name as one token of a subject."""
    return _OTHER.sub(lambda match: b"=%02X" % match[0][0], name.encode()).decode() or "="


def decode_token(token: str) -> str:
    """The name that a token was made from."""
    if token == "=":
        return ""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), token.encode()).decode()


def session_tokens(key: LogKey, shards: int) -> str:
    """`<shard>.<tenant>.<session>`: what every subject and key of a session ends with."""
    return f"{key.shard(shards)}.{encode_token(key.tenant)}.{encode_token(key.session)}"


def row_key(kind: str, key: LogKey, shards: int) -> str:
    """The row of a session in the registry. `kind`: `sessions`, `work` or `stopped`."""
    return f"{kind}.{session_tokens(key, shards)}"


def parse_session_tokens(tokens: str) -> LogKey:
    """The session of a subject or key that ends with `session_tokens`."""
    tenant, session = tokens.split(".")[-2:]
    return LogKey(decode_token(tenant), decode_token(session))


def command_subject(prefix: str, key: LogKey, shards: int) -> str:
    """Where the owner of a session receives requests."""
    return f"{prefix}.cmd.{session_tokens(key, shards)}"


def shard_subject(prefix: str, shard: int) -> str:
    """What the owner of a shard subscribes to."""
    return f"{prefix}.cmd.{shard}.>"


def read_shard(subject: str) -> int | None:
    """The shard of a subject of a session; None if it is that of a host."""
    words = subject.split(".")
    return int(words[-3]) if len(words) >= 4 and words[-4] == "cmd" else None


def owner_subject(prefix: str, shard: int | str) -> str:
    """Where a host says that it has taken a shard. The data is its inbox."""
    return f"{prefix}.owner.{shard}"


def host_subject(prefix: str, host: str) -> str:
    """Where one host receives requests."""
    return f"{prefix}.host.{encode_token(host)}"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern with `*` for one token and `>` for one or more at the end."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        given, rest = given[: len(wanted)], given[len(wanted) :]
        if not rest:
            return False
    return len(wanted) == len(given) and all(token in ("*", part) for token, part in zip(wanted, given, strict=True))
