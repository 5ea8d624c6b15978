"""Checks of the disk and the sessions that are kept on it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from parley.cli.commands.doctor.base import Check
from parley.compose.launch_context import LaunchContext
from parley.compose.stores import SessionStores
from parley.errors import SessionError, UsageError
from parley.stores.base import Store
from parley.terminal.rendering.tables import format_size

READ_SESSIONS = 20
"""How many sessions are read to the end; the latest of this directory."""
LOW_BYTES = 200_000_000


def check_store(launch: LaunchContext) -> Iterator[Check]:
    yield check_config_folder(launch.config)
    yield check_disk(launch.config)
    try:
        store = SessionStores(launch).store()
        yield from check_sessions(launch, store)
    except (UsageError, SessionError) as exc:
        yield Check("sessions", "error", str(exc))


def check_config_folder(folder: Path) -> Check:
    if not folder.exists():
        return Check("config directory", "ok", f"{folder} (created when it is needed)")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as exc:
        return Check("config directory", "error", f"cannot write to {folder}: {exc.strerror}")
    if not os.access(folder, os.R_OK | os.X_OK):
        return Check("config directory", "error", f"cannot read {folder}")
    return Check("config directory", "ok", str(folder))


def check_disk(folder: Path) -> Check:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return Check("disk", "warning" if free < LOW_BYTES else "ok", f"{format_size(free)} free ({existing})")


def check_sessions(launch: LaunchContext, store: Store) -> Iterator[Check]:
    """Raises SessionError."""
    found = store.list(launch.cwd, READ_SESSIONS)
    held = sum(store.is_held(info.id) for info in found)
    damaged = [problem for info in found if (problem := find_damage(store, info.id))]
    which = f"the latest {READ_SESSIONS}" if len(found) == READ_SESSIONS else str(len(found))
    yield Check("sessions", "ok", f"{which} of this directory checked: {held} in use, {len(damaged)} damaged")
    for problem in damaged:
        yield Check("session", "warning", problem)


def find_damage(store: Store, session_id: str) -> str | None:
    try:
        for _ in store.read(session_id):
            pass
    except SessionError as exc:
        return str(exc)
    return None
