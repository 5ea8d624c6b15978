"""A session that is kept in the program's own store: taken up from there, and copied to it while it goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parley.sdk.options import Options

if TYPE_CHECKING:
    from parley.sdk.runtime.message_router import Inbox
    from parley.sdk.store.checkout import Materialised
    from parley.sdk.store.mirror import Mirror


class Kept:
    def __init__(self, options: Options) -> None:
        """Raises TypeError for what is no store."""
        for method in ("append", "load"):
            if not callable(getattr(options.session_store, method, None)):
                kind = type(options.session_store).__name__
                raise TypeError(f"session_store must be a SessionStore with append and load; {kind} has no {method}")
        self._options = options
        self._files: Materialised | None = None
        self._mirror: Mirror | None = None

    async def taken_up(self) -> Options:
        """The options for an engine that finds the session in a folder of its own, if there is one to go on with.

        Raises CLIConnectionError if the store does not answer.
        """
        options = self._options
        if options.resume is None and not options.continue_conversation:
            return options
        from parley.sdk.sessions import project_key_for_directory
        from parley.sdk.store.checkout import materialised

        project = project_key_for_directory(options.cwd)
        candidates = [options.resume] if options.resume is not None else await self._newest_first(project)
        files = materialised(options.session_store, project, candidates[:1], options.load_timeout_ms / 1000)
        await files.__aenter__()
        if not files.found:
            files.remove()
            return options  # nobody knows it here; the engine looks on its own disk
        self._files = files
        files.take_along(config_folder(options))
        env = {**options.env, "CLAUDE_CONFIG_DIR": str(files.folder)}
        return replace(options, env=env, resume=files.found[0], continue_conversation=False)

    async def _newest_first(self, project: str) -> list[str]:
        from parley.sdk.store.interface import can

        if not can(self._options.session_store, "list_sessions"):
            return []
        listed = await self._options.session_store.list_sessions(project)
        return [one["session_id"] for one in sorted(listed, key=lambda one: one["mtime"], reverse=True)]

    def mirrored(self, inbox: Inbox) -> Mirror:
        """What goes between the engine and its readers."""
        from parley.sdk.store.mirror import Mirror

        options = self._options
        self._mirror = Mirror(options.session_store, options.session_store_flush == "eager", inbox.put)
        return self._mirror

    async def close(self) -> None:
        """Everything is with the store, or given up."""
        if self._mirror is not None:
            await self._mirror.flush()
        if self._files is not None:
            self._files.remove()


def config_folder(options: Options) -> Path:
    """Where the person's own settings are."""
    given = options.env.get("CLAUDE_CONFIG_DIR") or os.environ.get("CLAUDE_CONFIG_DIR")
    home = options.env.get("HOME") or os.environ.get("HOME") or "~"
    return Path(given) if given else Path(os.path.expanduser(home)) / ".claude"
