"""The session of one run: a workspace of its own, the prompts of the case, and what the agent did.

The session reads neither your settings nor your memory files. Its tools pass the same permission checks as in any
other session; no one is asked, so what no rule and no mode allows is denied. All lines between the client and its
engine are recorded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import ParleyError
from parley.evals.suite import PROMPT, EvalCase, EvalConfiguration, PlannedRun
from parley.inspector.recorder import ConversationRecorder, make_header
from parley.inspector.recording import Direction
from parley.inspector.redaction import WireRedactor
from parley.protocol.base import Struct
from parley.sdk.client import Client
from parley.sdk.errors import BudgetExceeded
from parley.sdk.options import Options
from parley.sdk.types.blocks import ToolUseBlock
from parley.sdk.types.messages import AssistantMessage, ResultMessage

if TYPE_CHECKING:
    from parley.sdk.budget import Budget
    from parley.sdk.launch.args import LaunchSpec
    from parley.sdk.runtime.transport import Ended, Wire


MAX_WARNINGS = 20


class AgentRun(Struct, kw_only=True):
    """What the agent did."""

    text: str = ""
    """The last answer."""
    error: str = ""
    """Why the session failed; "" if it did not."""
    is_out_of_budget: bool = False
    """Whether it failed because a limit was reached, its own or that of all runs."""
    tools: Counter[str] = msgspec.field(default_factory=Counter)
    denied: list[str] = []
    warnings: list[str] = []
    turns: int = 0
    cost_usd: float | None = None
    seconds: float = 0
    session_id: str = ""

    def add_result(self, result: ResultMessage) -> None:
        self.text = result.result or ""
        self.turns += result.num_turns
        self.cost_usd = result.total_cost_usd
        self.session_id = result.session_id
        self.denied += [str(denial["tool_name"]) for denial in result.permission_denials or ()]
        if result.is_error:
            self.error = "; ".join(result.errors or ()) or result.result or result.subtype
            self.is_out_of_budget = result.terminal_reason in ("budget_exhausted", "max_turns")


def prepare_workspace(folder: Path, case: EvalCase) -> Path:
    """Create the workspace of a case. Raises OSError."""
    workspace = folder / "workspace"
    if case.workspace is not None:
        shutil.copytree(case.workspace, workspace, symlinks=True)
    else:
        workspace.mkdir(parents=True)
    for name, content in case.files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return workspace


def prepare_config(folder: Path, configuration: EvalConfiguration) -> Path:
    """Create the configuration folder of a session, with the skills to evaluate. Raises OSError."""
    config = folder / "config"
    config.mkdir(parents=True)
    for skill in configuration.skills:
        shutil.copytree(skill, config / "skills" / Path(skill).name)
    return config


def make_options(planned: PlannedRun, folder: Path, workspace: Path, recording: Path) -> Options[Any]:
    """The options of the session."""
    own, case = planned.configuration, planned.case
    config = prepare_config(folder, own)
    settings = msgspec.json.encode(own.settings).decode() if isinstance(own.settings, dict) else own.settings
    preset = {"type": "preset", "preset": "claude_code"}
    if own.append_system_prompt is not None:
        preset["append"] = own.append_system_prompt
    return Options(
        engine="local",
        model=own.resolve_model(case.name),
        fallback_model=own.fallback_model,
        system_prompt=preset if own.system_prompt is None else own.system_prompt,  # type: ignore[arg-type]  # as declared
        permission_mode=own.permission_mode,
        allowed_tools=[*own.allowed_tools, *case.allowed_tools],
        disallowed_tools=own.disallowed_tools,
        tools=own.tools,
        max_turns=own.max_turns,
        max_budget_usd=own.max_cost_usd,
        effort=own.effort,
        max_thinking_tokens=own.max_thinking_tokens,
        plugins=[{"type": "local", "path": path} for path in own.plugins],
        skills=[Path(skill).name for skill in own.skills] or None,
        settings=settings,
        setting_sources=["user", *own.setting_sources],
        mcp_servers={} if own.mcp_servers is None else own.mcp_servers,  # type: ignore[arg-type]  # checked by the SDK
        strict_mcp_config=True,
        cwd=workspace,
        env={"CLAUDE_CONFIG_DIR": str(config), "PARLEY_STORE": "", **own.env},
        persist_session=False,
        record=str(recording.with_name(f"{recording.name}.model.jsonl")),
    )


async def run_agent(planned: PlannedRun, options: Options[Any], recording: Path) -> AgentRun:
    """Send the prompts of a case. What goes wrong is the `error` of the run. Raises BudgetExceeded."""
    found = AgentRun()
    options.stderr = lambda text: found.warnings.append(text) if len(found.warnings) < MAX_WARNINGS else None
    with suppress(FileNotFoundError):
        os.unlink(str(options.record))
    started = time.monotonic()
    limit = planned.case.timeout_seconds
    try:
        async with asyncio.timeout(limit):
            async with RecordedClient(options, recording.with_name(f"{recording.name}.wire.jsonl")) as client:
                for prompt in planned.case.list_prompts():
                    await run_prompt(client, planned.configuration.prompt_template.replace(PROMPT, prompt), found)
                    if found.error:
                        break
    except TimeoutError:
        found.error = f"the session did not end within {limit:g} s (timeout_seconds of the case)"
    except BudgetExceeded:
        raise
    except (ParleyError, OSError, ValueError, TypeError) as exc:
        found.error = f"{type(exc).__name__}: {exc}"
    found.seconds = round(time.monotonic() - started, 3)
    return found


async def run_prompt(client: Client[Any], prompt: str, found: AgentRun) -> None:
    turn = await client.ask(prompt)
    async for message in turn:
        if isinstance(message, AssistantMessage):
            found.tools.update(block.name for block in message.content if isinstance(block, ToolUseBlock))
    if turn.result is None:
        found.error = "the session ended before the turn"
    else:
        found.add_result(turn.result)


def share_budget(options: Options[Any], budget: Budget | None, turns_left: int | None) -> None:
    """Limit a session by what is left for all."""
    options.budget = budget
    if turns_left is not None:
        options.max_turns = min(int(options.max_turns or turns_left), turns_left)


class RecordedClient(Client[Any]):
    """A client that writes all lines between it and its engine to a recording. One at the same path is replaced."""

    def __init__(self, options: Options[Any], recording: Path) -> None:
        super().__init__(options)
        self._recording = recording

    def _open_wire(self, spec: LaunchSpec, options: Options[Any]) -> Wire:
        self._recording.unlink(missing_ok=True)
        redactor = WireRedactor(spec.environment)
        # Without the file of the model calls: it exists, and a replay of the client would be refused.
        command = ["parley", *(word for word in spec.argv if not word.startswith("--record="))]
        header = make_header(command, redactor, cwd=os.path.abspath(options.cwd or os.curdir))
        log = ConversationRecorder(self._recording, header, redactor)
        report = options.stderr

        def note_stderr(text: str) -> None:
            log.feed(Direction.ERR, text.encode() + b"\n")
            if report is not None:
                report(text)

        options.stderr = note_stderr
        return RecordedWire(super()._open_wire(spec, options), log)


class RecordedWire:
    """A `Wire` whose lines are recorded."""

    def __init__(self, wire: Wire, log: ConversationRecorder) -> None:
        self._wire = wire
        self._log = log

    @property
    def pid(self) -> int | None:
        return self._wire.pid

    async def open(self) -> None:
        await self._wire.open()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._wire.chunks():
            self._log.feed(Direction.OUT, chunk)
            yield chunk

    def write(self, data: bytes) -> None:
        self._log.feed(Direction.IN, data)
        self._wire.write(data)

    async def flush(self) -> None:
        await self._wire.flush()

    async def end_input(self) -> None:
        await self._wire.end_input()

    async def ended(self) -> Ended:
        ended = await self._wire.ended()
        self._log.end(ended.exit_code or 0)
        return ended

    async def close(self, busy: bool) -> Ended:
        ended = await self._wire.close(busy)
        self._log.end(ended.exit_code or 0)
        return ended

    def abandon(self) -> None:
        self._log.end(0)
        self._wire.abandon()
