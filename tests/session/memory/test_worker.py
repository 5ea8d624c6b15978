"""What is remembered of a conversation: when it is looked through, what is told of it, and what stops it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Self

import pytest

from parley.engine.session.config import SessionConfig
from parley.errors import UsageError
from parley.memory.base import CURATOR, EntrySource, KnowledgeEntry
from parley.memory.knowledge_tree import KnowledgeTree, MemoryDatabase
from parley.models.base import Model, ModelRequest
from parley.models.catalog import ModelRef
from tests.helpers.session import Json, SessionHarness

LONG = "My sister Ada keeps bees on a roof in Turin. " * 50


def says(*texts: str, **fields: Any) -> str:
    more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
    return "".join(f"[[turn]]\ntext = {json.dumps(text)}\n{more}" for text in texts)


def calls(tool: str, **input: Any) -> str:
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in input.items())
    return f'[[turn]]\ntools = [{{ name = "{tool}", input = {{ {given} }}, id = "{tool}-{input.get("slug")}" }}]\n'


class Remembering(SessionHarness):
    """A room with a memory, whose curator has a script of its own."""

    def __init__(self, folder: Path, script: str, curator: str, wishes: Json | None = None, **options: Any) -> None:
        (folder / "curator.toml").write_text(curator)
        settings = {"memory": {"model": f"scripted:{folder / 'curator.toml'}", **(wishes or {})}}
        self.place = folder / "agent.db"
        super().__init__(folder, script, **{"database": str(self.place), "settings": json.dumps(settings), **options})
        self.requests: list[tuple[str, ModelRequest]] = []

    def furnish(self, setup: SessionConfig) -> SessionConfig:
        def opened(choice: ModelRef) -> Model:
            return Watched(setup.model.open(choice), choice.display_name, self.requests)

        return setup.with_model_opener(opened)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    @property
    def tree(self) -> KnowledgeTree:
        return KnowledgeTree(MemoryDatabase(self.place), str)

    def asked(self, script: str) -> list[ModelRequest]:
        return [request for name, request in self.requests if name.endswith(script)]


class Watched:
    def __init__(self, model: Model, name: str, requests: list[tuple[str, ModelRequest]]) -> None:
        self._model, self._name, self._requests = model, name, requests

    def stream(self, request: ModelRequest) -> Any:
        self._requests.append((self._name, request))
        return self._model.stream(request)

    async def close(self) -> None:
        await self._model.close()


CREATE = calls("memory_create", slug="ada", title="Ada", body="Keeps bees in Turin.", sources=[0])


def told(line: Json) -> Json:
    return {name: value for name, value in line.items() if name not in ("session_id", "type", "subtype")}


TOOLS = [f"memory_{name}" for name in ("create", "update", "archive", "search", "read")]
NOTHING = {"entries_created": 0, "entries_updated": 0, "entries_archived": 0}


async def test_after_a_turn_what_was_said_is_looked_through(tmp_path: Path) -> None:
    async with Remembering(tmp_path, says("How nice."), CREATE + says("Noted Ada.")) as harness:
        harness.prompt(LONG)
        result = await harness.receive("result")
        line = await harness.receive("system", "consolidation")
        [first, second] = harness.asked("curator.toml")
    assert told(line) == {**NOTHING, "entries_created": 1, "summary": "Noted Ada."}
    assert line["session_id"] == result["session_id"]
    entry = harness.tree.get("ada")
    assert entry == KnowledgeEntry(
        slug="ada",
        version=1,
        parent=None,
        title="Ada",
        body="Keeps bees in Turin.",
        sources=(EntrySource(session=harness.session.id, seq=0, uuid=prompt_uuid(harness, 0)),),
        at=entry.at if entry else "",
        author=CURATOR,
    )
    text = first.messages[0]["content"][0]["text"]
    assert "[#0 user, " in text
    assert "[#2 assistant, " in text
    assert [tool["name"] for tool in first.tools] == TOOLS
    assert second.messages[-1]["content"][0]["content"] == "'ada' was created, at version 1."


def prompt_uuid(harness: SessionHarness, seq: int) -> str:
    return next(line.uuid for line in harness.session.journal.history.list_entries() if line.seq == seq)


async def test_what_is_too_little_waits_for_more_and_nothing_is_passed_over(tmp_path: Path) -> None:
    memory = {"trivialTokens": 30}
    async with Remembering(tmp_path, says("one", "two", "three"), says("Nothing."), memory) as harness:
        for text in ("I am Grace.", "I live in Rome.", "x" * 200):
            harness.prompt(text)
            await harness.receive("result")
        line = await harness.receive("system", "consolidation")
        [request] = harness.asked("curator.toml")
    assert told(line) == {**NOTHING, "summary": "Nothing."}
    text = request.messages[0]["content"][0]["text"]
    assert all(words in text for words in ("I am Grace.", "I live in Rome.", "three"))


async def test_what_was_looked_through_is_not_looked_through_again(tmp_path: Path) -> None:
    async with Remembering(tmp_path, says("one"), says("Nothing.")) as harness:
        harness.prompt(LONG)
        await harness.receive("system", "consolidation")
    async with Remembering(tmp_path, says("two"), says("Again nothing."), resume=harness.session.id) as again:
        again.prompt("Rome " * 500)
        await again.receive("system", "consolidation")
        [request] = again.asked("curator.toml")
    text = request.messages[0]["content"][0]["text"]
    assert "Rome" in text
    assert "bees" not in text


async def test_the_line_is_sent_even_after_a_failure_and_the_next_run_resumes(tmp_path: Path) -> None:
    refused = '[[turn]]\nerror = {status = 403, type = "permission_error", message = "no"}\n'

    async with Remembering(tmp_path, says("one", "two"), CREATE + refused + says("Done.")) as harness:
        harness.prompt(LONG)
        failed = await harness.receive("system", "consolidation")
        harness.prompt(LONG)
        await harness.receive("result")
        again = await harness.receive("system", "consolidation")
    assert told(failed) == {**NOTHING, "entries_created": 1, "summary": "It failed: no"}
    assert told(again) == {**NOTHING, "summary": "Done."}
    assert harness.warnings == []


async def test_one_that_cannot_be_asked_is_not_asked_after_every_turn(tmp_path: Path) -> None:
    refused = '[[turn]]\nerror = {status = 403, type = "permission_error", message = "no"}\n'

    async with Remembering(tmp_path, says("one", "two", "three", "four"), refused * 9) as harness:
        for _ in range(4):
            harness.prompt(LONG)
            await harness.receive("result")
            assert harness.session.memory_worker is not None
            await harness.session.memory_worker.wait_idle(60)
    # At 1, 2 and 4 times what is enough by itself.
    assert len([line for line in harness.lines if line.get("subtype") == "consolidation"]) == 3


async def test_a_call_for_the_memory_holds_up_no_call_of_a_turn_where_money_is_counted(tmp_path: Path) -> None:
    async with Held(tmp_path, says("one", "two"), says("Nothing."), max_budget_usd=5.0) as harness:
        harness.prompt(LONG)
        await harness.receive("result")
        await harness.waits.wait()
        harness.prompt("and?")
        assert (await harness.receive("result"))["result"] == "two"
        harness.free.set()
        await harness.receive("system", "consolidation")


def test_a_model_that_can_never_be_asked_is_reported_at_the_start(tmp_path: Path) -> None:
    for key in ("model", "summaryModel"):
        with pytest.raises(UsageError, match=r"cannot read script .*missing.toml"):
            Remembering(tmp_path, says("one"), "", {key: "scripted:missing.toml"}).composed()


async def test_a_fork_is_not_looked_through_once_more(tmp_path: Path) -> None:
    async with Remembering(tmp_path, says("one"), says("Nothing.")) as harness:
        harness.prompt(LONG)
        await harness.receive("system", "consolidation")
    fork: Json = {
        "resume": harness.session.id,
        "fork_session": True,
        "session_id": "6f1c2a34-5b6d-4e7f-8a9b-0c1d2e3f4a5b",
    }
    async with Remembering(tmp_path, says("two"), says("Again nothing."), **fork) as other:
        other.prompt("Rome " * 500)
        await other.receive("system", "consolidation")
        [request] = other.asked("curator.toml")
    assert "bees" not in request.messages[0]["content"][0]["text"]


async def test_what_was_said_in_a_turn_that_failed_waits_for_the_next(tmp_path: Path) -> None:
    refused = '[[turn]]\nerror = {status = 403, type = "permission_error", message = "no"}\n'

    async with Remembering(tmp_path, refused + says("two"), says("Nothing.")) as harness:
        harness.prompt(LONG)
        assert (await harness.receive("result"))["is_error"]
        harness.prompt("and?")
        await harness.receive("system", "consolidation")
        [request] = harness.asked("curator.toml")
    assert "bees" in request.messages[0]["content"][0]["text"]


async def test_a_curator_that_never_ends_is_stopped_after_its_calls(tmp_path: Path) -> None:
    script = 'at_end = "repeat"\n' + calls("memory_search", query="bees")

    async with Remembering(tmp_path, says("one"), script, {"maxCalls": 3}) as harness:
        harness.prompt(LONG)
        line = await harness.receive("system", "consolidation")
    assert told(line) == {**NOTHING, "summary": "The curator was stopped after 3 calls."}
    assert len(harness.asked("curator.toml")) == 3


async def test_a_curator_updates_archives_and_receives_what_it_did_wrong(tmp_path: Path) -> None:
    steps = [
        CREATE,
        calls("memory_create", slug="bo", title="Bo", body="A dog.", sources=[2]),
        calls("memory_create", slug="ada", title="Ada", body="Once more.", sources=[0]),
        calls("memory_create", slug="cy", title="Cy", body="Nobody.", sources=[77]),
        calls("memory_update", slug="ada", version=1, body="Moved to Rome.", sources=[2]),
        calls("memory_archive", slug="bo", version=1),
        calls("memory_read", slug="ada"),
        calls("memory_search", query="rome"),
        calls("memory_burn", slug="ada"),
        calls("memory_read", slug=7),
        says("Done."),
    ]

    async with Remembering(tmp_path, says("one"), "".join(steps)) as harness:
        harness.prompt(LONG)
        line = await harness.receive("system", "consolidation")
        *_, last = harness.asked("curator.toml")
        decided = [entry for entry in harness.session.config.storage.log.entries() if entry.kind == "permission"]
    assert told(line) == {**NOTHING, "entries_created": 2, "entries_archived": 1, "summary": "Done."}
    answers = [message["content"][0] for message in last.messages[2::2]]
    problems = [answer["content"] for answer in answers if answer.get("is_error")]
    assert problems == [
        "the entry 'ada' already exists, at version 1: update it instead of creating it",
        "#77 is not in this excerpt: use only the message numbers that the excerpt shows",
        f"unknown tool 'memory_burn' (choose from {', '.join(TOOLS)})",
        "Expected `str`, got `int` - at `$.slug`",
    ]
    assert "Moved to Rome." in answers[6]["content"]
    assert "Moved to Rome." in answers[7]["content"]
    entry = harness.tree.get("ada")
    assert entry is not None
    assert [source.seq for source in entry.sources] == [0, 2]
    assert {entry.message["source"] for entry in decided} == {"memory"}
    assert len({entry.message["input_sha256"] for entry in decided}) == 8


async def test_it_holds_up_no_turn(tmp_path: Path) -> None:
    """The curator's first answer comes only when the second turn has ended: its cue is in none of its messages."""

    async with Held(tmp_path, says("one", "two"), says("Nothing.")) as harness:
        harness.prompt(LONG)
        await harness.receive("result")
        harness.prompt("and?")
        assert (await harness.receive("result"))["result"] == "two"
        assert not [line for line in harness.lines if line.get("subtype") == "consolidation"]
        harness.free.set()
        assert told(await harness.receive("system", "consolidation")) == {**NOTHING, "summary": "Nothing."}


