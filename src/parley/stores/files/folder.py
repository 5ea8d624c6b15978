"""The store with a directory per session: `sessions/<session>/{session.json,messages.jsonl,state.json}`.

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

from parley.errors import SessionError, UnknownSession
from parley.protocol.base import Json
from parley.stores.base import Entry, Info, SearchHit, StoreSetup, check_id, is_id
from parley.stores.files.base import FileStore, log_exists, translate_os_errors
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.lease import acquire, is_leased
from parley.stores.files.session_summary import list_page, search_files, sort_by_age, summarize, write_tag, write_title
from parley.stores.files.transcript import BELOW, Transcript, TranscriptReader
from parley.tools.catalog import find_traits
from parley.workspace import private_files

PROTOCOL_VERSION = "2024-11-05"
MESSAGES, SESSION, STATE = "messages.jsonl", "session.json", "state.json"


class FolderLog:
    def __init__(self, folder: Path, session_id: str, transcript: Transcript, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._session_id = session_id
        self._transcript = transcript
        self._warn = warn
        self._state: Json = {}
        self._is_new = True

    def append(self, entry: Entry) -> None:
        self._transcript.append(entry)
        fold(self._state, entry)
        if self._is_new or entry.kind == "result":
            self._is_new = False
            self._describe()

    def sync(self) -> None:
        self._transcript.sync()

    async def wait_synced(self) -> None:
        await self._transcript.wait_synced()

    def entries(self, after: int = -1) -> Iterator[Entry]:
        for entry in self._transcript.entries():
            fold(self._state, entry)
            if entry.seq > after:
                yield entry

    def close(self) -> None:
        self._transcript.close()

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
        self._root = root / "sessions"
        self._leases = root / "leases"
        self._context = context
        self._warn = warn

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> FolderStore:
        return cls(setup.path, setup.context, setup.warn)

    def exists(self, session_id: str) -> bool:
        with translate_os_errors():
            return is_id(session_id) and log_exists(self._messages(session_id))

    def is_held(self, session_id: str) -> bool:
        return is_leased(self._leases / check_id(session_id))

    def create(self, session_id: str) -> FolderLog:
        return self._open_log(check_id(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> FolderLog:
        self._path_of_existing(session_id)
        return self._open_log(session_id, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        return TranscriptReader(self._path_of_existing(session_id), session_id, self._warn).entries(after)

    def _open_log(self, session_id: str, *, steal: bool = False) -> FolderLog:
        lease = acquire(self._leases / session_id, session_id, steal=steal)
        path = self._messages(session_id)
        transcript = Transcript(path, session_id, self._context, lease, self._warn)
        return FolderLog(path.parent, session_id, transcript, self._warn)

    def newest(self) -> str | None:
        found = self.list(self._context.cwd, limit=1)
        return found[0].id if found else None

    def info(self, session_id: str) -> Info | None:
        return summarize(self._messages(session_id), session_id) if is_id(session_id) else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        if project is None:
            return list_page(self._files(), limit, offset)
        here = os.path.realpath(project)
        found = list_page(self._files(), None, 0)
        homes = {cwd: os.path.realpath(cwd) for cwd in {info.cwd for info in found}}
        return [info for info in found if homes[info.cwd] == here][offset:][:limit]

    def rename(self, session_id: str, title: str) -> None:
        write_title(self._path_of_existing(session_id), session_id, title)
        write_session_json(self._messages(session_id).parent, session_id)

    def tag(self, session_id: str, tag: str | None) -> None:
        write_tag(self._path_of_existing(session_id), session_id, tag)
        write_session_json(self._messages(session_id).parent, session_id)

    def delete(self, session_id: str) -> None:
        path = self._path_of_existing(session_id)
        with acquire(self._leases / session_id, session_id):
            try:
                private_files.remove_tree(path.parent, below=1)
            except OSError as exc:
                raise SessionError(f"cannot delete the session at {path.parent}: {exc.strerror}") from None

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        return search_files(self._files(), text, limit)

    def path(self, session_id: str) -> str:
        return str(self._messages(session_id))

    def _files(self) -> builtins.list[tuple[str, Path]]:
        """The ids and logs of all sessions, most recently written first."""
        with translate_os_errors():
            found = sort_by_age(self._root.glob(f"*/{MESSAGES}"), self._warn)
        return [(file.parent.name, file) for file in found]

    def _messages(self, session_id: str) -> Path:
        return self._root / session_id / MESSAGES

    def _path_of_existing(self, session_id: str) -> Path:
        """Raises UnknownSession."""
        if not self.exists(session_id):
            raise UnknownSession(session_id)
        return self._messages(session_id)


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
    try:
        private_files.replace(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n", below=BELOW)
    except OSError as exc:
        raise SessionError(f"cannot write the session to {path}: {exc.strerror}") from None
