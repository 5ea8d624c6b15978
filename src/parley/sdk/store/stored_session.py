"""A session in the program's own store: resumed from it, and mirrored to it while it runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.sdk.options import Options

if TYPE_CHECKING:
    from parley.sdk.runtime.message_router import MessageRouter
    from parley.sdk.store.checkout import StoreCheckout
    from parley.sdk.store.mirror import StoreMirror


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
        from parley.sdk.store.checkout import StoreCheckout

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
