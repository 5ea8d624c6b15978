"""A session in the program's own store: resumed from it, and mirrored to it while it runs.

    async with StoreCheckout(store, project_key, [session_id]) as checkout:
        checkout.folder                                     a temporary config directory

A checkout writes sessions of the store to files, to resume or read them. The files have the layout of Claude Code, so
the engine and `sdk/sessions.py` read them like any other session. The folder is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from parley.protocol.base import Json
from parley.sdk.errors import CLIConnectionError
from parley.sdk.options import Options
from parley.sdk.store.interface import has_method
from parley.sdk.types.shapes import SessionKey

if TYPE_CHECKING:
    from parley.sdk.runtime.message_router import MessageRouter
    from parley.sdk.store.mirror import StoreMirror

COPIED = (".credentials.json", ".claude.json", "settings.json")
"""Files of the user's config directory that the engine needs in the temporary one."""
METADATA = "agent_metadata"


class StoreCheckout:
    """A temporary config directory with sessions of a store."""

    def __init__(self, store: Any, project_key: str, session_ids: Sequence[str], seconds: float = 60.0) -> None:
        self._store = store
        self._project = project_key
        self._ids = session_ids
        self._seconds = seconds
        self.folder = Path()
        self.found: list[str] = []

    async def __aenter__(self) -> StoreCheckout:
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
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def copy_config(self, config: Path) -> None:
        """Copy the config files that an engine needs, with mode 0600."""
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
        write_transcript(home / f"{session_id}.jsonl", entries)
        if not has_method(self._store, "list_subkeys"):
            return
        for subpath in await self._store.list_subkeys({"project_key": self._project, "session_id": session_id}):
            path = (home / session_id / f"{subpath}.jsonl").resolve()
            if not path.is_relative_to((home / session_id).resolve()):
                continue  # skip keys that point outside of the session's folder
            lines = await self._store.load({**key, "subpath": subpath}) or []
            write_transcript(path, [line for line in lines if line.get("type") != METADATA])
            for line in lines:
                if line.get("type") == METADATA:
                    meta = {name: value for name, value in line.items() if name != "type"}
                    path.with_suffix(".meta.json").write_bytes(msgspec.json.encode(meta))


def write_transcript(path: Path, entries: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines: list[Json] = [dict(entry) for entry in entries]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


class StoredSession:
    """Joins a client with `Options.session_store`."""

    def __init__(self, options: Options) -> None:
        """Raises TypeError for an object that is not a SessionStore."""
        for method in ("append", "load"):
            if not callable(getattr(options.session_store, method, None)):
                kind = type(options.session_store).__name__
                raise TypeError(f"session_store must be a SessionStore with append and load; {kind} has no {method}")
        self._options = options
        self._store: Any = options.session_store
        self._files: StoreCheckout | None = None
        self._mirror: StoreMirror | None = None

    async def resume_options(self) -> Options:
        """Write the session to a temporary config directory; returns the options to resume it from there.

        Returns the options unchanged if there is nothing to resume. Raises CLIConnectionError on a timeout.
        """
        options = self._options
        if options.resume is None and not options.continue_conversation:
            return options
        from parley.sdk.sessions import project_key_for_directory

        project = project_key_for_directory(options.cwd)
        candidates = [options.resume] if options.resume is not None else await self._newest_first(project)
        files = StoreCheckout(self._store, project, candidates[:1], options.load_timeout_ms / 1000)
        await files.__aenter__()
        if not files.found:
            files.remove()
            return options  # not in the store; the engine looks on disk
        self._files = files
        files.copy_config(config_folder(options))
        env = {**options.env, "CLAUDE_CONFIG_DIR": str(files.folder)}
        return replace(options, env=env, resume=files.found[0], continue_conversation=False)

    async def _newest_first(self, project: str) -> list[str]:
        from parley.sdk.store.interface import has_method

        if not has_method(self._store, "list_sessions"):
            return []
        listed = await self._store.list_sessions(project)
        return [one["session_id"] for one in sorted(listed, key=lambda one: one["mtime"], reverse=True)]

    def open_mirror(self, router: MessageRouter) -> StoreMirror:
        """Return the mirror that passes the engine's messages to the router."""
        from parley.sdk.store.mirror import StoreMirror

        options = self._options
        self._mirror = StoreMirror(self._store, options.session_store_flush == "eager", router.receive)
        return self._mirror

    async def close(self) -> None:
        """Finish the mirror and remove the temporary files."""
        if self._mirror is not None:
            await self._mirror.flush()
        if self._files is not None:
            self._files.remove()


def config_folder(options: Options) -> Path:
    """Return the user's config directory."""
    given = options.env.get("CLAUDE_CONFIG_DIR") or os.environ.get("CLAUDE_CONFIG_DIR")
    home = options.env.get("HOME") or os.environ.get("HOME") or "~"
    return Path(given) if given else Path(os.path.expanduser(home)) / ".claude"
