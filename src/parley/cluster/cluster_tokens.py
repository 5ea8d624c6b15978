"""The tokens of a cluster: rows of the registry, of which every gateway and host has a copy in memory.

With a secret of the cluster, each row is signed. One that is not is refused, and the log names it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress

import msgspec

from parley.cluster.base import ClusterRegistry
from parley.cluster.cluster_secret import NO_SECRET, ClusterSecret
from parley.cluster.subjects import decode_token, encode_token
from parley.cluster.tenants import watch_rows
from parley.errors import UsageError
from parley.gateway.security.tokens import StoredToken, Tokens, decode_token_row

PATTERN = "tokens.*"
logger = logging.getLogger(__name__)


class ClusterTokens(Tokens):
    def __init__(self, registry: ClusterRegistry, bootstrap: str | None, secret: ClusterSecret = NO_SECRET) -> None:
        super().__init__(bootstrap)
        self._registry = registry
        self._secret = secret
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the tokens, and follow their changes."""
        is_read = asyncio.Event()
        self._watching = asyncio.create_task(watch_rows(self._registry, PATTERN, self._on_row, is_read.set))
        await is_read.wait()

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def _on_row(self, key: str, value: bytes | None) -> None:
        self.put(decode_token(key.rpartition(".")[2]), None if value is None else self._read(key, value))

    def _read(self, key: str, value: bytes) -> StoredToken | None:
        """The token of a row; None if it is refused, because it was not written by this cluster."""
        try:
            found = decode_token_row(value)
        except msgspec.MsgspecError as exc:
            logger.warning("the row %s of the registry is refused: it is not a token: %s", key, exc)
            return None
        if is_signed(found, self._secret, key):
            return found
        logger.warning(
            "the token %r in the registry is refused: it does not have the signature of this cluster. If you made it, "
            "run: parley cluster sign-tokens",
            decode_token(key.rpartition(".")[2]),
        )
        return None

    async def _save(self, token: StoredToken) -> bool:
        """Raises ClusterError."""
        row = msgspec.json.encode(sign(token, self._secret))
        return await self._registry.update(make_key(token.name), row, 0) is not None

    async def _delete(self, name: str) -> bool:
        """Raises ClusterError."""
        if await self._registry.get(make_key(name)) is None:
            return False
        await self._registry.delete(make_key(name))
        return True


def sign(token: StoredToken, secret: ClusterSecret) -> StoredToken:
    return msgspec.structs.replace(token, signature=secret.sign(make_key(token.name), content_of(token)))


def is_signed(token: StoredToken, secret: ClusterSecret, key: str) -> bool:
    return make_key(token.name) == key and secret.is_signed(key, content_of(token), token.signature)


def content_of(token: StoredToken) -> bytes:
    """What is signed."""
    return msgspec.json.encode(msgspec.structs.replace(token, signature=b""), order="sorted")


async def sign_tokens(registry: ClusterRegistry, secret: ClusterSecret, names: Collection[str]) -> list[str]:
    """Sign the rows of tokens that are not, all or those with the given names; returns the names signed.

    Raises UsageError for a name without a token, ClusterError.
    """
    signed, rows = [], await registry.rows(PATTERN)
    if unknown := {make_key(name) for name in names} - {row.key for row in rows}:
        missing = ", ".join(sorted(repr(decode_token(key.rpartition(".")[2])) for key in unknown))
        raise UsageError(f"there is no token {missing} in the registry; nothing was signed")
    for row in rows:
        with suppress(msgspec.MsgspecError):
            found = decode_token_row(row.value)
            is_wanted = make_key(found.name) == row.key and (not names or found.name in names)
            if is_wanted and not is_signed(found, secret, row.key):
                value = msgspec.json.encode(sign(found, secret))
                if await registry.update(row.key, value, row.revision) is not None:
                    signed.append(found.name)
    return signed


def make_key(name: str) -> str:
    return f"tokens.{encode_token(name)}"
