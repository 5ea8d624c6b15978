"""Open SQLite files: private to this user, never through symlinks, in WAL mode, with a version for each part.

    SESSIONS = Schema("sessions", 2, "CREATE TABLE entries (…); …")
    database = open_database(path, SESSIONS)

Several parts of the program may have tables in the same file; the table `parley_version` has the version of each. There
are no migrations: if the tables of a part have another version, the file is refused and left unchanged.

No other module opens SQLite files; `tests/unit/test_private_writes.py` checks that.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from parley.errors import SessionError
from parley.protocol.base import Struct
from parley.workspace import private_files

BUSY_TIMEOUT_SECONDS = 10
IN_MEMORY = Path(":memory:")
"""A database that ends with its connection."""
COMPANIONS = ("-wal", "-shm", "-journal")
"""The files that SQLite keeps next to a database. It follows no symlinks to them, but opens other file types."""
VERSIONS = "CREATE TABLE IF NOT EXISTS parley_version (part TEXT PRIMARY KEY, version INTEGER NOT NULL);\n"


class Schema(Struct, frozen=True):
    """The tables of one part of the program."""

    part: str
    version: int
    script: str
    """The statements that create the tables. Each ends with its line."""


class OtherVersion(sqlite3.DatabaseError):
    """The file was written by another version of Parley."""


def open_database(path: Path, schema: Schema, *, below: int = 0, create: bool = True) -> sqlite3.Connection:
    """Open a file, or create it, and its tables if `create` is set. Opened read-only if it is not writable.

    A commit survives the end of the process. `below` is as in `open_file`.
    Raises OSError, UnsafeFile, sqlite3.Error, OtherVersion.
    """
    is_read_only = os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    real = "" if path == IN_MEMORY else check_files(path, below=below, writes=not is_read_only)
    address = read_only_address(Path(real)) if is_read_only else real or str(path)
    database = sqlite3.connect(
        address, BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, uri=is_read_only
    )
    try:
        opened = database.execute("PRAGMA database_list").fetchone()[2]
        if opened != real:
            raise private_files.refuse(real, f"is a symbolic link to {opened}, or is in a folder that is one")
        is_prepared = has_tables(database, schema)  # first, so that a file of another version is not changed
        if not is_read_only:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            if create and not is_prepared:
                with transaction(database):
                    create_tables(database, schema)
    except BaseException:
        database.close()
        raise
    return database


def check_files(path: Path, *, below: int, writes: bool) -> str:
    """Check a database, or create it, and return the real path for SQLite. Raises OSError, UnsafeFile.

    An existing database is not opened here. Closing the descriptor would drop the POSIX locks of this process's other
    connections, and another process could then discard the WAL that they write to.
    """
    name, folders = path.name, path.parent
    with private_files.open_folder(folders, below=below, make=True) as (folder, owner):
        if writes:
            with suppress(FileExistsError):
                os.close(private_files.open_in(folder, owner, str(path), private_files.NEW))
        for ending in ("", *COMPANIONS):
            try:
                status = os.stat(f"{name}{ending}", dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            private_files.check_regular(status, f"{path}{ending}", owner, writes=writes)
    inner = folders.parts[len(folders.parts) - below :] if below else ()
    top = Path(*folders.parts[: len(folders.parts) - len(inner)])
    return os.path.join(os.path.realpath(top), *inner, name)


def read_only_address(path: Path) -> str:
    """The URI of a file that cannot be written."""
    log = path.with_name(f"{path.name}-wal")
    # Even to read, SQLite creates files next to the database, unless it is immutable: no WAL is pending.
    is_settled = not (log.exists() and log.stat().st_size)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_settled else ''}"


def has_tables(database: sqlite3.Connection, schema: Schema) -> bool:
    """Whether the file has the tables of a part. Raises OtherVersion, sqlite3.Error."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'parley_version'").fetchone():
        return False
    found = database.execute("SELECT version FROM parley_version WHERE part = ?", (schema.part,)).fetchone()
    if found is not None and found[0] != schema.version:
        raise OtherVersion(
            f"it has schema version {found[0]} of {schema.part}; this Parley reads only version {schema.version}, "
            "and leaves the file unchanged"
        )
    return found is not None


def create_tables(database: sqlite3.Connection, schema: Schema) -> None:
    """Create the tables of a part, in the current transaction, unless another process has. Raises sqlite3.Error."""
    if has_tables(database, schema):
        return
    statement = ""
    for line in (VERSIONS + schema.script).splitlines(keepends=True):  # `executescript` would commit the transaction
        statement += line
        if sqlite3.complete_statement(statement):
            database.execute(statement)
            statement = ""
    database.execute("INSERT INTO parley_version VALUES (?, ?)", (schema.part, schema.version))


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Commit what is written in the block, or none of it if it raises. Raises sqlite3.Error."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # SQLite ends it by itself if the disk is full
            database.execute("ROLLBACK")
        raise


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Raise errors of SQLite and of the system as SessionError. `name` is what cannot be used, such as a path."""
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        error = SessionError(f"cannot use {name}: {exc.strerror if isinstance(exc, OSError) else exc}")
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            error.error_code = "ENOSPC"
        raise error from None
    except UnicodeDecodeError:
        # In a damaged file, table names that errors quote may be invalid UTF-8.
        raise SessionError(f"cannot use {name}: the file is damaged") from None
