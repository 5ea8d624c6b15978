"""The indexer reads each line once, whatever happened to the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec
import pytest

from parley.gateway.database import SessionRows, open_projections
from parley.gateway.index.indexer import Indexer
from parley.gateway.security.access import Principal
from parley.gateway.session_log.records import CreatedRecord
from parley.gateway.session_log.session_log import SessionLog

ADMIN = Principal.administrator("admin")


class Place:
    """A session with a log and an index."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.log"
        self.database = open_projections(folder / "projections.db")
        self.rows = SessionRows(self.database)
        self.log = SessionLog(self.path, self.rows.follow)
        self.log.record(CreatedRecord(tenant="", creator="admin", cwd="/", options=b"[]", at=0))
        self.reported: list[str] = []
        self.indexer = Indexer(self.database, self.rows, lambda session_id: nullcontext(self.log), self.reported.append)

    def say(self, text: str) -> None:
        message = {"role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
        self.log.add_line(msgspec.json.encode({"type": "assistant", "uuid": text, "message": message}))

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


async def test_rows_that_are_ahead_of_a_log_are_written_again(place: Place) -> None:
    place.say("kept")
    size = place.path.stat().st_size
    place.say("lost")
    await place.indexer.catch_up("s")
    place.log.close()
    with place.path.open("rb+") as file:
        file.truncate(size)
    place.log = SessionLog(place.path, place.rows.follow)
    place.rows.restore(place.log)
    place.say("again")
    place.say("more")
    await place.indexer.catch_up("s")
    assert [place.found(word) for word in ("kept", "lost", "again", "more")] == [True, False, True, True]


async def test_a_row_that_the_database_did_not_take_is_written_when_the_session_is_indexed(place: Place) -> None:
    place.database.change("DELETE FROM sessions")
    place.rows.behind.add("s")
    place.rows.restore(place.log)
    place.say("there")
    await place.indexer.catch_up("s")
    assert place.found("there")
    assert place.rows.behind == set()


async def test_a_line_that_cannot_be_read_is_left_out(place: Place) -> None:
    place.log.add_line(b'{"type":"assistant","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
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
