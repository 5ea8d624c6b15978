"""The tree: what may be in it, that no one overwrites what he has not seen, and that every change can be undone."""

from __future__ import annotations

import sqlite3
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.errors import EditRefused, SessionError
from parley.memory.base import PERSON, EntrySource, KnowledgeEntry
from parley.memory.knowledge_tree import CHANGEABLE, EntryDraft, KnowledgeTree, MemoryDatabase

SOURCE = EntrySource(session="s", seq=3, uuid="u3")


def tree(path: Path, author: str = PERSON) -> KnowledgeTree:
    ticks = count()
    return KnowledgeTree(MemoryDatabase(path), lambda: f"t{next(ticks)}", author)


@pytest.fixture
def grown(tmp_path: Path) -> KnowledgeTree:
    made = tree(tmp_path / "m.db")
    made.create(EntryDraft(slug="people", title="People", body="Those we know."))
    made.create(
        EntryDraft(slug="ada", title="Ada Lovelace", body="Likes *engines*.", parent="people", sources=(SOURCE,))
    )
    return made


def said(entry: KnowledgeEntry) -> tuple[object, ...]:
    return tuple(getattr(entry, name) for name in (*CHANGEABLE, "archived"))


def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.db"

    assert tree(path).entries() == []
    assert tree(path).get("ada") is None
    assert tree(path).search("ada", 5) == []
    assert not path.exists()


def test_an_entry_is_found_again_with_all_it_says(grown: KnowledgeTree, tmp_path: Path) -> None:
    expected = KnowledgeEntry(
        slug="ada",
        version=1,
        parent="people",
        title="Ada Lovelace",
        body="Likes *engines*.",
        sources=(SOURCE,),
        at="t1",
        author=PERSON,
    )

    assert tree(tmp_path / "m.db").get("ada") == expected
    assert grown.below("people") == [expected]
    assert grown.search("ENGINES", 5) == [expected]
    assert [entry.slug for entry in grown.entries()] == ["ada", "people"]


def test_who_has_not_seen_the_last_version_changes_nothing(grown: KnowledgeTree) -> None:
    grown.update("ada", 1, body="Likes looms.")

    with pytest.raises(EditRefused, match="now at version 2, not 1"):
        grown.update("ada", 1, body="Old.")
    with pytest.raises(EditRefused, match="now at version 2, not 1"):
        grown.archive("ada", 1)
    assert [entry.body for entry in grown.history("ada")] == ["Likes *engines*.", "Likes looms."]


