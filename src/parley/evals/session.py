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
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import ParleyError
from parley.evals.suite import PROMPT, EvalCase, EvalConfiguration, PlannedRun
from parley.inspector.recorder import ConversationRecorder, RecordedTransport, make_header
from parley.protocol.base import Json, Struct
from parley.sdk.client import Client
from parley.sdk.errors import BudgetExceeded
from parley.sdk.launch.in_process import InProcessEngine, connect_in_process
from parley.sdk.options import Options
from parley.sdk.runtime.transport import write_stderr
from parley.sdk.types.messages import AssistantMessage, ResultMessage, RunResult, ToolUseBlock
from parley.stores.wire_recording import Direction
from parley.stores.wire_redaction import WireRedactor

if TYPE_CHECKING:
    from parley.sdk.budget import Budget
    from parley.sdk.launch.args import LaunchSpec
    from parley.sdk.runtime.transport import Wire
    from parley.transports.base import Transport


MAX_WARNINGS = 20
DEFAULTS: Json = {"permission_mode": "default", "max_turns": 50}


class EvalRun(Struct, kw_only=True):
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
        self.cost_usd = RunResult[object](result).cost_usd
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
    given = DEFAULTS | own.list_options()
    preset = {"type": "preset", "preset": "claude_code"}
    if (added := given.pop("append_system_prompt", None)) is not None:
        preset["append"] = added
    given["allowed_tools"] = [*given.get("allowed_tools", ()), *case.allowed_tools]
    return Options(
        engine="local",
        model=own.resolve_model(case.name),
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
        **{"system_prompt": preset, **given},
    )


async def run_agent(planned: PlannedRun, options: Options[Any], recording: Path) -> EvalRun:
    """Send the prompts of a case. What goes wrong is the `error` of the run. Raises BudgetExceeded."""
    found = EvalRun()
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


async def run_prompt(client: Client[Any], prompt: str, found: EvalRun) -> None:
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


class RecordedEngine(InProcessEngine):
    """An engine that writes all lines between it and its client to a recording."""

    log: ConversationRecorder

    def warn(self, text: str) -> None:
        self.log.feed(Direction.ERR, text.encode() + b"\n")
        super().warn(text)

    async def run(self, transport: Transport) -> None:
        try:
            await super().run(RecordedTransport(transport, self.log))
        finally:
            self.log.end(self.exit_code or 0)


class RecordedClient(Client[Any]):
    """A client of an engine that is recorded. A recording at the same path is replaced."""

    def __init__(self, options: Options[Any], recording: Path) -> None:
        super().__init__(options)
        self._recording = recording

    def _open_wire(self, spec: LaunchSpec, options: Options[Any]) -> Wire:
        self._recording.unlink(missing_ok=True)
        redactor = WireRedactor(spec.environment)
        # Without the file of the model calls: it exists, and a replay of the client would be refused.
        command = ["parley", *(word for word in spec.argv if not word.startswith("--record="))]
        cwd = os.path.abspath(options.cwd or os.curdir)
        on_stderr = options.stderr or write_stderr
        engine = RecordedEngine(spec.argv, cwd, spec.environment, on_stderr, spec.remove_files)
        engine.log = ConversationRecorder(self._recording, make_header(command, redactor, cwd=cwd), redactor)
        return connect_in_process(engine)
