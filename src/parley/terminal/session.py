"""The session of a terminal: which it is, its client, the prompts that wait, and what is known of its state.

    session = TerminalSession(choose_target(options, cwd), callbacks, transcript, on_change)
    await session.connect()
    session.enqueue("Hello")        it is sent when no turn runs

Prompts wait here and not in the engine, so that each can be edited or removed until it is sent. A local session runs in
an engine process of its own, which gets the options of the command line. A session of a gateway stays there when the
terminal is closed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from parley.errors import UsageError
from parley.protocol.base import Json, Message, Refused, decode, encode_json
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.notices import ConversationReset
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init, SessionStateChanged, Status
from parley.sdk.errors import ClaudeSDKError
from parley.terminal.base import SessionStatus
from parley.terminal.rendering.transcript import INTERRUPTED, TerminalTranscript

if TYPE_CHECKING:
    from parley.protocol.options import CliOptions
    from parley.sdk.client import Client
    from parley.sdk.permissions import CanUseTool
    from parley.sdk.runtime.transport import Wire
    from parley.terminal.rendering.details import WorkList


REPLAYED_LINES = 400
"""How many of the last lines of a gateway's session are shown when a terminal attaches to it."""
CHECKPOINTS = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"
LOST = "The connection to the gateway is lost; trying again…"
BACK = "The connection to the gateway is back."
SHOWN_MESSAGES = 40
"""How many messages of a resumed session are shown."""


@dataclass(frozen=True)
class SessionTarget:
    """The session that a terminal shows."""

    options: CliOptions
    cwd: str
    session_id: str
    is_resumed: bool = False
    at: str | None = None
    """Continue after this message, and drop later ones."""
    server: str = ""
    """The URL of the gateway; empty for a session of this machine."""
    token: str = ""

    def switch(self, session_id: str, cwd: str | None = None, at: str | None = None) -> SessionTarget:
        """Another session in the same terminal."""
        return replace(self, session_id=session_id, is_resumed=True, cwd=cwd or self.cwd, at=at)

    def restart(self) -> SessionTarget:
        """A new session in the same terminal."""
        return replace(self, session_id=str(uuid4()), is_resumed=False, at=None)


@dataclass(frozen=True)
class Callbacks:
    """Who answers the requests of the engine, and is told what happens to it."""

    can_use_tool: CanUseTool
    on_elicitation: Callable[[Any], Awaitable[Any]]
    on_stderr: Callable[[str], None]
    on_notice: Callable[[str], None]


def choose_target(options: CliOptions, cwd: str) -> SessionTarget:
    """The session that the command line names: a new one, the last one, or one by its id. Raises UsageError."""
    if not (options.continue_conversation or options.resume):
        return SessionTarget(options, cwd, options.session_id or str(uuid4()))
    from parley.sdk.sessions import SessionLookup, list_sessions  # a new session needs none of it

    if options.continue_conversation:
        found = list_sessions(cwd, limit=1, include_worktrees=False, store=options.store)
        if not found:
            raise UsageError(f"no session to continue in {cwd}: start one with `parley`")
        return SessionTarget(options, cwd, found[0].session_id, is_resumed=True)
    session_id = SessionLookup(cwd, options.store, None).sessions.find(options.resume or "")
    return SessionTarget(options, cwd, session_id, is_resumed=True)


def make_client(target: SessionTarget, callbacks: Callbacks) -> Client[Any]:
    """A client that is not connected. Raises ValueError, CLIConnectionError."""
    from parley.sdk.client import Client
    from parley.sdk.options import Options

    options: Options[Any] = Options(
        cwd=target.cwd,
        model=target.options.model,
        resume=target.session_id if target.is_resumed else None,
        can_use_tool=callbacks.can_use_tool,
        on_elicitation=callbacks.on_elicitation,
        include_partial_messages=True,
        enable_file_checkpointing=not target.server,
        stderr=callbacks.on_stderr,
        engine=target.server or "process",
        token=target.token or None,
    )
    wire = open_gateway(target, callbacks) if target.server else open_process(target, callbacks)
    return Client(options, transport=wire)


