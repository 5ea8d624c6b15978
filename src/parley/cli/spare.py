"""A spare process (`--await-claim`): started before it is known which session it will be.

A pool of such processes saves hosts the start-up. While it is parked, the process answers `initialize` and a few other
requests with a session that stores nothing, starts no MCP server and runs no hook. `claim_session` names the folder;
the session is then composed there, as by a cold start, with what the client sent while parked. So the folder's
settings, memory files, hooks and servers are read at the claim, and not before.

A claim that is refused ends the process: the first prompt after it gets a result that says `not_claimed`.

The settings that arrive while the process is parked are applied before the session is composed, the other requests
after that.

See also: run.py runs a session without a claim.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from parley.cli.handshake import PendingConnection
from parley.cli.process_secrets import erase
from parley.cli.run import (
    SessionRun,
    SignalHandler,
    cannot_open,
    finish,
    make_pump,
    make_run,
    open_session,
    with_debug,
)
from parley.cli.stdio import warn
from parley.compose.composer import Composer
from parley.compose.launch_context import working_directory
from parley.engine.control.dispatcher import find_handler
from parley.engine.session.pump import Pump, serve
from parley.engine.session.session import Session
from parley.engine.turn.outcome import no_session_result
from parley.errors import ModelError, NotPossible, SessionError, StartRefused, UsageError
from parley.protocol.base import UNSET, Message, Refused, Struct, to_builtins
from parley.protocol.connection import Connection
from parley.protocol.messages import panel_requests, requests
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, RequestId, Success
from parley.protocol.messages.conversation import User
from parley.protocol.options import MODES, CliOptions
from parley.settings.base import SettingsWriteError
from parley.transports.stdio import StdioTransport

ANSWERED = frozenset(
    [
        "initialize",
        "interrupt",
        "end_session",
        "apply_flag_settings",
        "set_permission_mode",
        "set_model",
        "set_max_thinking_tokens",
        "mcp_status",
        "get_settings",
        "get_status",
        "get_context_usage",
        "get_usage",
        "get_session_cost",
        "get_binary_version",
        "list_models",
        "list_permission_rules",
    ]
)
"""The requests that a parked process answers."""
NOT_CLAIMED = (
    "not_claimed: this process was started with --await-claim and has no session yet; send claim_session first"
)
REFUSED_SECONDS = 5.0
"""How long a process whose claim was refused waits for the prompt that follows it."""
CLAIMABLE_VARIABLES = ("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_SESSION_ACCESS_TOKEN", "CLAUDE_CODE_HOST_SESSION_ID")
"""The variables that a claim may set. Others are read at the start of the process."""
START_KEYS = ("env", "agent", "model")
"""Settings of a project that hosts expect to be refused: they are promised a cold start for such a folder."""
REPEATED = ("set_model", "set_permission_mode", "set_max_thinking_tokens")
"""Requests whose effect the claimed session gets by repeating the last one of each."""


def run_spare(options: CliOptions, pending: PendingConnection | None = None, warned: Sequence[str] = ()) -> int:
    """Park, then serve the session of the claim until it ends; returns the exit code. Raises UsageError.

    `pending`: a connection on which the handshake has already arrived.
    """
    environment = dict(os.environ)
    erase()
    run = make_run(options, pending, warned)
    try:
        return asyncio.run(serve_spare(run, environment))
    except (StartRefused, UsageError) as exc:
        return cannot_open(run, exc, is_awaited=pending is not None)


async def serve_spare(run: SessionRun, environment: dict[str, str]) -> int:
    """Raises UsageError or StartRefused."""
    transport = StdioTransport()
    try:
        spare = Spare(run, environment, transport)
        with SignalHandler(spare.session, transport) as parked:
            claim = await spare.wait()
        if claim is None or parked.is_signaled:
            await transport.drain()
            return parked.exit_code() or int(spare.is_refused)
        with SignalHandler(claim.session, transport) as stop:
            await serve(transport, claim.pump, claim.session, claim.received)
            transport.close()
            claim.session.journal.close()
    finally:
        transport.close()
    return finish(transport, stop)


class ParkedPump(Pump):
    """The connection of a parked session, which notes the requests that succeeded."""

    def __init__(self, connection: Connection, transport: StdioTransport, new_id: Callable[[], str]) -> None:
        super().__init__(connection, transport, new_id)
        self.accepted: set[Any] = set()

    def send(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, ControlResponse) and isinstance(message.response, Success):
                self.accepted.add(message.response.request_id)
        super().send(*messages)


class Claim(Struct, frozen=True):
    """A claimed session, what it is served with, and the messages that arrived after the claim."""

    session: Session
    pump: Pump
    received: Iterator[Message]


class ClaimRefused(Exception):
    """The process cannot become this session."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class Spare:
    """A parked process."""

    def __init__(self, run: SessionRun, environment: dict[str, str], transport: StdioTransport) -> None:
        """Raises UsageError or StartRefused."""
        self._run = run
        self._clock = run.clock
        self._environment = environment
        self._transport = transport
        self._pump = ParkedPump(run.connection, transport, run.clock.new_uuid)
        self._parked_at = run.clock.monotonic()
        self._asked: list[ControlRequest] = []
        """The requests so far, in order."""
        self._claim: Claim | None = None
        self._warned: set[str] = set()
        """Warnings while parked. The claimed session does not repeat them."""
        self._session_id = run.options.session_id or run.clock.new_uuid()
        """The id of the session unless the claim names one."""
        self.is_refused = False
        self.session = self._park()

    def _park(self) -> Session:
        """The session that answers before the claim. Raises UsageError or StartRefused."""
        parked = self._run.options.replace(
            session_id=self._session_id,
            resume=None,
            continue_conversation=False,
            fork_session=False,
            resume_session_at=None,
            no_session_persistence=True,
            database=None,
            record=None,
        )
        composer = Composer(parked, self._environment, working_directory(), self._clock)
        try:
            config = composer.make_config()  # the claimed session warns
        except SessionError as exc:
            raise StartRefused(str(exc)) from None
        # A parked process starts no server.
        servers = msgspec.structs.replace(config.extensions.mcp, specs=(), takes_host_servers=False)
        extensions = msgspec.structs.replace(config.extensions, mcp=servers)
        parked_config = msgspec.structs.replace(config, extensions=extensions, warn=self._warn_parked)
        session = open_session(parked_config, self._pump)
        session.hooks.disable()
        return session

    def _warn_parked(self, text: str) -> None:
        self._warned.add(text)
        warn(text)

    def _warn_claimed(self, text: str) -> None:
        if text in self._warned:
            self._warned.discard(text)
        else:
            warn(text)

    async def wait(self) -> Claim | None:
        """Serve until the process is claimed, the claim is refused, or the input ends."""
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._read())
            try:
                await self.session.run_turns()
            finally:
                reader.cancel()
        self.session.journal.close()
        return self._claim

    async def _read(self) -> None:
        """Read until the parked session is not needed any more, then end it."""
        if self._handle_all(iter(self._run.received)):
            self.session.close_input()
            return
        try:
            # Closed before the claimed session reads from the same stream.
            async with asyncio.timeout(None) as patience, aclosing(self._transport.chunks()) as chunks:
                async for chunk in chunks:
                    if self._handle_all(self._run.connection.iter_messages(chunk)):
                        break
                    if self.is_refused and patience.when() is None:
                        patience.reschedule(asyncio.get_running_loop().time() + REFUSED_SECONDS)
                else:
                    self._handle_all(iter(self._run.connection.end()))
        except TimeoutError:
            pass  # no prompt followed the refused claim
        self.session.close_input()

    def _handle_all(self, messages: Iterator[Message]) -> bool:
        """Handle messages until one ends the parked session; returns whether one did."""
        return any(self._handle(message, messages) for message in messages)

    def _handle(self, message: Message, following: Iterator[Message]) -> bool:
        match message:
            case ControlRequest(request=panel_requests.ClaimSession()) if not self.is_refused:
                try:
                    self._claim = self._accept_claim(message, following)
                except ClaimRefused as exc:
                    self.is_refused = True
                    self._send_failure(message.request_id, str(exc), exc.code)
                return not self.is_refused
            case ControlRequest() if message.request.subtype not in ANSWERED:
                self._send_failure(message.request_id, NOT_CLAIMED, "not_claimed")
            case User(uuid=uuid) | Refused(kind="user", uuid=uuid):
                uuids = [uuid] if uuid else UNSET
                self._pump.send(no_session_result(NOT_CLAIMED, self._session_id, self._clock, uuids))
                return self.is_refused
            case _:
                if isinstance(message, ControlRequest):
                    self._asked.append(message)
                self._pump.handle_all([message], self.session)
                self.session.hooks.disable()  # a parked process runs no hooks
        return False

    def _send_failure(self, request_id: RequestId, text: str, code: str) -> None:
        self._pump.send(ControlResponse(response=Failure(request_id=request_id, error=text, error_code=code)))

    # The claim.

    def _accept_claim(self, message: ControlRequest, following: Iterator[Message]) -> Claim:
        """Become the session of a claim. Raises ClaimRefused."""
        request: Any = message.request
        accepted: list[Any] = [asked.request for asked in self._asked if asked.request_id in self._pump.accepted]
        # The last handshake, with what the claim adds to it.
        claim = request
        asked = [request for request in accepted if isinstance(request, requests.Initialize)]
        sent = asked[-1] if asked else requests.Initialize()
        prompts = [sent.appendSystemPrompt, claim.append_system_prompt]
        text = "\n\n".join(prompt for prompt in prompts if isinstance(prompt, str) and prompt)
        try:
            more = msgspec.convert(given(claim.agents, {}), dict[str, requests.AgentDefinition])
        except msgspec.ValidationError as exc:
            raise ClaimRefused("invalid_request", f"agents: {exc}") from None
        agents = {**given(sent.agents, {}), **more}
        servers = list(dict.fromkeys([*given(sent.sdkMcpServers, []), *given(claim.sdk_mcp_servers, [])]))
        initialize = msgspec.structs.replace(
            sent,
            title=UNSET if isinstance(claim.title, str) else sent.title,  # that of the claim is an option
            appendSystemPrompt=text or UNSET,
            agents=agents or UNSET,
            sdkMcpServers=servers or sent.sdkMcpServers,
        )
        initialize.__dict__["unknown_fields"] = sent.unknown_fields
        session, pump = self._open_claimed(request, accepted)
        try:
            repeat(session, accepted)
            set_mode(session, request.permission_mode)
            initialized = run_handler(session, initialize)
        except BaseException as exc:
            session.journal.close()
            if isinstance(exc, NotPossible | ModelError | UsageError):
                raise ClaimRefused("claim_failed", str(exc)) from None
            raise
        answer = panel_requests.ClaimAnswer(
            cwd=session.config.cwd,
            session_id=session.id,
            parked_ms=round((self._clock.monotonic() - self._parked_at) * 1000),
            sdk_mcp_settled=all(one.settled.is_set() for one in session.servers if one.spec.kind == "sdk"),
            initialize=to_builtins(initialized) if request.include_initialize is True else UNSET,
        )
        reply = Success(request_id=message.request_id, response=to_builtins(answer))
        pump.send(ControlResponse(response=reply))
        session.resume_turn()
        session.servers.start()
        return Claim(session, pump, following)

    def _open_claimed(
        self, claim: panel_requests.ClaimSession, accepted: Sequence[requests.Request]
    ) -> tuple[Session, Pump]:
        """Compose the session of a claim, as a cold start does. Raises ClaimRefused."""
        cwd, own = find_cwd(claim.cwd), self._run.options
        options = self._claimed_options(claim, cwd)
        environment = {**self._environment, **check_variables(claim.env)}
        has_mode = isinstance(claim.permission_mode, str) or own.permission_mode is not None or own.skip_permissions
        try:
            composer = Composer(options, environment, cwd, self._clock, warn=self._warn_claimed)
            for request in accepted:
                if isinstance(request, panel_requests.ApplyFlagSettings):
                    composer.launch.settings.apply(request.settings)
            check_project(composer, has_mode=has_mode)
            os.chdir(cwd)
            config = composer.make_config(self._run.warned)
            config.workspace.processes.hides_engine = True
            config, debug = with_debug(options, config, self._clock)
            pump = make_pump(self._run, self._transport, debug)
            return open_session(config, pump), pump
        except (UsageError, SessionError, SettingsWriteError, OSError) as exc:
            raise ClaimRefused("claim_failed", str(exc)) from None

    def _claimed_options(self, claim: panel_requests.ClaimSession, cwd: str) -> CliOptions:
        """The options of the process with those of the claim. Raises ClaimRefused."""
        options, mode = self._run.options, given(claim.permission_mode, None)
        if mode is not None and mode not in MODES:
            reason = f"unknown permission mode {mode!r:.100} (choose from {', '.join(sorted(MODES))})"
            raise ClaimRefused("permission_mode_not_claimable", reason)
        added = [os.path.join(cwd, os.path.expanduser(one)) for one in given(claim.additional_directories, [])]
        changes: dict[str, Any] = {
            "add_dirs": (*(options.add_dirs or ()), *filter(is_directory, added)) or None,
            "name": given(claim.title, options.name),
            "resume": given(claim.resume, options.resume),
            "session_id": given(claim.session_id, options.session_id),
        }
        if mode not in (None, "bypassPermissions"):  # that one is checked as `set_permission_mode` checks it
            changes["permission_mode"] = mode
        if not (changes["resume"] or changes["session_id"] or options.continue_conversation):
            changes["session_id"] = self._session_id
        return options.replace(**changes)


