"""Tool calls and their results as an editor shows them: title, kind, files, diffs and output. Without I/O.

What commands write is shown in terminals of the editor, if it has such (`TerminalViews`). The engine runs the commands,
under its own rules; the terminal runs nothing. This is an extension that Zed announces as `terminal_output` in the
`_meta` of its capabilities.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from parley.protocol.base import UNSET, Json, encode_json
from parley.protocol.blocks import ToolResult, ToolUse
from parley.tools.catalog import JUDGED_BY_CALL, Effect, ToolTraits, find_traits

Kind = Literal["read", "edit", "search", "execute", "think", "fetch", "switch_mode", "other"]
KINDS: Mapping[Effect, Kind] = {
    "reads_files": "read",
    "searches_files": "search",
    "writes_files": "edit",
    "runs_commands": "execute",
    "fetches_urls": "fetch",
    "searches_web": "fetch",
    "delegates": "think",
    "loads_skills": "read",
}
"""Calls with other effects are of the kind `other`."""
VERBATIM: frozenset[Effect] = frozenset({"reads_files", "searches_files", "runs_commands"})
"""Effects whose output is shown as it is, not as Markdown."""
MAX_TITLE_CHARS = 300
LIVE_CHARS = 1 << 20
"""How much is shown of one command while it runs."""
MORE = "\n(There is more. The rest is not shown here.)\n"
EXIT_CODE = re.compile(r"(?:\(.*\)\n)?Exit code (\d+)\n?")
"""The beginning of the result of a command that failed, after a note about its directory."""


def describe_call(call: ToolUse, cwd: str) -> Json:
    """The fields of a call: what it does, and to which files."""
    traits = find_traits(call.name)
    return {
        "toolCallId": call.id,
        "name": call.name,
        "title": format_title(call, traits, cwd),
        "kind": "switch_mode" if traits.plan_field else KINDS.get(traits.effect, "other"),
        "status": "pending",
        "rawInput": call.input,
        "content": input_content(call, traits, cwd),
        "locations": find_locations(call, traits, cwd),
    }


def format_title(call: ToolUse, traits: ToolTraits, cwd: str) -> str:
    """One line. A command or an address is shown as it is, not as the model describes it."""
    subject = call.input.get(traits.subject_field)
    if traits.effect in JUDGED_BY_CALL and isinstance(subject, str):
        return f"`{subject}`"[:MAX_TITLE_CHARS]
    if traits.effect == "session" and traits.title and "{about}" not in traits.title:
        return traits.title
    paths = find_paths(call, traits, cwd)
    fields = (call.input.get(name) for name in (*traits.activity_fields, traits.subject_field))
    about = os.path.relpath(paths[0], cwd) if paths else next((each for each in fields if isinstance(each, str)), "")
    return f"{traits.activity} {about or call.name}".replace("\n", " ")[:MAX_TITLE_CHARS]


def find_paths(call: ToolUse, traits: ToolTraits, cwd: str) -> list[str]:
    """The files and folders that a call names, as absolute paths."""
    given = [call.input.get(name) for name in traits.path_fields]
    names = [name for value in given for name in (value if isinstance(value, list) else [value])]
    return [os.path.normpath(os.path.join(cwd, name)) for name in names if isinstance(name, str) and name]


def find_locations(call: ToolUse, traits: ToolTraits, cwd: str) -> list[Json]:
    line = call.input.get("offset") if traits.effect == "reads_files" else None
    place = {"line": line} if isinstance(line, int) and line > 0 else {}
    return [{"path": path, **place} for path in find_paths(call, traits, cwd)]


def input_content(call: ToolUse, traits: ToolTraits, cwd: str) -> list[Json]:
    """What a call would change, or the plan that it presents."""
    given = call.input
    if isinstance(plan := given.get(traits.plan_field), str):
        return [text_content(plan)]
    paths = find_paths(call, traits, cwd)
    if traits.effect != "writes_files" or not paths:
        return []
    if isinstance(old := given.get("old_string"), str) and isinstance(new := given.get("new_string"), str):
        return [diff_content(paths[0], old or None, new)]
    new = given.get("content", given.get("new_source"))
    return [diff_content(paths[0], None, new)] if isinstance(new, str) else []


def describe_result(call: ToolUse, result: ToolResult, detail: Any) -> Json:
    """The fields that change when a call has ended. `detail` is the structured form of the output."""
    traits = find_traits(call.name)
    failed = result.is_error is True
    update: Json = {"toolCallId": call.id, "status": "failed" if failed else "completed"}
    if detail is not UNSET and detail is not None:
        update["rawOutput"] = detail
    elif result.content is not None:
        update["rawOutput"] = result.content
    if traits.effect == "writes_files" and not failed:
        return {**update, **changed_lines(detail)}
    verbatim = traits.effect in VERBATIM and not failed
    plan = call.input.get(traits.plan_field)  # stays visible below its call
    shown = [text_content(plan)] if isinstance(plan, str) else []
    return {**update, "content": [*shown, *result_content(result.content, verbatim=verbatim)]}


def changed_lines(detail: Any) -> Json:
    """The lines that a call changed in a file, with their places; nothing if the engine did not report them."""
    if not isinstance(detail, dict) or not isinstance(path := detail.get("filePath"), str):
        return {}
    if detail.get("type") == "create" and isinstance(text := detail.get("content"), str):
        return {"content": [diff_content(path, None, text)], "locations": [{"path": path, "line": 1}]}
    hunks = [hunk for hunk in detail.get("structuredPatch") or () if isinstance(hunk, dict)]
    if not hunks:
        return {}
    return {
        "content": [diff_content(path, side(hunk, " -"), side(hunk, " +")) for hunk in hunks],
        "locations": [{"path": path, "line": hunk.get("newStart", 1)} for hunk in hunks],
    }


def side(hunk: Json, marks: str) -> str:
    """One side of a hunk."""
    return "\n".join(line[1:] for line in hunk.get("lines", ()) if line[:1] in marks)


def result_content(content: str | Sequence[Json] | None, *, verbatim: bool) -> list[Json]:
    if content is None:
        return []
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [found for block in blocks if (found := convert_block(block, verbatim)) is not None]


def convert_block(block: Json, verbatim: bool) -> Json | None:
    """A block of a tool result; None if there is nothing to show."""
    text, source = block.get("text"), block.get("source")
    if isinstance(text, str):
        return text_content(fence(text) if verbatim else text) if text else None
    if block.get("type") == "image" and isinstance(source, dict) and source.get("type") == "base64":
        return {"type": "content", "content": image_block(source)}
    return text_content(encode_json(block).decode())


def image_block(source: Json) -> Json:
    """An image of the Messages API as one of ACP."""
    return {"type": "image", "data": source.get("data", ""), "mimeType": source.get("media_type", "")}


def fence(text: str) -> str:
    """A Markdown code block, with more backticks than the text has in a row."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}\n{text.rstrip(chr(10))}\n{ticks}"


def text_content(text: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": text}}


def diff_content(path: str, old: str | None, new: str) -> Json:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


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
