"""Opening an SQLite file that others write to as well."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from parley.errors import SessionError
from parley.workspace.private_database import OtherVersion, Schema, has_tables, open_database, translate_errors

SCHEMA = Schema("memory", 1, "CREATE TABLE noted (word TEXT);\n")

LOOK = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(database.execute("SELECT count(*) FROM noted").fetchone()[0])
database.close()
"""


def looked_at(path: Path) -> int:
    """How many rows another process finds, who then is the last to close the file, or believes so."""
    return int(subprocess.run([sys.executable, "-c", LOOK, str(path)], capture_output=True, check=True).stdout)


def test_a_second_connection_takes_no_locks_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(open_database(path, SCHEMA)) as first:
        open_database(path, SCHEMA).close()
        assert looked_at(path) == 0
        first.execute("INSERT INTO noted VALUES ('kept')")
        assert looked_at(path) == 1


def test_parts_have_their_tables_and_versions_in_one_file(tmp_path: Path) -> None:
    other = Schema("sessions", 3, "CREATE TABLE entries (seq INTEGER);\n")
    open_database(tmp_path / "one.db", SCHEMA).close()

    with closing(open_database(tmp_path / "one.db", other, create=False)) as database:
        assert (has_tables(database, SCHEMA), has_tables(database, other)) == (True, False)
    with closing(open_database(tmp_path / "one.db", other)) as database:
        assert (has_tables(database, SCHEMA), has_tables(database, other)) == (True, True)


def test_another_version_is_refused_and_the_file_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    open_database(path, SCHEMA).close()
    before = path.read_bytes()

    with pytest.raises(OtherVersion, match="has schema version 1 of memory; this Parley reads only version 2"):
        open_database(path, Schema("memory", 2, SCHEMA.script))
    assert path.read_bytes() == before


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_link_is_not_followed(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"one.db{ending}").symlink_to(tmp_path / "elsewhere.db")

    with (
        pytest.raises(SessionError, match=r"cannot use the notes: .* is a symbolic link"),
        translate_errors("the notes"),
    ):
        open_database(tmp_path / "one.db", SCHEMA)
    assert not (tmp_path / "elsewhere.db").exists()
