"""The task tools: one board a session, with tasks that wait for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from parley.errors import ToolError
from parley.protocol.base import Json
from parley.tools.base import InvalidInput, ToolOutput
from parley.tools.work_list import TaskBoard, TaskCreate, TaskGet, TaskList, TaskUpdate
from tests.helpers.tools import ToolHarness


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


def create(harness: ToolHarness, *subjects: str) -> None:
    for subject in subjects:
        harness.call(TaskCreate(), subject=subject, description=f"about {subject}")


def update(harness: ToolHarness, id: str, **fields: Any) -> Json:
    detail: Json = harness.call(TaskUpdate(), taskId=id, **fields).detail
    return detail


def listed(harness: ToolHarness) -> str:
    return str(harness.call(TaskList()).content)


def get(harness: ToolHarness, id: str) -> Json:
    task: Json = harness.call(TaskGet(), taskId=id).detail["task"]
    return task


def test_a_task_is_made_listed_and_shown(harness: ToolHarness) -> None:
    made = harness.call(TaskCreate(), subject="Do it", description="desc", activeForm="Doing it")
    assert made == ToolOutput(
        content="Task #1 was created: Do it", detail={"task": {"id": "1", "subject": "Do it", "description": "desc"}}
    )
    row = {"id": "1", "subject": "Do it", "status": "pending", "blockedBy": []}
    assert harness.call(TaskList()) == ToolOutput(content="#1 [pending] Do it", detail={"tasks": [row]})
    assert get(harness, "1") == {**row, "description": "desc", "blocks": []}


def test_there_may_be_no_tasks(harness: ToolHarness) -> None:
    assert harness.call(TaskList()) == ToolOutput(content="There are no tasks.", detail={"tasks": []})


def test_a_change_reports_what_it_changed(harness: ToolHarness) -> None:
    create(harness, "a")
    detail = update(harness, "1", status="in_progress", subject="A", owner="me", metadata={"k": 1})
    assert detail == {
        "success": True,
        "taskId": "1",
        "updatedFields": ["subject", "owner", "metadata", "status"],
        "statusChange": {"from": "pending", "to": "in_progress"},
    }
    assert listed(harness) == "#1 [in_progress] A (me)"
    assert update(harness, "#1", status="in_progress", subject="A")["updatedFields"] == []


def test_null_removes_a_key_of_the_metadata(harness: ToolHarness) -> None:
    harness.call(TaskCreate(), subject="a", description="about a", metadata={"k": 1, "l": 2})
    assert TaskBoard.of(harness.context).tasks["1"].metadata == {"k": 1, "l": 2}
    update(harness, "1", metadata={"k": None, "m": 3})
    assert TaskBoard.of(harness.context).tasks["1"].metadata == {"l": 2, "m": 3}


def test_a_task_waits_until_what_blocks_it_is_done(harness: ToolHarness) -> None:
    create(harness, "a", "b", "c")
    assert update(harness, "1", addBlocks=["2"])["updatedFields"] == ["blocks"]
    assert update(harness, "3", addBlockedBy=["1", "2"])["updatedFields"] == ["blockedBy"]
    assert listed(harness) == "#1 [pending] a\n#2 [pending] b [waits for #1]\n#3 [pending] c [waits for #1, #2]"
    update(harness, "1", status="completed")
    assert listed(harness) == "#1 [completed] a\n#2 [pending] b\n#3 [pending] c [waits for #2]"
    assert (get(harness, "1")["blocks"], get(harness, "3")["blockedBy"]) == (["2", "3"], ["1", "2"])
    assert str(harness.call(TaskGet(), taskId="2").content).endswith("It waits for #1\nIt is waited for by #3")


def test_a_tie_that_is_there_already_changes_nothing(harness: ToolHarness) -> None:
    create(harness, "a", "b")
    update(harness, "1", addBlocks=["2"])
    assert update(harness, "2", addBlockedBy=["1"])["updatedFields"] == []
    assert get(harness, "2")["blockedBy"] == ["1"]


@pytest.mark.parametrize("ties", [{"addBlocks": ["1"]}, {"addBlockedBy": ["3"]}, {"addBlocks": ["4", "2"]}])
def test_a_circle_is_refused_and_leaves_the_board_as_it_was(harness: ToolHarness, ties: Json) -> None:
    create(harness, "a", "b", "c", "d")
    update(harness, "1", addBlocks=["2"])
    update(harness, "2", addBlocks=["3"])
    before = listed(harness)
    with pytest.raises(ToolError, match="cannot wait"):
        update(harness, "3" if "addBlocks" in ties else "1", subject="new", **ties)
    assert listed(harness) == before


def test_a_deleted_task_is_gone_and_no_one_waits_for_it(harness: ToolHarness) -> None:
    create(harness, "a", "b")
    update(harness, "1", addBlocks=["2"])
    assert update(harness, "1", status="deleted")["statusChange"] == {"from": "pending", "to": "deleted"}
    assert listed(harness) == "#2 [pending] b"
    assert get(harness, "2")["blockedBy"] == []
    create(harness, "c")
    assert listed(harness) == "#2 [pending] b\n#3 [pending] c"


def test_a_task_that_is_not_there_is_refused_with_those_that_are(harness: ToolHarness) -> None:
    create(harness, "a")
    assert harness.refusal(TaskUpdate(), taskId="9") == "There is no task #9. The tasks are: #1."
    assert harness.refusal(TaskUpdate(), taskId="1", addBlocks=["9"]) == "There is no task #9. The tasks are: #1."
    missing = harness.call(TaskGet(), taskId="9")
    assert missing == ToolOutput(content="There is no task #9.", detail={"task": None})


def test_a_status_no_one_knows_is_refused(harness: ToolHarness) -> None:
    create(harness, "a")
    with pytest.raises(InvalidInput):
        update(harness, "1", status="done")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(ties=some.lists(some.tuples(some.integers(1, 6), some.integers(1, 6)), max_size=20))
def test_whatever_is_tied_some_task_waits_for_nothing(ties: list[tuple[int, int]]) -> None:
    board = TaskBoard()
    for number in range(6):
        board.add({"subject": str(number), "description": ""})
    for first, then in ties:
        try:
            board.add_dependency(board.find(str(first)), board.find(str(then)))
        except ToolError:
            continue
    left = dict(board.tasks)
    while left:
        free = [id for id, task in left.items() if not set(task.blocked_by) & set(left)]
        assert free
        for id in free:
            del left[id]
