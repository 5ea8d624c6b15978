"""The executable when an input is changed after a PreToolUse hook saw it: what runs is what every hook saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.hooks import matcher, permissions, register, results, specific, until_result
from tests.helpers.mcp import script
from tests.helpers.process import ProcessHarness

Json = dict[str, Any]
FREE = ("--permission-mode", "bypassPermissions")
ASKING = ("--permission-prompt-tool", "stdio")
TOUCH = {"command": "touch made"}
ALLOW_TOUCH = {"behavior": "allow", "updatedInput": TOUCH}
GUARD = "if grep -q touch; then echo 'no touching' >&2; exit 2; fi"
DENIED = "PreToolUse:Bash hook error: no touching"


def command(text: str, event: str = "PreToolUse") -> Json:
    return {"hooks": {event: [{"matcher": "Bash", "hooks": [{"type": "command", "command": text}]}]}}


def printing(output: Json, event: str = "PreToolUse") -> Json:
    return command(f"cat > /dev/null; echo '{json.dumps(output)}'", event)


async def run_bash(
    folder: Path,
    *argv: str,
    managed: Json,
    settings: Json | None = None,
    callbacks: Json | None = None,
    permission: Any = None,
    line: str = "mkdir seen",
) -> ProcessHarness:
    """One call of Bash; `callbacks` are the client's answers to hooks by event."""
    turns = script([("Bash", {"command": line})], "Done.")
    managed_settings = ("--managed-settings", json.dumps(managed))
    async with ProcessHarness(folder, turns, *argv, *managed_settings, settings=settings, IS_SANDBOX="1") as harness:
        await register(harness, {event: [matcher(event)] for event in callbacks or {}})
        harness.prompt("go")
        await until_result(harness, callbacks or {}, permission)
    return harness


WAYS: dict[str, tuple[tuple[str, ...], Json]] = {
    "a hook of --settings": (FREE, {"settings": printing(specific(updatedInput=TOUCH))}),
    "a callback": (FREE, {"callbacks": {"PreToolUse": specific(updatedInput=TOUCH)}}),
    "a callback that allows": (
        (),
        {"callbacks": {"PreToolUse": specific(permissionDecision="allow", updatedInput=TOUCH)}},
    ),
    "a PermissionRequest hook": ((), {"settings": printing(specific(decision=ALLOW_TOUCH), "PermissionRequest")}),
    "a PermissionRequest callback": ((), {"callbacks": {"PermissionRequest": specific(decision=ALLOW_TOUCH)}}),
    "the client": (ASKING, {"permission": ALLOW_TOUCH}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_hook_denies_the_input_that_another_one_sets(tmp_path: Path, way: str) -> None:
    argv, given = WAYS[way]

    harness = await run_bash(tmp_path, *argv, managed=command(GUARD), **given)

    assert results(harness) == [DENIED]
    assert permissions(harness) == [("deny", "hook")]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("way", WAYS)
async def test_a_changed_input_runs_if_no_hook_objects(tmp_path: Path, way: str) -> None:
    argv, given = WAYS[way]

    await run_bash(tmp_path, *argv, managed=command("cat >> seen.jsonl"), **given)

    seen = [json.loads(line)["tool_input"]["command"] for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    assert seen == ["mkdir seen", "touch made"]
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("answer", [{}, specific(updatedInput={"command": "mkdir seen"})])
async def test_hooks_run_once_if_the_input_stays_the_same(tmp_path: Path, answer: Json) -> None:
    permission = {"behavior": "allow", "updatedInput": {"command": "mkdir seen"}}
    managed, callbacks = command("cat >> seen.jsonl"), {"PreToolUse": answer}

    await run_bash(tmp_path, *ASKING, managed=managed, callbacks=callbacks, permission=permission)

    assert len((tmp_path / "seen.jsonl").read_text().splitlines()) == 1
    assert (tmp_path / "seen").is_dir()


async def test_the_hook_that_sets_the_input_does_not_see_it_again(tmp_path: Path) -> None:
    def wrap(input: Json) -> Json:
        return specific(permissionDecision="allow", updatedInput={"command": f"true; {input['tool_input']['command']}"})

    harness = await run_bash(tmp_path, managed={}, callbacks={"PreToolUse": wrap})

    assert permissions(harness) == [("allow", "hook")]
    assert (tmp_path / "seen").is_dir()


async def test_an_allow_does_not_hold_for_the_input_of_another_hook(tmp_path: Path) -> None:
    def allow_mkdir(input: Json) -> Json:
        is_mkdir = input["tool_input"]["command"].startswith("mkdir")
        return specific(permissionDecision="allow") if is_mkdir else {}

    harness = await run_bash(
        tmp_path,
        managed={},
        settings=printing(specific(updatedInput=TOUCH)),
        callbacks={"PreToolUse": allow_mkdir},
    )

    assert permissions(harness) == [("deny", "nobody")]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("layer", ["settings", "callbacks"])
async def test_the_input_of_a_managed_hook_wins(tmp_path: Path, layer: str) -> None:
    managed, own = printing(specific(updatedInput={"command": "echo safe"})), specific(updatedInput=TOUCH)
    given: Json = {"settings": printing(own)} if layer == "settings" else {"callbacks": {"PreToolUse": own}}

    harness = await run_bash(tmp_path, *FREE, managed=managed, **given)

    assert results(harness) == ["safe"]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("way", ["a callback", "the client"])
async def test_an_input_that_a_managed_hook_would_change_again_is_denied(tmp_path: Path, way: str) -> None:
    argv, given = WAYS[way]
    safe = json.dumps(specific(updatedInput={"command": "echo safe"}))

    harness = await run_bash(tmp_path, *argv, managed=command(f"if grep -q touch; then echo '{safe}'; fi"), **given)

    assert "changes it again" in results(harness)[0]
    assert not (tmp_path / "made").exists()


async def test_the_output_of_a_managed_hook_wins(tmp_path: Path) -> None:
    managed = printing(specific(updatedToolOutput="redacted"), "PostToolUse")
    callbacks = {"PostToolUse": specific(updatedToolOutput="not redacted")}

    harness = await run_bash(tmp_path, *FREE, managed=managed, callbacks=callbacks, line="echo secret")

    assert results(harness) == ["redacted"]
