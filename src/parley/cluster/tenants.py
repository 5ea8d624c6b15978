"""Tenants: how much each may use in the whole cluster, and where its keys come from.

The owner of a session checks the quotas. What other hosts have counted is in the registry: a row for each session
(`session_summaries.py`), and for each token and host what its sessions have used. Other hosts see a row a moment after
it was written, so a quota can be exceeded by what several hosts do at the same moment.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from parley.cluster.base import ClusterError, ClusterRegistry, RegistryRow
from parley.cluster.session_summaries import ClusterSession, decode_session
from parley.cluster.subjects import decode_token, encode_token
from parley.errors import UsageError
from parley.gateway.database import Database
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Quotas
from parley.gateway.security.quotas import Spending, Use, check_use
from parley.protocol.base import Struct

RETRY_SECONDS = 0.5
WRITE_SECONDS = 0.2


class TenantQuotas(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a tenant; None for no limit."""

    sessions: int | None = None
    concurrent_turns: int | None = None
    tokens: int | None = None
    usd: float | None = None
    storage_bytes: int | None = None
    """How many bytes the lines of its sessions may have."""


def read_tenant_quotas(path: str) -> dict[str, TenantQuotas]:
    """The quotas in a TOML file with a table for each tenant. Raises UsageError."""
    if not path:
        return {}
    try:
        with open(path, "rb") as file:
            return msgspec.convert(tomllib.load(file), dict[str, TenantQuotas])
    except OSError as exc:
        raise UsageError(f"cannot read the quotas of tenants {path}: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as exc:
        raise UsageError(f"the quotas of tenants {path} are wrong: {exc}") from None


class TenantSessions:
    """The sessions of one tenant in the whole cluster."""

    def __init__(self, registry: ClusterRegistry, tenant: str) -> None:
        self._rows: dict[str, ClusterSession] = {}
        self.is_read = asyncio.Event()
        self._watching = asyncio.create_task(
            watch_rows(registry, f"sessions.*.{encode_token(tenant)}.*", self._on_row, self.is_read.set)
        )

    def _on_row(self, key: str, value: bytes | None) -> None:
        session = decode_token(key.rpartition(".")[2])
        self._rows.pop(session, None)
        if value is not None:
            with suppress(msgspec.MsgspecError):  # a newer version wrote it
                self._rows[session] = decode_session(value)

    def count(self, own: Iterable[str], creator: str | None = None) -> int:
        """How many there are. `own`: those that this host has, of which the registry may not know yet."""
        known = {session for session, row in self._rows.items() if creator in (None, row.creator)}
        return len(known.union(own))

    def count_busy(self, own: Iterable[str], but: str, creator: str | None = None) -> int:
        """How many have a turn that runs or waits, without one of them."""
        busy = {session for session, row in self._rows.items() if row.has_work and creator in (None, row.creator)}
        return len(busy.union(own) - {but})

    def stored_bytes(self) -> int:
        return sum(row.stored_bytes for row in self._rows.values())

    def close(self) -> None:
        self._watching.cancel()


class ClusterSpending:
    """What the sessions of each token have used on all hosts. A row of the registry has what one host has counted."""

    def __init__(self, spending: Spending, database: Database, registry: ClusterRegistry, host: str) -> None:
        self._spending = spending
        self._database = database
        self._registry = registry
        self._host = host
        self._rows: dict[str, tuple[str, str, Use]] = {}
        """The rows of other hosts, and of an earlier process with the name of this one: tenant, token and use."""
        self._tenants: dict[str, str] = {}
        """The tokens whose sessions have used something on this host, and their tenants."""
        self._base: dict[str, Use] = {}
        """What the earlier process had counted for them."""
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        is_read = asyncio.Event()
        self._tasks = [
            asyncio.create_task(watch_rows(self._registry, "spending.>", self._on_row, is_read.set)),
            asyncio.create_task(self._write_changes()),
        ]
        await is_read.wait()
        self._spending.find_elsewhere = self._find_elsewhere
        self._spending.on_recorded = self._on_recorded

    def _on_row(self, key: str, value: bytes | None) -> None:
        _, tenant, token, _ = key.split(".")
        if key == self._key(decode_token(tenant), decode_token(token)) and decode_token(token) in self._tenants:
            return  # we wrote it
        self._rows.pop(key, None)
        if value is not None:
            self._rows[key] = decode_token(tenant), decode_token(token), msgspec.json.decode(value, type=Use)

    def _on_recorded(self, session: str) -> None:
        row = self._database.row("SELECT creator, tenant FROM sessions WHERE id=?", session)
        if row is None:
            return
        creator, tenant = str(row["creator"]), str(row["tenant"])
        if creator not in self._tenants:
            self._tenants[creator] = tenant
            _, _, self._base[creator] = self._rows.pop(self._key(tenant, creator), ("", "", Use()))
        self._changed.set()

    async def _write_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for name, tenant in list(self._tenants.items()):
                use = add_use([self._spending.of_here(name), self._base[name]])
                with suppress(ClusterError):
                    await self._registry.put(self._key(tenant, name), msgspec.json.encode(use))
            await asyncio.sleep(WRITE_SECONDS)

    def _key(self, tenant: str, name: str) -> str:
        return f"spending.{encode_token(tenant)}.{encode_token(name)}.{encode_token(self._host)}"

    def _find_elsewhere(self, name: str) -> Use:
        others = [use for _, token, use in self._rows.values() if token == name]
        return add_use([*others, self._base.get(name, Use())])

    def of_tenant(self, tenant: str) -> Use:
        own = [
            add_use([self._spending.of_here(name), self._base[name]])
            for name, of in self._tenants.items()
            if of == tenant
        ]
        return add_use([*own, *(use for other, _, use in self._rows.values() if other == tenant)])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class TenantLimits:
    """Whether a tenant, or one of its tokens, may use more."""

    def __init__(
        self,
        registry: ClusterRegistry,
        quotas: Mapping[str, TenantQuotas],
        spending: ClusterSpending,
        database: Database,
    ) -> None:
        self._registry = registry
        self._quotas = quotas
        self._spending = spending
        self._database = database
        self._sessions: dict[str, TenantSessions] = {}

    async def prepare(self, tenant: str) -> None:
        """Know the sessions of a tenant. They are followed from its first request on."""
        found = self._sessions.get(tenant)
        if found is None:
            found = self._sessions[tenant] = TenantSessions(self._registry, tenant)
        await found.is_read.wait()

    def check_session(self, principal: Principal) -> None:
        """Raises Refusal if a principal may not create another session."""
        tenant, quotas = principal.tenant, self._quotas.get(principal.tenant, TenantQuotas())
        sessions = self._sessions.get(tenant)
        if sessions is None:
            return
        own = self._list("SELECT id FROM sessions WHERE tenant=?", tenant)
        check(f"the tenant {tenant!r}", "sessions", sessions.count(own), quotas.sessions)
        own = self._list("SELECT id FROM sessions WHERE tenant=? AND creator=?", tenant, principal.name)
        count = sessions.count(own, principal.name)
        check(f"the token {principal.name!r}", "sessions", count, principal.quotas.sessions)
        self._check_storage(tenant, sessions, quotas)

    def check_turn(self, tenant: str, creator: str, session: str, of_token: Quotas) -> None:
        """Raises Refusal if a session may not take a prompt."""
        quotas, sessions = self._quotas.get(tenant, TenantQuotas()), self._sessions.get(tenant)
        used = self._spending.of_tenant(tenant)
        check_use(f"the tenant {tenant!r}", used, tokens=quotas.tokens, usd=quotas.usd)
        if sessions is None:
            return
        self._check_storage(tenant, sessions, quotas)
        busy = "SELECT id FROM sessions WHERE tenant=? AND (? IS NULL OR creator=?) AND open_prompts > 0"
        count = sessions.count_busy(self._list(busy, tenant, None, None), session)
        check(f"the tenant {tenant!r}", "turns at a time", count, quotas.concurrent_turns)
        count = sessions.count_busy(self._list(busy, tenant, creator, creator), session, creator)
        check(f"the token {creator!r}", "turns at a time", count, of_token.concurrent_turns)

    def _check_storage(self, tenant: str, sessions: TenantSessions, quotas: TenantQuotas) -> None:
        if quotas.storage_bytes is not None:
            check(f"the tenant {tenant!r}", "stored bytes", sessions.stored_bytes(), quotas.storage_bytes)

    def _list(self, statement: str, *values: str | None) -> list[str]:
        return [row["id"] for row in self._database.rows(statement, *values)]

    def close(self) -> None:
        for sessions in self._sessions.values():
            sessions.close()


def check(who: str, what: str, count: int, most: int | None) -> None:
    """Raises Refusal."""
    if most is not None and count >= most:
        raise Refusal("quota_exceeded", f"{who} has reached its limit of {most} {what}")


def add_use(uses: Iterable[Use]) -> Use:
    tokens, usd = 0, 0.0
    for use in uses:
        tokens, usd = tokens + use.tokens, usd + use.usd
    return Use(tokens, usd)


async def watch_rows(
    registry: ClusterRegistry,
    pattern: str,
    on_row: Callable[[str, bytes | None], None],
    on_read: Callable[[], None],
) -> None:
    """Follow rows for ever. `on_row` gets the value of a row, None if it was deleted. `on_read`: all have been read."""
    known: set[str] = set()
    while True:
        found: set[str] = set()
        with suppress(ClusterError):
            async for change in registry.watch(pattern):
                if change is None:
                    for key in known - found:  # deleted while the connection was away
                        on_row(key, None)
                    known = found
                    on_read()
                elif isinstance(change, RegistryRow):
                    found.add(change.key)
                    on_row(change.key, change.value)
                else:
                    found.discard(change)
                    on_row(change, None)
        known = known | found
        await asyncio.sleep(RETRY_SECONDS)


class TenantSecrets:
    """The keys of tenants: environment variables for the engines of their sessions, and for nothing else."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError."""
        if not folder.is_dir():
            raise UsageError(f"option '--tenant-secrets': there is no directory {folder}")
        self._folder = folder

    def find(self, tenant: str) -> dict[str, str]:
        """The variables of a tenant; none if it has no file. Raises UsageError."""
        path = self._folder / f"{encode_token(tenant)}.env"
        try:
            with path.open() as file:
                if path.stat().st_mode & 0o077:
                    raise UsageError(f"other users can read {path}; run: chmod 600 {path}")
                lines = file.read().splitlines()
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"cannot read the keys of the tenant {tenant!r}: {exc}") from None
        return dict(read_variable(line, path) for line in lines if line.strip() and not line.startswith("#"))


def read_variable(line: str, path: Path) -> tuple[str, str]:
    """Raises UsageError, which does not show the line."""
    name, equals, value = line.partition("=")
    if not equals or not name.strip().isidentifier():
        raise UsageError(f"{path} has a line that is not NAME=VALUE")
    return name.strip(), value.strip()
