"""Sessions that may do less: restricted ones, and those in safe mode, which leave out what people have added."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.errors import UsageError
from tests.helpers.session import Json, SessionHarness


def turns(*calls: str) -> str:
    return "".join(f"[[turn]]\ntools = [{call}]\n" for call in calls) + "[[turn]]\ntext = 'Done.'\n"


def read(path: Path, call: str = "t1") -> str:
    return f"{{ name = 'Read', id = '{call}', input = {{ file_path = '{path}' }} }}"


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


async def visit(folder: Path, script: str, environment: dict[str, str] | None = None, **options: Any) -> SessionHarness:
    harness = SessionHarness(folder, script, **options)
    harness.environment |= environment or {}
    async with harness:
        harness.prompt("go")
        await harness.receive("result")
    return harness


def results(harness: SessionHarness) -> list[Json]:
    return [
        block
        for line in harness.messages("user")
        for block in line["message"]["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]


def listed(harness: SessionHarness) -> list[str]:
    found: list[str] = next(harness.messages("system"))["tools"]
    return found


# Restricted.


async def test_a_restricted_session_runs_no_commands_and_fetches_nothing(tmp_path: Path) -> None:
    touch = "{ name = 'Bash', id = 't1', input = { command = 'touch made' } }"
    harness = await visit(tmp_path, turns(touch), restricted=True, allowed_tools=("Bash",))

    assert {"Bash", "WebFetch"}.isdisjoint(listed(harness))
    assert {"Read", "Edit", "Grep"} <= set(listed(harness))
    assert "No such tool available: Bash" in results(harness)[0]["content"]
    assert not (tmp_path / "made").exists()


async def test_what_is_asked_for_by_name_is_there(tmp_path: Path) -> None:
    harness = await visit(tmp_path, turns(), restricted=True, tools=("Read", "Bash"))

    assert listed(harness) == ["Bash", "Read"]


async def test_a_variable_restricts_as_well(tmp_path: Path) -> None:
    assert "Bash" not in listed(await visit(tmp_path, turns(), {"CLAUDE_CODE_RESTRICTED": "1"}))


async def test_files_outside_the_working_directories_are_closed_whatever_a_rule_allows(tmp_path: Path) -> None:
    here, outside, more = tmp_path / "here", tmp_path / "outside", tmp_path / "more"
    here.mkdir()
    inside = put(here, "a.txt", "inside")
    link = here / "link.txt"
    link.symlink_to(put(outside, "b.txt", "outside"))
    added = put(more, "c.txt", "added")
    calls = [read(inside, "t1"), read(outside / "b.txt", "t2"), read(link, "t3"), read(added, "t4")]
    harness = await visit(here, turns(*calls), restricted=True, allowed_tools=("Read",), add_dirs=(str(more),))

    first, second, third, fourth = results(harness)
    assert "inside" in first["content"]
    assert "restricted to its working directories" in second["content"]
    assert "restricted to its working directories" in third["content"]
    assert "added" in fourth["content"]
    [result] = harness.messages("result")
    assert [denial["tool_use_id"] for denial in result["permission_denials"]] == ["t2", "t3"]


async def test_a_search_stays_inside_as_well(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    put(tmp_path, "outside/b.txt", "needle")
    grep = f"{{ name = 'Grep', id = 't1', input = {{ pattern = 'needle', path = '{tmp_path}/outside' }} }}"

    [result] = results(await visit(here, turns(grep), restricted=True, allowed_tools=("Grep",)))
    assert result["is_error"] is True


async def test_a_person_cannot_open_what_is_closed(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    outside = put(tmp_path, "outside.txt", "outside")
    harness = await visit(here, turns(read(outside)), restricted=True, permission_prompt_tool="stdio")

    assert list(harness.messages("control_request")) == []
    assert results(harness)[0]["is_error"] is True


async def test_an_answer_cannot_add_a_directory_outside_and_it_is_not_stored(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    write = "{ name = 'Write', id = 't1', input = { file_path = 'a.txt', content = 'x' } }"
    update = {"type": "addDirectories", "directories": [str(tmp_path)], "destination": "localSettings"}

    async with SessionHarness(here, turns(write), restricted=True, permission_prompt_tool="stdio") as harness:
        harness.prompt("go")
        request = await harness.receive("control_request")
        answer = {"behavior": "allow", "updatedPermissions": [update]}
        response = {"subtype": "success", "request_id": request["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")

    assert "outside the directories" in results(harness)[0]["content"]
    assert not (here / ".claude").exists()


@pytest.mark.parametrize("asked", [{"skip_permissions": True}, {"permission_mode": "bypassPermissions"}])
def test_bypassing_permissions_is_refused(tmp_path: Path, asked: Json) -> None:
    with pytest.raises(UsageError, match="restricted"):
        SessionHarness(tmp_path, turns(), restricted=True, **asked).composed()


async def test_no_one_can_go_into_bypass_later(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, turns(), restricted=True, allow_skip_permissions=True) as harness:
        result = await harness.request("set_permission_mode", mode="bypassPermissions")

    assert result["response"]["subtype"] == "error"


async def test_settings_that_only_lie_around_do_not_count_and_given_ones_do(tmp_path: Path) -> None:
    rules = {"permissions": {"deny": ["Glob"]}}
    put(tmp_path, "home/.claude/settings.json", json.dumps(rules))
    put(tmp_path, ".claude/settings.json", json.dumps({"permissions": {"deny": ["Grep"]}}))
    given = json.dumps({"permissions": {"deny": ["Write"]}})
    harness = await visit(tmp_path, turns(), restricted=True, settings=given)

    assert {"Glob", "Grep"} <= set(listed(harness))
    assert "Write" not in listed(harness)


async def test_what_the_client_runs_itself_is_its_own_affair(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, turns(read(Path("/elsewhere"))), restricted=True) as harness:
        await harness.request("initialize", clientTools=[{"name": "Read"}])
        harness.prompt("go")
        await harness.receive("assistant")
        content = [{"type": "tool_result", "tool_use_id": "t1", "content": "read elsewhere"}]
        harness.send({"type": "user", "message": {"role": "user", "content": content}})
        await harness.receive("result")

    assert results(harness)[0]["content"] == "read elsewhere"


# Safe mode.

HOOK = {"hooks": {"PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": "touch hooked; exit 2"}]}]}}


def furnished(folder: Path) -> None:
    """A home and a project with one of everything that people add."""
    put(folder, "home/.claude/CLAUDE.md", "Speak like a pirate.")
    put(folder, "home/.claude/commands/mine.md", "Do it.")
    put(folder, "home/.claude/skills/bake/SKILL.md", "---\nname: bake\ndescription: Bakes\n---\nBake.")
    put(folder, "home/.claude/agents/cook.md", "---\nname: cook\ndescription: Cooks\n---\nCook.")
    put(folder, "home/.claude/output-styles/terse.md", "---\nname: terse\ndescription: Short\n---\nBe short.")
    server = {"mcpServers": {"far": {"type": "http", "url": "http://127.0.0.1:9/mcp"}}}
    rules = {"permissions": {"deny": ["Glob"]}, "outputStyle": "terse"}
    put(folder, "home/.claude/settings.json", json.dumps({**HOOK, **rules, **server}))


async def test_safe_mode_leaves_out_what_people_added_and_keeps_their_rules(tmp_path: Path) -> None:
    furnished(tmp_path)
    call = read(put(tmp_path, "a.txt", "text"))
    kept: dict[str, Any] = {"no_session_persistence": True}
    plain, safe = await visit(tmp_path, turns(call), **kept), await visit(tmp_path, turns(call), safe_mode=True, **kept)

    before, after = (next(harness.messages("system")) for harness in (plain, safe))
    assert {"mine", "bake"} <= set(before["slash_commands"])
    assert {"mine", "bake"}.isdisjoint(after["slash_commands"])
    assert "cook" in before["agents"]
    assert "cook" not in after["agents"]
    assert (len(before["mcp_servers"]), after["mcp_servers"], after["skills"]) == (1, [], [])
    assert (before["output_style"], after["output_style"]) == ("terse", "default")
    assert "Glob" not in before["tools"] + after["tools"]
    assert results(plain)[0].get("is_error") is True  # the hook blocks it
    assert "text" in results(safe)[0]["content"]
    assert "pirate" in str(plain.session.journal.system_text)
    assert "pirate" not in str(safe.session.journal.system_text)


async def test_safe_mode_says_which_options_it_leaves_out(tmp_path: Path) -> None:
    agents = json.dumps({"cook": {"description": "Cooks", "prompt": "Cook."}})
    harness = await visit(tmp_path, turns(), safe_mode=True, agents=agents, mcp_config=('{"mcpServers":{}}',))

    assert [text for text in harness.warnings if "--safe-mode" in text] == [
        "option '--mcp-config' has no effect with --safe-mode",
        "option '--agents' has no effect with --safe-mode",
    ]
    assert "cook" not in next(harness.messages("system"))["agents"]


async def test_hooks_of_an_administrator_count_in_safe_mode(tmp_path: Path) -> None:
    call = read(put(tmp_path, "a.txt", "text"))
    harness = await visit(tmp_path, turns(call), safe_mode=True, managed_settings=json.dumps(HOOK))

    assert results(harness)[0]["is_error"] is True
