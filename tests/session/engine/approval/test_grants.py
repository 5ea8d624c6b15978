"""What was granted for a session counts again when it is resumed, and never comes to mean more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from tests.helpers.session import Json, SessionHarness

SESSION = "00000000-0000-4000-8000-00000000000a"
DENY = {"behavior": "deny", "message": "no"}


def touch(name: str) -> str:
    call = f"{{ name = 'Bash', id = 'call_{name}', input = {{ command = 'touch {name}' }} }}"
    return f"[[turn]]\ntools = [{call}]\n[[turn]]\ntext = 'Done.'\n"


def write(path: str) -> str:
    call = f"{{ name = 'Write', id = 'w', input = {{ file_path = '{path}', content = 'x' }} }}"
    return f"[[turn]]\ntools = [{call}]\n[[turn]]\ntext = 'Done.'\n"


def rules(*contents: str, behavior: str = "allow", kind: str = "addRules", destination: str = "session") -> Json:
    listed = [{"toolName": "Bash", "ruleContent": content} for content in contents]
    return {"type": kind, "rules": listed, "behavior": behavior, "destination": destination}


async def scenario(
    folder: Path,
    script: str,
    answer: Json = DENY,
    before: Callable[[SessionHarness], Awaitable[Any]] | None = None,
    home: Path | None = None,
    **options: Any,
) -> SessionHarness:
    """One turn; the host gives the same answer to every question."""

    folder.mkdir(exist_ok=True)

    harness = SessionHarness(folder, script, permission_prompt_tool="stdio", **options)
    harness.environment["HOME"] = str(home or folder / "home")
    async with harness:
        if before is not None:
            await before(harness)
        harness.prompt("go")
        while (line := await harness.receive_until(heard))["type"] != "result":
            response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
            harness.send({"type": "control_response", "response": response})
    return harness


def heard(line: Json) -> bool:
    return line["type"] in ("control_request", "result")


async def granted(folder: Path, *updates: Json, **more: Any) -> SessionHarness:
    answer = {"behavior": "allow", "updatedPermissions": list(updates)}
    return await scenario(folder, touch("one"), answer, session_id=SESSION, **more)


def mode_of(harness: SessionHarness) -> str:
    [init] = [line for line in harness.messages("system") if line["subtype"] == "init"]
    return str(init["permissionMode"])


def was_asked(harness: SessionHarness) -> bool:
    return any(harness.messages("control_request"))


def into(mode: str) -> Callable[[SessionHarness], Awaitable[Any]]:
    return lambda harness: harness.request("set_permission_mode", mode=mode)


async def test_a_rule_for_the_session_counts_after_a_resume(tmp_path: Path) -> None:
    await granted(tmp_path, rules("touch:*"))
    harness = await scenario(tmp_path, touch("two"), resume=SESSION)

    assert not was_asked(harness)
    assert (tmp_path / "two").exists()


async def test_a_rule_that_denies_counts_after_a_resume(tmp_path: Path) -> None:
    await granted(tmp_path, rules("touch:*"), rules("touch two", behavior="deny"))
    harness = await scenario(tmp_path, touch("two"), resume=SESSION)

    assert not was_asked(harness)
    assert not (tmp_path / "two").exists()


async def test_a_rule_that_was_taken_back_stays_taken_back(tmp_path: Path) -> None:
    await granted(tmp_path, rules("touch:*"), rules("touch:*", kind="removeRules"))

    assert was_asked(await scenario(tmp_path, touch("two"), resume=SESSION))


async def test_a_directory_for_the_session_counts_after_a_resume(tmp_path: Path) -> None:
    other, work = tmp_path / "other", tmp_path / "work"
    other.mkdir()
    directories = {"type": "addDirectories", "directories": [str(other)], "destination": "session"}
    await granted(work, directories, home=tmp_path)

    harness = await scenario(work, write(f"{other}/x"), home=tmp_path, resume=SESSION, permission_mode="acceptEdits")

    assert not was_asked(harness)
    assert (other / "x").exists()


async def test_a_grant_does_not_follow_the_session_to_another_directory(tmp_path: Path) -> None:
    await granted(tmp_path / "here", rules("touch:*"), home=tmp_path)

    assert was_asked(await scenario(tmp_path / "there", touch("two"), home=tmp_path, resume=SESSION))


async def test_a_grant_does_not_go_along_with_a_fork(tmp_path: Path) -> None:
    await granted(tmp_path, rules("touch:*"))

    assert was_asked(await scenario(tmp_path, touch("two"), resume=SESSION, fork_session=True))


async def test_what_restricts_a_session_restricts_its_forks(tmp_path: Path) -> None:
    await granted(tmp_path, rules("touch two", behavior="deny"))
    harness = await scenario(tmp_path, touch("two"), {"behavior": "allow"}, resume=SESSION, fork_session=True)

    assert not was_asked(harness)
    assert not (tmp_path / "two").exists()


async def test_updates_for_settings_are_in_the_settings_and_not_on_record(tmp_path: Path) -> None:
    harness = await granted(tmp_path, rules("touch:*", destination="localSettings"))

    assert [entry for entry in harness.session.config.storage.log.entries() if entry.kind == "grant"] == []
    assert "touch:*" in (tmp_path / ".claude/settings.local.json").read_text()


async def test_a_grant_on_record_that_makes_no_sense_costs_nothing_else(tmp_path: Path) -> None:
    await granted(tmp_path, rules("touch:*"))
    store = ClaudeStore(tmp_path / "home/.claude", EntryContext(cwd=str(tmp_path), version="1"))
    log = store.open(SESSION)
    entries = list(log.entries())
    last, [grant] = entries[-1], [entry.message for entry in entries if entry.kind == "grant"]
    senseless: list[Json] = [{**grant, "updates": [{**rules("x"), "type": "grantAll"}]}, {"x": []}]
    for seq, message in enumerate(senseless, last.seq + 1):
        log.append(Entry(seq=seq, kind="grant", at=last.at, message=message))
    log.close()
    harness = await scenario(tmp_path, touch("two"), resume=SESSION)

    assert not was_asked(harness)
    unreadable, invalid = harness.warnings
    assert "cannot be read and is skipped" in unreadable
    assert "is invalid and is ignored" in invalid


# Modes.


async def test_a_mode_set_in_a_session_applies_after_a_resume(tmp_path: Path) -> None:
    await scenario(tmp_path, touch("one"), session_id=SESSION, before=into("plan"))

    assert mode_of(await scenario(tmp_path, touch("two"), resume=SESSION)) == "plan"


async def test_a_mode_that_came_with_an_answer_counts_after_a_resume(tmp_path: Path) -> None:
    await granted(tmp_path, {"type": "setMode", "mode": "acceptEdits", "destination": "session"})
    harness = await scenario(tmp_path, touch("two"), resume=SESSION)

    assert mode_of(harness) == "acceptEdits"
    assert (tmp_path / "two").exists()


async def test_the_mode_of_the_command_line_comes_first_and_is_the_one_on_record_then(tmp_path: Path) -> None:
    await scenario(tmp_path, touch("one"), session_id=SESSION, before=into("acceptEdits"))

    assert mode_of(await scenario(tmp_path, touch("two"), resume=SESSION, permission_mode="plan")) == "plan"
    assert mode_of(await scenario(tmp_path, touch("three"), resume=SESSION)) == "plan"


async def test_bypass_counts_after_a_resume_only_if_it_is_allowed_at_launch_again(tmp_path: Path) -> None:
    await scenario(
        tmp_path, touch("one"), session_id=SESSION, before=into("bypassPermissions"), allow_skip_permissions=True
    )

    assert mode_of(await scenario(tmp_path, touch("two"), resume=SESSION)) == "default"
    assert not (tmp_path / "two").exists()


async def test_leaving_plan_mode_after_a_resume_does_not_lead_into_bypass(tmp_path: Path) -> None:
    async def there_and_back(harness: SessionHarness) -> None:
        await harness.request("set_permission_mode", mode="bypassPermissions")
        await harness.request("set_permission_mode", mode="plan")

    await scenario(tmp_path, touch("one"), session_id=SESSION, before=there_and_back, allow_skip_permissions=True)
    leave = "[[turn]]\ntools = [{ name = 'ExitPlanMode', input = { plan = 'p' } }]\n"
    harness = await scenario(tmp_path, leave + touch("two"), {"behavior": "allow"}, resume=SESSION)

    states = [line["permissionMode"] for line in harness.messages("system") if line["subtype"] == "status"]
    assert (mode_of(harness), states) == ("plan", ["default"])


@pytest.mark.parametrize(("mode", "forked"), [("plan", "plan"), ("dontAsk", "dontAsk"), ("acceptEdits", "default")])
async def test_a_fork_is_as_strict_and_no_laxer(tmp_path: Path, mode: str, forked: str) -> None:
    await scenario(tmp_path, touch("one"), session_id=SESSION, before=into(mode))

    assert mode_of(await scenario(tmp_path, touch("two"), resume=SESSION, fork_session=True)) == forked


async def test_a_session_that_never_had_a_turn_leaves_no_log(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, touch("one"), session_id=SESSION) as harness:
        await harness.request("set_permission_mode", mode="plan")

    assert list(tmp_path.glob("home/.claude/projects/*/*.jsonl")) == []
