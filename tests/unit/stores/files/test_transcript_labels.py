"""Titles and tags stay within reach of lists, however much is written behind them and whoever gave them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.errors import SessionError
from parley.stores.base import Entry, Info
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from parley.stores.files.transcript import TAIL_BYTES
from tests.helpers.store_conformance import FIRST, note, user, write

MUCH = "x" * (TAIL_BYTES // 4)


def store(path: Path) -> ClaudeStore:
    return ClaudeStore(path, EntryContext(cwd="/nowhere", version="1"))


def transcript(path: Path) -> Path:
    return path / "projects" / "-nowhere" / f"{FIRST}.jsonl"


def listed(path: Path) -> Info:
    (info,) = store(path).list()
    return info


def scenario(first: int, last: int) -> list[Entry]:
    return [user(seq, MUCH) for seq in range(first, last)]


def test_a_title_given_while_the_session_is_held_is_found_for_ever(tmp_path: Path) -> None:
    log = store(tmp_path).create(FIRST)
    for entry in scenario(0, 8):
        log.append(entry)
    store(tmp_path).rename(FIRST, "Old")
    log.append(user(8, "x"))
    store(tmp_path).rename(FIRST, "New")
    store(tmp_path).tag(FIRST, "tagged")
    for entry in scenario(9, 20):
        log.append(entry)
        assert (listed(tmp_path).title, listed(tmp_path).tag) == ("New", "tagged")
    log.close()

    assert len(list(store(tmp_path).read(FIRST))) == 20


def test_a_title_is_found_after_one_line_that_is_longer_than_anybody_looks(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *scenario(0, 8))
    store(tmp_path).rename(FIRST, "New")
    log = store(tmp_path).open(FIRST)
    log.append(user(8, MUCH * 40))
    log.close()

    assert listed(tmp_path).title == "New"


def test_a_newer_title_in_the_middle_is_not_lost_to_an_older_one_at_the_beginning(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, user(0, "x"))
    store(tmp_path).rename(FIRST, "Old")
    log = store(tmp_path).open(FIRST)
    for entry in [*scenario(1, 9), note(9, "title", {"title": "New"}), *scenario(10, 20)]:
        log.append(entry)
    log.close()

    assert listed(tmp_path).title == "New"
    assert [entry.seq for entry in store(tmp_path).read(FIRST)] == list(range(20))


def test_a_tag_that_was_taken_away_does_not_come_back(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, user(0, "x"))
    store(tmp_path).tag(FIRST, "tagged")
    write_more(tmp_path, 1, 9)
    store(tmp_path).tag(FIRST, None)
    write_more(tmp_path, 9, 20)

    assert listed(tmp_path).tag is None


def write_more(path: Path, first: int, last: int) -> None:
    log = store(path).open(FIRST)
    for entry in scenario(first, last):
        log.append(entry)
    log.close()


def test_half_a_label_of_someone_else_does_not_swallow_the_next_entry(tmp_path: Path) -> None:
    log = store(tmp_path).create(FIRST)
    log.append(user(0, "before"))
    with transcript(tmp_path).open("ab") as file:
        file.write(b'{"type":"custom-title","customTi')  # the disk was full just then
    log.append(user(1, "behind"))
    log.append(user(2, "and on"))
    log.close()

    assert list(store(tmp_path).read(FIRST)) == [user(0, "before"), user(1, "behind"), user(2, "and on")]


@pytest.mark.parametrize("has_written", [True, False])
@pytest.mark.parametrize("takes_away", [os.unlink, lambda path: os.truncate(path, 0)])
def test_nothing_is_kept_of_a_session_that_was_deleted_while_it_was_open(
    tmp_path: Path, has_written: bool, takes_away: object
) -> None:
    write(store(tmp_path), FIRST, user(0, "before"))
    log = store(tmp_path).open(FIRST)
    assert len(list(log.entries())) == 1
    if has_written:
        log.append(user(1, "still there"))
    assert callable(takes_away)
    takes_away(transcript(tmp_path))

    for _ in range(2):
        with pytest.raises(SessionError, match=r"was deleted or truncated while the session was open"):
            log.append(user(2, "lost"))
    log.close()


def test_a_store_that_lists_again_shows_what_has_changed(tmp_path: Path) -> None:
    once = store(tmp_path)
    write(store(tmp_path), FIRST, *scenario(0, 2))
    (before,) = once.list()
    assert once.list() == [before]
    store(tmp_path).rename(FIRST, "New")
    (renamed,) = once.list()
    assert (renamed.title, renamed.modified) == ("New", before.modified)
    transcript(tmp_path).unlink()
    assert once.list() == []
