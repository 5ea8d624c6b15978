"""Terminals in which an editor shows what commands write.

The engine runs the commands, under its own rules; the terminal runs nothing. This is an extension that Zed announces as
`terminal_output` in the `_meta` of its capabilities. Nothing here does I/O: each method returns parts of an update.
"""

from __future__ import annotations

import codecs
import re

from parley.protocol.base import Json
from parley.protocol.blocks import ToolResult, ToolUse

LIVE_CHARS = 1 << 20
"""How much is shown of one command while it runs."""
MORE = "\n(There is more. The rest is not shown here.)\n"
EXIT_CODE = re.compile(r"(?:\(.*\)\n)?Exit code (\d+)\n?")
"""The beginning of the result of a command that failed, after a note about its directory."""


class TerminalView:
    """The terminal of one command."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._shown_chars = 0

    def write(self, data: bytes) -> str:
        """What is added to the terminal."""
        if self._shown_chars >= LIVE_CHARS:
            return ""
        text = self._decoder.decode(data)
        self._shown_chars += len(text)
        return text if self._shown_chars < LIVE_CHARS else text[:LIVE_CHARS] + MORE

    def finish(self, output: str) -> str:
        """What is missing at the end: the output, if none of it was shown."""
        return "" if self._shown_chars else output


class TerminalViews:
    """The terminals of the commands that run, by the id of their call."""

    def __init__(self) -> None:
        self._views: dict[str, TerminalView] = {}

    def open(self, call: ToolUse, cwd: str) -> Json:
        """The fields of a call that has a terminal."""
        self._views[call.id] = TerminalView()
        return {"content": [embed(call.id)], "_meta": {"terminal_info": {"terminal_id": call.id, "cwd": cwd}}}

    def write(self, call_id: str, data: bytes) -> Json | None:
        """The update for new output; None if there is nothing to show."""
        view = self._views.get(call_id)
        text = "" if view is None else view.write(data)
        if not text:
            return None
        shown = {"terminal_output": {"terminal_id": call_id, "data": text}}
        return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "_meta": shown}

    def close(self, result: ToolResult) -> Json:
        """The fields of a call whose command has ended."""
        call_id, text = result.tool_use_id, result_text(result)
        failed = EXIT_CODE.match(text) if result.is_error is True else None
        code = 0 if result.is_error is not True else int(failed[1]) if failed else None
        missing = self._views.pop(call_id, TerminalView()).finish(text)
        shown: Json = {"terminal_exit": {"terminal_id": call_id, "exit_code": code, "signal": None}}
        if missing:
            shown["terminal_output"] = {"terminal_id": call_id, "data": missing}
        return {"content": [embed(call_id)], "_meta": shown}

    def drop(self, call_id: str) -> None:
        """Forget a command whose result does not come."""
        self._views.pop(call_id, None)


def embed(terminal_id: str) -> Json:
    return {"type": "terminal", "terminalId": terminal_id}


def result_text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(str(block["text"]) for block in result.content or () if isinstance(block.get("text"), str))
