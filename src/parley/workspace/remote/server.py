"""The workspace server: files, commands and search beside the data, for engines on other machines.

    server = await WorkspaceServer.start(ServerPlace(...), WorkspaceAddress.parse("127.0.0.1:7300"), token)
    server.address                  # with the port that was chosen for port 0
    await server.close()            # ends all commands of all sessions

One server has many sessions of many engines. A session belongs to the engine that greeted last: one with a higher epoch
takes it over, one with a lower epoch is refused. After a lost connection the session's commands and calls run on for
`grace_seconds`; then they are ended. What is known of the ended ones is kept for the next engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from parley._threads import run_in_thread
from parley.errors import ToolError, UsageError
from parley.protocol.base import Struct
from parley.version import __version__
from parley.workspace import private_files
from parley.workspace.base import NotWritten
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.git import Git
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import Processes
from parley.workspace.remote import wire
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.calls import OPERATIONS, FactFinders, RequestBody, ServedWorkspace, SessionPlace, safe_name
from parley.workspace.remote.wire import (
    BrokenFrame,
    CallFailure,
    Greeting,
    Proof,
    Rejected,
    ServerChallenge,
    Welcome,
    WorkspaceChannel,
)
from parley.workspace.safe_open import Pins, is_beneath
from parley.workspace.search.search import LocalSearch
from parley.workspace.tree_snapshot import TreeSnapshot
from parley.workspace.worktrees import GitWorktrees

GREETING_SECONDS = 10.0
GRACE_SECONDS = 30.0
MAX_STRANGERS = 64
"""Connections that have not proved themselves yet."""
MAX_EARLIER = 100
"""Commands whose end is kept for an engine that takes the session over."""
MAX_CALLS = 4096
MAX_REMEMBERED = 1000
"""Ended sessions whose commands are remembered."""


class ServerPlace(Struct, frozen=True, kw_only=True):
    """What a server serves."""

    root: str
    state: Path
    """A private folder for file checkpoints and output files."""
    environment: Mapping[str, str]
    """For commands."""
    find_fact: FactFinders
    grace_seconds: float = GRACE_SECONDS
    log: Callable[[str], None] = lambda text: None


class ServedSession:
    """One session: its connection and its calls, and what outlives a lost connection.

    Every call has a number. A call whose connection is lost runs on, and its result is kept until the engine says that
    it has it: an engine that dials again in time gets the result of the first run.
    """

    def __init__(self, greeting: Greeting, place: SessionPlace) -> None:
        self.greeting = greeting
        self.place = place
        self.channel: WorkspaceChannel | None = None
        self.superseded: frozenset[str] = frozenset()
        """The engines that had the session before. They do not get it back."""
        cwd = greeting.folder or place.root
        checkpoints = CheckpointStore(place.histories / history_name(greeting))
        tree = TreeSnapshot(cwd, checkpoints, [str(place.histories.parent)]) if greeting.watches_tree else None
        pins = Pins()
        files = LocalFiles(
            cwd=cwd,
            checkpoints=checkpoints,
            new_id=lambda: uuid4().hex[:24],
            tree=tree,
            delete_history_at_end=not greeting.keeps_history,
            pins=pins,
        )
        changeable, processes = (cwd, place.root), Processes()
        self._sending = asyncio.Event()
        self.workspace = ServedWorkspace(
            place,
            files,
            LocalSearch(place.environment, lambda: changeable, pins),
            processes,
            GitWorktrees(Git(processes, place.environment, lambda: changeable)),
            self._sending.set,
            pins,
        )
        self._calls: dict[int, asyncio.Task[tuple[int, bytes]]] = {}
        self._closing: asyncio.Task[None] | None = None

    # The connection.

    async def serve(self, channel: WorkspaceChannel) -> None:
        """Answer the calls of one connection, until it is lost. Raises ConnectionError, BrokenFrame."""
        self.channel = channel
        for command in self.workspace.commands.values():
            for stream in command.streams:
                stream.sent = stream.taken
        sender = asyncio.create_task(self._send_outputs(channel))
        self._sending.set()
        try:
            while True:
                self._receive(await channel.receive(), channel)
        finally:
            sender.cancel()
            if self.channel is channel:
                self.channel = None

    def _receive(self, frame: wire.WireFrame, channel: WorkspaceChannel) -> None:
        if frame.kind == wire.REQUEST:
            self._receive_call(frame, channel)
        elif frame.kind == wire.CANCEL:
            if (task := self._calls.pop(frame.id, None)) is not None:
                task.cancel()
        elif frame.kind == wire.TAKEN:
            if len(frame.body) != wire.OFFSET.size:
                raise BrokenFrame("a position was expected")
            stream, offset = wire.OFFSET.unpack(frame.body)
            command = self.workspace.commands.get(frame.id)
            if command is not None and stream in (1, 2):
                command.streams[stream - 1].set_taken(offset)
                command.set_pace()
        elif frame.kind == wire.WAITING:
            waiting = frozenset(wire.decode_body(frame.body, list[int]))
            self._calls = {number: task for number, task in self._calls.items() if number in waiting}
        else:
            raise BrokenFrame(f"a message of the kind {frame.kind} was not expected")

    def _receive_call(self, frame: wire.WireFrame, channel: WorkspaceChannel) -> None:
        body: RequestBody = wire.decode_body(frame.body, RequestBody)
        for number in body.settled:
            self._calls.pop(number, None)
        task = self._calls.get(frame.id)
        if task is None:
            if len(self._calls) >= MAX_CALLS:
                raise BrokenFrame(f"more than {MAX_CALLS} calls are open")
            task = self._calls[frame.id] = asyncio.create_task(self._run(body.message))
        task.add_done_callback(lambda done: self._reply(frame.id, done, channel))

    def _reply(self, number: int, done: asyncio.Task[tuple[int, bytes]], channel: WorkspaceChannel) -> None:
        if not done.cancelled() and self.channel is channel:
            kind, body = done.result()
            wire.spawn(asyncio.get_running_loop(), send_quietly(channel, kind, number, body))

    async def _send_outputs(self, channel: WorkspaceChannel) -> None:
        try:
            while True:
                await self._sending.wait()
                self._sending.clear()
                for command in list(self.workspace.commands.values()):
                    for stream in command.streams:
                        await stream.send(channel, command.number)
        except ConnectionError:
            return  # the receiving side reports it

    async def _run(self, message: Any) -> tuple[int, bytes]:
        """The reply to a call."""
        try:
            result = await OPERATIONS[message.__struct_config__.tag].serve(self.workspace, message)
            return wire.REPLY, wire.encode_body(result)
        except ToolError as exc:
            failure = CallFailure("tool", str(exc))
        except NotWritten as exc:
            failure = CallFailure("not_written", str(exc))
        except OSError as exc:
            failure = CallFailure("system", exc.strerror or str(exc), exc.errno or 0)
        except UnicodeEncodeError:
            failure = CallFailure("tool", "A name in the workspace is not valid Unicode.")
        except (ValueError, TypeError, KeyError, RecursionError) as exc:  # of a call that no engine of ours makes
            failure = CallFailure("tool", f"the call is not valid: {exc}"[:500])
        return wire.FAILURE, wire.encode_body(failure)

    async def close(self) -> None:
        """End all commands and calls. What is known of the commands is kept for another engine."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)  # the caller may be cancelled; the commands end all the same

    async def _close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        for task in self._calls.values():
            task.cancel()
        at = self.workspace
        for command in at.commands.values():
            if command.tool_use_id:
                at.earlier[command.tool_use_id] = command.earlier()
                while len(at.earlier) > MAX_EARLIER:
                    del at.earlier[next(iter(at.earlier))]
        await at.processes.close()
        for record in at.records.values():
            record.close()
        await run_in_thread(at.files.close)


