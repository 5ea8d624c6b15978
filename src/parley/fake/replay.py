"""Replay one side of a recorded conversation, and compare the other side with the recording.

    code = await replay_engine(recording, transport, stderr)            # as the engine of a client; the exit code
    await replay_client(recording, ["parley", "--print", ...])          # as the client of an engine

`SidePlayer` decides what is sent and compares what arrives, without I/O; `ReplayRun` joins it with a transport. A line
is sent when everything that the other side had sent before it has arrived. The other side may send lines earlier than
recorded, and lines that stand between two of ours in any order.

Ids, times and durations differ between two runs. Times and durations are not compared. An id may be another one, but
must be the same wherever the recording has the same: an answer with a wrong id is a difference.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from parley.errors import ParleyError, UsageError
from parley.fake.link import FakeMessages
from parley.fake.scenario import Scenario
from parley.protocol.base import Struct
from parley.protocol.framing import Framer
from parley.stores.wire_recording import WireLine, WireRecording, decode_line
from parley.transports.base import Transport

ID_KEYS = frozenset(
    ("uuid", "session_id", "sessionId", "request_id", "id", "tool_use_id", "parent_tool_use_id", "prompt_id", "task_id")
) | frozenset(("api_message_id", "toolUseID", "agent_id", "parentUuid", "messageId", "user_message_id"))
UNCOMPARED_KEYS = frozenset(["timestamp", "started_at", "resetsAt", "transcript_path", "messaging_socket_path", "pid"])
VARYING = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b(?:toolu|msg|req)_[0-9A-Za-z]{8,}\b"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
)
"""Ids and times inside a text."""
QUOTED = re.compile(rb'(?:"(\w+)"\s*:\s*)?"([^"\\\x80-\xff]+)"')
"""A text in JSON without escapes, with its key."""
SHORTEST_ID = 16
"""A text of this length is an id also where its key does not say so."""
REDACTED = "[redacted]"
SHOWN_CHARS = 80
WAIT_SECONDS = 10.0
"""How long the other side has to send the next line."""
CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 1 << 30
Side = Literal["client", "engine"]
OTHER: Mapping[Side, Side] = {"client": "engine", "engine": "client"}
STDERR = "engine_stderr"


class IdMap:
    """Which id stands for which recorded one."""

    def __init__(self) -> None:
        self._actual: dict[str, str] = {}
        self._new: dict[str, str] = {}
        """From a comparison that is not finished."""

    def fix(self, value: Any) -> None:
        """Keep the ids of a message that was sent as it was recorded: the other side must use the same."""
        if isinstance(value, dict):
            for key, item in value.items():
                if key in ID_KEYS and isinstance(item, str):
                    self._actual.setdefault(item, item)
                self.fix(item)
        elif isinstance(value, list):
            for item in value:
                self.fix(item)

    def pair(self, recorded: str, actual: str) -> bool:
        """Whether this id may stand for the recorded one. The first one that comes does."""
        known = self._actual.get(recorded)
        return (self._new.setdefault(recorded, actual) if known is None else known) == actual

    def end_comparison(self, *, equal: bool) -> None:
        """Keep the ids of an equal message, forget those of another."""
        if equal:
            self._actual.update(self._new)
        self._new.clear()

    def apply(self, data: bytes) -> bytes:
        """A recorded line with the ids of this run."""
        return QUOTED.sub(self._replace, data)

    def _replace(self, found: re.Match[bytes]) -> bytes:
        key, value = found[1], found[2].decode()
        if (key is None or key.decode() not in ID_KEYS) and len(value) < SHORTEST_ID:
            return found[0]
        actual = self._actual.get(value, value)
        return found[0] if actual == value else found[0].replace(b'"%s"' % found[2], msgspec.json.encode(actual))


def kind_of(message: Any) -> str:
    """What a message is, in a few words: `control_request can_use_tool`."""
    if not isinstance(message, dict):
        return "text"
    kind = str(message.get("type"))
    if kind == "control_request":
        return f"{kind} {(message.get('request') or {}).get('subtype')}"
    if kind == "stream_event":
        return f"{kind} {(message.get('event') or {}).get('type')}"
    return f"{kind} {message['subtype']}" if isinstance(message.get("subtype"), str) else kind


def answered_id(message: Any) -> str | None:
    """The id of the request that a control response answers."""
    if isinstance(message, dict) and message.get("type") == "control_response":
        return str((message.get("response") or {}).get("request_id"))
    return None


def find_difference(recorded: Any, actual: Any, ids: IdMap, places: Mapping[str, str], where: str = "$") -> str | None:
    """The first difference in words; None if there is none. Ids that are new are added to the map.

    `places` maps recorded directories to those of this run.
    """
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for key in dict.fromkeys([*recorded, *actual]):
            one, two, path = recorded.get(key), actual.get(key), f"{where}.{key}"
            if key in UNCOMPARED_KEYS or (
                key.endswith("_ms") and type(one) in (int, float) and type(two) in (int, float)
            ):
                continue
            if key in ID_KEYS and isinstance(one, str) and isinstance(two, str):
                if not ids.pair(one, two):
                    return f"{_describe(path, one, two)}; the recorded id was another one before"
                continue
            if key not in recorded or key not in actual:
                return _describe(path, recorded.get(key, "nothing"), actual.get(key, "nothing"))
            if (found := find_difference(one, two, ids, places, path)) is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(actual, list):
        pairs = zip(recorded, actual, strict=False)
        inner = (find_difference(one, two, ids, places, f"{where}[{at}]") for at, (one, two) in enumerate(pairs))
        if (found := next((each for each in inner if each), None)) is not None:
            return found
        if len(recorded) != len(actual):
            return f"{where}: recorded {len(recorded)} items, found {len(actual)}"
        return None
    if isinstance(recorded, str) and isinstance(actual, str):
        same = normalize(recorded, places) == VARYING.sub("<id>", actual)
        return None if same or is_redacted(recorded, actual) else _describe(where, recorded, actual)
    same = recorded == actual and isinstance(recorded, bool) == isinstance(actual, bool)
    return None if same else _describe(where, recorded, actual)


def normalize(text: str, places: Mapping[str, str]) -> str:
    """A recorded text with the directories of this run, and without ids and times."""
    for old, new in places.items():
        text = text.replace(old, new)
    return VARYING.sub("<id>", text)


def is_redacted(recorded: str, actual: str) -> bool:
    """Whether a recorded text with removed secrets fits."""
    parts = recorded.split(REDACTED)
    return len(parts) > 1 and re.fullmatch(".*".join(map(re.escape, parts)), actual, re.DOTALL) is not None


def _describe(where: str, recorded: Any, actual: Any) -> str:
    return f"{where}: recorded {show(recorded)}, found {show(actual)}"


def show(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"


class ReplayDifference(ParleyError):
    """The conversation differs from the recording."""


class Cue(Struct, frozen=True):
    """What to send now."""

    sender: str
    """The side that is played, or `engine_stderr`."""
    data: bytes
    """With its newline; empty if the stream ends here."""
    at_ms: float
    eof: bool = False


class SidePlayer:
    """Plays one side of a recording."""

    def __init__(self, recording: WireRecording, side: Side, places: Mapping[str, str] | None = None) -> None:
        """`places` maps directories of the recording to those of this run."""
        self._recording = recording
        self._side, self._peer = side, OTHER[side]
        self._places = places or {}
        self._ids = IdMap()
        self._next = 0
        """The first line that was not sent, or not received."""
        ignored = () if side == "engine" else (STDERR,)  # what an engine logs is not compared
        self._lines = [line for line in recording.lines if line.sender not in ignored]
        self._messages: list[Any] = [decode_line(line.data) for line in self._lines]
        self._kinds = [(kind_of(message), answered_id(message)) for message in self._messages]
        self._missing = [at for at, line in enumerate(self._lines) if line.sender == self._peer]
        """The lines of the other side that have not arrived."""

    @property
    def done(self) -> bool:
        """Whether everything was sent and received."""
        return self._next == len(self._lines)

    def take(self) -> list[Cue]:
        """What is to be sent now. Each cue is given once."""
        cues = []
        while not self.done:
            line = self._lines[self._next]
            if line.sender == self._peer:
                if self._next in self._missing[:1]:
                    break
            else:
                cues.append(self._make_cue(line, self._messages[self._next]))
            self._next += 1
        return cues

    def _make_cue(self, line: WireLine, message: Any) -> Cue:
        if line.eof:
            return Cue(line.sender, b"", line.at_ms, eof=True)
        self._ids.fix(message)
        data = self._ids.apply(line.data) if isinstance(message, dict) else line.data
        return Cue(line.sender, data + (b"\n" if line.eol else b""), line.at_ms)

    def receive(self, data: bytes) -> None:
        """Take a line of the other side, without its newline. Raises ReplayDifference."""
        if not data.strip():
            return
        message = decode_line(data)
        candidates = self._find_candidates((kind_of(message), answered_id(message)))
        if not candidates:
            raise ReplayDifference(f"{self.describe_wait()}, found {kind_of(message)}: {show(message)}")
        differences = []
        for at in candidates:
            difference = find_difference(self._messages[at], message, self._ids, self._places)
            self._ids.end_comparison(equal=difference is None)
            if difference is None:
                self._missing.remove(at)
                return
            differences.append(difference)
        raise ReplayDifference(f"{self._name(candidates[0])}: {kind_of(message)} differs at {differences[0]}")

    def receive_eof(self) -> None:
        """The other side closed its stream. Raises ReplayDifference if the recording has more lines of it."""
        if any(not self._lines[at].eof for at in self._missing):
            raise ReplayDifference(f"{self.describe_wait()}, found the end of the stream")
        self._missing.clear()

    def describe_wait(self) -> str:
        """What is to come next from the other side."""
        if not self._missing:
            return f"{self._recording.name}: expected no more lines from the {self._peer}"
        at = self._missing[0]
        what = "the end of the stream" if self._lines[at].eof else self._kinds[at][0]
        return f"{self._name(at)}: expected {what} from the {self._peer}"

    def _find_candidates(self, kind: tuple[str, str | None]) -> list[int]:
        """The recorded lines that this may be: those before our next line, else the next one of the same kind.

        A side may be ahead of the recording, but it does not leave out a request: we would wait for it for ever.
        """
        ours = (at for at in range(self._next, len(self._lines)) if self._lines[at].sender == self._side)
        end = next(ours, len(self._lines))
        found: list[int] = []
        skips_request = False
        for at in self._missing:
            if at >= end and (found or skips_request):
                break
            skips_request = skips_request or self._kinds[at][0].startswith("control_request")
            if self._kinds[at] == kind and not self._lines[at].eof:
                found.append(at)
        return found

    def _name(self, at: int) -> str:
        return f"{self._recording.name}:{self._lines[at].number}"


class ReplayRun:
    """Joins a player with a transport."""

    def __init__(
        self,
        player: SidePlayer,
        transport: Transport,
        stderr: Callable[[str], None],
        *,
        pace: float,
        wait_seconds: float | None,
    ) -> None:
        self._player = player
        self._transport = transport
        self._stderr = stderr
        self._pace = pace
        self._wait_seconds = wait_seconds
        self._last_ms = 0.0

    async def play(self) -> None:
        """Play until the recording ends. Raises ReplayDifference."""
        framer = Framer(MAX_LINE_BYTES)
        chunks = aiter(self._transport.chunks())
        while True:
            for cue in self._player.take():
                await self._send(cue)
            if self._player.done:
                return
            try:
                async with asyncio.timeout(self._wait_seconds):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise ReplayDifference(
                    f"{self._player.describe_wait()}, found nothing for {self._wait_seconds:g} seconds"
                ) from None
            for line in framer.end() if chunk is None else framer.feed(chunk):
                if isinstance(line, bytes):
                    self._player.receive(line)
            if chunk is None:
                for cue in self._player.take():
                    await self._send(cue)
                self._player.receive_eof()

    async def _send(self, cue: Cue) -> None:
        if self._pace:
            await asyncio.sleep(max(0.0, cue.at_ms - self._last_ms) / 1000 * self._pace)
        self._last_ms = cue.at_ms
        if cue.sender == STDERR:
            if cue.data:
                self._stderr(cue.data.decode(errors="replace").rstrip("\n"))
        elif cue.eof:
            self._transport.close()
        else:
            with suppress(BrokenPipeError):  # the other side has gone, which its end of stream reports
                self._transport.write(cue.data)
                await self._transport.drain()


async def replay_engine(
    recording: WireRecording, transport: Transport, stderr: Callable[[str], None], *, pace: float = 0
) -> int:
    """Play the engine of a recording. Returns the exit code: the recorded one, or 1 after a difference."""
    player = SidePlayer(recording, "engine", find_places(recording))
    run = ReplayRun(player, transport, stderr, pace=pace, wait_seconds=None)
    try:
        await run.play()
    except ReplayDifference as exc:
        stderr(str(exc))
        # The client must learn the reason, and a client that waits for its turn must not wait for ever.
        with suppress(BrokenPipeError):
            make = FakeMessages(Scenario(), os.getcwd(), Scenario().session_id)
            transport.write(msgspec.json.encode(make.failure(str(exc))) + b"\n")
            await transport.drain()
        return 1
    has_eof = any(line.eof and line.sender == "client" for line in recording.lines)
    if not has_eof and recording.exit_code == 0:
        async for _ in transport.chunks():
            pass  # an engine ends after its input
    if recording.exit_code is None:
        stderr(f"{recording.name}: the recording was cut here")
    return 1 if recording.exit_code is None else recording.exit_code


async def replay_client(
    recording: WireRecording, command: Sequence[str], *, pace: float = 0, wait_seconds: float = WAIT_SECONDS
) -> None:
    """Play the client of a recording to an engine. Raises ReplayDifference, UsageError if it cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    except OSError as exc:
        raise UsageError(f"cannot start {command[0]}: {exc.strerror}") from None
    errors: list[bytes] = []
    assert process.stderr is not None
    logging = asyncio.create_task(collect(process.stderr, errors))
    player = SidePlayer(recording, "client", find_places(recording))
    transport = ProcessTransport(process)
    try:
        await ReplayRun(player, transport, lambda text: None, pace=pace, wait_seconds=wait_seconds).play()
        transport.close()
        async with asyncio.timeout(wait_seconds):
            code = await process.wait()
        if recording.exit_code is not None and code != recording.exit_code:
            raise ReplayDifference(f"{recording.name}: expected exit code {recording.exit_code}, found {code}")
    except TimeoutError:
        raise ReplayDifference(f"{recording.name}: the engine did not exit for {wait_seconds:g} seconds") from None
    except ReplayDifference as exc:
        if log := b"".join(errors).decode(errors="replace").strip():
            raise ReplayDifference(f"{exc}\nstderr of the engine: {log[-500:]}") from None
        raise
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await logging


async def collect(stream: asyncio.StreamReader, found: list[bytes]) -> None:
    while chunk := await stream.read(CHUNK_BYTES):
        found.append(chunk)


def find_places(recording: WireRecording) -> dict[str, str]:
    """The recorded working directory, and that of this run."""
    cwd = recording.header.cwd
    return {cwd: os.getcwd()} if len(cwd) > 1 else {}


class ProcessTransport:
    """The streams of a child process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._stdout.read(CHUNK_BYTES):
            yield chunk

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    async def drain(self) -> None:
        with suppress(ConnectionError):
            await self._stdin.drain()

    def close(self) -> None:
        self._stdin.close()
