"""A session store as a host would write one: a folder of JSON lines for each session, and one for its subagents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from claude_agent_sdk import fold_session_summary

MAIN = "main"


class FolderStore:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def append(self, key: Any, entries: list[Any]) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        known = {entry.get("uuid") for entry in await self.load(key) or [] if entry.get("uuid")}
        with path.open("a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries if entry.get("uuid") not in known)
        if "subpath" not in key and entries:
            sidecar = path.with_suffix(".json")
            before = json.loads(sidecar.read_text()) if sidecar.exists() else None
            folded = fold_session_summary(before, key, entries)
            sidecar.write_text(json.dumps({**folded, "mtime": mtime(path)}))

    async def load(self, key: Any) -> list[Any] | None:
        path = self._path(key)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else None

    async def list_sessions(self, project_key: str) -> list[Any]:
        found = (self._root / project_key).glob(f"*/{MAIN}.jsonl")
        return [{"session_id": path.parent.name, "mtime": mtime(path)} for path in found]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        return [json.loads(path.read_text()) for path in (self._root / project_key).glob(f"*/{MAIN}.json")]

    async def delete(self, key: Any) -> None:
        if "subpath" in key:
            self._path(key).unlink(missing_ok=True)
        else:
            shutil.rmtree(self._folder(key), ignore_errors=True)

    async def list_subkeys(self, key: Any) -> list[str]:
        folder = self._folder(key)
        paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.jsonl"))
        return [str(path) for path in paths if str(path) != MAIN]

    def _folder(self, key: Any) -> Path:
        return Path(self._root, key["project_key"], key["session_id"])

    def _path(self, key: Any) -> Path:
        return self._folder(key) / f"{key.get('subpath') or MAIN}.jsonl"


def mtime(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
