"""Tool results that are too large for one line.

Clients fail on lines over one mebibyte, so no line is longer than the cap. What does not fit is saved to a file of the
session, and the result names the file. The structured copy for the client is shortened first, because it repeats what
the model reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.engine.session.config import ENVELOPE_BYTES
from parley.protocol.base import Json, encode_json, to_builtins
from parley.tools.base import ToolOutput
from parley.workspace.process.processes import ResultFile

BELOW = 4
"""The parent folders of a result that belong to us: `projects/<project>/<session>/tool-results`."""
LONGEST_TEXT_CHARS = 10_000
PREVIEW_CHARS = 2_000
TOO_LARGE = "(too large to show here)"


def spill_to_file(result: ToolOutput, max_bytes: int, new_file: Callable[[str], ResultFile]) -> ToolOutput:
    """A result that does not fit, shortened until it does. `new_file` returns a file for a file name extension."""
    room = max_bytes - ENVELOPE_BYTES
    detail = shorten_values(to_builtins(result.detail))
    if len(encode_json(result.content)) + len(encode_json(detail)) <= room:
        return ToolOutput(content=result.content, detail=detail, is_error=result.is_error)
    content = spill_content(result.content, new_file)
    if len(encode_json(content)) + len(encode_json(detail)) > room:  # a long list of short texts
        detail = TOO_LARGE
    return ToolOutput(content=content, detail=detail, is_error=result.is_error)


def shorten_values(value: Any, max_chars: int = LONGEST_TEXT_CHARS) -> Any:
    """A JSON value with its long texts cut."""
    if isinstance(value, str) and len(value) > max_chars:
        return f"{value[:max_chars]}… ({len(value) - max_chars} more characters)"
    if isinstance(value, dict):
        return {key: shorten_values(item, max_chars) for key, item in value.items()}
    if isinstance(value, list):
        return [shorten_values(item, max_chars) for item in value]
    return value


def fit_input(input: Json, max_bytes: int) -> Json:
    """The input of a callback, with long texts shortened until it fits into a line."""
    room = max_chars = max_bytes - ENVELOPE_BYTES
    found = input
    while len(encode_json(to_builtins(found))) > room and max_chars > 0:
        max_chars //= 2
        found = shorten_values(to_builtins(input), max_chars)
    return found


def spill_content(content: str | list[Json], new_file: Callable[[str], ResultFile]) -> str | list[Json]:
    """The content with its large parts in files."""
    if isinstance(content, str):
        return spill_text(content, new_file)
    return [spill_block(block, new_file) for block in content]


def spill_block(block: Json, new_file: Callable[[str], ResultFile]) -> Json:
    if isinstance(block.get("text"), str) and len(block["text"]) > LONGEST_TEXT_CHARS:
        return {**block, "text": spill_text(block["text"], new_file)}
    source = block.get("source")
    if not isinstance(source, dict) or not isinstance(source.get("data"), str):
        return block
    from base64 import b64decode
    from binascii import Error

    kind = str(source.get("media_type", "application/octet-stream"))
    try:
        data = b64decode(source["data"], validate=True)
    except (Error, ValueError):
        data = source["data"].encode()
    where = save(data, new_file(kind.rpartition("/")[2].split("+")[0] or "bin"))
    return {"type": "text", "text": f"[{kind} of {len(data)} bytes, too large to be shown here; {where}]"}


def spill_text(text: str, new_file: Callable[[str], ResultFile]) -> str:
    where = save(text.encode(errors="replace"), new_file("txt"))
    return (
        f"<persisted-output>\nOutput too large ({len(text)} characters). Full output {where}\n\n"
        f"Preview:\n{text[:PREVIEW_CHARS]}\n...\n</persisted-output>"
    )


def save(data: bytes, file: ResultFile) -> str:
    """Save the data and say where. A full disk loses the rest of an output, not the turn."""
    error = file.write(data)
    return f"saved to: {file.path}" if error is None else f"could not be saved: {error}"
