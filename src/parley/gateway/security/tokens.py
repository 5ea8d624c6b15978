"""Tokens: who may connect, and what they may do.

A token is random and shown once; what is kept is its hash, with scopes, a tenant, working directories, an expiry and
quotas. All of them are in memory: `ServerTokens` also keeps those of a server in `tokens.db`, and those of a cluster
are rows of its registry (`parley/cluster/cluster_tokens.py`). Tokens do not follow from logs.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from parley.errors import UsageError
from parley.gateway.database import Database
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Quotas, Scope, expand
from parley.protocol.base import Struct
from parley.workspace.private_database import Schema

BOOTSTRAP = "admin"
"""The name of the token that the server was started with."""
LOCAL = "local"
"""Who connects to an open Unix socket."""
ITSELF = "server"
"""The server itself, to which the sessions of other programs belong."""
OWN_NAMES = frozenset({BOOTSTRAP, LOCAL, ITSELF})
"""The names that no other token can have."""
SCHEMA = Schema("tokens", 2, "CREATE TABLE tokens (name TEXT PRIMARY KEY, value BLOB NOT NULL);")
NAME = "^[^/]*[^/.][^/]*$"
"""Names without a slash that are not only dots: as a part of a path, these would mean something else."""
NOWHERE: tuple[str, ...] = ()
"""The roots of a token that does not exist."""


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new token may do."""

    name: Annotated[str, msgspec.Meta(pattern=NAME, max_length=200)]
    """A part of the path that revokes it."""
    scopes: list[Scope]
    tenant: str = ""
    roots: list[str] = []
    """Below the root of the server."""
    quotas: Quotas = Quotas()
    expires_in: float | None = None
    """Seconds; None for ever."""


class TokenInfo(Struct, frozen=True, kw_only=True):
    """A token in a list."""

    name: str
    tenant: str
    scopes: list[Scope]
    roots: list[str]
    quotas: Quotas
    created_at: float
    expires_at: float | None


class StoredToken(TokenInfo, frozen=True, kw_only=True):
    """A token as it is kept, without its secret."""

    hash: bytes
    signature: bytes = b""
    """Of the row in a cluster and its key, with the secret of the cluster."""

    @property
    def is_valid(self) -> bool:
        return self.expires_at is None or self.expires_at > time.time()


decode_token_row = msgspec.json.Decoder(StoredToken).decode