def open_process(target: SessionTarget, callbacks: Callbacks) -> Wire:
    from parley.protocol.options import format_args
    from parley.sdk.launch.process import EngineProcess, find_engine

    flags = target.options.replace(
        print=True,
        verbose=True,
        input_format="stream-json",
        output_format="stream-json",
        include_partial_messages=True,
        permission_prompt_tool=target.options.permission_prompt_tool or "stdio",
        continue_conversation=False,
        session_id=None if target.is_resumed else target.session_id,
        resume=target.session_id if target.is_resumed else None,
        resume_session_at=target.at,
        api_key=None,
        screen_reader=False,
    )
    environment = {**os.environ, "CLAUDE_CODE_ENTRYPOINT": "cli", CHECKPOINTS: "true", "PWD": target.cwd}
    environment.pop("CLAUDECODE", None)
    if target.options.api_key:
        environment["ANTHROPIC_API_KEY"] = target.options.api_key
    argv = [find_engine(None, environment), *format_args(flags)]
    return EngineProcess(argv, target.cwd, environment, callbacks.on_stderr)


def open_gateway(target: SessionTarget, callbacks: Callbacks) -> Wire:
    from parley.sdk.launch.network import NetworkWire

    session_id = target.session_id if target.is_resumed else None
    create: tuple[str, Json] = ("/sessions", {})
    if target.at is not None:  # other clients see the session, so the terminal continues with a copy
        session_id, create = None, (f"/sessions/{quote(target.session_id, safe='')}/fork", {"uuid": target.at})

    def report(is_cut: bool) -> None:
        callbacks.on_notice(LOST if is_cut else BACK)

    return NetworkWire(
        target.server, target.token, session_id, create, partial=True, replayed_lines=REPLAYED_LINES, on_cut=report
    )


@dataclass
class Past:
    """What is known of the messages before this terminal was opened."""

    uuids: list[str] = field(default_factory=list)
    """The ids of all messages, oldest first."""
    prompts: list[tuple[str, str]] = field(default_factory=list)
    """Id and text of each prompt."""
    shown: list[Message] = field(default_factory=list)
    """The last messages."""
    hidden: int = 0
    """How many messages are not shown."""

    def until(self, uuid: str) -> Past:
        """The messages up to this one."""
        uuids = self.uuids[: self.uuids.index(uuid) + 1]
        return Past(uuids, [prompt for prompt in self.prompts if prompt[0] in uuids])


def read_past(session_id: str, store: str | None, work: WorkList) -> Past:
    """Read a stored session; it is empty if there is none. Slow for a long one. `work` gets its todos and tasks."""
    from parley.sdk.sessions import read_conversation

    past = Past()
    entries = read_conversation(session_id, None, store, None)
    for index, entry in enumerate(entries):
        line = {"parent_tool_use_id": None, **entry.message, "type": entry.kind, "session_id": session_id}
        past.uuids.append(str(line.get("uuid")))
        is_shown = index >= len(entries) - SHOWN_MESSAGES
        if not is_shown:
            work.update({}, line.get("tool_use_result"))
        if entry.kind != "user" and not is_shown:
            continue
        found = decode(encode_json(line))
        if isinstance(found, Refused):
            continue
        if isinstance(found, User) and (text := prompt_text(found)) is not None:
            past.prompts.append((past.uuids[-1], text))
        if is_shown:
            past.shown.append(found)
    past.hidden = len(entries) - len(past.shown)
    return past


def prompt_text(message: User) -> str | None:
    """The text of a prompt; None for tool results and messages that the engine made."""
    content = message.message.content
    if message.isSynthetic is True or isinstance(message.parent_tool_use_id, str):
        return None
    texts = [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, Text)]
    text = "\n".join(texts)
    return text if text.strip() and not text.startswith(INTERRUPTED) else None


@dataclass(frozen=True)
class QueuedPrompt:
    """A prompt that waits for the end of the turn."""

    text: str
    """As it was typed, with placeholders for pastes."""
    content: str | list[Json]


