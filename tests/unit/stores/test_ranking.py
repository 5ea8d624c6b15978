"""Finding what fits best in what was said, and the part of it that shows why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.protocol.base import Json
from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.search_text import build_queries, find_passage, significant_words
from parley.stores.sql.sqlite import SqliteStore

ID, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "kept.db", EntryContext(cwd=str(tmp_path), version="0"))


def say(store: SqliteStore, session_id: str, *texts: str, context: Json | None = None, **fields: Any) -> None:
    log = store.open(session_id) if store.exists(session_id) else store.create(session_id)
    after = max((entry.seq for entry in log.entries()), default=-1) + 1
    for seq, text in enumerate(texts, after):
        inner = {"role": "user", "content": [{"type": "text", "text": text}]}
        message: Json = {"type": "user", "uuid": f"u{seq}", "message": inner, **fields}
        log.append(Entry(seq=seq, kind="user", at="", message=message, context=context or {}))
    log.close()


def test_what_has_all_that_a_question_asks_for_comes_first(store: SqliteStore) -> None:
    say(store, ID, "What was the gate of the train?", "The word for the boat in Bergen is heron.", "A boat in Turin.")

    found = store.ranked("What was the word for the boat in Bergen?", 9, ID)

    assert [hit.seq for hit in found] == [1, 2]
    assert found[0].excerpt == "The word for the boat in Bergen is heron."
    assert [hit.seq for hit in store.ranked("boat Bergen", 1, ID)] == [1]
    assert store.ranked("?", 9, ID) == []


def test_words_that_stand_together_count_for_more(store: SqliteStore) -> None:
    far = f"The boat came up. {'And so on. ' * 9} It rained in Bergen."
    say(store, ID, far, "Of the boat and the train in Bergen, and of much else besides that nobody needs to know.", far)

    assert [hit.seq for hit in store.ranked("boat Bergen", 9, ID)] == [1, 0, 2]


def test_one_session_or_all(store: SqliteStore) -> None:
    say(store, ID, "bees here")
    say(store, OTHER, "bees there")

    assert [hit.id for hit in store.ranked("bees", 9, OTHER)] == [OTHER]
    assert {hit.id for hit in store.ranked("bees", 9)} == {ID, OTHER}


def test_what_only_repeats_is_not_found(store: SqliteStore) -> None:
    say(store, ID, 'He wrote {"recalled":true} of bees')
    say(store, ID, "bees, in short", context={"isCompactSummary": True})
    say(store, ID, "bees, looked up", tool_use_result={"recalled": True})

    assert [hit.seq for hit in store.ranked("bees", 9, ID)] == [0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What was the word?", ["word"]),
        ("What was that?", ["what", "was", "that"]),
        ("Bees, BEES and bees", ["bees"]),
        ("", []),
    ],
)
def test_words_of_which_questions_are_full_do_not_count_unless_there_are_no_others(text: str, words: list[str]) -> None:
    assert significant_words(text) == words


def test_first_all_of_the_words_together_then_anywhere_then_any() -> None:
    assert build_queries(["a", "b"]) == ['NEAR("a" "b", 10)', '"a" "b"', '"a" OR "b"']
    assert build_queries(["a"]) == ['"a"']
    assert build_queries([]) == []


def test_the_part_is_shown_in_which_most_of_the_words_stand() -> None:
    text = "The bees. " + "Nothing of note happened. " * 40 + "Then the bees left Turin.\n\nIn a hurry. " + "x " * 400

    shown = find_passage(text, ["bees", "turin", "hurry"])

    assert shown.startswith("…")
    assert shown.endswith("…")
    assert "the bees left Turin. In a hurry." in shown
    assert len(shown) < 330
    assert find_passage("Short.", ["none"]) == "Short."