class Held(Remembering):
    """Whose curator is only answered once it is let go."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.free = asyncio.Event()
        self.waits = asyncio.Event()

    def furnish(self, setup: SessionConfig) -> SessionConfig:
        held = super().furnish(setup)

        def opened(choice: ModelRef) -> Model:
            model = held.model.open(choice)
            return Slow(model, self) if choice.display_name.endswith("curator.toml") else model

        return held.with_model_opener(opened)


class Slow:
    def __init__(self, model: Model, harness: Held) -> None:
        self._model, self._room = model, harness

    async def stream(self, request: ModelRequest) -> Any:
        self._room.waits.set()
        await self._room.free.wait()
        async for event in self._model.stream(request):
            yield event

    async def close(self) -> None:
        await self._model.close()


RPC = {"jsonrpc": "2.0", "id": 1}
INTERRUPTED = {**NOTHING, "summary": "Interrupted; the rest is done next time."}


async def test_an_interrupt_stops_it_and_the_line_is_still_sent(tmp_path: Path) -> None:
    async with Held(tmp_path, says("one", "two"), says("Nothing.")) as harness:
        harness.prompt(LONG)
        await harness.receive("result")
        await harness.waits.wait()
        assert (await harness.request("interrupt"))["response"]["subtype"] == "success"
        assert told(await harness.receive("system", "consolidation")) == INTERRUPTED
        harness.free.set()
        harness.prompt("and?")
        assert (await harness.receive("result"))["result"] == "two"
        assert told(await harness.receive("system", "consolidation")) == {**NOTHING, "summary": "Nothing."}


@pytest.mark.parametrize(
    ("dialect", "lines"),
    [
        ("miriad", [{"type": "user", "message": {"content": LONG}}, {"type": "control", "action": "interrupt"}]),
        ("jsonrpc", [{**RPC, "method": "run", "params": {"prompt": LONG}}, {**RPC, "method": "cancel"}]),
    ],
)
async def test_an_interrupt_of_the_other_dialects_stops_it_though_no_turn_runs(
    tmp_path: Path, dialect: str, lines: list[Json]
) -> None:
    async with Held(tmp_path, says("one"), says("Nothing."), dialect=dialect) as harness:
        harness.send(lines[0])
        await harness.receive("result")
        await harness.waits.wait()
        harness.send(lines[1])
        refused = await harness.receive_until(lambda line: "error" in (line.get("subtype"), *line))
        assert "No " in json.dumps(refused)
        told = await harness.receive("system")
        assert told.get("result", told)["summary"] == INTERRUPTED["summary"]
        assert harness.lines[-2:] == [refused, told]


async def test_at_the_end_of_the_input_it_is_waited_for(tmp_path: Path) -> None:
    harness = Remembering(tmp_path, says("one"), CREATE + says("Noted."))
    async with harness:
        harness.prompt(LONG)
        await harness.receive("result")
    assert told(harness.lines[-1]) == {**NOTHING, "entries_created": 1, "summary": "Noted."}


async def test_it_is_waited_for_no_longer_than_for_other_work_in_the_background(tmp_path: Path) -> None:
    harness = Held(tmp_path, says("one"), says("Nothing."))
    harness.environment["CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS"] = "50"
    async with harness:
        harness.prompt(LONG)
        await harness.waits.wait()
    assert told(harness.lines[-1]) == INTERRUPTED


async def test_what_it_costs_is_on_the_bill(tmp_path: Path) -> None:
    used = {"input_tokens": 1000, "output_tokens": 10}
    script = f"[[turn]]\ntext = 'Nothing.'\nusage = {{ input_tokens = {used['input_tokens']}, output_tokens = 10 }}\n"

    async with Remembering(tmp_path, says("one", "two"), script) as harness:
        harness.prompt(LONG)
        first = await harness.receive("result")
        await harness.receive("system", "consolidation")
        harness.prompt("and?")
        second = await harness.receive("result")
    curator = f"scripted:{tmp_path / 'curator.toml'}"
    assert curator not in first["modelUsage"]
    assert second["modelUsage"][curator]["inputTokens"] == 1000
    assert second["usage"]["input_tokens"] < 1000


async def test_a_spent_budget_is_reported(tmp_path: Path) -> None:
    async with Remembering(tmp_path, says("one"), says("Nothing."), max_budget_calls=1) as harness:
        harness.prompt(LONG)
        line = await harness.receive("system", "consolidation")
    assert line["summary"].startswith("It failed: Reached")
    assert harness.asked("curator.toml") == []


@pytest.mark.parametrize(
    ("memory", "options"),
    [
        ({"consolidate": False}, {}),
        ({"enabled": False}, {}),
        ({}, {"memory": "off"}),
        ({}, {"database": None}),
    ],
)
async def test_who_does_not_want_it_has_none(tmp_path: Path, memory: Json, options: Json) -> None:
    async with Remembering(tmp_path, says("one"), says("Nothing."), memory, **options) as harness:
        harness.prompt(LONG)
        await harness.receive("result")
        tools = next(harness.messages("system"))["tools"]
    assert not [line for line in harness.lines if line.get("subtype") == "consolidation"]
    assert ("memory_search" in tools) == (memory == {"consolidate": False})


async def test_a_fake_model_is_not_asked_unless_it_is_named(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, says("one"), database=str(tmp_path / "a.db")) as harness:
        harness.prompt(LONG)
        await harness.receive("result")
    assert [line["type"] for line in harness.lines] == ["system", "assistant", "result"]


async def test_any_store_may_have_a_memory(tmp_path: Path) -> None:
    search = '[[turn]]\ntools = [{name = "memory_search", input = {query = "bees roof"}}]\n'
    script = says("one") + search + says("two")
    async with Remembering(tmp_path, script, CREATE + says("Ok."), database=None, memory="") as harness:
        harness.prompt(LONG)
        await harness.receive("system", "consolidation")
        harness.prompt("What of the bees?")
        await harness.receive("result")
        results = [line["tool_use_result"] for line in harness.messages("user") if "tool_use_result" in line]
    [place] = (tmp_path / "home/.claude/projects").glob("*/memory.db")
    assert [entry.slug for entry in KnowledgeTree(MemoryDatabase(place), str).entries()] == ["ada"]
    assert [(result["entries"], result["messages"][0]["seq"]) for result in results] == [(["ada"], 0)]


async def test_the_next_session_begins_with_what_is_known(tmp_path: Path) -> None:
    async with Remembering(tmp_path, says("one"), CREATE + says("Ok.")) as harness:
        harness.prompt(LONG)
        await harness.receive("system", "consolidation")
    other_id = "6f1c2a34-5b6d-4e7f-8a9b-0c1d2e3f4a5b"
    async with Remembering(tmp_path, says("two"), says("Ok."), session_id=other_id) as other:
        other.prompt("hello")
        await other.receive("result")
        [request] = other.asked("script.toml")
    assert "- ada: Ada" in request.system[-1]["text"]


async def test_secrets_reach_neither_the_curator_nor_the_tree(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "a1B2" * 10
    create = calls("memory_create", slug="key", title="Key", body=f"It is {key}", sources=[0])

    async with Remembering(tmp_path, says("one"), create + says("Ok.")) as harness:
        harness.prompt(f"The key is {key}. {LONG}")
        await harness.receive("system", "consolidation")
        [request, _] = harness.asked("curator.toml")
    assert key not in request.messages[0]["content"][0]["text"]
    entry = harness.tree.get("key")
    assert entry is not None
    assert entry.body == "It is [redacted]"


async def test_the_client_is_told_which_memories_the_model_reads(tmp_path: Path) -> None:
    own = says("one") + calls("memory_read", slug="ada") + calls("memory_read", slug="nobody") + says("two")
    async with Remembering(tmp_path, own, CREATE + says("Noted.")) as harness:
        harness.prompt(LONG)
        await harness.receive("system", "consolidation")
        entry = harness.tree.get("ada")
        harness.prompt("Who is Ada?")
        await harness.receive("result")
        session_id = harness.session.id
    assert entry is not None
    [recall] = [line for line in harness.messages("system") if line["subtype"] == "memory_recall"]
    assert {key: recall[key] for key in recall if key != "uuid"} == {
        "type": "system",
        "subtype": "memory_recall",
        "mode": "select",
        "memories": [{"path": "<memory:ada>", "scope": "personal", "content": entry.body}],
        "session_id": session_id,
    }
    assert recall["uuid"]