def given(value: Any, default: Any) -> Any:
    """A field of a request; the default if it is absent or null."""
    return default if value is UNSET or value is None else value


def is_directory(path: str) -> bool:
    return "\0" not in path and os.path.isdir(path)


def find_cwd(path: str) -> str:
    """The real path of the claimed folder. Raises ClaimRefused."""
    if path.startswith(("//", "\\\\")) or "\0" in path:
        raise ClaimRefused(
            "unsafe_path", "cwd must be a local path, not a network path, and must not contain null bytes"
        )
    path = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
    if not os.path.isabs(path) or not os.path.isdir(path):
        raise ClaimRefused("cwd_not_found", f"cwd is not the absolute path of an existing folder: {path!r:.500}")
    return os.path.realpath(path)


def check_variables(env: Any) -> dict[str, str]:
    """Raises ClaimRefused."""
    wanted: dict[str, str] = given(env, {})
    for name in wanted:
        if name not in CLAIMABLE_VARIABLES:
            reason = (
                f"env: {name:.100} takes effect only when a process starts; set it in the environment of that process"
            )
            raise ClaimRefused("env_key_not_claimable", reason)
    return wanted


def check_project(composer: Composer, *, has_mode: bool) -> None:
    """Refuse a folder whose own settings decide how a process starts. Raises ClaimRefused."""
    for layer in composer.launch.settings.layers():
        if layer.source not in ("project", "local"):
            continue
        found = [key for key in START_KEYS if layer.values.get(key)]
        rules = layer.values.get("permissions")
        if not has_mode and isinstance(rules, dict) and rules.get("defaultMode"):
            found.append("permissions.defaultMode (and claim_session has no permission_mode)")
        if found:
            reason = f"{layer.path} sets {', '.join(found)}, which takes effect only when a process starts"
            raise ClaimRefused("project_settings_not_claimable", f"{reason}; start a new process for this session")


