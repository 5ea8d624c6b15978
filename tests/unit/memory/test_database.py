"""The file of a memory, which others write to as well."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from parley.memory.database import connect

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
    with closing(connect(path)) as first:
        first.execute("CREATE TABLE noted (word TEXT)")
        connect(path).close()
        assert looked_at(path) == 0
        first.execute("INSERT INTO noted VALUES ('kept')")
        assert looked_at(path) == 1
