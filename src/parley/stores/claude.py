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
PLAIN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Ids come from outside and become file names: they must not lead out of the folder, nor be a pattern."""


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
        if not PLAIN_ID.fullmatch(session_id):
            raise SessionError(f"{session_id!r} cannot be the id of a session")
        return ClaudeLog(self._folder / f"{session_id}.jsonl", session_id, self._context)

    def open(self, session_id: str) -> ClaudeLog:
        found = self._find(session_id)
        if found is None:
            raise UnknownSession(session_id)
        return ClaudeLog(found, session_id, self._context)

    def newest(self) -> str | None:
        # Older versions of the original keep the transcripts of subagents beside those of sessions.
        files = [file for file in self._folder.glob("*.jsonl") if not file.name.startswith("agent-")]
        return max(files, key=lambda file: file.stat().st_mtime_ns).stem if files else None

    def path(self, session_id: str) -> str:
        return str(self._find(session_id) or self._folder / f"{session_id}.jsonl")

    def _find(self, session_id: str) -> Path | None:
        """The session's file, in this project or, failing that, in any other."""
        if not PLAIN_ID.fullmatch(session_id):
            return None
        here = self._folder / f"{session_id}.jsonl"
        if here.exists():
            return here
        return next(iter(sorted(self._projects.glob(f"*/{session_id}.jsonl"))), None)


def project_key(cwd: str) -> str:
    """The folder name of a project: the path with everything but letters and digits as dashes."""
    path = composed(os.path.realpath(cwd))
    key = re.sub(r"[^A-Za-z0-9]", "-", path)
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}-{base36(abs(hash32(path)))}"


def composed(text: str) -> str:
    """Letters and their accents as one character each (NFC), as the readers of the layout have them."""
    if text.isascii():
        return text
    import unicodedata

    return unicodedata.normalize("NFC", text)


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
        self._was_read = False
        self._torn = False
        """Whether the file ends in the middle of a line."""

    def append(self, entry: Entry) -> None:
        try:
            file = self._opened()
            # Half a line, left by a crash or a full disk, must not swallow the next one.
            line = (b"\n" if self._torn else b"") + spell(self._line(entry)) + b"\n"
            self._torn = True
            written = os.write(file, line)
        except OSError as flaw:
            raise SessionError(f"the session cannot be written to {self._path}: {flaw.strerror}") from None
        if written != len(line):
            raise SessionError(f"the session cannot be written to {self._path}: the disk is full")
        self._torn = False
        if entry.kind in CONVERSATION:
            self._parent = entry.message["uuid"]

    def entries(self) -> Iterator[Entry]:
        """All entries that can be read; the parent of the next line is known afterwards. Raises SessionError."""
        self._was_read = True
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as flaw:
            raise SessionError(f"the session cannot be read from {self._path}: {flaw.strerror}") from None
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

    def _opened(self) -> int:
        """The file to append to. Raises OSError."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            size = os.fstat(self._file).st_size
            self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
            if size > 0 and not self._was_read:
                for _ in self.entries():
                    pass  # the parent of our first line is the last one there
        return self._file

    def _line(self, entry: Entry) -> Json:
        """An entry as the layout spells it."""
        if entry.kind == "title":
            title = str(entry.message.get("title"))
            # Readers of the layout look for exactly these fields.
            return {"type": "custom-title", "customTitle": title, "sessionId": self._session_id, "seq": entry.seq}
        if entry.kind not in CONVERSATION:
            body = {"kind": entry.kind, "seq": entry.seq, "message": entry.message}
            more = {"context": entry.context} if entry.context else {}
            return {"type": "parley", "sessionId": self._session_id, "timestamp": entry.at, **body, **more}
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
        if told.get("parent_tool_use_id") is not None:
            left["parent_tool_use_id"] = told["parent_tool_use_id"]
        return {**line, **entry.context, **({"parley": left} if left else {})}

    def _entry(self, line: bytes, seq: int) -> Entry | None:
        """The entry of a line; None for what is no entry of ours or of the original."""
        try:
            json = msgspec.json.decode(line) if line else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not isinstance(json, dict):
            return None
        at = str(json.get("timestamp", ""))
        seq = json["seq"] if isinstance(json.get("seq"), int) else seq
        if json.get("type") == "parley":
            message, context = json.get("message") or {}, json.get("context") or {}
            return Entry(seq=seq, kind=str(json.get("kind")), at=at, message=message, context=context)
        if json.get("type") == "custom-title" and isinstance(json.get("seq"), int):  # ours: others do not number them
            return Entry(seq=seq, kind="title", at=at, message={"title": json.get("customTitle")})
        if not is_said(json):
            return None
        told: Json = {"type": json["type"], "message": json["message"], "uuid": json["uuid"]}
        told |= {ours: json[theirs] for theirs, ours in RENAMED.items() if theirs in json}
        told |= {"session_id": self._session_id, "timestamp": at, "parent_tool_use_id": None}
        context = {key: value for key, value in json.items() if key not in OWN}
        return Entry(seq=seq, kind=json["type"], at=at, message={**told, **(json.get("parley") or {})}, context=context)


def is_said(json: Json) -> bool:
    """Whether a line is part of the session's own conversation, and whole."""
    if json.get("type") not in CONVERSATION or json.get("isSidechain") or not isinstance(json.get("uuid"), str):
        return False
    message = json.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, str) or (isinstance(content, list) and all(isinstance(part, dict) for part in content))


# The layout's names of fields, and the wire's.
RENAMED = {
    "requestId": "request_id",
    "toolUseResult": "tool_use_result",
    "isMeta": "isSynthetic",
    "isApiErrorMessage": "is_api_error_message",
}
IMPLIED = frozenset({"type", "session_id", "timestamp", "parent_tool_use_id"})
# What every line has; the rest is an entry's context.
OWN = frozenset(
    {
        "parentUuid",
        "isSidechain",
        "type",
        "message",
        "uuid",
        "timestamp",
        "userType",
        "entrypoint",
        "cwd",
        "sessionId",
        "version",
        "gitBranch",
        "seq",
        "parley",
        *RENAMED,
    }
)