def repeat(session: Session, accepted: Sequence[requests.Request]) -> None:
    """Give a session what the client set while the process was parked. Raises NotPossible or ModelError."""
    last = {request.subtype: request for request in accepted if request.subtype in REPEATED}
    for request in last.values():
        if isinstance(request, requests.SetModel):  # without the message that its handler sends
            session.conversation.use_model(given(request.model, "default"))
        else:
            run_handler(session, request)


def set_mode(session: Session, mode: Any) -> None:
    """Raises ClaimRefused if the session cannot have this mode: it must not run in another."""
    if not isinstance(mode, str) or session.mode == mode:
        return
    try:
        run_handler(session, requests.SetPermissionMode(mode=mode))
    except NotPossible as exc:
        raise ClaimRefused("permission_mode_not_claimable", str(exc)) from None


def run_handler(session: Session, request: requests.Request) -> Any:
    """The answer to a request, without sending it. Raises NotPossible."""
    handler = find_handler(request.subtype)
    assert handler is not None
    answer = handler(session, request)
    if not hasattr(answer, "send"):
        return answer
    try:
        answer.send(None)
    except StopIteration as finished:  # `initialize` waits for nothing
        return finished.value
    answer.close()
    raise NotPossible(f"{request.subtype} arrived before claim_session and cannot be applied to the claimed session")
