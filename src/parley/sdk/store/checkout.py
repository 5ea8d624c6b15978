"""Sessions of a program's own store, as files: for an engine that goes on with one, and for whoever reads one.

    async with materialised(store, project_key, [session_id]) as folder: ...       a config folder

What reads files reads these, too, so a session is the same wherever it is kept. The folder is removed
at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from parley.protocol.base import Json
from parley.sdk.errors import CLIConnectionError
from parley.sdk.store.interface import can
from parley.sdk.types.shapes import SessionKey

COPIED = (".credentials.json", ".claude.json", "settings.json")
"""What an engine in another config folder still needs of the person's own."""
METADATA = "agent_metadata"


class Materialised:
    def __init__(self, store: Any, project_key: str, session_ids: Sequence[str], seconds: float = 60.0) -> None:
        self._store = store
        self._project = project_key
        self._ids = session_ids
        self._seconds = seconds
        self.folder = Path()
        self.found: list[str] = []

    async def __aenter__(self) -> Materialised:
        from anyio import fail_after

        self.folder = Path(tempfile.mkdtemp(prefix="parley-session-"))
        try:
            with fail_after(self._seconds):
                for session_id in self._ids:
                    await self._load(session_id)
        except TimeoutError:
            self.remove()
            raise CLIConnectionError(f"the session store did not answer within {self._seconds:g} s") from None
        except BaseException:
            self.remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, flaw: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def take_along(self, config: Path) -> None:
        """Copy what an engine needs beside the session, readable for nobody else."""
        for name in COPIED:
            try:
                data = (config / name).read_bytes()
            except OSError:
                continue
            with open(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(data)

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "CLAUDE_CONFIG_DIR": str(self.folder)}

    async def _load(self, session_id: str) -> None:
        key: SessionKey = {"project_key": self._project, "session_id": session_id}
        entries = await self._store.load(key)
        if not entries:
            return
        self.found.append(session_id)
        home = self.folder / "projects" / self._project
        write(home / f"{session_id}.jsonl", entries)
        if not can(self._store, "list_subkeys"):
            return
        for subpath in await self._store.list_subkeys({"project_key": self._project, "session_id": session_id}):
            path = (home / session_id / f"{subpath}.jsonl").resolve()
            if not path.is_relative_to((home / session_id).resolve()):
                continue  # a key that leads out of the folder is nobody's transcript
            lines = await self._store.load({**key, "subpath": subpath}) or []
            write(path, [line for line in lines if line.get("type") != METADATA])
            for line in lines:
                if line.get("type") == METADATA:
                    meta = {name: value for name, value in line.items() if name != "type"}
                    path.with_suffix(".meta.json").write_bytes(msgspec.json.encode(meta))


def write(path: Path, entries: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines: list[Json] = [dict(entry) for entry in entries]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def materialised(store: Any, project_key: str, session_ids: Sequence[str], seconds: float = 60.0) -> Materialised:
    return Materialised(store, project_key, session_ids, seconds)
