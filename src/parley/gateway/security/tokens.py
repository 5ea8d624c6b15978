"""Tokens: who may connect, and what they may do.

A token is random and shown once; `tokens.db` keeps its hash. It has scopes, a tenant, working directories, an expiry
and quotas. This file does not follow from anything else: it is not one of the projections.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path
from typing import Annotated, Any

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
OWN_NAMES = frozenset({BOOTSTRAP, LOCAL})
"""The names that no other token can have."""


SCHEMA = Schema(
    "tokens",
    1,
    """
CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    grants TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL
);
""",
)
NAME = "^[^/]*[^/.][^/]*$"
"""Names without a slash that are not only dots: as a part of a path, these would mean something else."""
NOWHERE: tuple[str, ...] = ()
"""The roots of a token that does not exist."""


class Grants(Struct, frozen=True, kw_only=True):
    """What a token allows, as the database keeps it."""

    scopes: list[Scope]
    roots: list[str] = []
    quotas: Quotas = Quotas()


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


class Tokens:
    def __init__(self, path: Path, bootstrap: str | None) -> None:
        """`bootstrap`: the token of the administrator, which is not stored. Raises SessionError."""
        self._database = Database(path, SCHEMA)
        self.set_bootstrap(bootstrap)

    def close_database(self) -> None:
        self._database.close()

    def set_bootstrap(self, token: str | None) -> None:
        """Replace the token of the administrator."""
        self._bootstrap = None if token is None else digest(token)

    def is_bootstrap(self, given: bytes) -> bool:
        """Whether a hash is that of the administrator's token."""
        return self._bootstrap is not None and hmac.compare_digest(given, self._bootstrap)

    def find(self, token: str) -> Principal | None:
        """Who a token belongs to; None if it is unknown. Raises Refusal if it has expired."""
        return self.find_hash(digest(token))

    def find_hash(self, given: bytes) -> Principal | None:
        """The same by the hash of the token."""
        if self.is_bootstrap(given):
            return Principal.administrator(BOOTSTRAP)
        # Looked up by its hash: how long that takes says nothing about the token.
        row = self._database.row("SELECT * FROM tokens WHERE hash=?", given)
        if row is None:
            return None
        if row["expires_at"] is not None and row["expires_at"] <= time.time():
            raise Refusal("unauthorized", "the token has expired")
        grants = msgspec.json.decode(row["grants"], type=Grants)
        scopes = expand(set(grants.scopes))
        return Principal(row["name"], row["tenant"], scopes, tuple(grants.roots), grants.quotas)

    def is_current(self, given: bytes, principal: Principal) -> bool:
        """Whether the token with a hash still is what it was when its holder connected."""
        try:
            return self.find_hash(given) == principal
        except Refusal:
            return False

    def find_quotas(self, name: str) -> Quotas:
        """The quotas of a token; those of the administrator and of a revoked token have no limits of their own."""
        row = self._database.row("SELECT grants FROM tokens WHERE name=?", name)
        return Quotas() if row is None else msgspec.json.decode(row["grants"], type=Grants).quotas

    def find_roots(self, name: str) -> tuple[str, ...] | None:
        """The roots of a token; None for an administrator's, and no folder for a revoked one."""
        if name in OWN_NAMES:
            return None
        row = self._database.row("SELECT grants FROM tokens WHERE name=?", name)
        return NOWHERE if row is None else read_roots(msgspec.json.decode(row["grants"], type=Grants))

    def create(self, wanted: TokenRequest) -> str:
        """Make a token and return it. Raises Refusal."""
        if wanted.name in OWN_NAMES:
            raise Refusal("name_taken", f"the name {wanted.name!r} is that of the administrator")
        token, now = secrets.token_urlsafe(32), time.time()
        grants = Grants(scopes=wanted.scopes, roots=wanted.roots, quotas=wanted.quotas)
        expires_at = None if wanted.expires_in is None else now + wanted.expires_in
        if not self._database.change(
            "INSERT OR IGNORE INTO tokens (name, hash, tenant, grants, created_at, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            *(wanted.name, digest(token), wanted.tenant, msgspec.json.encode(grants), now, expires_at),
        ):
            raise Refusal("name_taken", f"a token with the name {wanted.name!r} already exists")
        return token

    def revoke(self, name: str) -> bool:
        """Delete a token; False if there is none of this name."""
        return self._database.change("DELETE FROM tokens WHERE name=?", name) == 1

    def list(self) -> list[TokenInfo]:
        return [read_info(row) for row in self._database.rows("SELECT * FROM tokens ORDER BY name")]


def read_roots(grants: Grants) -> tuple[str, ...] | None:
    return None if Scope.ADMIN in grants.scopes else tuple(grants.roots) or ("",)


def read_info(row: Any) -> TokenInfo:
    grants = msgspec.json.decode(row["grants"], type=Grants)
    return TokenInfo(
        name=row["name"],
        tenant=row["tenant"],
        scopes=grants.scopes,
        roots=grants.roots,
        quotas=grants.quotas,
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )


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