class Tokens:
    def __init__(self, bootstrap: str | None) -> None:
        """`bootstrap`: the token of the administrator, which is not stored."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a token was added, changed or removed, by any gateway."""
        self._by_name: dict[str, StoredToken] = {}
        self._by_hash: dict[bytes, StoredToken] = {}
        self.set_bootstrap(bootstrap)

    def set_bootstrap(self, token: str | None) -> None:
        """Replace the token of the administrator."""
        self._bootstrap = None if token is None else digest(token)

    def put(self, name: str, token: StoredToken | None) -> None:
        """A token was made or changed; None if it was removed."""
        if (before := self._by_name.pop(name, None)) is not None:
            self._by_hash.pop(before.hash, None)
        if token is not None:
            self._by_name[name] = self._by_hash[token.hash] = token
        self.on_change()

    def find(self, token: str) -> Principal | None:
        """Who a token belongs to; None if it is unknown. Raises Refusal if it has expired."""
        return self._find_hash(digest(token))

    def _find_hash(self, given: bytes) -> Principal | None:
        if self._bootstrap is not None and hmac.compare_digest(given, self._bootstrap):
            return Principal.administrator(BOOTSTRAP)
        # Looked up by its hash: how long that takes says nothing about the token.
        found = self._by_hash.get(given)
        if found is None:
            return None
        if not found.is_valid:
            raise Refusal("unauthorized", "the token has expired")
        return Principal(found.name, found.tenant, expand(set(found.scopes)), tuple(found.roots), found.quotas)

    def is_current(self, given: bytes, principal: Principal) -> bool:
        """Whether the token with a hash still is what it was when its holder connected."""
        try:
            return self._find_hash(given) == principal
        except Refusal:
            return False

    def is_valid(self, name: str) -> bool:
        """Whether there is a token of a name that has not expired."""
        return name in OWN_NAMES or ((found := self._by_name.get(name)) is not None and found.is_valid)

    def find_quotas(self, name: str) -> Quotas:
        """The quotas of a token; those of the administrator and of a revoked token have no limits of their own."""
        found = self._by_name.get(name)
        return Quotas() if found is None else found.quotas

    def find_roots(self, name: str) -> tuple[str, ...] | None:
        """The roots of a token; None for an administrator's, and no folder for a revoked one."""
        found = self._by_name.get(name)
        if name in OWN_NAMES or (found is not None and Scope.ADMIN in found.scopes):
            return None
        return NOWHERE if found is None else tuple(found.roots) or ("",)

    def list(self) -> list[TokenInfo]:
        found = sorted(self._by_name.values(), key=lambda token: token.name)
        return [msgspec.convert(token, TokenInfo, from_attributes=True) for token in found]

    async def add(self, wanted: TokenRequest) -> str:
        """Make a token and return it. Raises Refusal."""
        if wanted.name in OWN_NAMES:
            raise Refusal("name_taken", f"the name {wanted.name!r} is reserved")
        token, now = secrets.token_urlsafe(32), time.time()
        made = StoredToken(
            name=wanted.name,
            hash=digest(token),
            tenant=wanted.tenant,
            scopes=wanted.scopes,
            roots=wanted.roots,
            quotas=wanted.quotas,
            created_at=now,
            expires_at=None if wanted.expires_in is None else now + wanted.expires_in,
        )
        if not await self._save(made):
            raise Refusal("name_taken", f"a token with the name {wanted.name!r} already exists")
        self.put(made.name, made)
        return token

    async def remove(self, name: str) -> bool:
        """Revoke a token; False if there is none of this name."""
        is_known = await self._delete(name)
        self.put(name, None)
        return is_known

    async def _save(self, token: StoredToken) -> bool:
        """Keep a new token; False if there is one of its name."""
        return token.name not in self._by_name

    async def _delete(self, name: str) -> bool:
        """Keep a token no longer; False if there was none of its name."""
        return name in self._by_name

    async def close(self) -> None:
        """The server stops."""


class ServerTokens(Tokens):
    def __init__(self, path: Path, bootstrap: str | None) -> None:
        """Raises SessionError."""
        super().__init__(bootstrap)
        self._database = Database(path, SCHEMA)
        for row in self._database.rows("SELECT name, value FROM tokens"):
            self.put(row["name"], decode_token_row(row["value"]))

    async def _save(self, token: StoredToken) -> bool:
        statement = "INSERT OR IGNORE INTO tokens (name, value) VALUES (?, ?)"
        return self._database.change(statement, token.name, msgspec.json.encode(token)) == 1

    async def _delete(self, name: str) -> bool:
        return self._database.change("DELETE FROM tokens WHERE name=?", name) == 1

    async def close(self) -> None:
        self._database.close()


def digest(token: str) -> bytes:
    """Tokens are random, so a fast hash is enough."""
    return hashlib.sha256(token.encode()).digest()


def read_token_file(path: str) -> tuple[str, bool]:
    """The token in a file, and whether it was made now: a missing file is created. Raises UsageError.

    Several servers may be started at once with the same missing file: it appears with its content, and one creates it.
    """
    if os.path.lexists(path):
        return read_existing(path), False
    token = secrets.token_urlsafe(32)
    new = f"{path}.{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(token + "\n")
        try:
            os.link(new, path)
        finally:
            os.unlink(new)
    except FileExistsError:
        return read_existing(path), False
    except OSError as exc:
        raise UsageError(f"cannot create the token file {path}: {exc.strerror}") from None
    return token, True


def read_existing(path: str) -> str:
    try:
        with open(path) as file:
            token = file.read().strip()
            mode = os.fstat(file.fileno()).st_mode
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read the token file {path}: {exc}") from None
    if mode & 0o037:  # a group may read it: that is how Kubernetes gives a secret to a process that is not root
        raise UsageError(f"other users can read or change the token file {path}; run: chmod 600 {path}")
    if len(token) < 16:
        raise UsageError(f"the token in {path} must have at least 16 characters")
    return token
