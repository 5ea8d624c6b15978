"""Which session a terminal opens, and the client of it.

A local session runs in an engine process of its own, which gets the options of the command line. A session of a
gateway stays there when the terminal is closed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from parley.errors import UsageError

if TYPE_CHECKING:
    from parley.protocol.base import Json
    from parley.protocol.options import CliOptions
    from parley.sdk.client import Client
    from parley.sdk.permissions import CanUseTool
    from parley.sdk.runtime.transport import Wire

REPLAYED_LINES = 400
"""How many of the last lines of a gateway's session are shown when a terminal attaches to it."""
CHECKPOINTS = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"


@dataclass(frozen=True)
class Target:
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

    def switch(self, session_id: str, cwd: str | None = None, at: str | None = None) -> Target:
        """Another session in the same terminal."""
        return replace(self, session_id=session_id, is_resumed=True, cwd=cwd or self.cwd, at=at)

    def restart(self) -> Target:
        """A new session in the same terminal."""
        return replace(self, session_id=str(uuid4()), is_resumed=False, at=None)


@dataclass(frozen=True)
class Callbacks:
    """Who answers the requests of the engine, and reads what it writes to stderr."""

    can_use_tool: CanUseTool
    on_elicitation: Callable[[Any], Awaitable[Any]]
    on_stderr: Callable[[str], None]


def choose_target(options: CliOptions, cwd: str) -> Target:
    """The session that the command line names: a new one, the last one, or one by its id. Raises UsageError."""
    if options.continue_conversation:
        from parley.sdk.sessions import list_sessions

        found = list_sessions(cwd, limit=1, include_worktrees=False, store=options.store)
        if not found:
            raise UsageError(f"no session to continue in {cwd}: start one with `parley`")
        return Target(options, cwd, found[0].session_id, is_resumed=True)
    if options.resume:
        return Target(options, cwd, options.resume, is_resumed=True)
    return Target(options, cwd, options.session_id or str(uuid4()))


def make_client(target: Target, callbacks: Callbacks) -> Client[Any]:
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
    wire = open_gateway(target) if target.server else open_process(target, callbacks)
    return Client(options, transport=wire)


def open_process(target: Target, callbacks: Callbacks) -> Wire:
    from parley.protocol.options import format_args
    from parley.sdk.launch.find_cli import find_engine
    from parley.sdk.launch.process import EngineProcess

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


def open_gateway(target: Target) -> Wire:
    from parley.sdk.launch.network import NetworkWire

    session_id = target.session_id if target.is_resumed else None
    create: tuple[str, Json] = ("/sessions", {})
    if target.at is not None:  # other clients see the session, so the terminal continues with a copy
        session_id, create = None, (f"/sessions/{quote(target.session_id, safe='')}/fork", {"uuid": target.at})
    return NetworkWire(target.server, target.token, session_id, create, partial=True, replayed_lines=REPLAYED_LINES)
