"""memory_search and memory_read: what they find, how they show it, and what they say when there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from parley.memory.base import EntrySource
from parley.memory.knowledge_tree import EntryDraft, KnowledgeTree, MemoryDatabase
from parley.memory.session_memory import SessionMemory, forget_session, inherit_session
from parley.memory.tools import MemoryRead, MemorySearch
from parley.protocol.base import Json
from parley.stores.base import Entry, Store
from parley.stores.files.entry_codec import EntryContext as LineContext
from parley.stores.files.folder import FolderStore
from parley.stores.sql.sqlite import SqliteStore
from tests.helpers.tools import ToolHarness

ID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def filled(store: Store, session_id: str, *texts: str) -> None:
    log = store.create(session_id)
    for seq, text in enumerate(texts):
        kind = "assistant" if seq % 2 else "user"
        content = [{"type": "text", "text": text}]
        message: Json = {"type": kind, "uuid": f"u{seq}", "message": {"role": kind, "content": content}}
        log.append(Entry(seq=seq, kind=kind, at="2026-11-16T03:00:00.000Z", message=message))
    log.close()


@pytest.fixture(params=["sqlite", "folder"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> ToolHarness:
    about = LineContext(cwd=str(tmp_path), version="0")
    warnings: list[str] = []
    store: Store = SqliteStore(tmp_path / "agent.db", about)
    if request.param == "folder":
        store = FolderStore(tmp_path / "logs", about, warnings.append)
    filled(store, ID, "The ferry to Bergen leaves at noon.", "Noted.", "What of the ferry?", "It was about ferries.")
    filled(store, OTHER, "Another ferry, to Galway, leaves at nine.")
    database = MemoryDatabase(tmp_path / "agent.db")
    tree = KnowledgeTree(database, lambda: "2026-11-16T03:00:00.000Z")
    tree.create(EntryDraft(slug="trips", title="Trips", body="All of them."))
    source = EntrySource(session=ID, seq=0, uuid="u0")
    draft = EntryDraft(slug="ferry", title="The ferry", body="To Bergen.", parent="trips", links=("trips",))
    tree.create(replace(draft, sources=(source,)))
    memory = SessionMemory(database, ID, lambda: store)
    made = ToolHarness(tmp_path)
    made.offer(open_memory=lambda: memory)
    return made


def test_a_search_finds_knowledge_and_what_was_said(harness: ToolHarness) -> None:
    found = harness.call(MemorySearch(), query="When does the ferry to Bergen leave?")

    assert found.detail["entries"] == ["ferry"]
    assert found.detail["messages"][0] == {"session_id": ID, "seq": 0}
    assert "- ferry (The ferry): To Bergen." in str(found.content)
    assert f"- #0 user, 2026-11-16T03:00, session {ID}: The ferry to Bergen leaves at noon." in str(found.content)
    assert OTHER not in str(found.content)


def test_other_sessions_are_looked_through_if_that_is_wanted(harness: ToolHarness) -> None:
    found = harness.call(MemorySearch(), query="ferry Galway", everywhere=True)

    assert {"session_id": OTHER, "seq": 0} in found.detail["messages"]


def test_what_the_model_sees_anyway_comes_last(harness: ToolHarness) -> None:
    harness.offer(in_view=lambda: {(ID, 0)})

    found = harness.call(MemorySearch(), query="ferry Bergen", limit=1)

    assert [hit["seq"] for hit in found.detail["messages"]] == [2]


def test_nothing_found_is_reported(harness: ToolHarness) -> None:
    assert harness.call(MemorySearch(), query="zeppelin").content == "Nothing was found. Try other words, or fewer."


def test_an_entry_is_shown_with_its_place_and_its_sources(harness: ToolHarness) -> None:
    assert harness.call(MemoryRead(), slug="ferry").content == "\n".join(
        [
            "# The ferry",
            "slug ferry, version 1, of 2026-11-16",
            "below trips",
            "see also trips",
            f"from #0 of {ID}",
            "",
            "To Bergen.",
        ]
    )
    assert "above ferry (The ferry)" in str(harness.call(MemoryRead(), slug="trips").content)


def test_messages_are_shown_word_for_word(harness: ToolHarness) -> None:
    expected = "[#0 user]\nThe ferry to Bergen leaves at noon.\n\n[#1 assistant]\nNoted."

    for spelled in ("0-1", "#0 – #1", "0..1"):
        assert harness.call(MemoryRead(), messages=spelled).content == expected
    assert harness.call(MemoryRead(), messages="1").content == "[#1 assistant]\nNoted."


def test_messages_of_another_session_are_shown_by_its_id(harness: ToolHarness) -> None:
    shown = harness.call(MemoryRead(), messages="0", session=OTHER).content

    assert shown == "[#0 user]\nAnother ferry, to Galway, leaves at nine."
    assert "No conversation found" in harness.refusal(MemoryRead(), messages="0", session="nobody")


def test_what_is_too_much_says_where_to_continue(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.memory.tools.MOST_CHARS", 60)

    shown = str(harness.call(MemoryRead(), messages="0-3").content)

    assert shown.startswith("[#0 user]\nThe ferry")
    assert shown.endswith("[More messages follow, starting with #1: ask for them by number.]")


@pytest.mark.parametrize(
    ("input", "says"),
    [
        ({"slug": "nobody"}, "There is no entry 'nobody'"),
        ({"messages": "77"}, "There are no messages from #77 to #77"),
        ({"messages": "first"}, "must be a number or a range"),
        ({}, "exactly one of"),
        ({"slug": "ferry", "messages": "1"}, "exactly one of"),
    ],
)
def test_what_is_not_there_is_said(harness: ToolHarness, input: Json, says: str) -> None:
    assert says in harness.refusal(MemoryRead(), **input)


def test_where_there_is_no_memory_that_is_said(harness: ToolHarness) -> None:
    harness.offer(open_memory=None)

    assert "is not available in this session" in harness.refusal(MemorySearch(), query="x")


async def test_a_fork_is_consolidated_from_where_it_began_and_a_deleted_session_anew(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db", LineContext(cwd=str(tmp_path), version="0"))
    filled(store, ID, "Hello.", "Hello, too.")
    database = MemoryDatabase(tmp_path / "agent.db")
    memory, fork = (SessionMemory(database, id, lambda: store) for id in (ID, OTHER))

    async def ask(system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
        return [{"type": "text", "text": "Nothing."}]

    forget_session(database, ID)
    inherit_session(database, OTHER, ID)
    assert memory.progress() == -1
    await memory.consolidate(ask, lambda *call: None, lambda report: None)
    inherit_session(database, OTHER, ID)
    assert (memory.progress(), fork.progress()) == (1, 1)
    forget_session(database, ID)
    assert (memory.progress(), fork.progress()) == (-1, 1)
