"""The indexer reads each line once, whatever happened to the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from parley.gateway.database import Database
from parley.gateway.index.indexer import Indexer
from parley.gateway.line_log import LineLog
from parley.gateway.security.access import Principal

ADMIN = Principal.administrator("admin")


class Place:
    """A session with a log and an index."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lines.jsonl"
        self.log = LineLog(self.path)
        self.database = Database(folder / "gateway.db")
        self.database.change(
            "INSERT INTO sessions (id, tenant, creator, cwd, options, engine_id, created_at, used_at)"
            " VALUES ('s', '', 'admin', '/', '[]', 's', 0, 0)"
        )
        self.reported: list[str] = []
        self.indexer = Indexer(self.database, self.open_log, self.reported.append)

    @contextmanager
    def open_log(self, session_id: str) -> Iterator[LineLog]:
        yield self.log

    def say(self, text: str) -> None:
        message = {"role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
        self.log.append(msgspec.json.encode({"type": "assistant", "uuid": text, "message": message}))

    def found(self, text: str) -> bool:
        return "s" in self.indexer.search.find(ADMIN, text)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.log.close()
    made.database.close()


async def test_each_line_is_indexed_once_in_batches(place: Place) -> None:
    for number in range(2000):
        place.say(f"word{number} " + "x" * 300)
    await place.indexer.catch_up("s")
    await place.indexer.catch_up("s")
    row = place.database.row("SELECT count(*) AS n, count(DISTINCT number) AS numbers FROM messages")
    assert row is not None
    assert (row["n"], row["numbers"]) == (2000, 2000)
    assert place.found("word0")
    assert place.found("word1999")


async def test_lines_that_the_log_has_lost_are_forgotten(place: Place) -> None:
    place.say("kept")
    size = place.path.stat().st_size
    place.say("lost")
    await place.indexer.catch_up("s")
    place.log.close()
    with place.path.open("rb+") as file:
        file.truncate(size)
    place.log = LineLog(place.path)
    place.indexer.forget_lost("s", place.log.last)
    place.say("again")
    place.say("more")
    await place.indexer.catch_up("s")
    assert [place.found(word) for word in ("kept", "lost", "again", "more")] == [True, False, True, True]


async def test_a_line_that_cannot_be_read_is_left_out(place: Place) -> None:
    place.log.append(b'{"type":"assistant","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    place.say("after")
    place.indexer.mark("s")
    place.indexer.close()
    assert place.found("after")
    assert place.reported == ["s"]


async def test_a_deleted_session_is_not_found_any_more(place: Place) -> None:
    place.say("gone")
    await place.indexer.catch_up("s")
    place.database.change("DELETE FROM sessions WHERE id='s'")
    assert not place.found("gone")
    row = place.database.row("SELECT count(*) AS n FROM message_words WHERE message_words MATCH 'gone'")
    assert row is not None
    assert row["n"] == 0
    place.indexer.mark("s")
    place.indexer.close()


async def test_a_failed_transaction_changes_nothing(place: Place) -> None:
    with suppress(ZeroDivisionError), place.database.transaction():
        place.database.change("DELETE FROM sessions")
        raise ZeroDivisionError
    assert place.database.row("SELECT 1 FROM sessions") is not None
