"""A conversation as one HTML file: the wire view of the console, with everything that it needs.

The modules of the console are in an import map as data URLs, so that the file needs no server and no network.
"""

from __future__ import annotations

import base64
import os
import posixpath
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json
from parley.protocol.schema import build_schema
from parley.stores.wire_recording import KeptLine
from parley.version import how_to_install
from parley.workspace import private_files

ENTRY = "views/report.js"
STYLES = ("style.css", "views.css")
IMPORT = re.compile(r"""(\b(?:from|import)\s*)(["'])(\.{1,2}/[^"']+)\2""")
CONSOLE = files("parley") / "console"
PREFIX = "console/"
"""What the names of modules in the import map start with."""
TEXT_CHARS = 20_000
"""A longer text is cut in the report. The recording has all of it."""
REPORT_BYTES = 64 * 1024 * 1024
"""How large the lines of a report are together; those after them are left out."""
POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Conversation</title>
<style>{styles}</style>
<script type="importmap">{modules}</script>
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="recording">{recording}</script>
<script type="application/json" id="schema">{schema}</script>
<script type="module">import "{entry}";</script>
</body>
</html>
"""


class ReportFile:
    """Keeps lines, and writes the report when the conversation has ended."""

    def __init__(self, path: Path, command: list[str], started_at: str) -> None:
        """Raises UsageError. An existing file is not touched."""
        if not CONSOLE.is_dir():
            raise UsageError(f"HTML reports need the console, which is not installed: {how_to_install('server')}")
        try:
            self._file = private_files.open_file(path, private_files.NEW, make_folders=False)
        except FileExistsError:
            raise UsageError(
                f"{path} already exists; reports are not overwritten: remove it, or name another file"
            ) from None
        except OSError as exc:
            raise UsageError(f"cannot create the report {path}: {exc.strerror}") from None
        self._recording: Json = {"command": command, "started_at": started_at, "exit_code": None, "left_out": 0}
        self._recording["ended_at"] = 0.0
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: KeptLine) -> None:
        if line.eof:
            return
        data = msgspec.json.encode((*line.record[:4], cut_texts(line.record[4])))
        if self._size + len(data) > REPORT_BYTES:
            self._recording["left_out"] += 1
            return
        self._size += len(data)
        self._lines.append(data)

    def end(self, at: float, exit_code: int) -> None:
        self._recording |= {"exit_code": exit_code, "ended_at": at}

    def close(self) -> None:
        """Write the report. Raises OSError."""
        lines = msgspec.Raw(b"[" + b",".join(self._lines) + b"]")
        data = build_report({**self._recording, "lines": lines})
        with os.fdopen(self._file, "wb") as file:
            file.write(data)


def build_report(recording: Json) -> bytes:
    """The page. `recording`: command, started_at, ended_at, exit_code, left_out, and the records as lines."""
    modules = {
        PREFIX + name: f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"
        for name, text in collect_modules(CONSOLE)
    }
    styles = "\n".join((CONSOLE / name).read_text(encoding="utf-8") for name in STYLES)
    return PAGE.format(
        policy=POLICY,
        styles=styles,
        modules=embed({"imports": modules}),
        recording=embed(recording),
        schema=embed(build_schema()),
        entry=PREFIX + ENTRY,
    ).encode(errors="replace")


def collect_modules(root: Traversable, entry: str = ENTRY) -> Iterator[tuple[str, str]]:
    """The name and text of a module and of all that it imports, with names that the import map has."""
    waiting, done = [entry], {entry}
    while waiting:
        name = waiting.pop()
        text = (CONSOLE / name).read_text(encoding="utf-8")
        for found in IMPORT.finditer(text):
            if (other := resolve(name, found[3])) not in done:
                done.add(other)
                waiting.append(other)
        yield name, IMPORT.sub(lambda found, base=name: f'{found[1]}"{PREFIX}{resolve(base, found[3])}"', text)  # type: ignore[misc]


def resolve(base: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), target))


def embed(value: Any) -> str:
    """JSON that a browser reads as the text of a script element: without the start of any tag."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def cut_texts(value: Any) -> Any:
    """The same JSON with long texts cut."""
    if isinstance(value, str):
        return (
            value if len(value) <= TEXT_CHARS else f"{value[:TEXT_CHARS]}… ({len(value) - TEXT_CHARS} characters cut)"
        )
    if isinstance(value, list):
        return [cut_texts(item) for item in value]
    if isinstance(value, dict):
        return {key: cut_texts(item) for key, item in value.items()}
    return value
