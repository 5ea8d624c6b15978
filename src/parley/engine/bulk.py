"""Tool results that are too large for a line.

Clients die of lines over a mebibyte, so no line of ours is longer than the cap. What does
not fit is saved to a file of the session, and the line says where. The structured copy for
the host is shortened first: it repeats what the model reads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.protocol.base import Json, plain, spell
from parley.tools.base import Result
from parley.workspace import private_files

BELOW = 4
"""The folders above a saved result that are ours: `projects/<project>/<session>/tool-results`."""
LINE_CAP_BYTES = 1_000_000
ENVELOPE_BYTES = 4_096
"""What a line needs around the result."""
LONGEST_TEXT_CHARS = 10_000
PREVIEW_CHARS = 2_000
TOO_LARGE = "(too large to be told here)"


def fitted(result: Result, cap_bytes: int, new_file: Callable[[str], Path]) -> Result:
    """The result as it fits into a line. `new_file` names a file for a given ending."""
    room = cap_bytes - ENVELOPE_BYTES
    size = len(spell(result.content))
    if size + len(spell(plain(result.detail))) <= room:
        return result
    detail = shortened(plain(result.detail))
    if size + len(spell(detail)) <= room:
        return Result(content=result.content, detail=detail, is_error=result.is_error)
    content = spilled(result.content, new_file)
    if len(spell(content)) + len(spell(detail)) > room:  # a long list of short texts
        detail = TOO_LARGE
    return Result(content=content, detail=detail, is_error=result.is_error)


def shortened(value: Any, most_chars: int = LONGEST_TEXT_CHARS) -> Any:
    """A JSON value with its long texts cut."""
    if isinstance(value, str) and len(value) > most_chars:
        return f"{value[:most_chars]}… ({len(value) - most_chars} more characters)"
    if isinstance(value, dict):
        return {key: shortened(item, most_chars) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item, most_chars) for item in value]
    return value


def fitted_input(input: Json, cap_bytes: int) -> Json:
    """What a callback is told, as it fits into a line: with no less of its long texts than must be."""
    room = most_chars = cap_bytes - ENVELOPE_BYTES
    found = input
    while len(spell(plain(found))) > room and most_chars > 0:
        most_chars //= 2
        found = shortened(plain(input), most_chars)
    return found


def spilled(content: str | list[Json], new_file: Callable[[str], Path]) -> str | list[Json]:
    """The content with its large parts in files."""
    if isinstance(content, str):
        return text_in_file(content, new_file)
    return [block_in_file(block, new_file) for block in content]


def block_in_file(block: Json, new_file: Callable[[str], Path]) -> Json:
    if isinstance(block.get("text"), str) and len(block["text"]) > LONGEST_TEXT_CHARS:
        return {**block, "text": text_in_file(block["text"], new_file)}
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
    where = saved(data, new_file(kind.rpartition("/")[2].split("+")[0] or "bin"))
    return {"type": "text", "text": f"[{kind} of {len(data)} bytes, too large to be shown here; {where}]"}


def text_in_file(text: str, new_file: Callable[[str], Path]) -> str:
    where = saved(text.encode(errors="replace"), new_file("txt"))
    return (
        f"<persisted-output>\nOutput too large ({len(text)} characters). Full output {where}\n\n"
        f"Preview:\n{text[:PREVIEW_CHARS]}\n...\n</persisted-output>"
    )


def saved(data: bytes, path: Path) -> str:
    """Where the data is, in words; a full disk costs the rest of an output, not the turn."""
    try:
        private_files.write(path, data, below=BELOW)
    except OSError as flaw:
        return f"could not be saved: {flaw.strerror}"
    return f"saved to: {path}"
