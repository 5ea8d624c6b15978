"""Plan mode, with a real host: how it is entered, how the plan is shown, how it is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from parley.protocol.base import Json
from parley.tools.base import ToolOutput, Workspace, make_context
from parley.tools.planning import NOT_ALLOWED, EnterPlanMode, ExitPlanMode
from tests.helpers.session import SessionHarness
from tests.helpers.tools import ToolHarness

EXIT = "[[turn]]\ntools = [{ name = 'ExitPlanMode', id = 'toolu_p', input = { plan = '1. do' } }]\n"
EXIT_EMPTY = "[[turn]]\ntools = [{ name = 'ExitPlanMode', id = 'toolu_p', input = { allowedPrompts = [1] } }]\n"
ENTER = "[[turn]]\ntools = [{ name = 'EnterPlanMode', input = {} }]\n"
END = "[[turn]]\ntext = 'ok'\n"


def allow(request: Json) -> Json:
    return {"behavior": "allow", "updatedInput": request["input"]}


async def turn(harness: SessionHarness, answer: Callable[[Json], Json] = allow) -> list[Json]:
    """One turn in which the host answers every permission request; the lines of the turn."""
    started = len(harness.lines)
    harness.prompt("go")
    while (line := await harness.receive_until(lambda line: line["type"] in ("control_request", "result")))[
        "type"
    ] != "result":
        success = {"subtype": "success", "request_id": line["request_id"], "response": answer(line["request"])}
        harness.send({"type": "control_response", "response": success})
    return harness.lines[started:]


def modes(lines: list[Json]) -> list[str]:
    return [line["permissionMode"] for line in lines if line.get("subtype") == "status"]


def requests(lines: list[Json]) -> list[Json]:
    return [line["request"] for line in lines if line["type"] == "control_request"]


def results(lines: list[Json]) -> list[Json]:
    return [line for line in lines if line["type"] == "user"]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


async def in_plan_mode(folder: Path, script: str, answer: Callable[[Json], Json] = allow, **options: Any) -> list[Json]:
    given = {"permission_prompt_tool": "stdio", "permission_mode": "plan", **options}
    async with SessionHarness(folder, script + END, **given) as harness:
        return await turn(harness, answer)


async def test_an_approved_plan_ends_plan_mode_before_its_result(tmp_path: Path) -> None:
    lines = await in_plan_mode(tmp_path, EXIT)
    [request] = requests(lines)
    assert request == {
        "subtype": "can_use_tool",
        "tool_name": "ExitPlanMode",
        "display_name": "ExitPlanMode",
        "title": "Carry out this plan?",
        "input": {"plan": "1. do"},
        "input_sha256": "1170d79291aca5f4b83eafa3f89204e34868153e3110847e5c201dd4fd239919",
        "tool_use_id": "toolu_p",
        "requires_user_interaction": True,
    }
    assert modes(lines) == ["default"]
    [result] = results(lines)
    assert "The user approved your plan." in result["message"]["content"][0]["content"]
    assert result["tool_use_result"]["plan"] == "1. do"
    status = next(line for line in lines if line.get("subtype") == "status")
    assert lines.index(status) < lines.index(result)


async def test_a_rejected_plan_stays_in_plan_mode_with_the_reason(tmp_path: Path) -> None:
    lines = await in_plan_mode(tmp_path, EXIT, lambda request: {"behavior": "deny", "message": "revise it"})
    assert modes(lines) == []
    assert results(lines)[0]["message"]["content"][0]["content"] == "revise it"


async def test_a_plan_may_be_approved_together_with_the_mode_to_continue_in(tmp_path: Path) -> None:
    mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    lines = await in_plan_mode(tmp_path, EXIT, lambda request: {"behavior": "allow", "updatedPermissions": [mode]})

    assert modes(lines) == ["acceptEdits"]


async def test_the_model_receives_the_plan_as_the_user_changed_it(tmp_path: Path) -> None:
    lines = await in_plan_mode(
        tmp_path, EXIT, lambda request: {"behavior": "allow", "updatedInput": {"plan": "2. do less"}}
    )
    [result] = results(lines)
    text = result["message"]["content"][0]["content"]
    assert "changed your plan" in text
    assert text.endswith("2. do less")
    assert result["tool_use_result"]["planWasEdited"] is True


async def test_the_plan_file_is_used_if_the_call_has_no_plan(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[Json], str]:
        given: Json = {"permission_prompt_tool": "stdio", "permission_mode": "plan"}
        async with SessionHarness(tmp_path, EXIT_EMPTY + END, **given) as harness:
            path = str(harness.session.config.workspace.plan_file)
            write(path, "# From the file\n")
            return await turn(harness), path

    lines, path = await scenario()
    assert path == str(tmp_path / "home/.claude/plans" / Path(path).name)
    [request] = requests(lines)
    assert request["input"] == {"allowedPrompts": [1], "plan": "# From the file\n", "planFilePath": path}
    detail = results(lines)[0]["tool_use_result"]
    assert detail == {"plan": "# From the file\n", "isAgent": False, "filePath": path}


async def test_a_plan_written_in_the_same_breath_is_shown(tmp_path: Path) -> None:
    plans = tmp_path / "home/.claude/plans"
    path = plans / "00000000-0000-4000-8000-000000000001.md"
    write = f"{{ name = 'Write', input = {{ file_path = '{path}', content = 'soon' }} }}"
    both = f"[[turn]]\ntools = [{write}, {{ name = 'ExitPlanMode', input = {{}} }}]\n"
    [request] = requests(await in_plan_mode(tmp_path, both, session_id=path.stem))  # the plan file may be written
    assert request["input"] == {"plan": "soon", "planFilePath": str(path)}


async def test_without_a_plan_the_host_is_asked_all_the_same(tmp_path: Path) -> None:
    lines = await in_plan_mode(tmp_path, EXIT_EMPTY)
    assert requests(lines)[0]["input"] == {"allowedPrompts": [1]}
    assert results(lines)[0]["tool_use_result"]["plan"] is None
    assert results(lines)[0]["message"]["content"][0]["content"].endswith(NOT_ALLOWED)
    assert modes(lines) == ["default"]


async def test_a_model_that_starts_in_plan_mode_is_informed(tmp_path: Path) -> None:
    given: Json = {"permission_prompt_tool": "stdio", "permission_mode": "plan"}
    async with SessionHarness(tmp_path, END, **given) as harness:
        await turn(harness)
        result = str(harness.session.conversation.build_request().system)

    assert "plan mode" in result


@pytest.mark.parametrize("before", ["default", "acceptEdits", "bypassPermissions"])
async def test_plan_mode_is_entered_and_left_for_the_mode_before_it(tmp_path: Path, before: str) -> None:
    lines = await in_plan_mode(tmp_path, ENTER + EXIT, permission_mode=before)
    assert modes(lines) == ["plan", before]
    entered = results(lines)[0]
    assert entered["tool_use_result"] == {"message": entered["message"]["content"][0]["content"]}
    assert ".claude/plans/" in entered["tool_use_result"]["message"]


async def test_the_mode_before_is_also_known_when_the_host_set_plan_mode(tmp_path: Path) -> None:
    given: Json = {"permission_prompt_tool": "stdio", "permission_mode": "acceptEdits"}
    async with SessionHarness(tmp_path, EXIT + END, **given) as harness:
        await harness.request("set_permission_mode", mode="plan")
        result = await turn(harness)

    assert modes(result) == ["acceptEdits"]


async def test_a_plan_presented_outside_plan_mode_changes_no_mode(tmp_path: Path) -> None:
    lines = await in_plan_mode(tmp_path, EXIT, permission_mode="acceptEdits")
    assert len(requests(lines)) == 1
    assert modes(lines) == []


def test_a_plan_file_that_cannot_be_read_is_not_a_plan(tmp_path: Path) -> None:
    harness = ToolHarness(tmp_path)
    harness.change(plan_file=str(harness.folder))
    assert ExitPlanMode().prepare({"plan": ""}, harness.context) == {}


def test_without_a_session_no_mode_can_be_entered(tmp_path: Path) -> None:
    harness = ToolHarness(tmp_path)
    assert "cannot be changed" in harness.refusal(EnterPlanMode())
    left = harness.call(ExitPlanMode())
    assert left == ToolOutput(
        content="The user agreed to leave plan mode. You may make changes now.",
        detail={"plan": None, "isAgent": False},
    )


@given(some.dictionaries(some.sampled_from(["plan", "planFilePath", "x"]), some.none() | some.text() | some.integers()))
def test_no_input_is_too_strange_to_be_prepared(input: Json) -> None:
    workspace = Workspace(environment={}, files=None, processes=None, results_folder=Path("/"), new_id=str)  # type: ignore[arg-type]  # not used
    context = make_context(workspace, "/")
    assert ExitPlanMode().prepare(input, context).get("plan") == (input.get("plan") or None)
