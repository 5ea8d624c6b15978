"""Messages of a log in SQL, each with the one before it and a checksum."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from parley.errors import ClusterError, Fenced, LogDamaged
from parley.stores.numbered_log import LogKey, Snapshot
from parley.stores.sql.numbered_log import (
    MESSAGES,
    SNAPSHOTS,
    DamagedMessage,
    SqlLog,
    Steps,
    make_sqlite_tables,
    run_steps,
)

KEY = LogKey("tenant", "s")
MESSAGE = "UPDATE log_messages SET {change} WHERE sequence = 2"


class Database:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.log = SqlLog("log", "a database")
        connection.executescript(make_sqlite_tables("log", MESSAGES + SNAPSHOTS))

    def run(self, steps: Steps[Any]) -> Any:
        return run_steps(steps, lambda text, row: self.connection.execute(text, row).fetchall())

    def append(self, data: bytes, expected: int, message_id: str = "") -> tuple[int, bool]:
        message_id = message_id or data.decode()
        found: tuple[int, bool] = self.run(self.log.append(KEY, data, expected=expected, message_id=message_id))
        return found

    def read(self, after: int = 0) -> tuple[list[bytes], DamagedMessage | None]:
        found, damage = self.run(self.log.read(KEY, after))
        return [data for _, data in found], damage


@pytest.fixture
def database() -> Iterator[Database]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        found = Database(connection)
        for expected, data in enumerate((b"one", b"two", b"three")):
            found.append(data, expected)
        yield found


def test_messages_are_read_in_their_order(database: Database) -> None:
    assert database.read() == ([b"one", b"two", b"three"], None)
    assert database.read(after=2) == ([b"three"], None)
    assert database.read(after=3) == ([], None)


@pytest.mark.parametrize(
    ("change", "damage"),
    [
        ("data = CAST('twa' AS BLOB)", DamagedMessage(2, "two", is_altered=True)),
        ("data = 'two'", DamagedMessage(2, "two", is_altered=True)),
        ("data = 7", DamagedMessage(2, "two", is_altered=True)),
        ("checksum = 'odd'", DamagedMessage(2, "two", is_altered=True)),
        ("id = 'odd'", DamagedMessage(2, "odd", is_altered=True)),
        ("previous = 99", DamagedMessage(3, "three")),
        ("previous = 'odd'", DamagedMessage(3, "three")),
        ("sequence = 99", DamagedMessage(3, "three")),
        ("session = 'another'", DamagedMessage(3, "three")),
    ],
)
def test_a_message_that_was_altered_or_moved_is_found(database: Database, change: str, damage: DamagedMessage) -> None:
    database.connection.execute(MESSAGE.format(change=change))

    found, what = database.read()

    assert found[:1] == [b"one"]
    assert what == damage


def test_a_message_that_is_missing_is_found(database: Database) -> None:
    database.connection.execute("DELETE FROM log_messages WHERE sequence = 1")

    assert database.read() == ([], DamagedMessage(2, "two"))


def test_a_writer_that_does_not_know_the_last_message_is_refused(database: Database) -> None:
    with pytest.raises(Fenced, match="it ends at 3, not at 2"):
        database.append(b"four", 2)
    with pytest.raises(LogDamaged, match="the log ends at 3, but 9 was stored"):
        database.append(b"four", 9)
    assert database.append(b"four", 3) == (4, True)


def test_a_repeated_append_stores_nothing(database: Database) -> None:
    assert database.append(b"two", 1) == (2, False)
    with pytest.raises(Fenced, match="another message with the id two"):
        database.append(b"other", 3, "two")
    assert database.read() == ([b"one", b"two", b"three"], None)


def test_a_write_that_has_not_finished_may_be_repeated(database: Database) -> None:
    """Its row keeps others out before it can be seen."""
    answers: list[list[tuple[int, ...]]] = [[], [], [(3,)]]
    steps = database.log.append(KEY, b"four", expected=3, message_id="four")

    with pytest.raises(ClusterError, match="another write to session s has not finished"):
        run_steps(steps, lambda text, row: answers.pop(0))


def test_a_snapshot_replaces_messages_but_not_the_last(database: Database) -> None:
    database.run(database.log.save_snapshot(KEY, Snapshot(3, b"state")))
    database.run(database.log.save_snapshot(KEY, Snapshot(2, b"older")))

    assert database.run(database.log.load_snapshot(KEY)) == Snapshot(3, b"state")
    assert database.run(database.log.head(KEY)) == 3
    assert database.append(b"four", 3) == (4, True)
    assert database.read(after=3) == ([b"four"], None)