class TerminalSession:
    def __init__(
        self,
        target: SessionTarget,
        callbacks: Callbacks,
        transcript: TerminalTranscript,
        on_change: Callable[[], None],
    ) -> None:
        self.target = target
        self._callbacks = callbacks
        self._transcript = transcript
        self._on_change = on_change
        self.client: Client[Any] | None = None
        self.is_connected = False
        self.ready = asyncio.Event()
        """Set while the engine is connected."""
        self.is_busy = False
        self.queue: list[QueuedPrompt] = []
        self._past = Past()
        self.mode = target.options.permission_mode or "default"
        self.model = target.options.model or ""
        self.cost_usd: float | None = None
        self.context_percent: float | None = None
        self._branch = ""
        self._other_folders: tuple[str, ...] = ()
        """Working directories of the settings, or that were added later."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_lost: Callable[[str], None] = lambda reason: None
        """Called when the engine ends by itself."""
        self.on_idle: Callable[[], None] = lambda: None
        """Called when a turn has ended and no prompt waits."""

    @property
    def prompts(self) -> Sequence[tuple[str, str]]:
        """Id and text of each prompt, oldest first."""
        return self._past.prompts

    @property
    def status(self) -> SessionStatus:
        return SessionStatus(
            mode=self.mode,
            model=self.model,
            context_percent=self.context_percent,
            cost_usd=self.cost_usd,
            cwd=self.target.cwd,
            branch=self._branch,
            session_id=self.target.session_id,
        )

    @property
    def folders(self) -> tuple[str, ...]:
        """The working directories, as far as they are known."""
        cwd, added = self.target.cwd, self.target.options.add_dirs or ()
        return (cwd, *(os.path.join(cwd, folder) for folder in (*added, *self._other_folders)))

    def note_folder(self, path: str) -> None:
        """A working directory was added: no program that we start comes from it."""
        self._other_folders = (*self._other_folders, path)

    # Connecting and closing.

    async def connect(self) -> None:
        """Start the engine, or attach to it. Raises ClaudeSDKError, ValueError."""
        client = self.client = make_client(self.target, self._callbacks)
        client.watchers.append(self.receive)
        # After a rewind, what is left of the conversation is on the screen.
        if self.target.is_resumed and not self.target.server and self.target.at is None:
            await self._show_past()
        await client.connect()
        mode = (client.server_info or {}).get("current_permission_mode")
        self.mode = mode if isinstance(mode, str) else self.mode  # a resumed session has its own
        self.is_connected = True
        self.ready.set()
        self.run(self._drain(client.receive_messages(), client))
        self.run(self._read_state(client))
        self.send_next()

    async def _show_past(self) -> None:
        target, work = self.target, self._transcript.work
        past = self._past = await asyncio.to_thread(read_past, target.session_id, target.options.store, work)
        if past.hidden:
            self._transcript.note(f"{past.hidden} earlier messages are not shown; /export writes all of them.")
        self._transcript.show_past(past.shown)
        self._on_change()

    async def _read_state(self, client: Client[Any]) -> None:
        """Learn what the engine knows without a turn: the model, the mode, the context; and the branch."""
        await self._read_branch()
        await self.read_model(client)
        await self._read_context(client)

    async def _read_branch(self) -> None:
        """A turn, or the person, may have changed it."""
        if not self.target.server:
            from parley.compose.launch_context import git_branch

            self._branch = await asyncio.to_thread(git_branch, Path(self.target.cwd))
            self._on_change()

    async def read_model(self, client: Client[Any]) -> None:
        """Learn the model, which a command may have changed."""
        try:
            settings = await client.get_settings()
        except ClaudeSDKError:
            return  # an older engine; `init` says it
        model = (settings.get("applied") or {}).get("model")
        permissions = (settings.get("effective") or {}).get("permissions") or {}
        listed = permissions.get("additionalDirectories") or ()
        self._other_folders = tuple(dict.fromkeys((*self._other_folders, *listed)))
        self.model = model if isinstance(model, str) else self.model
        self._on_change()

    async def _read_context(self, client: Client[Any]) -> None:
        try:
            usage = await client.get_context_usage()
        except ClaudeSDKError:
            return  # the figure stays as it is
        percentage, model = usage.get("percentage"), usage.get("model")
        self.context_percent = float(percentage) if isinstance(percentage, int | float) else None
        self.model = self.model or (model if isinstance(model, str) else "")
        self._on_change()

    async def _drain(self, stream: AsyncIterator[Any], client: Client[Any]) -> None:
        """Read the messages, which `receive` has shown, until the engine ends."""
        try:
            async for _ in stream:
                pass
            reason = "the engine has exited"
        except ClaudeSDKError as exc:
            reason = str(exc)
        if client is self.client and self.is_connected:
            self.is_connected = self.is_busy = False
            self.on_lost(reason)

    async def switch(self, target: SessionTarget) -> None:
        """Continue another session. Raises what `connect` raises."""
        await self.close()
        self._past = self._past.until(target.at) if target.at in self._past.uuids else Past()
        self.target, self.is_busy, self.cost_usd, self.context_percent = target, False, None, None
        if target.at is None:
            self._transcript.work.clear()
        self._transcript.settle()
        await self.connect()

    def find_previous(self, uuid: str) -> str | None:
        """The id of the message before a prompt; None for the first. Raises ValueError."""
        if uuid not in self._past.uuids:
            raise ValueError(f"the conversation has no message {uuid}")
        index = self._past.uuids.index(uuid)
        return self._past.uuids[index - 1] if index else None

    def find_return(self) -> SessionTarget:
        """What continues this session, if another cannot be opened."""
        if not self._past.prompts:
            return self.target.restart()
        at = None if self.target.server else self._past.uuids[-1]  # nothing is shown again
        return self.target.switch(self.target.session_id, at=at)

    async def close(self) -> None:
        client, self.client, self.is_connected = self.client, None, False
        self.ready.clear()
        for task in list(self._tasks):
            task.cancel()
        if client is not None:
            await client.close()

    def run(self, work: Any) -> None:
        """Run something in the background, until the session is closed."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Prompts.

    def enqueue(self, prompt: QueuedPrompt) -> None:
        self.queue.append(prompt)
        self.send_next()

    def send_next(self) -> None:
        """Send the next prompt that waits, if no turn runs."""
        if self.queue and self.is_connected and not self.is_busy:
            self.is_busy = True
            self.run(self._send(self.queue.pop(0)))
        self._on_change()

    async def _send(self, prompt: QueuedPrompt) -> None:
        assert self.client is not None
        uuid = str(uuid4())
        self._transcript.own_prompts.add(uuid)
        if self._transcript.echoes:
            self._transcript.show_prompt(prompt.text)
        self._transcript.enter("Waiting for the model")
        self._past.uuids.append(uuid)
        self._past.prompts.append((uuid, prompt.text))
        try:
            turn = await self.client.ask(prompt.content, uuid=uuid)
            async for _ in turn:
                pass
        except ClaudeSDKError as exc:
            self._transcript.warn(f"the prompt was not answered: {exc}")
            self.is_busy = False
            self._on_change()

    async def interrupt(self) -> None:
        if self.client is not None and self.is_connected:
            try:
                await self.client.interrupt()
            except ClaudeSDKError as exc:
                self._transcript.warn(f"cannot interrupt: {exc}")

    async def set_mode(self, mode: Any) -> None:
        if self.client is not None and self.is_connected:
            try:
                await self.client.set_permission_mode(mode)
                self.mode = mode
            except ClaudeSDKError as exc:
                self._transcript.warn(f"cannot change the mode: {exc}")
        self._on_change()

    # Messages.

    def receive(self, message: Message) -> None:
        """A message of the session."""
        try:
            self._transcript.show(message)
        except Exception as exc:  # a message that cannot be shown must not end the session
            self._transcript.warn(f"cannot show a message ({type(message).__name__}): {exc!r}")
        match message:
            case Init():
                self._note_init(message)
            case Status(permissionMode=str() as mode):
                self.mode = mode
            case SessionStateChanged(state=state):
                self.is_busy = state != "idle"
            case Result():
                self._note_result(message)
            case ConversationReset():
                self._past = Past()
                self._transcript.note("A new conversation begins.")
            case User() | Assistant():
                self._note_message(message)
        self._on_change()
        if not self.is_busy and self.queue:
            self.send_next()

    def _note_init(self, message: Init) -> None:
        self.is_busy = True
        if isinstance(message.session_id, str) and message.session_id != self.target.session_id:  # a copy
            self.target = replace(self.target, session_id=message.session_id)
        self.model = message.model if isinstance(message.model, str) else self.model
        self._other_folders = tuple(message.additional_directories or ())
        self.mode = message.permissionMode if isinstance(message.permissionMode, str) else self.mode

    def _note_result(self, message: Result) -> None:
        self.is_busy = False
        if not self.queue:
            self.on_idle()
        if isinstance(message.total_cost_usd, int | float):
            self.cost_usd = float(message.total_cost_usd)
        if self.is_connected and self.client is not None:
            self.run(self._read_context(self.client))
            self.run(self._read_branch())

    def _note_message(self, message: User | Assistant) -> None:
        if isinstance(message.parent_tool_use_id, str) or not isinstance(message.uuid, str):
            return
        if message.uuid not in self._past.uuids[-200:]:
            self._past.uuids.append(message.uuid)
            if isinstance(message, User) and (text := prompt_text(message)) is not None:
                self._past.prompts.append((message.uuid, text))
