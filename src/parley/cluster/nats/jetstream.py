"""Streams: store a message, read stored ones, create a stream, and check how durable its server is.

A server acknowledges a message before it is on the disk, unless it was started with `sync_interval: always`. Then the
message survives a power failure only on other servers. A client cannot ask a server for this setting: only its
monitoring port and its system account show it. So the operator gives the address of the monitoring port, or states the
setting.

Reads of one message are answered by the leader of the stream. Batches may be answered by any replica, so they may be
older than what the leader has.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import msgspec

from parley._threads import run_in_thread
from parley.cluster.base import ClusterError, NoResponders
from parley.cluster.nats.connection import NatsConnection
from parley.protocol.base import Struct

if TYPE_CHECKING:
    from nats.aio.msg import Msg


BATCH_MESSAGES = 1000
"""The most that a server sends for one request."""
BATCH_BYTES = 8 << 20
CREATE_SECONDS = 15.0
"""How long servers may take to elect leaders after they were started."""
CREATE_POLL_SECONDS = 0.25
ELECTION_POLL_SECONDS = 0.05
NOT_FOUND = 404
UNAVAILABLE = 503
NO_PEERS = 10005
STREAM_NAME_USED = 10058
STREAM_NOT_FOUND = 10059
WRONG_LAST_SEQUENCE = (10071, 10164)
FULL = (10023, 10047, 10077)
MESSAGE_ID = "Nats-Msg-Id"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
NANOSECONDS = 1_000_000_000
DUPLICATE_WINDOW_SECONDS = 120
MARKER_SECONDS = 600
"""How long a registry remembers that a key was deleted, for watchers that were disconnected."""
MUST_EQUAL = ("subjects", "retention", "storage", "discard", "max_age", "max_msgs", "max_msgs_per_subject")
MUST_HAVE = ("allow_direct", "deny_delete", "allow_msg_ttl")
SAFE_REPLICAS = 3
MONITOR_SECONDS = 5


class JetStreamError(ClusterError):
    """The server refused a request."""

    def __init__(self, where: str, error: Mapping[str, Any]) -> None:
        self.status = error.get("code", 0)
        self.number = error.get("err_code", 0)
        text = f"{where} refuses: {error.get('description', error)}"
        if self.number in FULL:
            self.error_code = "ENOSPC"
            text += ". It has no room: add space to it, raise its limits, or delete sessions"
        super().__init__(text)


class Stored(Struct, frozen=True):
    """A message in a stream."""

    subject: str
    sequence: int
    headers: Mapping[str, str]
    data: bytes


class Ack(Struct, frozen=True):
    """A message is stored."""

    seq: int
    duplicate: bool = False
    """It was before."""


class JetStream:
    def __init__(self, connection: NatsConnection) -> None:
        self.connection = connection
        self.where = connection.where

    async def call(self, name: str, body: Any = None) -> dict[str, Any]:
        """A request to the API of JetStream. Raises JetStreamError, ClusterError."""
        data = b"" if body is None else msgspec.json.encode(body)
        reply = await self._request(f"$JS.API.{name}", data, {})
        return self._parse(reply)

    async def store(self, subject: str, data: bytes, headers: Mapping[str, str]) -> Ack:
        """Raises JetStreamError if the message was refused, ClusterError if it is not known whether it was stored."""
        return msgspec.convert(self._parse(await self._request(subject, data, headers)), Ack)

    async def _request(self, subject: str, data: bytes, headers: Mapping[str, str]) -> Msg:
        clock = asyncio.get_running_loop().time
        end = clock() + self.connection.timeout_seconds
        while True:
            try:
                return await self.connection.ask(subject, data, headers, max(0.0, end - clock()), is_quick=True)
            except NoResponders:
                # The servers elect a leader of the stream, or have not heard of it yet. Nothing was delivered.
                if clock() >= end - ELECTION_POLL_SECONDS:
                    raise ClusterError(f"{self.where}: JetStream does not answer on {subject}") from None
            await asyncio.sleep(ELECTION_POLL_SECONDS)

    def _parse(self, reply: Msg) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(reply.data, type=dict[str, Any])
        except msgspec.DecodeError as exc:
            raise ClusterError(f"{self.where} sent an answer that is not JSON: {exc}") from None
        if "error" in answer:
            raise JetStreamError(self.where, answer["error"])
        return answer

    async def create_stream(self, config: dict[str, Any]) -> dict[str, Any]:
        """Create a stream unless there is one with its name; returns the configuration that it has."""
        clock = asyncio.get_running_loop().time
        end = clock() + CREATE_SECONDS
        while True:
            try:
                return await self._create_stream(config)
            except ClusterError as exc:
                # Servers that have just started do not know each other yet, or have no leader.
                is_refused = isinstance(exc, JetStreamError) and exc.status != UNAVAILABLE and exc.number != NO_PEERS
                if is_refused or clock() > end:
                    raise
            await asyncio.sleep(CREATE_POLL_SECONDS)

    async def _create_stream(self, config: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict((await self.info(config["name"]))["config"])
        except JetStreamError as exc:
            if exc.number != STREAM_NOT_FOUND:
                raise
        try:
            return dict((await self.call(f"STREAM.CREATE.{config['name']}", config))["config"])
        except JetStreamError as exc:
            if exc.number != STREAM_NAME_USED:  # another process has just created it, with other settings
                raise
        return dict((await self.info(config["name"]))["config"])

    async def info(self, stream: str) -> dict[str, Any]:
        return await self.call(f"STREAM.INFO.{stream}")

    async def get_last(self, stream: str, subject: str) -> Stored | None:
        """The last message of a subject, from the leader."""
        return await self._get(stream, {"last_by_subj": subject})

    async def get_next(self, stream: str, subject: str, after: int) -> Stored | None:
        """The first message of a subject after a sequence, from the leader."""
        return await self._get(stream, {"seq": after + 1, "next_by_subj": subject})

    async def get(self, stream: str, sequence: int) -> Stored | None:
        """A message, from the leader."""
        return await self._get(stream, {"seq": sequence})

    async def _get(self, stream: str, query: dict[str, Any]) -> Stored | None:
        try:
            found = (await self.call(f"STREAM.MSG.GET.{stream}", query))["message"]
        except JetStreamError as exc:
            if exc.status == NOT_FOUND and exc.number != STREAM_NOT_FOUND:
                return None
            raise
        return Stored(
            subject=found["subject"],
            sequence=found["seq"],
            headers=parse_headers(base64.b64decode(found.get("hdrs", ""))),
            data=base64.b64decode(found.get("data", "")),
        )

    async def read_all(self, stream: str, subject: str) -> list[Stored]:
        """The messages of a subject, which may have wildcards: all that the leader has at the time of the call."""
        last = await self.get_last(stream, subject)
        if last is None:
            return []
        found = [message async for message in self.scan(stream, subject)]
        while not found or found[-1].sequence < last.sequence:
            # The replica that answered is behind.
            following = await self.get_next(stream, subject, found[-1].sequence if found else 0)
            if following is None:  # deleted in the meantime
                break
            found.append(following)
        return found

    async def scan(self, stream: str, subject: str, after: int = 0) -> AsyncIterator[Stored]:
        """Messages of a subject, which may have wildcards, in order, until a replica has no more of them."""
        has_more = True
        while has_more:
            batch, has_more = await self.get_batch(stream, subject, after)
            for message in batch:
                yield message
                after = message.sequence

    async def get_batch(self, stream: str, subject: str, after: int) -> tuple[list[Stored], bool]:
        """Some messages after a sequence, and whether the replica has more."""
        clock = asyncio.get_running_loop().time
        end = clock() + self.connection.timeout_seconds - ELECTION_POLL_SECONDS
        while (found := await self._get_batch(stream, subject, after)) is None:
            # A new stream whose replicas do not listen yet, or one that elects a leader.
            if clock() >= end:
                raise ClusterError(f"{self.where}: JetStream does not answer")
            await asyncio.sleep(ELECTION_POLL_SECONDS)
        return found

    async def _get_batch(self, stream: str, subject: str, after: int) -> tuple[list[Stored], bool] | None:
        """None if no replica listens."""
        query = {"seq": after + 1, "next_by_subj": subject, "batch": BATCH_MESSAGES, "max_bytes": BATCH_BYTES}
        found: list[Stored] = []
        async with self.connection.open_inbox() as inbox:
            await self.connection.publish(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(query), inbox.subject)
            while reply := await inbox.receive(self.connection.timeout_seconds):
                headers = reply.headers or {}
                if "Nats-Sequence" not in headers:
                    return None if headers.get("Status") == "503" else (found, self._read_end(headers))
                found.append(Stored(headers["Nats-Subject"], int(headers["Nats-Sequence"]), headers, reply.data))
        raise ClusterError(f"{self.where} does not answer: it stopped while the stream {stream} was read")

    def _read_end(self, headers: Mapping[str, str]) -> bool:
        """Whether there are more messages after the end of a batch."""
        status = headers.get("Status", "")
        if status == "204":
            return int(headers.get("Nats-Num-Pending", "0")) > 0
        if status == "404":
            return False
        raise ClusterError(f"{self.where} refuses: {status} {headers.get('Description', '')}")


def parse_headers(data: bytes) -> dict[str, str]:
    """The headers of a stored message."""
    lines = data.decode(errors="replace").split("\r\n")[1:]
    return {name: value.strip() for line in lines if line for name, _, value in [line.partition(":")]}


class StreamsDiffer(ClusterError):
    """The streams of the cluster exist, with other settings."""


class StreamNames:
    """Names begin with the name of the cluster. Leases and registry are buckets that the `nats kv` tool reads."""

    def __init__(self, prefix: str) -> None:
        """Raises ClusterError."""
        if not re.fullmatch(r"[A-Za-z0-9_-]+", prefix):
            raise ClusterError(f"the name of a cluster consists of letters, digits, - and _; {prefix!r} does not")
        self.log = f"{prefix}_log"
        self.log_subject = f"{prefix}.log"
        self.snapshots = f"{prefix}_snapshots"
        self.snapshots_subject = f"{prefix}.snapshots"
        self.leases = f"KV_{prefix}_leases"
        self.leases_subject = f"$KV.{prefix}_leases"
        self.registry = f"KV_{prefix}_registry"
        self.registry_subject = f"$KV.{prefix}_registry"


def make_config(name: str, subject: str, replicas: int, **more: Any) -> dict[str, Any]:
    """The settings that all streams share: messages never end by themselves, and a full stream refuses new ones."""
    return {
        "name": name,
        "subjects": [f"{subject}.>"],
        "num_replicas": replicas,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_age": 0,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "duplicate_window": DUPLICATE_WINDOW_SECONDS * NANOSECONDS,
        "allow_direct": True,
        **more,
    }


async def create_streams(stream: JetStream, names: StreamNames, replicas: int, ttl_seconds: float) -> dict[str, Any]:
    """Create what is missing; returns the settings of the log. Raises StreamsDiffer, ClusterError."""
    ttl = round(ttl_seconds * NANOSECONDS)
    configs = (
        make_config(names.log, names.log_subject, replicas, deny_delete=True),
        make_config(names.snapshots, names.snapshots_subject, replicas, deny_delete=True),
        make_config(
            names.leases,
            names.leases_subject,
            replicas,
            max_msgs_per_subject=1,
            max_age=ttl,
            duplicate_window=min(ttl, DUPLICATE_WINDOW_SECONDS * NANOSECONDS),
        ),
        make_config(
            names.registry,
            names.registry_subject,
            replicas,
            max_msgs_per_subject=1,
            allow_msg_ttl=True,
            allow_rollup_hdrs=True,
            subject_delete_marker_ttl=MARKER_SECONDS * NANOSECONDS,
        ),
    )
    found = []
    for config in configs:
        actual = await stream.create_stream(config)
        if differences := find_differences(config, actual):
            raise StreamsDiffer(f"{stream.where}: the stream {config['name']} does not fit: {'; '.join(differences)}")
        found.append(actual)
    return found[0]


def find_differences(wanted: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    """What an existing stream has and must not have. Replicas, limits in bytes and placement are the operator's."""
    changed = [
        f"{name} is {actual.get(name)!r}, not {wanted[name]!r}"
        for name in MUST_EQUAL
        if actual.get(name) != wanted[name]
    ]
    missing = [f"{name} is not set" for name in MUST_HAVE if wanted.get(name) and not actual.get(name)]
    return changed + missing


