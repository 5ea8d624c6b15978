"""One connection to NATS, which all four interfaces use. It is the bus itself.

It reconnects for ever. While there is no connection, calls wait for one, up to their timeout: nothing is buffered that
could be sent after its caller has given up. Errors name the server, without its password.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats import errors
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription as NatsSubscription

from parley.cluster.base import BusRequest, ClusterError, Handler, NoResponders, Unsubscribe
from parley.cluster.cluster_secret import BadSignature
from parley.protocol.base import Struct
from parley.stores.numbered_log import make_too_long

if TYPE_CHECKING:
    from nats.aio.msg import Msg


OLDEST_SERVER = (2, 11)
"""The first one with batch reads and with rows that expire."""
RECONNECT_SECONDS = 0.25
PROBE_SECONDS = 2.0
PENDING_MESSAGES = 65_536
PENDING_BYTES = 64 << 20
"""What a subscription holds for a slow handler. Further messages are dropped, and the drop is logged."""
logger = logging.getLogger(__name__)
T = TypeVar("T")


class NatsAddress(Struct, frozen=True, kw_only=True):
    """Where NATS is, and how to log in."""

    url: str
    """`nats://HOST:PORT` or `tls://HOST:PORT`; several are separated by commas. May contain `USER:PASSWORD@`.

    One `tls://` requires TLS of all: the password must not depend on which server answers first.
    """
    credentials_file: Path | None = None
    """A file of NATS with a JWT and a key (`.creds`), or one with the line `USER:PASSWORD`."""
    credentials: str = ""
    """`USER:PASSWORD`, if there is no file."""
    ca_file: Path | None = None
    connect_seconds: float = 10
    """How long to try at the start. Later connections are tried for ever."""

    @property
    def servers(self) -> list[str]:
        return [part.strip() for part in self.url.split(",") if part.strip()]

    @property
    def hosts(self) -> list[str]:
        """The names or addresses of the servers."""
        return [urlsplit(server if "//" in server else f"//{server}").hostname or "" for server in self.servers]

    @property
    def requires_tls(self) -> bool:
        return self.ca_file is not None or any(server.startswith("tls://") for server in self.servers)

    def make_tls(self) -> ssl.SSLContext | None:
        return None if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)

    def read_credentials(self) -> dict[str, str]:
        """The options of the client that log it in. Raises ClusterError."""
        text = self.credentials
        try:
            text = self.credentials_file.read_text().strip() if self.credentials_file is not None else text
        except (OSError, UnicodeDecodeError) as exc:
            raise ClusterError(f"cannot read the credentials for NATS in {self.credentials_file}: {exc}") from None
        user, mark, password = text.partition(":")
        if self.credentials_file is not None and ("\n" in text or not mark):
            return {"user_credentials": str(self.credentials_file)}
        return {"user": user, "password": password} if text else {}

    def describe(self) -> str:
        """The hosts and ports, without passwords."""
        return ", ".join(
            urlsplit(server if "//" in server else f"//{server}").netloc.rpartition("@")[2] for server in self.servers
        )


async def find_exposure(address: NatsAddress) -> list[str]:
    """What is open to others, for each server: connections without credentials, and without encryption."""
    found = await asyncio.gather(*(probe_server(address, server) for server in address.servers))
    return [problem for problems in found for problem in problems]


async def probe_server(address: NatsAddress, server: str) -> list[str]:
    parts = urlsplit(server if "//" in server else f"nats://{server}")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    client, problems = AbortingClient(), []

    async def ignore(error: Exception) -> None:
        pass

    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await client.connect(
                bare.geturl(), tls=address.make_tls(), allow_reconnect=False, connect_timeout=1, error_cb=ignore
            )
        problems.append(
            f"NATS at {bare.netloc} accepts connections without credentials: anyone who reaches it can read and write "
            "all sessions. Configure users on the server, and give --nats-credentials"
        )
    except Exception as exc:  # it refuses, or does not answer: both are fine here
        logger.debug("NATS at %s refuses a connection without credentials: %s", bare.netloc, exc)
    finally:
        with suppress(Exception):
            await client.close()
        client.abort()
    is_known = bool(client._server_info)
    if is_known and not client.uses_tls and not is_loopback(bare.hostname or ""):
        problems.append(
            f"the connection to NATS at {bare.netloc} is not encrypted: others on the network can read it. Configure "
            "TLS on the server, and use tls:// and --nats-ca"
        )
    return problems


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def find_version_problem(version: str) -> str | None:
    """Why a server cannot be used."""
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < OLDEST_SERVER:
        return f"has version {version}; Parley needs {'.'.join(map(str, OLDEST_SERVER))} or newer"
    return None


def count_cancellations() -> int:
    """How often the current task was cancelled. One that was may still have to tidy up."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class Inbox(Struct, frozen=True):
    """Where replies arrive."""

    subject: str
    subscription: NatsSubscription

    async def receive(self, timeout_seconds: float) -> Msg | None:
        """The next reply; None if there is none in time."""
        cancellations = count_cancellations()
        try:
            return await self.subscription.next_msg(timeout_seconds)
        except errors.Error:
            return None
        finally:
            if count_cancellations() > cancellations:
                raise asyncio.CancelledError


