"""Claude Code's layout: `<config>/projects/<project>/<session>.jsonl`.

The session functions of the official SDKs read these files directly, so our lines have the fields that they need:
`type`, `uuid`, `parentUuid`, `sessionId`, `timestamp`, `message`. Files are private to the user (0600).
`<config>/leases/<session>` names the process that holds a session.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from parley.stores.base import StoreSetup, is_id
from parley.stores.files.base import FileStore, log_exists, translate_os_errors
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.transcript import BELOW
from parley.workspace import private_files

LONGEST_KEY = 200


class ClaudeStore(FileStore):
    """The sessions of one project below one configuration directory."""

    def __init__(
        self,
        config: Path,
        context: EntryContext,
        warn: Callable[[str], None] = lambda text: None,
        *,
        waits: bool = False,
    ) -> None:
        super().__init__(config / "leases", context, warn, waits=waits)
        self._projects = config / "projects"
        self._folder = self._projects / project_key(context.cwd)

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> ClaudeStore:
        return cls(setup.path, setup.context, setup.warn, waits=setup.waits)

    def _new_path(self, session_id: str) -> Path:
        return self._folder / f"{session_id}.jsonl"

    def _find(self, session_id: str) -> Path | None:
        """The session's file, in this project or else in any other."""
        if not is_id(session_id):
            return None
        here = self._new_path(session_id)
        with translate_os_errors():
            if log_exists(here):
                return here
            elsewhere = sorted(self._projects.glob(f"*/{session_id}.jsonl"))
            return next(filter(log_exists, elsewhere), None)

    def _files(self, project: str | None) -> builtins.list[tuple[str, Path]]:
        from parley.stores.files.session_summary import sort_by_age

        folder = "*" if project is None else project_key(project)
        with translate_os_errors():
            found = sort_by_age(self._projects.glob(f"{folder}/*.jsonl"), self._warn)
        # Older versions of Claude Code store the transcripts of subagents alongside those of sessions.
        return [(file.stem, file) for file in found if is_id(file.stem) and not file.stem.startswith("agent-")]

    def _remove(self, path: Path, session_id: str) -> None:
        import shutil

        with private_files.open_folder(path.parent, below=BELOW) as (folder, _):
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
            # The transcripts of its subagents are in a directory alongside.
            shutil.rmtree(session_id, ignore_errors=True, dir_fd=folder)


def project_key(cwd: str) -> str:
    """The directory name of a project: its path with dashes for all characters but letters and digits."""
    path = normalize(os.path.realpath(cwd))
    key = "".join(char if char.isascii() and char.isalnum() else "-" for char in path)
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}-{base36(abs(hash32(path)))}"


def normalize(text: str) -> str:
    """Apply Unicode NFC, as the other readers of the layout do."""
    if text.isascii():
        return text
    import unicodedata

    return unicodedata.normalize("NFC", text)


def hash32(text: str) -> int:
    """JavaScript's usual string hash: `h * 31 + c` over UTF-16 units, in 32 signed bits."""
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
