"""Starts an engine, talks to it and writes down what both sides say.

    async with EngineDriver(("parley",), scenario, deadline_seconds=20) as engine:
        await engine.play()
    engine.log                                   # a ScenarioLog

The steps of a scenario are methods of the driver, and the turns of its model are functions of this module. Each
scenario has its own home, working directory and model server, and no variable of yours except PATH. A wait that reaches
its deadline, or the end of the engine, is written down and ends the scenario (`Missed`). Leaving the block kills the
process group of the engine and every process that inherited its marker.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from parley.conformance import calculator
from parley.conformance.scenario import ConformanceScenario, call
from parley.conformance.scenario_log import (
    EngineRun,
    FileLook,
    LogEntry,
    ScenarioLog,
    content_blocks,
    kind_of,
    matches,
)
from parley.models.base import ModelRequest
from parley.models.script import Script, ScriptedCall, ScriptedError, ScriptedTurn, ScriptPlayer, play
from parley.protocol.base import Json
from parley.testing.model_server import ModelServer, SourceAnswer

STREAM = ("--print", "--output-format", "stream-json", "--input-format", "stream-json", "--verbose")
SECRET = "sk-ant-conformance-0123456789abcdef"
"""The dummy key of the model. An engine must not repeat it."""
MARKER = "PARLEY_CONFORM_RUN"
LINE_LIMIT_BYTES = 1 << 27
STDERR_CHARS = 4000
EXIT_SECONDS = 20.0
SETTLE_SECONDS = 2.0
"""How long processes of an engine may take to end after it."""
DISABLED = ("DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER")
MODEL = "claude-sonnet-4-5"
"""A name with a price that engines know."""
END = ScriptedTurn(text="Done.")
PLACE = re.compile(r"\{(?:(?P<text>[^{}*]+)\*(?P<count>\d+)|(?P<field>\w+)(?: of (?P<kind>[\w/]+))?)\}")
"""`{cwd}`, `{uuid of assistant}` or `{word *400}` in the texts of a scenario."""


class Missed(Exception):
    """What a scenario waited for did not come."""


class ScenarioModel:
    """The model of an engine under test: it plays the turns that a scenario set last.

    Turns with `when` answer the first request whose last user text contains it; the others are played in order. A probe
    with one token takes no turn, and after the last turn the model says "Done.", so that no scenario hangs on it.
    """

    names = (MODEL,)

    def __init__(self) -> None:
        self._player = ScriptPlayer(Script())
        self._failure: ScriptedTurn | None = None

    def play(self, *turns: ScriptedTurn) -> None:
        self._player = ScriptPlayer(Script([*turns, *[END] * 20]))
        self._failure = None

    def fail(self, status: int, kind: str, message: str) -> None:
        """Answer every request with an error."""
        self._failure = ScriptedTurn(error=ScriptedError(status=status, type=kind, message=message))

    def answer(self, request: ModelRequest) -> SourceAnswer:
        turn = self._failure or (END if request.max_tokens == 1 else self._player.turn_for(request))
        return play(turn, request, lambda: uuid4().hex[:24]), None


def say(text: str, **turn: object) -> ScriptedTurn:
    """The model answers with a text."""
    return ScriptedTurn(text=text, **turn)  # type: ignore[arg-type]


def use(name: str, input: Json, id: str, **turn: object) -> ScriptedTurn:
    """The model calls a tool."""
    return ScriptedTurn(tools=[ScriptedCall(name=name, input=input, id=id)], **turn)  # type: ignore[arg-type]


def bash(command: str, id: str = "toolu_bash", **input: object) -> ScriptedTurn:
    return use("Bash", {"command": command, "description": "Run it", **input}, id)


def turn(**fields: Any) -> ScriptedTurn:
    """Any turn, with the fields of a script file."""
    return msgspec.convert(fields, ScriptedTurn)


TURNS: dict[str, Callable[..., ScriptedTurn]] = {"say": say, "use": use, "bash": bash, "turn": turn}


class EngineDriver:
    """One scenario and its engine. It runs one process at a time."""

    def __init__(
        self,
        command: tuple[str, ...],
        scenario: ConformanceScenario,
        *,
        deadline_seconds: float,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`env`: further variables of the engine."""
        self._model = ScenarioModel()
        self._scenario = scenario
        self._command = command
        self._env = env or {}
        self._deadline_seconds = deadline_seconds
        self._mark = uuid4().hex
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._ended = False
        self._seen = 0
        self._requests = 0
        self._servers = contextlib.AsyncExitStack()

    async def __aenter__(self) -> EngineDriver:
        self._root = make_folder()
        self._home, self._cwd, self._tmp = (self._root / name for name in ("home", "cwd", "tmp"))
        for folder in (self._home, self._cwd, self._tmp):
            folder.mkdir()
        self.log = ScenarioLog(scenario=self._scenario.name, cwd=str(self._cwd))
        self._server = await self._servers.enter_async_context(ModelServer(self._model))
        self._places = {"cwd": str(self._cwd), "root": str(self._root), "python": sys.executable}
        if self._scenario.server:
            server = calculator.serve_http(sse=self._scenario.server == "sse")
            self._places["url"] = await self._servers.enter_async_context(server)
        self._replies = self._fill({**self._scenario.on})
        self._hooks = self._fill({**self._scenario.hooks})
        self.put(self._scenario.files)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self._end(0)
            self.log.leftovers = await self._find_leftovers()
        finally:
            await self._servers.aclose()
            self.log.requests = [body for each in self._server.exchanges if (body := read_body(each.raw)) is not None]
            self.log.headers = [each.headers for each in self._server.exchanges if each.path == "/v1/messages"]
            shutil.rmtree(self._root, ignore_errors=True)

    async def play(self) -> None:
        """Take all steps. Raises Missed."""
        self.model(*self._scenario.model)
        for step in self._scenario.steps:
            done = call(self._fill(step), STEPS, self)
            if inspect.isawaitable(done):
                await done

    def _fill(self, value: Any) -> Any:
        """The same JSON with the places of this run."""
        if isinstance(value, str):
            return PLACE.sub(self._find_place, value)
        if isinstance(value, list):
            return [self._fill(item) for item in value]
        return {key: self._fill(item) for key, item in value.items()} if isinstance(value, dict) else value

    def _find_place(self, found: re.Match[str]) -> str:
        if found["text"]:
            return found["text"] * int(found["count"])
        if found["kind"]:
            return str(self.log.first(found["kind"]).get(found["field"]))
        return self._places.get(found["field"], found[0])

    # The world of the engine.

    def model(self, *turns: Json | str) -> None:
        """What the model says from now on."""
        self._model.play(*(call(self._fill(each), TURNS) for each in turns))

    def fail(self, status: int, kind: str, message: str) -> None:
        """The model answers every request with an error."""
        self._model.fail(status, kind, message)

    def put(self, files: Mapping[str, str]) -> None:
        """Write files, relative to the working directory."""
        for name, content in files.items():
            path = self._cwd / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def keep(self, *names: str) -> None:
        """Write down the content of files, relative to the working directory, for the checks."""
        for name in names:
            with contextlib.suppress(OSError):
                self.log.files[name] = (self._cwd / name).read_text(encoding="utf-8", errors="replace")

    def look(self, label: str, pattern: str) -> None:
        """Write down the files and folders that match, relative to the folder of the scenario."""
        self.log.looks[label] = [
            FileLook(
                str(path.relative_to(self._root)),
                stat.S_IMODE(path.stat().st_mode),
                path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "",
            )
            for path in sorted(self._root.glob(pattern))
        ]

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._home),
            "TMPDIR": str(self._tmp),
            "CLAUDE_CODE_TMPDIR": str(self._tmp),
            "SHELL": "/bin/bash",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "IS_SANDBOX": "1",
            "ANTHROPIC_BASE_URL": self._server.url,
            "ANTHROPIC_API_KEY": SECRET,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            MARKER: self._mark,
            **dict.fromkeys(DISABLED, "1"),
            **self._env,
            **self._fill(dict(self._scenario.env)),
            **extra,
        }

    # A process of the engine.

    async def start(
        self, *words: str | Json, stream: bool = True, stdin: bool = True, env: Mapping[str, str] | None = None
    ) -> None:
        """Start the engine; tables become JSON. `stream=False`: without the flags of a conversation. Raises Missed."""
        flags = [word if isinstance(word, str) else json.dumps(word) for word in words]
        model = () if "--model" in flags or "--version" in flags or "-v" in flags else ("--model", MODEL)
        argv = [*self._command, *(STREAM if stream else ()), *model, *flags]
        self._run = EngineRun(argv=argv)
        self.log.runs.append(self._run)
        self._started, self._seen, self._ended = time.monotonic(), 0, False
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self._cwd,
                env=self._environment(env or {}),
                stdin=pipe if stdin else asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                limit=LINE_LIMIT_BYTES,
                start_new_session=True,
            )
        except OSError as exc:
            raise self.missed(f"the engine could not be started: {exc}") from None
        self._readers = [
            asyncio.create_task(self._read_lines(self._process.stdout)),
            asyncio.create_task(self._read_stderr(self._process.stderr)),
        ]

    async def _read_lines(self, stdout: asyncio.StreamReader | None) -> None:
        assert stdout is not None
        while True:
            try:
                data = await stdout.readline()
            except ValueError:  # longer than the limit
                break
            if not data:
                break
            entry = self._write_down(data.decode(errors="replace").rstrip("\n"), sent=False)
            if entry.message is not None and entry.message.get("type") == "control_request":
                self._serve(entry.message)
            self._news.set()
        self._ended = True
        self._news.set()

    async def _read_stderr(self, stderr: asyncio.StreamReader | None) -> None:
        assert stderr is not None
        while data := await stderr.read(1 << 16):
            self._run.stderr = (self._run.stderr + data.decode(errors="replace"))[-STDERR_CHARS:]

    def _write_down(self, raw: str, *, sent: bool) -> LogEntry:
        message = read_body(raw.encode(errors="replace"))
        entry = LogEntry(sent=sent, seconds=time.monotonic() - self._started, raw=raw, message=message)
        self._run.entries.append(entry)
        return entry

    def _serve(self, message: Json) -> None:
        """Answer a control request of the engine, if the scenario says how."""
        request = message.get("request")
        given = self.find_reply(request) if isinstance(request, dict) else None
        if given is not None:
            self.reply(message.get("request_id"), given)

    def find_reply(self, request: Json) -> Json | None:
        """The answer of the scenario to a request of the engine.

        A list has one answer after the other. `"allow"` allows a call with its own input, `"calculator"` answers as an
        MCP server (calculator.py), `{ error = "text" }` is an error, and `"{input}"` stands for the input of the call.
        """
        replies, key = self._replies, str(request.get("subtype"))
        if key == "hook_callback" and key not in replies:
            replies, key = self._hooks, str(request.get("callback_id")).removeprefix("hook_")
        given = replies.get(key)
        if isinstance(given, list):
            given, replies[key] = given[0], given[1:] or given
        if given == "calculator":
            found = calculator.answer(request.get("message"))
            return {"mcp_response": found if found is not None else {"jsonrpc": "2.0", "result": {}}}
        if given == "allow":
            given = {"behavior": "allow", "updatedInput": "{input}"}
        if given is None:
            return None
        return {name: request.get("input", {}) if value == "{input}" else value for name, value in given.items()}

    # Speaking.

    def send(self, line: Json | str) -> None:
        """Write a line: an object, or a text as it is."""
        assert self._process is not None
        raw = line if isinstance(line, str) else msgspec.json.encode(line).decode()
        self._write_down(raw, sent=True)
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(raw.encode() + b"\n")

    def user(self, content: str | list[Json], **fields: Any) -> None:
        message = {"role": "user", "content": content}
        self.send({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "default", **fields})

    def request(self, subtype: str, label: str = "", **fields: Any) -> str:
        """Send a control request; returns its label. The answer is found by it."""
        self._requests += 1
        name = label or subtype
        self.log.labels[name] = request_id = f"req_{self._requests}_{uuid4().hex[:8]}"
        if subtype == "initialize":
            hooks = {event: [{"matcher": None, "hookCallbackIds": [f"hook_{event}"]}] for event in self._hooks}
            fields = {"hooks": hooks or None, **fields}
        self.send({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})
        return name

    async def ask(self, subtype: str, label: str = "", **fields: Any) -> Json:
        """Send a control request and wait for its answer, which may be an error. Raises Missed."""
        return await self.answered(self.request(subtype, label, **fields))

    async def answered(self, label: str) -> Json:
        """Wait for the answer to a request. Raises Missed."""
        wanted = self.log.labels[label]

        def is_answer(message: Json) -> bool:
            response = message.get("response")
            return kind_of(message) == "control_response" and (
                isinstance(response, dict) and response.get("request_id") == wanted
            )

        return await self.until(is_answer, f"answer to {label}", from_start=True)

    async def initialize(self, **fields: Any) -> Json:
        return await self.ask("initialize", **fields)

    def reply(self, request_id: Any, given: Any) -> None:
        body: Json = {"subtype": "success", "request_id": request_id, "response": given}
        if isinstance(given, dict) and "error" in given:
            body = {"subtype": "error", "request_id": request_id, **given}
        self.send({"type": "control_response", "response": body})

    def close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.close()

    def signal(self, name: str) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.Signals[name])

    # Listening.

    async def until(self, wanted: Callable[[Json], bool], what: str, *, from_start: bool = False) -> Json:
        """The next unread line that is wanted. Raises Missed at the deadline or the end of the engine."""
        deadline = time.monotonic() + self._deadline_seconds
        place = 0 if from_start else self._seen
        while True:
            entries = [entry for entry in self._run.entries if not entry.sent]
            for number in range(place, len(entries)):
                message = entries[number].message
                if message is not None and wanted(message):
                    self._seen = max(self._seen, number + 1) if not from_start else self._seen
                    return message
            place = len(entries)
            if self._ended:
                raise self.missed(f"the engine ended before: {what}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.missed(f"no {what} within {self._deadline_seconds:g} s")
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    async def sees(self, text: str, *, from_start: bool = False) -> Json:
        """The next line with a text in its JSON, which is written without spaces. Raises Missed."""
        return await self.until(lambda message: text in to_text(message), f"line with {text!r}", from_start=from_start)

    async def line(self, kind: str) -> Json:
        """The next line of a kind. Raises Missed."""
        return await self.until(lambda message: matches(message, kind), f"`{kind}`")

    async def result(self) -> Json:
        """The next result. Raises Missed."""
        return await self.line("result")

    async def tool_use(self) -> Json:
        """The next assistant line with a tool call. Raises Missed."""

        def has_call(message: Json) -> bool:
            return any(block["type"] == "tool_use" for block in content_blocks(message))

        return await self.until(has_call, "tool_use")

    @property
    def is_silent(self) -> bool:
        """Whether the engine ended without a line, as one does that does not have the dialect of the scenario."""
        return self._ended and not self.log.received()

    async def wait_connected(self, server: str) -> None:
        """Wait until an MCP server is connected or has failed. Raises Missed."""
        deadline = time.monotonic() + self._deadline_seconds
        while time.monotonic() < deadline:
            answer = await self.ask("mcp_status", f"mcp_status {self._requests}")
            servers = ((answer["response"] or {}).get("response") or {}).get("mcpServers") or []
            states = {each.get("name"): each.get("status") for each in servers if isinstance(each, dict)}
            if states.get(server) in ("connected", "failed"):
                return
            await self.wait_seconds(0.2)
        raise self.missed(f"the MCP server {server} was not connected within {self._deadline_seconds:g} s")

    async def wait_seconds(self, seconds: float) -> None:
        """Let the engine work. Some states (a command that runs) cannot be seen from outside."""
        await asyncio.sleep(min(seconds, self._deadline_seconds))

    def missed(self, text: str) -> Missed:
        self.log.missed.append(text)
        return Missed(text)

    # Ends.

    async def finish(self) -> None:
        """Close the input and wait until the engine has ended. Raises Missed if it does not end."""
        self.close_input()
        if await self._end(min(EXIT_SECONDS, self._deadline_seconds)) is None:
            raise self.missed(f"the engine did not end within {min(EXIT_SECONDS, self._deadline_seconds):g} s")

    async def _end(self, seconds: float) -> int | None:
        """Wait for the end of the process, then kill its group. Returns the exit code, None if it was killed."""
        process, self._process = self._process, None
        if process is None:
            return self._run.exit_code if self.log.runs else None
        if seconds:
            with contextlib.suppress(TimeoutError):
                self._run.exit_code = await asyncio.wait_for(process.wait(), seconds)
        elif process.returncode is not None:
            self._run.exit_code = process.returncode
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._readers, return_exceptions=True), SETTLE_SECONDS)
        for reader in self._readers:
            reader.cancel()
        await process.wait()
        return self._run.exit_code

    async def _find_leftovers(self) -> list[str]:
        """Wait for processes with our marker to end; kills and returns those that do not. Linux only."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while found := marked_processes(self._mark):
            if time.monotonic() > deadline:
                for pid in found:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                return list(found.values())
            await asyncio.sleep(0.05)
        return []

    # Common courses.

    async def begin(
        self, prompt: str | list[Json], *flags: str | Json, env: Mapping[str, str] | None = None, **initialize: Any
    ) -> None:
        """Start, initialize with these fields, send one prompt. Raises Missed."""
        await self.start(*flags, env=env)
        await self.initialize(**initialize)
        self.user(prompt)

    async def turn(
        self, prompt: str | list[Json], *flags: str | Json, env: Mapping[str, str] | None = None, **initialize: Any
    ) -> None:
        """Begin, wait for the result, end. Raises Missed."""
        await self.begin(prompt, *flags, env=env, **initialize)
        await self.result()
        await self.finish()

    async def one_shot(self, *flags: str | Json) -> None:
        """Run with the prompt among the flags and no input. Raises Missed."""
        await self.start(*flags, stream=False, stdin=False)
        await self.wait_end()

    async def wait_end(self) -> None:
        """Wait until the engine ends by itself. Raises Missed."""
        if await self._end(self._deadline_seconds) is None:
            raise self.missed(f"the engine did not end within {self._deadline_seconds:g} s")


STEPS: dict[str, Any] = {**vars(EngineDriver)}


def make_folder() -> Path:
    """A new temporary folder, without symbolic links in its path: engines name folders by their real path."""
    return Path(os.path.realpath(tempfile.mkdtemp(prefix="parley-conform-")))


def to_text(message: Json) -> str:
    return msgspec.json.encode(message).decode()


def read_body(raw: bytes) -> Json | None:
    """A JSON object; None for anything else."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def marked_processes(mark: str) -> dict[int, str]:
    """The running processes that inherited a marker: pid to command line. Empty where /proc does not exist."""
    found: dict[int, str] = {}
    wanted = f"{MARKER}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = wanted in (folder / "environ").read_bytes()
            if is_ours and b") Z " not in (folder / "stat").read_bytes():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = command.strip()[:200]
    return found