class DurabilityOptions(Struct, frozen=True, kw_only=True):
    """What the operator says about the servers."""

    accept_loss: bool = False
    states_sync_always: bool = False
    """`--sync-always`: every server has `sync_interval: always`."""
    monitors: Sequence[str] = ()
    """Addresses of monitoring ports, `http://HOST:8222`, one for each server. They are asked for the setting."""


async def check_durability(config: dict[str, Any], options: DurabilityOptions) -> str | None:
    """Why acknowledged messages could be lost; None if they are kept. `config`: the settings of the log's stream.

    Raises ClusterError if a monitoring port does not answer or contradicts `--sync-always`.
    """
    name = config["name"]
    if config.get("storage") != "file":
        return f"the stream {name} is kept in {config.get('storage')} instead of files: a restart loses it"
    if config.get("persist_mode", "default") not in ("", "default"):
        return f"the stream {name} has persist_mode {config['persist_mode']}: messages are acknowledged early"
    lazy = [monitor for monitor in options.monitors if not await read_sync_always(monitor)]
    if lazy and options.states_sync_always:
        raise ClusterError(
            f"`--sync-always` was given, but NATS at {lazy[0]} does not have `sync_interval: always`. "
            "Correct the configuration of the server or the option"
        )
    replicas = config.get("num_replicas", 1)
    if replicas >= SAFE_REPLICAS:
        return None
    if lazy:
        return f"NATS at {lazy[0]} does not have `sync_interval: always`, and {describe_replicas(name, replicas)}"
    if options.states_sync_always or options.monitors:
        return None
    return (
        f"{describe_replicas(name, replicas)}, and it is not known whether its server has `sync_interval: always`. "
        "Give --nats-monitor or --sync-always"
    )


def describe_replicas(name: str, replicas: int) -> str:
    return f"the stream {name} has {replicas} replica{'' if replicas == 1 else 's'} instead of {SAFE_REPLICAS}"


async def read_sync_always(monitor: str) -> bool:
    """Whether a server syncs every message to the disk, from its monitoring port. Raises ClusterError."""

    def fetch() -> bytes:
        with urlopen(f"{monitor.rstrip('/')}/varz", timeout=MONITOR_SECONDS) as reply:
            return bytes(reply.read())

    if not monitor.startswith(("http://", "https://")):
        raise ClusterError(f"the address of a monitoring port begins with http:// or https://, not {monitor!r}")
    try:
        settings = msgspec.json.decode(await run_in_thread(fetch), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as exc:
        raise ClusterError(f"the monitoring port of NATS at {monitor} does not answer: {exc}") from None
    return bool(settings.get("jetstream", {}).get("config", {}).get("sync_always"))
