"""The tokens of a cluster: rows of the registry, of which every gateway and host has a copy in memory.

With a secret of the cluster, each row is signed. One that is not is refused, and the log names it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import msgspec

from parley.cluster.base import ClusterError, Registry, Row
from parley.cluster.cluster_secret import NO_SECRET, ClusterSecret
from parley.cluster.subjects import decode_token, encode_token
from parley.errors import UsageError
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Quotas, Scope, expand
from parley.gateway.security.tokens import (
    BOOTSTRAP,
    NOWHERE,
    OWN_NAMES,
    Grants,
    TokenInfo,
    TokenRequest,
    Tokens,
    digest,
    read_roots,
)
from parley.protocol.base import Struct

PATTERN = "tokens.*"
RETRY_SECONDS = 0.5
logger = logging.getLogger(__name__)


class StoredToken(Struct, frozen=True, kw_only=True):
    """A token in the registry, without its secret."""

    name: str
    hash: bytes
    tenant: str
    scopes: list[Scope]
    roots: list[str]
    quotas: Quotas
    created_at: float
    expires_at: float | None
    signature: bytes = b""
    """Of the row and its key, with the secret of the cluster."""

    @property
    def is_valid(self) -> bool:
        return self.expires_at is None or self.expires_at > time.time()

    def sign(self, secret: ClusterSecret) -> StoredToken:
        return msgspec.structs.replace(self, signature=secret.sign(make_key(self.name), self._content()))

    def is_signed(self, secret: ClusterSecret, key: str) -> bool:
        return make_key(self.name) == key and secret.is_signed(key, self._content(), self.signature)

    def _content(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self, signature=b""), order="sorted")


_decoder = msgspec.json.Decoder(StoredToken)


class ClusterTokens(Tokens):
    def __init__(self, registry: Registry, bootstrap: str | None, secret: ClusterSecret = NO_SECRET) -> None:
        """`bootstrap`: the token of the administrator, which is not stored."""
        self._registry = registry
        self._secret = secret
        self._by_key: dict[str, StoredToken] = {}
        self._by_hash: dict[bytes, StoredToken] = {}
        self._by_name: dict[str, StoredToken] = {}
        self._watching: asyncio.Task[None] | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when a token was added, changed or removed, by any gateway."""
        self.set_bootstrap(bootstrap)

    async def start(self) -> None:
        """Read the tokens, and follow their changes. Raises ClusterError."""
        self._set({row.key: row for row in await self._registry.rows(PATTERN)})
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching

    async def _watch(self) -> None:
        while True:
            with suppress(ClusterError):
                await self._follow()
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        """Raises ClusterError."""
        first: dict[str, Row] | None = {}
        async for change in self._registry.watch(PATTERN):
            if first is not None:
                if change is None:
                    self._set(first)
                    first = None
                elif isinstance(change, Row):
                    first[change.key] = change
            elif change is not None:
                key = change.key if isinstance(change, Row) else change
                self._by_key.pop(key, None)
                if isinstance(change, Row) and (found := self._read(change)) is not None:
                    self._by_key[key] = found
                self._index()

    def _set(self, rows: dict[str, Row]) -> None:
        self._by_key = {key: found for key, row in rows.items() if (found := self._read(row)) is not None}
        self._index()

    def _read(self, row: Row) -> StoredToken | None:
        """The token of a row; None if it is refused, because it was not written by this cluster."""
        try:
            found = _decoder.decode(row.value)
        except msgspec.MsgspecError as exc:
            logger.warning("the row %s of the registry is refused: it is not a token: %s", row.key, exc)
            return None
        if found.is_signed(self._secret, row.key):
            return found
        logger.warning(
            "the token %r in the registry is refused: it does not have the signature of this cluster. If you made it, "
            "run: parley cluster sign-tokens",
            decode_token(row.key.rpartition(".")[2]),
        )
        return None

    def _index(self) -> None:
        self._by_hash = {token.hash: token for token in self._by_key.values()}
        self._by_name = {token.name: token for token in self._by_key.values()}
        self.on_change()

    def find_hash(self, given: bytes) -> Principal | None:
        if self.is_bootstrap(given):
            return Principal.administrator(BOOTSTRAP)
        found = self._by_hash.get(given)
        if found is None:
            return None
        if not found.is_valid:
            raise Refusal("unauthorized", "the token has expired")
        return Principal(found.name, found.tenant, expand(set(found.scopes)), tuple(found.roots), found.quotas)

    def is_valid(self, name: str) -> bool:
        if name in OWN_NAMES:
            return True
        found = self._by_name.get(name)
        return found is not None and found.is_valid

    def find_quotas(self, name: str) -> Quotas:
        found = self._by_name.get(name)
        return Quotas() if found is None else found.quotas

    def find_roots(self, name: str) -> tuple[str, ...] | None:
        found = self._by_name.get(name)
        return NOWHERE if found is None else read_roots(Grants(scopes=found.scopes, roots=found.roots))

    def list(self) -> list[TokenInfo]:
        return [
            TokenInfo(
                name=token.name,
                tenant=token.tenant,
                scopes=token.scopes,
                roots=token.roots,
                quotas=token.quotas,
                created_at=token.created_at,
                expires_at=token.expires_at,
            )
            for token in sorted(self._by_key.values(), key=lambda token: token.name)
        ]

    async def add(self, wanted: TokenRequest) -> str:
        """Make a token and return it. Raises Refusal, ClusterError."""
        if wanted.name in OWN_NAMES:
            raise Refusal("name_taken", f"the name {wanted.name!r} is that of the administrator")
        token, now = secrets.token_urlsafe(32), time.time()
        stored = StoredToken(
            name=wanted.name,
            hash=digest(token),
            tenant=wanted.tenant,
            scopes=wanted.scopes,
            roots=wanted.roots,
            quotas=wanted.quotas,
            created_at=now,
            expires_at=None if wanted.expires_in is None else now + wanted.expires_in,
        ).sign(self._secret)
        key = make_key(wanted.name)
        if await self._registry.update(key, msgspec.json.encode(stored), 0) is None:
            raise Refusal("name_taken", f"a token with the name {wanted.name!r} already exists")
        self._by_key[key] = stored
        self._index()
        return token

    async def remove(self, name: str) -> bool:
        """Delete a token; False if there is none of this name. Raises ClusterError."""
        key = make_key(name)
        if await self._registry.get(key) is None:
            return False
        await self._registry.delete(key)
        self._by_key.pop(key, None)
        self._index()
        return True


async def sign_tokens(registry: Registry, secret: ClusterSecret, names: Collection[str]) -> list[str]:
    """Sign the rows of tokens that are not, all or those with the given names; returns the names signed.

    Raises UsageError for a name without a token, ClusterError.
    """
    signed, rows = [], await registry.rows(PATTERN)
    if unknown := {make_key(name) for name in names} - {row.key for row in rows}:
        missing = ", ".join(sorted(repr(decode_token(key.rpartition(".")[2])) for key in unknown))
        raise UsageError(f"there is no token {missing} in the registry; nothing was signed")
    for row in rows:
        with suppress(msgspec.MsgspecError):
            found = _decoder.decode(row.value)
            is_wanted = make_key(found.name) == row.key and (not names or found.name in names)
            if is_wanted and not found.is_signed(secret, row.key):
                value = msgspec.json.encode(found.sign(secret))
                if await registry.update(row.key, value, row.revision) is not None:
                    signed.append(found.name)
    return signed


def make_key(name: str) -> str:
    return f"tokens.{encode_token(name)}"