async def send_quietly(channel: WorkspaceChannel, kind: int, number: int, body: bytes) -> None:
    try:
        await channel.send(kind, number, body)
    except ConnectionError:
        return  # the reply is kept for the next connection


def history_name(greeting: Greeting) -> str:
    """A session that keeps no history must not delete that of the session it resumes."""
    return safe_name(greeting.session) if greeting.keeps_history else f"unkept-{uuid4().hex}"


class WorkspaceServer:
    def __init__(self, place: ServerPlace, token: str) -> None:
        self._place = replace(place, root=os.path.realpath(place.root))
        self._token = token
        self._sessions: dict[str, ServedSession] = {}
        self._ended: dict[str, ServedSession] = {}
        """For what is known of their commands."""
        self._endings: dict[str, asyncio.Task[None]] = {}
        """The sessions without a connection, which end after the grace period."""
        self._closing: set[ServedSession] = set()
        self._is_closed = False
        self._strangers = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = WorkspaceAddress()

    @classmethod
    async def start(
        cls, place: ServerPlace, address: WorkspaceAddress, token: str, certificate: tuple[str, str] | None = None
    ) -> WorkspaceServer:
        """Listen. `certificate`: the files of the certificate and its key. Raises UsageError."""
        server = cls(place, wire.check_token(token, "the token file"))
        if not os.path.isdir(server._place.root):  # noqa: ASYNC240  # nothing is served yet
            raise UsageError(f"the root {place.root} is not a folder")
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                context.load_cert_chain(*certificate)
            except OSError as exc:
                raise UsageError(f"the certificate {certificate[0]} cannot be used: {exc}") from None
        try:
            if address.path:
                remove_stale_socket(address.path)
                server._server = await asyncio.start_unix_server(server._accept, address.path)
                os.chmod(address.path, 0o600)
            else:
                server._server = await asyncio.start_server(server._accept, address.host, address.port, ssl=context)
                port = server._server.sockets[0].getsockname()[1]
                address = replace(address, port=port, is_encrypted=context is not None)
        except OSError as exc:
            raise UsageError(f"cannot listen on {address}: {exc.strerror or exc}") from None
        server.address = address
        return server

    async def close(self) -> None:
        """End all sessions and their commands."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        tasks = (*self._connections, *self._endings.values())
        for task in tasks:
            task.cancel()
        sessions = (*self._sessions.values(), *self._closing)
        await asyncio.gather(*(session.close() for session in sessions))
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sessions.clear()
        if self.address.path:
            with contextlib.suppress(OSError):
                os.unlink(self.address.path)

    # Connections.

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = writer.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = WorkspaceChannel(reader, writer)
        try:
            if self._strangers < MAX_STRANGERS:
                await self._serve(channel)
        except (ConnectionError, TimeoutError):
            pass
        except BrokenFrame as exc:
            self._place.log(f"a connection was closed: {exc}")
        except asyncio.CancelledError:
            pass  # the server ends; a task of `start_server` that is cancelled would be reported as an error
        finally:
            self._connections.discard(task)
            channel.close()

    async def _serve(self, channel: WorkspaceChannel) -> None:
        """Raises ConnectionError, BrokenFrame, TimeoutError."""
        self._strangers += 1
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                session = await self._greet(channel)
        finally:
            self._strangers -= 1
        if session is None:
            return
        channel.keep_alive()
        name = session.greeting.session
        try:
            await session.serve(channel)
        finally:
            if self._sessions.get(name) is session and session.channel is None and not self._is_closed:
                if (ending := self._endings.pop(name, None)) is not None:
                    ending.cancel()
                self._endings[name] = asyncio.create_task(self._end_after_grace(session))

    async def _greet(self, channel: WorkspaceChannel) -> ServedSession | None:
        """The session of a client that has proved itself; None if it is refused."""
        greeting = await wire.receive_hello(channel)
        if not isinstance(greeting, Greeting):
            raise BrokenFrame("a greeting was expected")
        rejected = wire.check_version(greeting, __version__)
        if rejected is None:
            nonce = wire.new_nonce()
            await wire.send_hello(channel, ServerChallenge(version=wire.WIRE_VERSION, nonce=nonce))
            proof = await wire.receive_hello(channel)
            if not isinstance(proof, Proof):
                raise BrokenFrame("a proof was expected")
            if not wire.is_proof(proof.proof, self._token, "client", greeting, nonce):
                rejected = Rejected(reason="the token is wrong")
            else:
                rejected = self._find_obstacle(greeting)
        if rejected is not None:
            self._place.log(f"an engine was refused: {rejected.reason}")
            await wire.send_hello(channel, rejected)
            return None
        session, is_known = await self._find_session(greeting)
        place = session.place
        welcome = Welcome(
            proof=b"",
            root=place.root,
            cwd=session.greeting.folder or place.root,
            home=place.environment.get("HOME", "/"),
            platform=sys.platform,
            uid=os.getuid(),
            environment={name: os.fsencode(value) for name, value in place.environment.items()},
            own_folder=str(place.own),
            is_known=is_known,
            grace_seconds=self._place.grace_seconds,
            build=__version__,
        )
        proven = wire.prove(self._token, "server", greeting, nonce)
        await wire.send_hello(channel, replace(welcome, proof=proven))
        return session

    def _find_obstacle(self, greeting: Greeting) -> Rejected | None:
        root = self._place.root
        folder = os.path.realpath(greeting.folder or root)
        if folder != root and not is_beneath(folder, root):
            return Rejected(reason=f"the folder {greeting.folder} is outside the workspace ({root})")
        if not os.path.isdir(folder):
            return Rejected(reason=f"the folder {greeting.folder} does not exist in the workspace")
        current = self._sessions.get(greeting.session) or self._ended.get(greeting.session)
        if current is not None and current.greeting.epoch > greeting.epoch:
            epochs = f"epoch {current.greeting.epoch}, this engine has epoch {greeting.epoch}"
            return Rejected(reason=f"another engine has taken the session over ({epochs})")
        if current is not None and greeting.engine in current.superseded:
            return Rejected(reason="another engine has taken the session over")
        return None

    async def _find_session(self, greeting: Greeting) -> tuple[ServedSession, bool]:
        """The session of a greeting, and whether it has the calls of that engine."""
        name = greeting.session
        if (ending := self._endings.pop(name, None)) is not None:
            ending.cancel()
        current = self._sessions.get(name)
        if current is not None and is_same_engine(current.greeting, greeting):
            if current.channel is not None:
                current.channel.close()
            return current, True
        session = ServedSession(greeting, self._make_place(greeting))
        before = current or self._ended.pop(name, None)
        # At once, before the earlier engine can come back while its commands end.
        self._sessions[name] = session
        if before is not None:
            session.superseded = before.superseded | {before.greeting.engine}
            await self._close_session(before)  # one engine at a time: its commands end before the next one starts any
            session.workspace.earlier |= before.workspace.earlier
        return session, False

    def _make_place(self, greeting: Greeting) -> SessionPlace:
        own = self._place.state / "sessions" / safe_name(greeting.session)
        with private_files.open_folder(own, below=2, make=True):
            pass
        return SessionPlace(
            root=self._place.root,
            own=Path(os.path.realpath(own)),
            histories=self._place.state / "file-history",
            environment=dict(self._place.environment),
            find_fact=self._place.find_fact,
        )

    async def _end_after_grace(self, session: ServedSession) -> None:
        name = session.greeting.session
        if not session.workspace.is_ended:
            await asyncio.sleep(self._place.grace_seconds)
            self._place.log(f"session {name}: no engine for {self._place.grace_seconds:.0f} s; its commands are ended")
        if self._sessions.get(name) is session and session.channel is None:
            del self._sessions[name]
            self._endings.pop(name, None)
            await self._close_session(session)
            self._ended[name] = session
            while len(self._ended) > MAX_REMEMBERED:
                del self._ended[next(iter(self._ended))]

    async def _close_session(self, session: ServedSession) -> None:
        self._closing.add(session)
        try:
            await session.close()
        finally:
            self._closing.discard(session)


def is_same_engine(one: Greeting, other: Greeting) -> bool:
    return (one.engine, one.epoch, one.folder) == (other.engine, other.epoch, other.folder)


def remove_stale_socket(path: str) -> None:
    """Remove the socket of a killed server. Raises UsageError if another one listens, or it is not a socket."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise UsageError(f"cannot listen on unix:{path}: the file exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise UsageError(f"cannot listen on unix:{path}: another server does")
