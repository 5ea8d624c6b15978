"""The line below the prompt: mode, model, context, cost; or the output of the user's `statusLine` command.

    status_line = StatusLine(view, refresh)
    status_line.update(SessionStatus(mode="plan", model="sonnet"))     after a change, such as a result
    status_line.render(80)                                             -> ["plan mode · sonnet · ..."]

The command gets the state of the session as JSON on its stdin, as in Claude Code. It runs after a change, never while
nothing changes; one at a time, at most a few times per second, and with a deadline. If it fails, the default line says
so. The settings of a session on another machine cannot start a command here.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from parley.protocol.base import Json, encode_json
from parley.sdk.errors import ClaudeSDKError
from parley.settings.secret_variables import without_secrets
from parley.terminal.base import SessionStatus, View, run_program
from parley.terminal.rendering.style import RESET, Styles
from parley.terminal.rendering.text import cell_width, reveal_line, shorten
from parley.version import __version__
from parley.workspace.search_path import environment_for

DEADLINE_SECONDS = 3.0
PAUSE_SECONDS = 0.3
"""Between two runs of the command."""
MAX_OUTPUT_BYTES = 16_384
MAX_LINES = 3
COLOR = re.compile(r"(\x1b\[[0-9;:]*m)")
MODES = {
    "default": "asks before changes",
    "acceptEdits": "accepts edits",
    "plan": "plan mode",
    "auto": "auto mode",
    "dontAsk": "denies what needs approval",
    "bypassPermissions": "bypasses permissions",
}
"""How each permission mode is called."""


class StatusLine:
    def __init__(self, view: View, refresh: Callable[[], None]) -> None:
        self._view = view
        self._refresh = refresh
        self._status = SessionStatus()
        self._lines: list[str] = []
        """The output of the command, made safe."""
        self._problem = ""
        """Why the command has no output."""
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        """Something has changed since the command was started."""

    def update(self, status: SessionStatus) -> None:
        """Show other figures. The command runs in the background, if there is one."""
        if status != self._status:
            self._status = status
            self.restart()

    def restart(self) -> None:
        """Something has changed: run the command, or look whether there is another."""
        self._is_stale = True
        self._refresh()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def render(self, columns: int) -> list[str]:
        """The lines, not wider than this."""
        styles = self._view.styles
        if self._lines:
            return [fit(line if styles.has_color else COLOR.sub("", line), columns) for line in self._lines]
        return [format_status(self._status, styles, columns, self._problem)]

    async def close(self) -> None:
        """Stop the command."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while self._is_stale:
            self._is_stale = False
            command = await self._find_command()
            if command is None:
                self._lines, self._problem = [], ""
            else:
                await self._run_command(command)
            self._refresh()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _find_command(self) -> str | None:
        """The command of the settings; None if there is none, or if they are those of another machine."""
        try:
            if self._view.options.engine not in ("process", "local"):
                return None
            setting = (await self._view.client.get_settings())["effective"].get("statusLine")
        except (ClaudeSDKError, ValueError, KeyError):  # the engine is not ready, or does not know the request
            return None
        command = setting.get("command") if isinstance(setting, dict) and setting.get("type") == "command" else None
        return command if isinstance(command, str) and command.strip() else None

    async def _run_command(self, command: str) -> None:
        try:
            data = encode_json(await self._describe())
            view, argv = self._view, ("/bin/sh", "-c", command)
            # Its program comes from none of the folders of the session.
            environment = environment_for(command, without_secrets({**os.environ, **view.options.env}), view.folders)
            code, output = await run_program(
                argv, environment, DEADLINE_SECONDS, cwd=view.folders[0], data=data, max_bytes=MAX_OUTPUT_BYTES
            )
            self._lines = clean_output(output) if code == 0 else []
            self._problem = "" if self._lines else f"statusLine: exit code {code}" if code else "statusLine: no output"
        except TimeoutError:
            self._lines, self._problem = [], f"statusLine: no answer within {DEADLINE_SECONDS:.0f} s"
        except (OSError, ValueError, ClaudeSDKError) as exc:
            self._lines, self._problem = [], f"statusLine: {exc}"

    async def _describe(self) -> Json:
        """The state of the session, with the fields of Claude Code."""
        status, usage = self._status, (await self._view.client.get_usage()).get("session") or {}
        cost = {name: usage.get(name) for name in usage if name.startswith("total_")}
        percent = status.context_percent
        left = None if percent is None else 100 - percent
        return {
            "hook_event_name": "Status",
            "session_id": status.session_id,
            "cwd": self._view.cwd,
            "model": {"id": status.model, "display_name": status.model},
            "workspace": {"current_dir": self._view.cwd, "project_dir": self._view.cwd},
            "version": __version__,
            "permission_mode": status.mode,
            "cost": cost,
            "context_window": {"used_percentage": percent, "remaining_percentage": left},
        }


def clean_output(output: bytes) -> list[str]:
    """The first lines, with colours and nothing else that acts on a terminal."""
    lines = output.decode(errors="replace").rstrip().split("\n")[:MAX_LINES]
    parts = [COLOR.split(line) for line in lines]
    return ["".join(part if COLOR.fullmatch(part) else clean(part) for part in line) for line in parts if any(line)]


def clean(text: str) -> str:
    """Spaces stay: they align."""
    return "".join(char if char == " " else reveal_line(char) or " " for char in text)


def fit(line: str, columns: int) -> str:
    """The start of a line with colours that fits."""
    fitted, room, has_color = "", columns, False
    for part in COLOR.split(line):
        if COLOR.fullmatch(part):
            fitted, has_color = fitted + part, True
            continue
        text = shorten(part, room)
        fitted, room = fitted + text, room - cell_width(text)
        if text != part:
            break
    return fitted + RESET if has_color else fitted


def format_status(status: SessionStatus, styles: Styles, columns: int, problem: str = "") -> str:
    """`plan mode · sonnet · context 12 % · $0.0123 · ~/project · ⎇ main`, without what does not fit, from the end."""
    mode = MODES.get(status.mode, reveal_line(status.mode))
    paints: dict[str, Any] = {"bypassPermissions": styles.bad, "plan": styles.accent, "acceptEdits": styles.warning}
    parts = [
        (mode, paints.get(status.mode, styles.dim)),
        (reveal_line(status.model), styles.dim),
        (format_context(status.context_percent), styles.dim),
        (f"${status.cost_usd:.4f}" if status.cost_usd else "", styles.dim),
        (reveal_line(problem), styles.warning),
        (shorten_home(status.cwd), styles.dim),
        (f"⎇ {reveal_line(status.branch)}" if status.branch else "", styles.dim),
    ]
    shown, room = [], columns
    for text, paint in parts:
        if text and cell_width(text) <= room:
            shown.append(paint(text))
            room -= cell_width(text) + 3
    return styles.dim(" · ").join(shown)


def format_context(percent: float | None) -> str:
    return "" if percent is None else f"context {percent:.0f} %"


def shorten_home(path: str) -> str:
    home = os.path.expanduser("~")
    return reveal_line(f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}{os.sep}") else path)
