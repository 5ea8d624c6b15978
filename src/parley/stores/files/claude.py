"""The store in Claude Code's layout: `<config>/projects/<project>/<session>.jsonl`.

The session functions of the official SDKs read these files directly, so our lines have the fields that they need:
`type`, `uuid`, `parentUuid`, `sessionId`, `timestamp`, `message`. Files are private to the user (0600). A log is
created with its first entry. `<config>/leases/<session>` names the process that holds a session.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from parley.errors import SessionError, UnknownSession
from parley.stores.base import Entry, Info, SearchHit, StoreSetup, check_id, is_id
from parley.stores.files.base import FileStore, log_exists, translate_os_errors
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.lease import acquire, is_leased
from parley.stores.files.transcript import BELOW, Transcript, TranscriptReader
from parley.workspace import private_files

LONGEST_KEY = 200
"""Older versions of Claude Code store the transcripts of subagents alongside those of sessions."""


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
        self._projects = config / "projects"
        self._leases = config / "leases"
        self._warn = warn
        self._folder = self._projects / project_key(context.cwd)
        self._context = context
        self._waits = waits

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> ClaudeStore:
        return cls(setup.path, setup.context, setup.warn, waits=setup.waits)

    def exists(self, session_id: str) -> bool:
        return self._find(session_id) is not None

    def is_held(self, session_id: str) -> bool:
        return is_leased(self._leases / check_id(session_id))

    def create(self, session_id: str) -> Transcript:
        lease = acquire(self._leases / check_id(session_id), session_id)
        return Transcript(self._folder / f"{session_id}.jsonl", session_id, self._context, lease, self._warn)

    def open(self, session_id: str, *, steal: bool = False) -> Transcript:
        path = self._path_of_existing(session_id)
        lease = acquire(self._leases / session_id, session_id, steal=steal, takes=True, yields=self._waits)
        return Transcript(path, session_id, self._context, lease, self._warn)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        return TranscriptReader(self._path_of_existing(session_id), session_id, self._warn).entries(after)

    def newest(self) -> str | None:
        latest = self.list(self._context.cwd, limit=1)
        return latest[0].id if latest else None

    def info(self, session_id: str) -> Info | None:
        from parley.stores.files.session_summary import summarize

        found = self._find(session_id)
        return summarize(found, session_id) if found is not None else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        from parley.stores.files.session_summary import list_page

        return list_page(self._files(project), limit, offset)

    def rename(self, session_id: str, title: str) -> None:
        from parley.stores.files.session_summary import write_title

        write_title(self._path_of_existing(session_id), session_id, title)

    def tag(self, session_id: str, tag: str | None) -> None:
        from parley.stores.files.session_summary import write_tag

        write_tag(self._path_of_existing(session_id), session_id, tag)

    def delete(self, session_id: str) -> None:
        import shutil

        path = self._path_of_existing(session_id)
        with acquire(self._leases / session_id, session_id):
            try:
                with private_files.open_folder(path.parent, below=BELOW) as (folder, _):
                    with suppress(FileNotFoundError):
                        os.unlink(path.name, dir_fd=folder)
                    # The transcripts of its subagents are in a directory alongside.
                    shutil.rmtree(session_id, ignore_errors=True, dir_fd=folder)
            except OSError as exc:
                raise SessionError(f"cannot delete the session at {path}: {exc.strerror}") from None

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        from parley.stores.files.session_summary import search_files

        return search_files(self._files(None), text, limit)

    def _files(self, project: str | None) -> builtins.list[tuple[str, Path]]:
        """The ids and files of sessions, most recently written first."""
        from parley.stores.files.session_summary import sort_by_age

        folder = "*" if project is None else project_key(project)
        with translate_os_errors():
            found = sort_by_age(self._projects.glob(f"{folder}/*.jsonl"), self._warn)
        names = [(file.stem, file) for file in found if not file.stem.startswith("agent-")]
        return [(name, file) for name, file in names if is_id(name)]

    def path(self, session_id: str) -> str:
        return str(self._find(session_id) or self._folder / f"{session_id}.jsonl")

    def _path_of_existing(self, session_id: str) -> Path:
        """Raises UnknownSession."""
        found = self._find(session_id)
        if found is None:
            raise UnknownSession(session_id)
        return found

    def _find(self, session_id: str) -> Path | None:
        """The session's file, in this project or else in any other."""
        if not is_id(session_id):
            return None
        here = self._folder / f"{session_id}.jsonl"
        with translate_os_errors():
            if log_exists(here):
                return here
            elsewhere = sorted(self._projects.glob(f"*/{session_id}.jsonl"))
            return next(filter(log_exists, elsewhere), None)


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
