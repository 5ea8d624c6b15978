"""Change `.claude.json` and `.mcp.json`.

`.claude.json` is shared with Claude Code, which keeps other things in it. An edit changes one object, keeps the text of
everything else, and is made under Claude Code's lock (a folder beside the file) and ours. A file that is broken, or in
which a key occurs twice, is refused.

See also: `user_config.py` reads it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Raw

from parley.protocol.base import find_duplicate_key
from parley.settings.base import SettingsWriteError
from parley.settings.files.user_config import MOST_BYTES
from parley.settings.safe_folder import open_folder
from parley.settings.writer import detect_indent, encode, parse_object

LOCK_SECONDS = 12.0
STALE_SECONDS = 10.0
"""A lock that was not renewed for this long was left by a process that died."""
SERVERS = "mcpServers"
RawObject = dict[str, Raw]
"""An object whose values keep their text."""
Change = Callable[[RawObject], RawObject]


def edit_servers(path: Path, change: Change) -> None:
    """Change the object `mcpServers` of a file. Raises SettingsWriteError."""
    edit_file(path, lambda values: edit_key(values, SERVERS, str(path), change))


def edit_project_entry(path: Path, folder: str, change: Change) -> None:
    """Change the entry of one project in `.claude.json`. Raises SettingsWriteError."""

    def change_projects(projects: RawObject) -> RawObject:
        return edit_key(projects, folder, f"{path}: projects", change)

    edit_file(path, lambda values: edit_key(values, "projects", str(path), change_projects))


def edit_project_servers(path: Path, folder: str, change: Change) -> None:
    """Change the servers of one project in `.claude.json`. Raises SettingsWriteError."""
    edit_project_entry(path, folder, lambda entry: edit_key(entry, SERVERS, f"{path}: {folder}", change))


def edit_key(values: RawObject, key: str, where: str, change: Change) -> RawObject:
    """Replace one object in an object; the text of the others stays."""
    old = parse_object(values.get(key), f"{where}: {key}")
    return {**values, key: encode(change(old))}


def edit_file(path: Path, change: Change) -> None:
    """Read, change and replace a JSON file. Raises SettingsWriteError."""
    with open_folder(path.parent) as folder, folder.lock(), claude_lock(path):
        data = folder.read(path.name, MOST_BYTES)
        check_unambiguous(data, path)
        new = change(parse_object(Raw(data or b"{}"), str(path)))
        text = msgspec.json.format(msgspec.json.encode(new), indent=detect_indent(data))
        folder.replace(path.name, text + b"\n" * (data is None or data.endswith(b"\n")))


def check_unambiguous(data: bytes | None, path: Path) -> None:
    """Raises SettingsWriteError: of two values under one key, writing would lose the first."""
    if not data:
        return
    parse_object(Raw(data), str(path))
    if (duplicate := find_duplicate_key(data)) is not None:
        raise SettingsWriteError(f"{path}: {duplicate}; left unchanged")


@contextmanager
def claude_lock(path: Path) -> Iterator[None]:
    """Hold the lock that Claude Code takes: a folder `NAME.lock`, whose time says that its owner lives."""
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            os.mkdir(lock, 0o700)
            break
        except FileExistsError:
            with suppress(OSError):
                if time.time() - os.stat(lock).st_mtime > STALE_SECONDS:
                    os.rmdir(lock)
                    continue
        except OSError as exc:
            raise SettingsWriteError(f"cannot lock {path}: {exc.strerror}") from None
        if time.monotonic() > deadline:
            raise SettingsWriteError(f"{path} is locked by another process; try again")
        time.sleep(0.05)
    try:
        yield
    finally:
        with suppress(OSError):
            os.rmdir(lock)
