"""Distilling: the view stays small, nothing is lost, and a resumed session sees the same."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from parley.engine.context.history import estimate_tokens
from parley.memory.worker import LocalMemoryWorker
from parley.models.base import ModelRequest
from tests.helpers.session import Json, SessionHarness
from tests.session.memory.test_worker import CREATE, Held, Remembering, says, told

BUDGET = 2_000
REPEATS = 'at_end = "repeat"\n'


def harness(folder: Path, script: str, summaries: str, wishes: Json | None = None, **options: Any) -> Remembering:
    """A room whose model reads little; who writes summaries has a script, who looks after knowledge has none."""
    (folder / "summaries.toml").write_text(summaries)
    more = {"summaryModel": f"scripted:{folder / 'summaries.toml'}", "viewTokens": BUDGET, "consolidate": False}
    return Remembering(folder, script, "", {**more, **(wishes or {})}, **{"system_prompt": "Be brief.", **options})


def size(request: ModelRequest) -> int:
    return sum(estimate_tokens(block) for message in request.messages for block in message["content"])


def boundaries(harness: SessionHarness) -> list[Json]:
    return [line["compact_metadata"] for line in harness.messages("system") if line["subtype"] == "compact_boundary"]


async def prompted(harness: SessionHarness, *texts: str) -> Json:
    result: Json = {}
    for text in texts:
        harness.prompt(text)
        result = await harness.receive("result")
    return result


def numbered(count: int) -> list[str]:
    return [f"This is fact number{at}. " + "Some words about it. " * 20 for at in range(count)]


async def test_every_request_fits_and_what_is_old_is_reported_in_summaries_of_rising_order(tmp_path: Path) -> None:
    script = REPEATS + says("Yes. " * 60)

    async with harness(tmp_path, script, REPEATS + says("So it was. " * 30)) as here:
        await prompted(here, *numbered(60))
        row = boundaries(here)[-1]["distilled"]
        requests = here.asked("script.toml")
        first = requests[-1].messages[0]["content"]
    assert max(map(size, requests)) <= BUDGET
    assert max(each["order"] for each in row) > 1
    assert row[0]["first"] == 0
    assert all(one["order"] >= other["order"] for one, other in pairwise(row))
    assert "memory_search" in first[0]["text"]
    assert first[1]["text"].startswith(f"[Summary of order {row[0]['order']}, of the messages #0 to #")
    assert len(boundaries(here)) == len([line for line in here.messages("user") if line.get("isSynthetic")])


async def test_between_distillations_each_request_begins_with_the_one_before(tmp_path: Path) -> None:
    async with harness(tmp_path, REPEATS + says("Yes. " * 40), REPEATS + says("So it was.")) as here:
        await prompted(here, *numbered(30))
        requests = [plain(request) for request in here.asked("script.toml")]
        broken = sum(
            after["messages"][: len(before["messages"])] != before["messages"] for before, after in pairwise(requests)
        )
    assert broken == len(boundaries(here)) > 1
    assert len({json.dumps(request["system"]) for request in requests}) == 1


def plain(request: ModelRequest) -> Json:
    """Without the marker that moves on with every request."""
    messages = json.loads(json.dumps(request.messages))
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return {"messages": messages, "system": request.system}


async def test_a_resumed_session_sees_what_it_saw(tmp_path: Path) -> None:
    async with harness(tmp_path, REPEATS + says("Yes. " * 40), REPEATS + says("So it was.")) as here:
        await prompted(here, *numbered(25))
        before = here.session.conversation.build_request()
    async with harness(tmp_path, REPEATS + says("Yes."), REPEATS + says("It was."), resume=here.session.id) as again:
        assert again.session.conversation.build_request() == before
        await prompted(again, *numbered(25))
        row = boundaries(again)[-1]["distilled"]
    assert row[0]["first"] == 0
    assert any(each["order"] > 1 for each in row)


async def test_so_it_does_in_the_layout_of_the_original_and_without_a_memory(tmp_path: Path) -> None:
    place: Json = {"database": None, "memory": str(tmp_path / "other.db")}
    async with harness(tmp_path, REPEATS + says("Yes. " * 40), REPEATS + says("So."), **place) as here:
        await prompted(here, *numbered(25))
        before = here.session.conversation.build_request()
    async with harness(tmp_path, says("x"), says("x"), resume=here.session.id, **place) as again:
        assert again.session.conversation.build_request() == before
    async with harness(tmp_path, says("x"), says("x"), resume=here.session.id, database=None) as other:
        assert other.session.conversation.build_request().messages == before.messages


async def test_what_is_summarized_can_be_searched_and_read_word_for_word(tmp_path: Path) -> None:
    search = '[[turn]]\nwhen = "look"\ntools = [{name = "memory_search", input = {query = "number3"}}]\n'
    script = REPEATS + search + says("Yes. " * 60)

    async with harness(tmp_path, script, REPEATS + says("Of number3 among others. " * 9)) as here:
        await prompted(here, *numbered(60), "look it up")
        [detail] = [line["tool_use_result"] for line in here.messages("user") if "tool_use_result" in line]
        hit = detail["messages"][0]
        assert isinstance(here.session.memory_worker, LocalMemoryWorker)
        said = here.session.memory_worker.memory.messages(hit["seq"], hit["seq"])
    assert [line.text[:29] for line in said] == ["This is fact number3. Some wo"]


async def test_on_request_all_but_the_last_group_is_distilled_heeding_what_the_person_says(tmp_path: Path) -> None:
    async with harness(tmp_path, says("one", "two", "three"), says("Counted.")) as here:
        await prompted(here, "first", "second")
        result = await prompted(here, "/compact heed the numbers")
        await prompted(here, "third")
        [asked] = here.asked("summaries.toml")
        *_, last = here.asked("script.toml")
    assert result["local_command"] == "compact"
    assert "heed the numbers" in asked.messages[0]["content"][0]["text"]
    assert "[#0 user]\nfirst" in asked.messages[0]["content"][0]["text"]
    assert [message["role"] for message in last.messages] == ["user", "assistant", "user"]
    assert last.messages[0]["content"][1]["text"] == "[Summary of order 1, of the messages #0 to #5]\nCounted."


async def test_a_summary_that_is_too_long_is_cut_and_one_without_words_is_made_without_a_model(tmp_path: Path) -> None:
    script = says("word " * 2_000, "") + says("ok")

    async with harness(tmp_path, REPEATS + says("Yes. " * 60), script) as here:
        await prompted(here, *numbered(12))
        requests = here.asked("script.toml")
        texts = [block["text"] for block in requests[-1].messages[0]["content"]]
    assert max(map(size, requests)) <= BUDGET
    assert any("characters left out" in text for text in texts)


async def test_a_backend_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    refused = '[[turn]]\nerror = {status = 403, type = "permission_error", message = "no"}\n'

    async with harness(tmp_path, REPEATS + says("Yes. " * 300), refused * 2) as here:
        result: Json = {}
        for text in numbered(12):
            result = await prompted(here, text)
            if result["is_error"]:
                break
        count = len(here.session.journal.history.render())
    assert result["is_error"]
    assert "compacting it failed 2 times" in result["result"]
    assert boundaries(here) == []
    assert count > 5


async def test_an_interrupt_gives_it_up_and_nothing_has_changed(tmp_path: Path) -> None:
    slow = says("never", delay_ms=60_000)

    async with harness(tmp_path, says(*["Yes. " * 900] * 2, "on"), slow + says("So it was.")) as here:
        await prompted(here, *numbered(2))
        here.prompt("and?")
        await here.receive_until(lambda line: line.get("status") == "compacting")
        await here.request("interrupt")
        result = await here.receive("result")
        assert boundaries(here) == []
        after = await prompted(here, "go on")
    assert result["terminal_reason"] == "aborted_streaming"
    assert after["result"] == "on"
    assert len(boundaries(here)) == 1


async def test_unreviewed_messages_are_reviewed_first_and_no_one_waits(tmp_path: Path) -> None:
    wishes = {
        "summaryModel": f"scripted:{tmp_path / 'summaries.toml'}",
        "viewTokens": BUDGET,
        "trivialTokens": 1_000_000,
    }
    (tmp_path / "summaries.toml").write_text(REPEATS + says("So it was."))
    script = REPEATS + says("Yes. " * 60)
    async with Held(tmp_path, script, CREATE + says("Ok."), wishes, system_prompt="Be brief.") as here:
        while not boundaries(here):
            await prompted(here, numbered(1)[0])
        await here.waits.wait()
        assert not [line for line in here.lines if line.get("subtype") == "consolidation"]
        here.free.set()
        line = await here.receive("system", "consolidation")
    assert told(line)["entries_created"] == 1


async def test_tools_that_are_not_there_are_not_spoken_of(tmp_path: Path) -> None:
    denied: Json = {"disallowed_tools": ("memory_search",)}
    async with harness(tmp_path, says("one", "two", "three"), says("Counted."), **denied) as here:
        await prompted(here, "first", "second", "/compact", "third")
        *_, last = here.asked("script.toml")
    assert "memory_search" not in last.messages[0]["content"][0]["text"]
    assert "memory_read shows" in last.messages[0]["content"][0]["text"]


async def test_a_memory_that_cannot_be_written_does_not_end_the_turn(tmp_path: Path) -> None:
    place: Json = {"database": None, "memory": str(tmp_path / "broken.db")}
    (tmp_path / "broken.db").write_text("no database " * 100)
    async with harness(tmp_path, REPEATS + says("Yes. " * 60), REPEATS + says("So."), **place) as here:
        result = await prompted(here, *numbered(20))
    assert not result["is_error"]
    assert boundaries(here)
