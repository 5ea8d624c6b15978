"""What was granted for a session counts again when it is resumed, and never comes to mean more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.stores.base import Entry
from parley.stores.files.claude import ClaudeStore
from parley.stores.files.entry_codec import EntryContext
from tests.helpers.session import Json, Room

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


def talk(
    folder: Path,
    script: str,
    answer: Json = DENY,
    before: Callable[[Room], Awaitable[Any]] | None = None,
    home: Path | None = None,
    **options: Any,
) -> Room:
    """One turn; the host gives the same answer to every question."""

    folder.mkdir(exist_ok=True)

    async def run() -> Room:
        room = Room(folder, script, permission_prompt_tool="stdio", **options)
        room.environment["HOME"] = str(home or folder / "home")
        async with room:
            if before is not None:
                await before(room)
            room.prompt("go")
            while (line := await room.until(heard))["type"] != "result":
                response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
                room.say({"type": "control_response", "response": response})
        return room

    return asyncio.run(run())


def heard(line: Json) -> bool:
    return line["type"] in ("control_request", "result")


def granted(folder: Path, *updates: Json, **more: Any) -> Room:
    answer = {"behavior": "allow", "updatedPermissions": list(updates)}
    return talk(folder, touch("one"), answer, session_id=SESSION, **more)


def mode_of(room: Room) -> str:
    [init] = [line for line in room.told("system") if line["subtype"] == "init"]
    return str(init["permissionMode"])


def was_asked(room: Room) -> bool:
    return any(room.told("control_request"))


def into(mode: str) -> Callable[[Room], Awaitable[Any]]:
    return lambda room: room.ask("set_permission_mode", mode=mode)


def test_a_rule_for_the_session_counts_after_a_resume(tmp_path: Path) -> None:
    granted(tmp_path, rules("touch:*"))
    room = talk(tmp_path, touch("two"), resume=SESSION)

    assert not was_asked(room)
    assert (tmp_path / "two").exists()


def test_a_rule_that_denies_counts_after_a_resume(tmp_path: Path) -> None:
    granted(tmp_path, rules("touch:*"), rules("touch two", behavior="deny"))
    room = talk(tmp_path, touch("two"), resume=SESSION)

    assert not was_asked(room)
    assert not (tmp_path / "two").exists()


def test_a_rule_that_was_taken_back_stays_taken_back(tmp_path: Path) -> None:
    granted(tmp_path, rules("touch:*"), rules("touch:*", kind="removeRules"))

    assert was_asked(talk(tmp_path, touch("two"), resume=SESSION))


def test_a_directory_for_the_session_counts_after_a_resume(tmp_path: Path) -> None:
    other, work = tmp_path / "other", tmp_path / "work"
    other.mkdir()
    directories = {"type": "addDirectories", "directories": [str(other)], "destination": "session"}
    granted(work, directories, home=tmp_path)

    room = talk(work, write(f"{other}/x"), home=tmp_path, resume=SESSION, permission_mode="acceptEdits")

    assert not was_asked(room)
    assert (other / "x").exists()


def test_a_grant_does_not_follow_the_session_to_another_directory(tmp_path: Path) -> None:
    granted(tmp_path / "here", rules("touch:*"), home=tmp_path)

    assert was_asked(talk(tmp_path / "there", touch("two"), home=tmp_path, resume=SESSION))


def test_a_grant_does_not_go_along_with_a_fork(tmp_path: Path) -> None:
    granted(tmp_path, rules("touch:*"))

    assert was_asked(talk(tmp_path, touch("two"), resume=SESSION, fork_session=True))


def test_what_restricts_a_session_restricts_its_forks(tmp_path: Path) -> None:
    granted(tmp_path, rules("touch two", behavior="deny"))
    room = talk(tmp_path, touch("two"), {"behavior": "allow"}, resume=SESSION, fork_session=True)

    assert not was_asked(room)
    assert not (tmp_path / "two").exists()


def test_updates_for_settings_are_in_the_settings_and_not_on_record(tmp_path: Path) -> None:
    room = granted(tmp_path, rules("touch:*", destination="localSettings"))

    assert [entry for entry in room.session.config.storage.log.entries() if entry.kind == "grant"] == []
    assert "touch:*" in (tmp_path / ".claude/settings.local.json").read_text()


def test_a_grant_on_record_that_makes_no_sense_costs_nothing_else(tmp_path: Path) -> None:
    granted(tmp_path, rules("touch:*"))
    store = ClaudeStore(tmp_path / "home/.claude", EntryContext(cwd=str(tmp_path), version="1"))
    log = store.open(SESSION)
    entries = list(log.entries())
    last, [grant] = entries[-1], [entry.message for entry in entries if entry.kind == "grant"]
    senseless: list[Json] = [{**grant, "updates": [{**rules("x"), "type": "grantAll"}]}, {"x": []}]
    for seq, message in enumerate(senseless, last.seq + 1):
        log.append(Entry(seq=seq, kind="grant", at=last.at, message=message))
    log.close()
    room = talk(tmp_path, touch("two"), resume=SESSION)

    assert not was_asked(room)
    assert ["cannot be read" in complaint for complaint in room.complaints] == [True, True]


# Modes.


def test_a_mode_set_in_a_session_counts_after_a_resume(tmp_path: Path) -> None:
    talk(tmp_path, touch("one"), session_id=SESSION, before=into("plan"))

    assert mode_of(talk(tmp_path, touch("two"), resume=SESSION)) == "plan"


def test_a_mode_that_came_with_an_answer_counts_after_a_resume(tmp_path: Path) -> None:
    granted(tmp_path, {"type": "setMode", "mode": "acceptEdits", "destination": "session"})
    room = talk(tmp_path, touch("two"), resume=SESSION)

    assert mode_of(room) == "acceptEdits"
    assert (tmp_path / "two").exists()


def test_the_mode_of_the_command_line_comes_first_and_is_the_one_on_record_then(tmp_path: Path) -> None:
    talk(tmp_path, touch("one"), session_id=SESSION, before=into("acceptEdits"))

    assert mode_of(talk(tmp_path, touch("two"), resume=SESSION, permission_mode="plan")) == "plan"
    assert mode_of(talk(tmp_path, touch("three"), resume=SESSION)) == "plan"


def test_bypass_counts_after_a_resume_only_if_it_is_allowed_at_launch_again(tmp_path: Path) -> None:
    talk(tmp_path, touch("one"), session_id=SESSION, before=into("bypassPermissions"), allow_skip_permissions=True)

    assert mode_of(talk(tmp_path, touch("two"), resume=SESSION)) == "default"
    assert not (tmp_path / "two").exists()


def test_leaving_plan_mode_after_a_resume_does_not_lead_into_bypass(tmp_path: Path) -> None:
    async def there_and_back(room: Room) -> None:
        await room.ask("set_permission_mode", mode="bypassPermissions")
        await room.ask("set_permission_mode", mode="plan")

    talk(tmp_path, touch("one"), session_id=SESSION, before=there_and_back, allow_skip_permissions=True)
    leave = "[[turn]]\ntools = [{ name = 'ExitPlanMode', input = { plan = 'p' } }]\n"
    room = talk(tmp_path, leave + touch("two"), {"behavior": "allow"}, resume=SESSION)

    states = [line["permissionMode"] for line in room.told("system") if line["subtype"] == "status"]
    assert (mode_of(room), states) == ("plan", ["default"])


@pytest.mark.parametrize(("mode", "forked"), [("plan", "plan"), ("dontAsk", "dontAsk"), ("acceptEdits", "default")])
def test_a_fork_is_as_strict_and_no_laxer(tmp_path: Path, mode: str, forked: str) -> None:
    talk(tmp_path, touch("one"), session_id=SESSION, before=into(mode))

    assert mode_of(talk(tmp_path, touch("two"), resume=SESSION, fork_session=True)) == forked


def test_a_session_that_never_had_a_turn_leaves_no_log(tmp_path: Path) -> None:
    async def run() -> None:
        async with Room(tmp_path, touch("one"), session_id=SESSION) as room:
            await room.ask("set_permission_mode", mode="plan")

    asyncio.run(run())
    assert list(tmp_path.glob("home/.claude/projects/*/*.jsonl")) == []
