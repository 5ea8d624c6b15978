"""The layout of the original CLI: `<config>/projects/<project>/<session>.jsonl`.

The session functions of the official SDKs read these files directly, so our lines have
the fields they look for: `type`, `uuid`, `parentUuid`, `sessionId`, `timestamp`, `message`.
What the layout has no place for goes into lines of the type `parley`, which its readers skip.
Files are private to the user (0600). A log is created with its first entry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from parley.errors import SessionError, UnknownSession
from parley.protocol.base import Json, Struct, spell
from parley.stores.base import Entry

LONGEST_KEY = 200
CONVERSATION = ("user", "assistant")


class Context(Struct, frozen=True, kw_only=True):
    """What every line of a session says of its surroundings."""

    cwd: str
    version: str
    entrypoint: str = "cli"
    git_branch: str = ""


class Claude:
    """The sessions of one project below one config folder."""

    def __init__(self, config: Path, context: Context) -> None:
        self._projects = config / "projects"
        self._folder = self._projects / project_key(context.cwd)
        self._context = context

    def exists(self, session_id: str) -> bool:
        return self._find(session_id) is not None

    def create(self, session_id: str) -> ClaudeLog:
        return ClaudeLog(self._folder / f"{session_id}.jsonl", session_id, self._context)

    def open(self, session_id: str) -> ClaudeLog:
        found = self._find(session_id)
        if found is None:
            raise UnknownSession(session_id)
        return ClaudeLog(found, session_id, self._context)

    def newest(self) -> str | None:
        files = sorted(self._folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
        return files[-1].stem if files else None

    def path(self, session_id: str) -> str:
        return str(self._find(session_id) or self._folder / f"{session_id}.jsonl")

    def _find(self, session_id: str) -> Path | None:
        """The session's file, in this project or, failing that, in any other."""
        here = self._folder / f"{session_id}.jsonl"
        if here.exists():
            return here
        return next(iter(sorted(self._projects.glob(f"*/{session_id}.jsonl"))), None)


def project_key(cwd: str) -> str:
    """The folder name of a project: the path with everything but letters and digits as dashes."""
    path = os.path.realpath(cwd)
    key = re.sub(r"[^A-Za-z0-9]", "-", path)
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}-{base36(abs(hash32(path)))}"


def hash32(text: str) -> int:
    """`h * 31 + c` over UTF-16 units in 32 signed bits: what JavaScript programs compute."""
    value = 0
    units = text.encode("utf-16-le")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if number == 0:
            return digits


class ClaudeLog:
    """One transcript file."""

    def __init__(self, path: Path, session_id: str, context: Context) -> None:
        self._path = path
        self._session_id = session_id
        self._context = context
        self._file: int | None = None
        self._parent: str | None = None

    def append(self, entry: Entry) -> None:
        line = spell(self._line(entry)) + b"\n"
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            written = os.write(self._file, line)
        except OSError as flaw:
            raise SessionError(f"the session cannot be written to {self._path}: {flaw.strerror}") from None
        if written != len(line):
            raise SessionError(f"the session cannot be written to {self._path}: the disk is full")
        if entry.kind in CONVERSATION:
            self._parent = entry.message["uuid"]

    def entries(self) -> Iterator[Entry]:
        """All entries that can be read; the parent of the next line is known afterwards."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        seq = 0
        for line in lines:
            entry = self._entry(line, seq)
            if entry is not None:
                seq = entry.seq + 1
                if entry.kind in CONVERSATION:
                    self._parent = entry.message["uuid"]
                yield entry

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _line(self, entry: Entry) -> Json:
        """An entry as the layout spells it."""
        if entry.kind not in CONVERSATION:
            ours = {"kind": entry.kind, "seq": entry.seq, "message": entry.message}
            return {"type": "parley", "sessionId": self._session_id, "timestamp": entry.at, **ours}
        told = dict(entry.message)
        line: Json = {
            "parentUuid": self._parent,
            "isSidechain": False,
            "type": entry.kind,
            "message": told.pop("message"),
            "uuid": told.pop("uuid"),
            "timestamp": entry.at,
            "userType": "external",
            "entrypoint": self._context.entrypoint,
            "cwd": self._context.cwd,
            "sessionId": self._session_id,
            "version": self._context.version,
            "gitBranch": self._context.git_branch,
            "seq": entry.seq,
        }
        for theirs, ours in RENAMED.items():
            if ours in told:
                line[theirs] = told.pop(ours)
        left = {key: value for key, value in told.items() if key not in IMPLIED}
        return {**line, **entry.context, **({"parley": left} if left else {})}

    def _entry(self, line: bytes, seq: int) -> Entry | None:
        """The entry of a line; None for what is no entry of ours or of the original."""
        try:
            json = msgspec.json.decode(line) if line else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not isinstance(json, dict):
            return None
        at = str(json.get("timestamp", ""))
        seq = json.get("seq", seq)
        if json.get("type") == "parley":
            return Entry(seq=seq, kind=str(json.get("kind")), at=at, message=json.get("message") or {})
        if json.get("type") not in CONVERSATION or json.get("isSidechain") or not isinstance(json.get("uuid"), str):
            return None
        told: Json = {"type": json["type"], "message": json.get("message"), "uuid": json["uuid"]}
        told |= {ours: json[theirs] for theirs, ours in RENAMED.items() if theirs in json}
        told |= {"session_id": self._session_id, "timestamp": at, "parent_tool_use_id": None}
        return Entry(seq=seq, kind=json["type"], at=at, message={**told, **(json.get("parley") or {})})


# The layout's names of fields, and the wire's.
RENAMED = {"requestId": "request_id", "toolUseResult": "tool_use_result", "isMeta": "isSynthetic"}
IMPLIED = frozenset({"type", "session_id", "timestamp", "parent_tool_use_id"})