class NatsConnection:
    def __init__(self, address: NatsAddress, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        """How long a request may take."""
        self.where = f"NATS at {address.describe()}"
        self.generation = 0
        """Rises with every connection: what was seen on an older one may be from another server."""
        self._address = address
        self._client: AbortingClient
        self._connected = asyncio.Event()
        self._limits: set[asyncio.Timeout] = set()
        """Of requests that are not answered on another connection."""
        self._last_error = ""

    async def open(self) -> None:
        """Raises ClusterError."""
        self._client = AbortingClient()
        ping_seconds = min(2.0, self.timeout_seconds / 2)
        self._client.requires_tls = self._address.requires_tls
        connecting = self._client.connect(
            self._address.servers,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_connected,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]  # a float will do
            connect_timeout=ping_seconds,  # type: ignore[arg-type]  # a float will do
            ping_interval=ping_seconds,  # type: ignore[arg-type]  # a float will do
            max_outstanding_pings=2,
            tls=self._address.make_tls(),
            **self._address.read_credentials(),  # type: ignore[arg-type]  # only strings
        )
        try:
            await asyncio.wait_for(connecting, self._address.connect_seconds)
        except TimeoutError:
            self._client.abort()
            raise self._make_silent_error() from None
        except Exception as exc:
            self._client.abort()
            raise ClusterError(f"{self.where} refuses the connection: {exc or type(exc).__name__}") from None
        version = self._client.connected_server_version
        if problem := find_version_problem(f"{version.major}.{version.minor}.{version.patch}"):
            await self.close()
            raise ClusterError(f"{self.where} {problem}")
        await self._on_connected()

    async def close(self) -> None:
        if not self._client.is_connected:
            self._client.abort()
        with suppress(Exception):
            await asyncio.wait_for(self._client.close(), self.timeout_seconds)
        self._client.abort()

    @property
    def max_payload_bytes(self) -> int:
        return self._client.max_payload

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def request(self, subject: str, data: bytes, timeout_seconds: float) -> bytes:
        return (await self.ask(subject, data, timeout_seconds=timeout_seconds)).data

    async def ask(
        self,
        subject: str,
        data: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        *,
        is_quick: bool = False,
    ) -> Msg:
        """The first reply. Raises NoResponders, ClusterError.

        `is_quick`: the reply comes at once or never, so that the end of the connection ends the request.
        """
        self._check_length(data)
        limit_seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        given = dict(headers) if headers else None

        async def send() -> Msg:
            return await self._client.request(subject, data, timeout=limit_seconds, headers=given)

        return await self._run(send, subject, limit_seconds, is_quick=is_quick)

    async def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        """Raises ClusterError."""
        self._check_length(data)
        await self._run(lambda: self._client.publish(subject, data, reply), subject)

    async def subscribe(self, subject: str, handler: Handler) -> Unsubscribe:
        """Returns when the server knows of it. Raises ClusterError."""

        async def handle(message: Msg) -> None:
            async def respond(data: bytes) -> None:
                if message.reply:
                    await self.publish(message.reply, data)

            try:
                await handler(BusRequest(message.subject, message.data, respond))
            except (BadSignature, msgspec.MsgspecError, ValueError) as exc:
                logger.warning("a message on %s is refused: %s", message.subject, exc)

        subscription = await self._subscribe(subject, handle)
        await self._run(self._client.flush, subject)
        return partial(self._unsubscribe, subscription)

    async def _unsubscribe(self, subscription: NatsSubscription) -> None:
        """Handle what has arrived, unless it takes too long or there is no connection; then end."""
        try:
            if self._client.is_connected:
                await self._run(subscription.drain, subscription.subject)
        except ClusterError as exc:
            logger.warning("messages on %s may be lost: %s", subscription.subject, exc)
        finally:
            self._client.forget(subscription)

    @asynccontextmanager
    async def open_inbox(self) -> AsyncIterator[Inbox]:
        """A subject of our own for as long as the block runs. Raises ClusterError."""
        subject = self._client.new_inbox()
        subscription = await self._subscribe(subject, None)
        try:
            yield Inbox(subject, subscription)
        finally:
            with suppress(Exception):  # the connection may be gone, and the subscription with it
                await subscription.unsubscribe()

    async def _subscribe(self, subject: str, handle: Callable[[Msg], Awaitable[None]] | None) -> NatsSubscription:
        return await self._run(
            lambda: self._client.subscribe(
                subject, cb=handle, pending_msgs_limit=PENDING_MESSAGES, pending_bytes_limit=PENDING_BYTES
            ),
            subject,
        )

    async def _run(
        self,
        work: Callable[[], Awaitable[T]],
        subject: str,
        timeout_seconds: float | None = None,
        *,
        is_quick: bool = False,
    ) -> T:
        """Wait for a connection, then for `work`. Raises NoResponders, ClusterError."""
        limit_seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        cancellations = count_cancellations()
        try:
            async with asyncio.timeout(limit_seconds) as limit:
                if not self._client.is_connected:
                    self._connected.clear()
                await self._connected.wait()
                if is_quick:
                    self._limits.add(limit)
                result = await work()
            # The client swallows the cancellation while it waits for a server that reads nothing.
            if limit.expired():
                raise TimeoutError
            # And that of its caller, if the reply comes at the same moment: the caller would never end.
            if count_cancellations() > cancellations:
                raise asyncio.CancelledError
            return result
        except errors.NoRespondersError:
            raise NoResponders(f"{self.where}: no one listens to {subject}") from None
        except (TimeoutError, errors.TimeoutError):
            raise self._make_silent_error(f" on {subject} within {limit_seconds:g} s") from None
        except errors.Error as exc:
            raise ClusterError(f"{self.where} failed: {exc or type(exc).__name__}") from None
        finally:
            self._limits.discard(limit)

    def _check_length(self, data: bytes) -> None:
        if len(data) > self.max_payload_bytes:
            raise make_too_long(self.where, len(data), self.max_payload_bytes)

    def _make_silent_error(self, details: str = "") -> ClusterError:
        if not self._connected.is_set():
            details = f": {self._last_error}" if self._last_error else ""
        return ClusterError(f"{self.where} does not answer{details}")

    async def _on_connected(self) -> None:
        self.generation += 1
        self._connected.set()

    async def _on_disconnected(self) -> None:
        self._connected.clear()
        limits, self._limits = self._limits, set()
        for limit in limits:
            limit.reschedule(asyncio.get_running_loop().time())

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        # Every attempt to connect fails in the same way.
        if text != self._last_error or self._connected.is_set():
            logger.warning("%s: %s", self.where, text)
        self._last_error = text


class AbortingClient(Client):
    requires_tls = False
    """Whether a server without TLS gets nothing. nats-py takes the word of the server for it."""

    def _connect_command(self) -> bytes:
        if self.requires_tls and not self.uses_tls:
            raise errors.Error("the server does not offer TLS; nothing was sent to it")
        return super()._connect_command()

    @property
    def uses_tls(self) -> bool:
        return bool(self._server_info.get("tls_required"))

    async def _attempt_reconnect(self) -> None:
        # nats-py waits until the server has read everything. A frozen one never does.
        self.abort()
        await super()._attempt_reconnect()

    async def _connect_to_server(self, s: Srv) -> None:
        # nats-py does not close the socket of an attempt that failed.
        self.abort()
        await super()._connect_to_server(s)

    def forget(self, subscription: NatsSubscription) -> None:
        """End a subscription without asking the server: it is not made again on another connection."""
        subscription._stop_processing()
        self._remove_sub(subscription._id)

    def abort(self) -> None:
        """Close the socket at once and drop what was not sent."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