def test_what_it_comes_from_is_added_up(grown: KnowledgeTree) -> None:
    other = EntrySource(session="s", seq=9, uuid="u9")

    changed = grown.update("ada", 1, title="Ada", sources=(SOURCE, other))

    assert changed.sources == (SOURCE, other)


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        (EntryDraft(slug="ada", title="x", body="x"), "already exists, at version 1: update"),
        (EntryDraft(slug="Two Words", title="x", body="x"), "is not a valid slug"),
        (EntryDraft(slug="x" * 81, title="x", body="x"), "is not a valid slug"),
        (EntryDraft(slug="x", title=" ", body="x"), "the title has 0 characters"),
        (EntryDraft(slug="x", title="x", body="y" * 20_001), "the body has 20001 characters"),
        (EntryDraft(slug="x", title="x", body="x", parent="nobody"), "refers to 'nobody', which is not an entry"),
        (EntryDraft(slug="x", title="x", body="x", links=("nobody",)), "refers to 'nobody', which is not an entry"),
        (EntryDraft(slug="x", title="x", body="x", links=tuple(f"l{n}" for n in range(51))), "at most 50 links"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(grown: KnowledgeTree, draft: EntryDraft, why: str) -> None:
    with pytest.raises(EditRefused, match=why):
        grown.create(draft)
    assert [entry.slug for entry in grown.entries(archived=True)] == ["ada", "people"]


def test_a_tree_stays_a_tree(grown: KnowledgeTree) -> None:
    with pytest.raises(EditRefused, match="is itself below"):
        grown.update("people", 1, parent="ada")
    with pytest.raises(EditRefused, match="is itself below"):
        grown.update("ada", 1, parent="ada")
    with pytest.raises(EditRefused, match="move or archive ada first"):
        grown.archive("people", 1)
    with pytest.raises(EditRefused, match="'ada' already has these values"):
        grown.update("ada", 1, body="Likes *engines*. ")


def test_what_is_archived_is_not_found_and_can_come_back(grown: KnowledgeTree) -> None:
    grown.archive("ada", 1)

    assert grown.search("engines", 5) == []
    assert [entry.slug for entry in grown.entries()] == ["people"]
    with pytest.raises(EditRefused, match="no entry 'ada'"):
        grown.update("ada", 2, body="x")
    assert grown.undo("ada").body == "Likes *engines*."
    assert [entry.slug for entry in grown.search("engines", 5)] == ["ada"]
    grown.archive("ada", 3)
    again = grown.create(EntryDraft(slug="ada", title="Ada", body="Another."))
    assert (again.version, len(grown.history("ada"))) == (5, 5)


def test_undo_goes_back_one_change_or_to_a_version(grown: KnowledgeTree) -> None:
    grown.update("ada", 1, body="two")
    grown.update("ada", 2, body="three", parent="")

    assert said(grown.undo("ada")) == (("people"), "Ada Lovelace", "two", (), False)
    assert grown.undo("ada", 3).body == "three"
    assert grown.undo("ada", 1).body == "Likes *engines*."
    with pytest.raises(EditRefused, match=r"no earlier version 7 to restore \(earlier versions: 1, 2, 3, 4, 5\)"):
        grown.undo("ada", 7)
    with pytest.raises(EditRefused, match="no earlier version 6"):
        grown.undo("ada", 6)
    with pytest.raises(EditRefused, match="no entry 'nobody'"):
        grown.undo("nobody")


def test_to_undo_a_creation_is_to_archive(grown: KnowledgeTree) -> None:
    assert grown.undo("ada").archived
    assert grown.undo("people").archived
    with pytest.raises(EditRefused, match="refers to 'people', which is archived"):
        grown.undo("ada", 1)


def test_a_title_is_one_line(grown: KnowledgeTree) -> None:
    made = grown.create(EntryDraft(slug="x", title=" Two\n\nlines ", body="x"))

    assert made.title == "Two lines"
    assert grown.update("x", 1, title="Three\nmore\nlines").title == "Three more lines"


def test_the_best_comes_first_and_some_of_the_words_are_enough(grown: KnowledgeTree) -> None:
    grown.create(EntryDraft(slug="looms", title="Looms", body="Cards, threads; seen by Ada once."))

    assert [entry.slug for entry in grown.search("ada engines", 5)] == ["ada", "looms"]
    assert [entry.slug for entry in grown.search("ada engines", 1)] == ["ada"]
    assert grown.search("?!", 5) == []


def test_secrets_are_not_remembered(tmp_path: Path) -> None:
    made = KnowledgeTree(
        MemoryDatabase(tmp_path / "m.db"), str, redact=lambda text: text.replace("hunter2", "[redacted]")
    )

    entry = made.create(EntryDraft(slug="x", title="It is hunter2", body="hunter2"))
    changed = made.update("x", 1, body="still hunter2")

    assert (entry.title, entry.body, changed.body) == ("It is [redacted]", "[redacted]", "still [redacted]")


def test_a_memory_of_a_newer_version_is_left_alone(grown: KnowledgeTree, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "m.db") as database:
        database.execute("UPDATE parley_version SET version = 9 WHERE part = 'memory'")

    with pytest.raises(SessionError, match="this Parley reads only version 1"):
        grown.entries()
    with pytest.raises(SessionError, match="this Parley reads only version 1"):
        grown.create(EntryDraft(slug="x", title="x", body="x"))


def test_what_is_not_a_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_text("these are just some words, and no database at all" * 20)

    with pytest.raises(SessionError, match=r"cannot use the memory .*: file is not a database"):
        tree(tmp_path / "m.db").entries()


def test_a_rehearsal_changes_nothing(grown: KnowledgeTree, tmp_path: Path) -> None:
    rehearsed = KnowledgeTree(MemoryDatabase(tmp_path / "m.db").dry_run(), str)
    rehearsed.update("ada", 1, body="Something else.")

    assert [entry.slug for entry in rehearsed.search("something", 5)] == ["ada"]
    assert grown.get("ada") == grown.history("ada")[0]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "update", "move", "archive", "undo"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["a", "b", "c", ""]),
        st.integers(0, 3),
    ),
    max_size=12,
)


@settings(max_examples=15, deadline=None)
@given(STEPS)
def test_whatever_is_done_each_step_can_be_undone_and_the_tree_stays_whole(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str, int]]
) -> None:
    made = tree(tmp_path_factory.mktemp("tree") / "m.db")
    for number, (kind, slug, other, _) in enumerate(steps):
        before = made.get(slug)
        version = before.version if before is not None else 0
        try:
            match kind:
                case "create":
                    made.create(EntryDraft(slug=slug, title="t", body=f"b{number}", parent=other))
                case "update":
                    made.update(slug, version, body=f"b{number}")
                case "move":
                    made.update(slug, version, parent=other)
                case "archive":
                    made.archive(slug, version)
                case "undo":
                    made.undo(slug)
        except EditRefused:
            assert made.get(slug) == before
            continue
        after = made.get(slug)
        assert after is not None
        assert after.version == version + 1
        assert [entry.version for entry in made.history(slug)] == list(range(1, version + 2))
        assert made.history(slug)[-1] == after
    live = {entry.slug: entry for entry in made.entries()}
    for entry in live.values():
        assert entry.parent is None or entry.parent in live
        assert len(above(live, entry)) <= len(live)
        assert entry in made.search(entry.body, 9)


def above(live: dict[str, KnowledgeEntry], entry: KnowledgeEntry) -> list[str]:
    found: list[str] = []
    while entry.parent is not None:
        assert entry.parent not in found
        found.append(entry.parent)
        entry = live[entry.parent]
    return found


@pytest.mark.parametrize("cell", ["{bad", '{"a":1}', "5", "", b"\xff", "[" * 5000, '[{"session": 1}]'])
def test_a_spoilt_cell_costs_nothing_but_itself(grown: KnowledgeTree, tmp_path: Path, cell: str | bytes) -> None:
    with sqlite3.connect(tmp_path / "m.db") as run:
        for table in ("memory_entries", "memory_versions"):
            run.execute(
                f"UPDATE {table} SET links = ?, sources = ?, title = ? WHERE slug = 'ada'", (cell, cell, b"A\xff")
            )

    assert [entry.slug for entry in grown.entries()] == ["ada", "people"]
    entry = grown.get("ada")
    assert entry is not None
    assert (entry.title, entry.body, entry.links, entry.sources) == ("A\ufffd", "Likes *engines*.", (), ())
    assert [found.slug for found in grown.search("engines", 5)] == ["ada"]
    assert grown.undo("ada").archived
