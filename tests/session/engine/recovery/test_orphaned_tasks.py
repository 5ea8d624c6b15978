"""Background tasks across the end of an engine: each is reported once, whatever happened to it."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

from parley.engine.clock import Clock
from parley.engine.session.recover import TASK_LOST, Leftovers, report_tasks
from parley.engine.tasks.manager import PendingNotifications
from parley.protocol.base import Message, to_builtins
from parley.stores.base import Entry
from tests.helpers.session import Json, SessionHarness

BEGUN: Json = {"task_id": "b1", "run_id": "r1", "description": "A job", "status": "running", "output_file": "/o"}


async def reported(*messages: tuple[str, Json], is_read: bool = True) -> tuple[list[str], list[Json], list[Json]]:
    """The words for the model, the lines for the host, and what was put on record."""
    notes: list[Json] = []
    told: list[Message] = []
    ids = (f"u{number}" for number in count(1))
    found = Leftovers()
    for seq, (kind, message) in enumerate(messages):
        found.apply(Entry(seq=seq, kind=kind, at="", message=message))

    async def reached() -> bool:
        return is_read

    clock = Clock(new_uuid=lambda: next(ids), seconds=lambda: 1.0)
    owed = PendingNotifications(lambda kind, record: notes.append(record), told.append, reached)
    news = report_tasks(found.to_recovery(), clock, owed)
    await owed.close()
    return news, [to_builtins(line) for line in told], notes


def heard(*texts: str) -> tuple[str, Json]:
    return "user", {"uuid": "x", "message": {"content": [{"type": "text", "text": text} for text in texts]}}


async def test_a_task_that_never_ended_was_lost() -> None:
    news, told, notes = await reported(("task", BEGUN))

    assert "was lost" in news[0]
    assert [line["subtype"] for line in told] == ["task_updated", "task_notification"]
    end = {"task_id": "b1", "status": "failed", "notice": "u1", "text": news[0], "lines": told}
    assert notes == [end, {"task_id": "b1", "status": "failed", "told": told[1]["uuid"]}]


async def test_an_agent_that_was_lost_can_continue() -> None:
    [words], _, _ = await reported(("task", {**BEGUN, "task_type": "local_agent"}))
    assert "SendMessage to b1 resumes it." in words


async def test_news_that_had_no_turn_are_reported_later_and_those_that_had_one_are_not() -> None:
    end = {"task_id": "b1", "status": "completed", "notice": "n1", "text": "It is done."}

    assert (await reported(("task", BEGUN), ("task", end)))[0] == ["It is done."]
    assert (await reported(("task", BEGUN), ("task", end), ("user", {"uuid": "n1"})))[0] == []
    assert (await reported(("task", BEGUN), ("task", end), heard("Hello.", "It is done.")))[0] == []
    assert (await reported(("task", BEGUN), ("task", end), ("task", {**end, "notice": None, "known": ["n1"]})))[0] == []


async def test_a_notification_goes_to_the_host_once_and_to_the_model_until_it_knows() -> None:
    [words], _, notes = await reported(("task", BEGUN))
    later = [("task", BEGUN), *(("task", note) for note in notes)]

    assert await reported(*later) == ([words], [], [])
    assert await reported(*later, heard(words)) == ([], [], [])


async def test_lines_that_were_never_marked_as_sent_are_sent_again_unchanged() -> None:
    _, lines, notes = await reported(("task", BEGUN), is_read=False)
    [end] = notes
    words = heard(end["text"])

    assert await reported(("task", BEGUN), ("task", end), words) == (
        [],
        lines,
        [{"task_id": "b1", "status": "failed", "told": lines[1]["uuid"]}],
    )
    mark = {"task_id": "b1", "status": "failed", "told": lines[1]["uuid"]}
    assert await reported(("task", BEGUN), ("task", end), words, ("task", mark)) == ([], [], [])


async def test_a_task_that_began_again_is_open_whatever_was_reported_of_its_first_end() -> None:
    _, _, [end, mark] = await reported(("task", BEGUN))
    again = [("task", BEGUN), ("task", end), ("task", {**BEGUN, "run_id": "r2"}), ("task", mark)]
    assert [line["run_id"] for line in (await reported(*again))[1]] == ["r2", "r2"]


async def test_what_ended_in_the_moment_of_a_kill_is_reported_by_the_next_engine(tmp_path: Path) -> None:
    job = '{ name = "Bash", input = { command = "true", run_in_background = true, description = "job" } }'
    script = f'at_end = "repeat"\n[[turn]]\nwhen = "begin"\ntools = [{job}]\n[[turn]]\ntext = "Noted."\n'

    died = SessionHarness(tmp_path, script, skip_permissions=True)
    async with died:
        died.prompt("begin")
        await died.receive("result")
    [told] = [line for line in died.lines if line.get("subtype") == "task_notification"]
    [log] = (tmp_path / "home").rglob(f"{died.session.id}.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    [end] = [number for number, line in enumerate(lines) if '"lines":' in line]
    log.write_text("".join(lines[: end + 1]))  # as a kill behind the record, and before the line, leaves it
    for expected in ([told["uuid"]], []):
        harness = SessionHarness(tmp_path, script, skip_permissions=True, resume=died.session.id)
        async with harness:
            harness.prompt("on")
            await harness.receive("result")
        ends = [line for line in harness.lines if line.get("subtype") == "task_notification"]
        assert [line["uuid"] for line in ends] == expected
        assert all(line == {**told, "session_id": line["session_id"]} for line in ends)


async def test_twenty_tasks_that_end_in_any_order_are_each_reported_once(tmp_path: Path) -> None:
    waits = [(n * 7 % 20) / 50 for n in range(20)]
    calls = ", ".join(
        f'{{ name = "Bash", input = {{ command = "sleep {wait}", run_in_background = true, description = "{n}" }} }}'
        for n, wait in enumerate(waits)
    )
    script = f'at_end = "repeat"\n[[turn]]\nwhen = "go"\ntools = [{calls}]\n[[turn]]\ntext = "Noted."\n'

    harness = SessionHarness(tmp_path, script, skip_permissions=True)
    async with harness:
        harness.prompt("go")
        for _ in range(21):
            await harness.receive("result")
    notices = [line["task_id"] for line in harness.lines if line.get("subtype") == "task_notification"]
    runs = {line["run_id"]: line["task_id"] for line in harness.lines if line.get("subtype") == "task_started"}
    turns = [runs[line["origin"]["runId"]] for line in harness.messages("result") if "origin" in line]
    assert len(set(notices)) == len(notices) == 20
    assert turns == notices


async def test_tasks_of_an_engine_that_died_are_reported_when_the_session_continues(tmp_path: Path) -> None:
    job = '{ name = "Bash", input = { command = "sleep 600", run_in_background = true, description = "job" } }'
    script = f'at_end = "repeat"\n[[turn]]\nwhen = "begin"\ntools = [{job}, {job}]\n[[turn]]\ntext = "Noted."\n'

    died = SessionHarness(tmp_path, script, skip_permissions=True)
    async with died:
        died.prompt("begin")
        await died.receive("result")
        [log] = (tmp_path / "home").rglob(f"{died.session.id}.jsonl")
        left = log.read_bytes()  # as a kill would leave it: the end below writes more
        died.session.tasks.end()
    log.write_bytes(left)
    for expected in (2, 0):
        harness = SessionHarness(tmp_path, script, skip_permissions=True, resume=died.session.id)
        async with harness:
            harness.prompt("on")
            await harness.receive("result")
        lost = [line for line in harness.lines if line.get("subtype") == "task_notification"]
        assert [(line["status"], line["reason"]) for line in lost] == [("stopped", "worker_restart")] * expected
        updated = [line["patch"] for line in harness.lines if line.get("subtype") == "task_updated"]
        assert [(patch["status"], patch["error"]) for patch in updated] == [("killed", TASK_LOST)] * expected


async def test_news_that_a_hook_kept_from_the_model_come_with_the_next_turn(tmp_path: Path) -> None:
    job = '{ name = "Bash", input = { command = "sleep 600", run_in_background = true, description = "job" } }'
    script = f'at_end = "repeat"\n[[turn]]\nwhen = "begin"\ntools = [{job}]\n[[turn]]\ntext = "Noted."\n'

    died = SessionHarness(tmp_path, script, skip_permissions=True)
    async with died:
        died.prompt("begin")
        await died.receive("result")
        [log] = (tmp_path / "home").rglob(f"{died.session.id}.jsonl")
        left = log.read_bytes()
        died.session.tasks.end()
    log.write_bytes(left)
    blocking = {"hooks": [{"type": "command", "command": "grep -q blocked && exit 2 || exit 0"}]}
    hooks = json.dumps({"hooks": {"UserPromptSubmit": [blocking]}})
    harness = SessionHarness(tmp_path, script, skip_permissions=True, resume=died.session.id, settings=hooks)
    async with harness:
        for prompt in ("this is blocked", "this is not", "nor is this"):
            harness.prompt(prompt)
            await harness.receive("result")
    spoken = harness.session.journal.history.render()
    texts = [block.get("text", "") for one in spoken if one["role"] == "user" for block in one["content"]]
    assert sum("was lost" in text for text in texts) == 1
