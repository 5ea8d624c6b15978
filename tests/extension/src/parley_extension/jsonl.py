"""`--store jsonl:FOLDER`: a store that keeps each session in a folder of JSON lines.

SESSION/entries.jsonl      the log
SESSION/facts.json         cwd, title, tag
SESSION/agents/ID.jsonl    the log of a subagent, with ID.json
SESSION/holder             who writes
"""

from __future__ import annotations

import builtins
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from parley.errors import SessionBusy
from parley.protocol.base import Json
from parley.stores.base import AgentInfo, Entry, Info, Label, Log, Store, StoreSetup, check_id, is_id
from parley.stores.search_text import SAID, first_prompt
from parley.stores.selection import StoreKind


def read_entries(path: Path, after: int = -1) -> Iterator[Entry]:
    if path.exists():
        for line in path.read_bytes().splitlines():
            entry = msgspec.json.decode(line, type=Entry)
            if entry.seq > after:
                yield entry


def read_facts(path: Path) -> Json:
    facts: Json = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    return facts


def write_whole(path: Path, data: bytes) -> None:
    """Other processes see the old file or the new one."""
    scratch = path.with_name(f"{path.name}.{uuid4().hex}")
    scratch.write_bytes(data)
    os.replace(scratch, path)


class JsonlLog(Log):
    """One log; `note` is called after each entry."""

    def __init__(self, path: Path, may_write: Callable[[], None], note: Callable[[Entry], None]) -> None:
        self._path = path
        self._may_write = may_write
        self._note = note
        self.release: Callable[[], None] = lambda: None

    def append(self, *entries: Entry) -> None:
        self._may_write()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
        for entry in entries:
            self._note(entry)

    def sync(self) -> None:
        if self._path.exists():
            with self._path.open("rb") as file:
                os.fsync(file.fileno())

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return read_entries(self._path, after)

    def close(self) -> None:
        self.release()


class JsonlStore(Store):
    def __init__(self, root: Path, cwd: str) -> None:
        super().__init__(cwd)
        self._root = root

    def _log_path(self, session_id: str) -> Path:
        return self._root / session_id / "entries.jsonl"

    def _facts_path(self, session_id: str) -> Path:
        return self._root / session_id / "facts.json"

    def _holder_path(self, session_id: str) -> Path:
        return self._root / session_id / "holder"

    def exists(self, session_id: str) -> bool:
        return is_id(session_id) and self._log_path(session_id).exists()

    def is_held(self, session_id: str) -> bool:
        return self._holder(session_id) is not None

    def _holder(self, session_id: str) -> str | None:
        """The process and token of the writer; None if there is none, or its process has ended."""
        try:
            holder = self._holder_path(check_id(session_id)).read_text()
            os.kill(int(holder.partition(" ")[0]), 0)
        except (FileNotFoundError, ProcessLookupError):
            return None
        except PermissionError:
            pass
        return holder

    def _hold(self, session_id: str, *, resumes: bool = False, steal: bool = False) -> JsonlLog:
        holder = self._holder(session_id)
        if holder is not None and not steal:
            raise SessionBusy(session_id, f"process {holder.partition(' ')[0]}")
        mine = f"{os.getpid()} {uuid4().hex}"
        self._holder_path(session_id).parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._holder_path(session_id), mine.encode())

        def may_write() -> None:
            if self._holder(session_id) != mine:
                raise SessionBusy(session_id, "another process")

        def release() -> None:
            if self._holder(session_id) == mine:
                self._holder_path(session_id).unlink()

        log = JsonlLog(self._log_path(session_id), may_write, lambda entry: self._note(session_id, entry))
        log.release = release
        return log

    def _note(self, session_id: str, entry: Entry) -> None:
        title = {"title": str(entry.message.get("title"))} if entry.kind == "title" else {}
        self._update(session_id, written=time.time_ns(), **title)

    def _update(self, session_id: str, **facts: Any) -> None:
        path = self._facts_path(session_id)
        write_whole(path, msgspec.json.encode({"cwd": self.cwd, **read_facts(path), **facts}))

    def _entries(self, session_id: str, agent_id: str = "", after: int = -1) -> Iterator[Entry]:
        path = self._root / session_id / "agents" / f"{agent_id}.jsonl" if agent_id else self._log_path(session_id)
        return read_entries(path, after)

    def _ids(self) -> builtins.list[str]:
        """Those written last come first."""
        known = [path.parent.name for path in self._root.glob("*/entries.jsonl")]
        return sorted(known, key=lambda one: int(read_facts(self._facts_path(one)).get("written", 0)), reverse=True)

    def info(self, session_id: str) -> Info | None:
        if not self.exists(session_id):
            return None
        entries, facts = list(self._entries(session_id)), read_facts(self._facts_path(session_id))
        prompts = (first_prompt(entry.kind, entry.message) for entry in entries)
        return Info(
            id=session_id,
            cwd=facts["cwd"],
            title=facts.get("title"),
            first_prompt=next((prompt for prompt in prompts if prompt is not None), None),
            created=entries[0].at,
            modified=entries[-1].at,
            size_bytes=self._log_path(session_id).stat().st_size,
            messages=sum(entry.kind in SAID for entry in entries),
            tag=facts.get("tag"),
        )

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        found = [info for one in self._ids() if (info := self.info(one)) is not None]
        return [info for info in found if project in (None, info.cwd)][offset:][:limit]

    def _label(self, session_id: str, label: Label, text: str | None) -> None:
        self._update(session_id, **{label: text})

    def _remove(self, session_id: str) -> None:
        shutil.rmtree(self._root / session_id)

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> JsonlLog:
        path = self._root / check_id(session_id) / "agents" / f"{check_id(agent_id)}.jsonl"
        if meta is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path.with_suffix(".json"), msgspec.json.encode(meta))
        return JsonlLog(path, lambda: None, lambda entry: None)

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = (self._root / session_id / "agents").glob("*.json")
        return [AgentInfo(id=path.stem, meta=read_facts(path)) for path in found]

    def path(self, session_id: str) -> str:
        return str(self._log_path(session_id))


def open_store(setup: StoreSetup) -> JsonlStore:
    return JsonlStore(setup.path, setup.context.cwd)


STORE = StoreKind(open=open_store, usage="jsonl:FOLDER")
