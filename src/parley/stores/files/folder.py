"""The layout with a directory per session: `sessions/<session>/{session.json,messages.jsonl,state.json}`.

`messages.jsonl` is the log, in the same lines and with the same checksums as in Claude Code's layout. Only the log is
read back. `session.json` describes the session and `state.json` its state (mode, model, todos, usage, cost) for other
programs. Both are replaced atomically at the end of each turn.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from parley.errors import SessionError, explain_os_errors
from parley.protocol.base import Json
from parley.stores.base import Entry, Info, Label, Log, StoreSetup, WrappedLog, is_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.session_summary import sort_by_age, summarize
from parley.stores.files.store import FileStore, log_exists, translate_os_errors
from parley.stores.files.transcript import BELOW
from parley.tools.catalog import find_traits
from parley.workspace import private_files

PROTOCOL_VERSION = "2024-11-05"
MESSAGES, SESSION, STATE = "messages.jsonl", "session.json", "state.json"


class FolderLog(WrappedLog):
    """A transcript that describes itself in the files beside it."""

    def __init__(self, folder: Path, session_id: str, log: Log, warn: Callable[[str], None]) -> None:
        super().__init__(log)
        self._folder = folder
        self._session_id = session_id
        self._warn = warn
        self._state: Json = {}
        self._is_new = True

    def append(self, *entries: Entry) -> None:
        self.log.append(*entries)
        for entry in entries:
            fold(self._state, entry)
        if self._is_new or any(entry.kind == "result" for entry in entries):
            self._is_new = False
            self._describe()

    def entries(self, after: int = -1) -> Iterator[Entry]:
        for entry in self.log.entries():
            fold(self._state, entry)
            if entry.seq > after:
                yield entry

    def _describe(self) -> None:
        try:
            replace_file(self._folder / STATE, self._state)
            write_session_json(self._folder, self._session_id)
        except SessionError as exc:
            self._warn(str(exc))  # not an error: the entry is in the log


def fold(state: Json, entry: Entry) -> None:
    """Apply an entry to the state."""
    message = entry.message
    if entry.context and (mode := entry.context.get("permissionMode")):
        state["mode"] = mode
    if entry.kind == "assistant" and isinstance(inner := message.get("message"), dict):
        state |= {"model": inner["model"]} if inner.get("model") else {}
        content = inner.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use" and find_traits(str(block.get("name"))).work_list == "todos":
                state["todos"] = block["input"].get("todos", [])
    elif entry.kind == "result":
        state |= {name: message[field] for name, field in RESULT.items() if field in message}
    elif entry.kind == "mode" and "mode" in message:
        state["mode"] = message["mode"]


RESULT = {"usage": "usage", "cost_usd": "total_cost_usd", "turns": "num_turns"}


class FolderStore(FileStore):
    """The sessions of all projects below one directory."""

    def __init__(self, root: Path, context: EntryContext, warn: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(root / "leases", context, warn)
        self._root = root / "sessions"

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> FolderStore:
        return cls(setup.path, setup.context, setup.warn)

    def _new_path(self, session_id: str) -> Path:
        return self._root / session_id / MESSAGES

    def _find(self, session_id: str) -> Path | None:
        with translate_os_errors():
            is_there = is_id(session_id) and log_exists(self._new_path(session_id))
        return self._new_path(session_id) if is_there else None

    def _files(self, project: str | None) -> builtins.list[tuple[str, Path]]:
        """Those of all projects: `list` selects by the directory in the transcripts."""
        with translate_os_errors():
            found = sort_by_age(self._root.glob(f"*/{MESSAGES}"), self._warn)
        return [(file.parent.name, file) for file in found]

    def _remove_files(self, path: Path, session_id: str) -> None:
        private_files.remove_tree(path.parent, below=1)

    def _hold(self, session_id: str, *, resumes: bool = False, steal: bool = False) -> Log:
        log = super()._hold(session_id, resumes=resumes, steal=steal)
        return FolderLog(self._new_path(session_id).parent, session_id, log, self._warn)

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        if project is None:
            return super().list(project, limit, offset)
        here = os.path.realpath(project)
        found = super().list()
        homes = {cwd: os.path.realpath(cwd) for cwd in {info.cwd for info in found}}
        return [info for info in found if homes[info.cwd] == here][offset:][:limit]

    def _label(self, session_id: str, label: Label, text: str | None) -> None:
        super()._label(session_id, label, text)
        write_session_json(self._new_path(session_id).parent, session_id)


def write_session_json(folder: Path, session_id: str) -> None:
    """Write `session.json`. Raises SessionError."""
    info = summarize(folder / MESSAGES, session_id)
    if info is not None:
        more = {"model": read_model(folder), "protocol_version": PROTOCOL_VERSION}
        replace_file(folder / SESSION, {**msgspec.to_builtins(info), **more})


def read_model(folder: Path) -> str | None:
    """The model in `state.json`; None before the first answer."""
    try:
        state = msgspec.json.decode(private_files.read(folder / STATE, below=BELOW))
    except (OSError, msgspec.DecodeError):
        return None
    return state.get("model") if isinstance(state, dict) else None


def replace_file(path: Path, content: Json) -> None:
    """Replace a file atomically. Raises SessionError."""
    with explain_os_errors(f"cannot write the session to {path}"):
        private_files.replace(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n", below=BELOW)
