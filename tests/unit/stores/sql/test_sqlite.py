"""All sessions in one SQLite file."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from parley.errors import DamagedSession, SessionError
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.sqlite import SqliteStore
from parley.workspace.private_database import translate_errors
from tests.helpers import paths
from tests.helpers.store_conformance import CONVERSATION, FIRST, SECOND, Place, every_claim, kept, user, write

WRITER = """
import sys
from pathlib import Path
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.sqlite import SqliteStore
from parley.workspace.private_database import translate_errors
from tests.helpers.store_conformance import user
log = SqliteStore(Path(sys.argv[1]), EntryContext(cwd="/", version="")).create(sys.argv[2])
for seq in range(int(sys.argv[3])):
    log.append(user(seq, "x", sys.argv[2]))
    print(seq, flush=True)
sys.stdin.read()
"""


def store(path: Path, cwd: str = "/nowhere/project") -> SqliteStore:
    return SqliteStore(path / "sessions.db", EntryContext(cwd=cwd, version="2.1.0", git_branch="main"))


def writer(path: Path, session_id: str, entries: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path / "sessions.db"), session_id, str(entries)]
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


@every_claim
def test_a_database_keeps_the_promises_of_a_store(claim: Callable[[Place], None], tmp_path: Path) -> None:
    claim(Place(lambda: store(tmp_path)))


def test_what_a_killed_process_wrote_is_there_and_the_session_is_free(tmp_path: Path) -> None:
    process = writer(tmp_path, FIRST, 5)
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(5)]
    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert told == ["0", "1", "2", "3", "4"]
    assert kept(store(tmp_path)) == [user(seq, "x") for seq in range(5)]


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    ids = [f"{number}{FIRST[1:]}" for number in range(3)]
    writers = [writer(tmp_path, session_id, 20) for session_id in ids]
    codes = [(process.communicate(), process.returncode)[1] for process in writers]

    assert codes == [0, 0, 0]
    assert [len(kept(store(tmp_path), session_id)) for session_id in ids] == [20, 20, 20]


def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sessions.db").write_text("not a database " * 100)

    with pytest.raises(SessionError, match=r"cannot use the database .*: file is not a database"):
        store(tmp_path).list()


@pytest.mark.parametrize("version", [1, 3, 99])
def test_a_database_of_another_version_is_left_unchanged(tmp_path: Path, version: int) -> None:
    write(store(tmp_path), FIRST, *CONVERSATION)
    spoil(tmp_path, f"UPDATE parley_version SET version = {version}")
    before = (tmp_path / "sessions.db").read_bytes()

    with pytest.raises(SessionError, match=f"schema version {version} of sessions; this Parley reads only version 4"):
        store(tmp_path).create(SECOND)
    assert (tmp_path / "sessions.db").read_bytes() == before


def test_looking_into_a_database_that_is_not_there_makes_none(tmp_path: Path) -> None:
    assert (store(tmp_path).list(), store(tmp_path).exists(FIRST), store(tmp_path).search("x")) == ([], False, [])
    assert list(tmp_path.iterdir()) == []


def test_a_database_is_private_to_its_user(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *CONVERSATION)

    assert (tmp_path / "sessions.db").stat().st_mode & 0o777 == 0o600


def test_an_entry_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    log = store(tmp_path).create(FIRST)
    log.append(user(0, "first"))
    with pytest.raises(SessionError, match="another message with the id 0"):
        log.append(user(0, "second"))
    log.append(user(1, "third"))
    log.close()

    assert kept(store(tmp_path)) == [user(0, "first"), user(1, "third")]


def spoil(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path / "sessions.db")) as database, database:
        database.execute(statement)


def test_an_entry_that_was_altered_is_found_and_can_be_put_aside(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *(user(seq, f"plum {seq}") for seq in range(4)))
    spoil(tmp_path, "UPDATE parley_messages SET data = CAST(replace(data, 'plum 2', 'plan 2') AS BLOB)")

    with pytest.raises(DamagedSession, match=r"damaged at entry 2 in .*sessions\.db"):
        kept(store(tmp_path))
    mended = store(tmp_path).repair(FIRST)
    assert mended is not None
    assert f"the entries of '{FIRST}/damaged-" in mended.aside
    assert (mended.kept_bytes > 0, mended.aside_bytes > 0) == (True, True)
    assert kept(store(tmp_path)) == [user(0, "plum 0"), user(1, "plum 1")]
    assert [hit.seq for hit in store(tmp_path).search("plum")] == [1, 0]
    info = store(tmp_path).info(FIRST)
    assert info is not None
    assert (info.messages, info.size_bytes) == (2, mended.kept_bytes)


def test_an_entry_whose_sequence_leads_back_is_damage(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *(user(seq, "x") for seq in range(3)))
    spoil(tmp_path, "UPDATE parley_messages SET sequence = 0 WHERE id = '2'")

    with pytest.raises(DamagedSession, match="damaged at entry 2"):
        kept(store(tmp_path))


def test_a_repaired_session_continues_and_is_deleted_with_what_was_put_aside(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *(user(seq, "x") for seq in range(3)))
    spoil(tmp_path, "DELETE FROM parley_messages WHERE id = '1'")
    store(tmp_path).repair(FIRST)
    write(store(tmp_path), FIRST, user(1, "again"))
    assert kept(store(tmp_path)) == [user(0, "x"), user(1, "again")]

    store(tmp_path).delete(FIRST)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as database:
        assert database.execute("SELECT count(*) FROM parley_messages").fetchone() == (0,)


def test_a_damaged_session_can_be_deleted(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, user(0, "x"))
    spoil(tmp_path, "UPDATE parley_messages SET data = 'no json'")
    store(tmp_path).delete(FIRST)

    assert store(tmp_path).list() == []


def write_protect(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no one may write to the file system."""
    honest = os.open

    def refusing(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY) and not (flags & os.O_EXCL and os.path.exists(path)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return honest(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)


def test_a_file_that_may_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = store(tmp_path)
    write(there, FIRST, *CONVERSATION)
    write_protect(monkeypatch)

    assert list(there.read(FIRST)) == CONVERSATION
    assert [info.id for info in there.list()] == [FIRST]
    with pytest.raises(SessionError, match="cannot write to the folder of sessions"):
        there.open(FIRST)
    with pytest.raises(SessionError, match="readonly database"):
        there.rename(FIRST, "Another")


def test_a_file_that_is_not_there_and_cannot_be_made_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_protect(monkeypatch)
    with pytest.raises(SessionError, match="Read-only file system"):
        store(tmp_path).conversation(lambda: FIRST)


LOOK = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(database.execute("SELECT count(*) FROM parley_messages").fetchone()[0])
database.close()
"""


def looked_at(path: Path) -> int:
    """How many entries another process finds, who then is the last to close the file, or believes so."""
    command = [sys.executable, "-c", LOOK, str(path / "sessions.db")]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def test_who_looks_into_the_file_takes_no_locks_from_who_writes_to_it(tmp_path: Path) -> None:
    there = store(tmp_path)
    log = there.create(FIRST)
    log.append(user(0, "one"))
    there.list()
    assert looked_at(tmp_path) == 1
    log.append(user(1, "two"))

    assert looked_at(tmp_path) == 2
    log.close()
    assert kept(there) == [user(0, "one"), user(1, "two")]


def test_a_full_disk_is_told_from_other_errors(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE parley_entries (body BLOB)")
        database.execute("PRAGMA max_page_count = 3")
        with pytest.raises(SessionError) as raised, translate_errors("x"):
            database.execute("INSERT INTO parley_entries VALUES (zeroblob(1000000))")
        assert raised.value.error_code == "ENOSPC"
        with pytest.raises(SessionError) as raised, translate_errors("x"):
            database.execute("INSERT INTO nothing VALUES (1)")
        assert raised.value.error_code == ""
