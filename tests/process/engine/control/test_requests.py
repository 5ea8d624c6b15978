"""The control requests of clients with pages of their own, through the executable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parley.engine.control.dispatcher import NOT_OURS
from parley.models.script import Script, ScriptedTurn
from parley.protocol.messages.requests import list_requests
from parley.testing.model_server import running
from tests.helpers.hooks import reply, results
from tests.helpers.mcp import config, own, script
from tests.helpers.oauth_server import login_server
from tests.helpers.process import ProcessHarness
from tests.helpers.session import Json

HELLO = script("Hello.")


async def test_titles_and_side_questions_are_answered_by_a_model(tmp_path: Path) -> None:
    turns = [ScriptedTurn(text=text) for text in ("Hello.", "You greeted me.", '"Repair the login."', "Bye.")]
    with running(Script(turn=turns)) as server:
        api: Json = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-test"}
        async with ProcessHarness(tmp_path, "", "--model", "claude-opus-4-5", **api) as harness:
            await harness.turn("Good morning")
            question = await harness.request("side_question", question="What did I say?")
            title = await harness.answer("generate_session_title", description="Please repair it", persist=True)
            status = await harness.answer("get_status")
            last = await harness.turn("Good night")
    assert question["response"]["response"] == {"response": "You greeted me.", "synthetic": False}
    [progress] = harness.of("control_request_progress")
    assert (progress["status"], progress["request_id"]) == ("started", question["response"]["request_id"])
    assert title == {"title": "Repair the login"}
    rows = {row["label"]: row["value"] for section in status["sections"] for row in section["rows"]}
    assert (rows["Session ID"], rows["cwd"]) == (last["session_id"], str(tmp_path))
    assert last["result"] == "Bye."
    assert "What did I say?" not in str(server.exchanges[-1].body)
    [transcript] = (tmp_path / "home").rglob(f"{last['session_id']}.jsonl")
    assert "Repair the login" in transcript.read_text()


async def test_directories_are_added_and_changed(tmp_path: Path) -> None:
    repo, other = tmp_path / "repo", tmp_path / "other"
    for folder in (repo, other):
        folder.mkdir()
    calls = script([("Bash", {"command": "pwd"})], "Done.")
    async with ProcessHarness(tmp_path, calls, "--dangerously-skip-permissions") as harness:
        assert await harness.answer("register_repo_root", directory="repo") == {"directory": str(repo)}
        assert "missing" in await harness.refusal("register_repo_root", directory="missing")
        rules = await harness.answer("list_permission_rules")
        moved = await harness.answer("set_cwd", path=str(other))
        missing = await harness.answer("set_cwd", path="missing")
        await harness.turn("Where?")
    assert rules["state"]["workspaceDirectories"] == [{"path": str(repo)}]
    assert moved == {"status": "ok", "cwd": str(other), "changed": True, "transcript_relocated": False}
    assert (missing["status"], missing["reason"]) == ("rejected", "not_found")
    assert harness.of("init")[0]["cwd"] == str(other)
    assert results(harness) == [str(other)]


async def test_plan_conversation_and_dialogs_are_shown(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be brief.\n")
    skill = tmp_path / "home" / ".claude" / "skills" / "demo" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: demo\ndescription: A demo\n---\nDo it.\n")
    calls = script([("ExitPlanMode", {"plan": "# First"})], "Done.")
    async with ProcessHarness(tmp_path, calls, "--permission-mode", "plan") as harness:
        assert await harness.answer("get_plan") == {"exists": False}
        await harness.turn("Plan it")
        plan = await harness.answer("get_plan")
        exported = await harness.answer("export_conversation")
        memory, skills, sandbox = [
            await harness.answer(f"get_{page}_dialog") for page in ("memory", "skills", "sandbox")
        ]
    assert plan == {"exists": True, "plan": "# First"}
    assert exported["text"].startswith("\n❯ Plan it\n")
    assert exported["text"].endswith("● Done.")
    assert exported["default_filename"].endswith("-plan-it.txt")
    assert (memory["files"][0]["path"], memory["files"][0]["exists"]) == (str(tmp_path / "CLAUDE.md"), True)
    assert [(row["name"], row["source"]) for row in skills["skills"]] == [("demo", "user")]
    assert (sandbox["enabled"], sandbox["mode"]) == (False, "disabled")


async def test_a_stricter_mode_for_one_server_asks_where_everything_is_allowed(tmp_path: Path) -> None:
    call = ("mcp__plain__echo", {"a": 1})
    servers = ("--mcp-config", *config(plain=own("plain.py", "well")))
    flags = ("--dangerously-skip-permissions", "--permission-prompt-tool", "stdio")
    async with ProcessHarness(tmp_path, script([call], "No.", [call], "Yes."), *servers, *flags) as harness:
        assert await harness.answer("set_mcp_permission_mode_override", serverName="plain", mode="default") == {}
        harness.prompt("go")
        asked = await harness.receive("control_request")
        harness.send(reply(asked, {"behavior": "deny", "message": "Not now"}))
        denied = await harness.receive("result")
        await harness.answer("set_mcp_permission_mode_override", serverName="plain", mode=None)
        allowed = await harness.turn()
    assert asked["request"]["tool_name"] == call[0]
    assert ([one["tool_name"] for one in denied["permission_denials"]], denied["result"]) == ([call[0]], "No.")
    assert (allowed["permission_denials"], allowed["result"]) == ([], "Yes.")


async def test_a_login_to_a_server_is_made_and_cleared(tmp_path: Path) -> None:
    with login_server() as server:
        servers = config(login={"type": "http", "url": server.url})
        async with ProcessHarness(tmp_path, HELLO, "--mcp-config", *servers) as harness:

            async def status() -> str:
                [row] = (await harness.answer("mcp_status"))["mcpServers"]
                return str(row["status"])

            await harness.answer("initialize")
            begun = await harness.answer("mcp_authenticate", serverName="login", redirectUri="app://done")
            address = await asyncio.to_thread(server.approve, begun["authUrl"])
            assert await harness.answer("mcp_oauth_callback_url", serverName="login", callbackUrl=address) == {}
            assert await status() == "connected"
            assert await harness.answer("mcp_clear_auth", serverName="login") == {}
            assert await status() == "needs-auth"
        assert not any(token in harness.raw.decode() for token in server.tokens)


WRONG: list[tuple[str, Json, str]] = [
    ("generate_session_title", {"description": 5}, "description"),
    ("side_question", {"question": " "}, "the question is empty"),
    ("set_cwd", {"path": 5}, "path"),
    ("register_repo_root", {"directory": "."}, "is the working directory of the session"),
    ("set_mcp_permission_mode_override", {"serverName": "x", "mode": "acceptEdits"}, "acceptEdits"),
    ("claim_session", {"cwd": "/"}, "not_a_spare"),
    ("mcp_authenticate", {"serverName": "nobody"}, "Server not found: nobody"),
    ("mcp_oauth_callback_url", {"serverName": "x"}, "callbackUrl"),
    ("mcp_clear_auth", {"serverName": "nobody"}, "Server not found: nobody"),
    ("nonsense", {}, "Unsupported control request subtype: nonsense"),
]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one session answers to wrong requests; it works on afterwards."""

    async def talk(harness: ProcessHarness) -> dict[str, str]:
        async with harness:
            found = {subtype: await harness.refusal(subtype, **fields) for subtype, fields, _ in WRONG}
            found |= {subtype: await harness.refusal(subtype) for subtype in NOT_OURS}
            assert (await harness.turn())["result"] == "Hello."
        return found

    return asyncio.run(talk(ProcessHarness(tmp_path_factory.mktemp("refusals"), HELLO)))


@pytest.mark.parametrize(("subtype", "named"), [(subtype, named) for subtype, _, named in WRONG])
def test_a_wrong_request_is_refused_by_name(subtype: str, named: str, refusals: dict[str, str]) -> None:
    assert named in refusals[subtype]


@pytest.mark.parametrize("subtype", NOT_OURS)
def test_a_request_for_a_service_of_the_vendor_is_refused_with_the_reason(
    subtype: str, refusals: dict[str, str]
) -> None:
    assert refusals[subtype] == f"{subtype} is not available: {NOT_OURS[subtype]}"


PLAIN: dict[str, Json] = {
    "initialize": {},
    "interrupt": {},
    "set_model": {"model": "offline"},
    "set_max_thinking_tokens": {"max_thinking_tokens": 2000},
    "set_permission_mode": {"mode": "plan"},
    "cancel_async_message": {"message_uuid": "99999999-9999-4999-8999-999999999999"},
    "background_tasks": {},
    "apply_flag_settings": {"settings": {"language": "german"}},
    "update_settings": {"source": "userSettings", "settings": {"language": "german"}},
    "get_settings": {},
    "list_permission_rules": {},
    "check_permission": {"tool_name": "Bash", "input": {"command": "ls"}},
    "update_permissions": {"updates": []},
    "get_hooks_listing": {},
    "list_models": {},
    "get_binary_version": {},
    "mcp_status": {},
    "mcp_set_servers": {"servers": {}},
    "get_context_usage": {},
    "get_usage": {},
    "get_session_cost": {},
    "read_file": {"path": "notes.txt"},
    "seed_read_state": {"path": "notes.txt", "mtime": 1},
    "file_suggestions": {"query": "no"},
    "reload_skills": {},
    "reload_plugins": {},
    "reload_output_styles": {},
    "rename_session": {"title": "A name"},
    "set_color": {"color": "red"},
    "set_has_subscribers": {"has_subscribers": True},
    "set_prompt_suggestions_paused": {"paused": True},
    "end_session": {},
}
"""Requests that a session without servers, tasks and checkpoints answers."""
NAMED: dict[str, tuple[Json, str]] = {
    "rewind_files": ({"user_message_id": "99999999-9999-4999-8999-999999999999"}, "rewinding is not enabled"),
    "stop_task": ({"task_id": "t1"}, "t1"),
    "get_task_output": ({"task_id": "t1"}, "t1"),
    "mcp_reconnect": ({"serverName": "nobody"}, "nobody"),
    "mcp_toggle": ({"serverName": "nobody", "enabled": True}, "nobody"),
    "mcp_message": ({"server_name": "nobody", "message": {"jsonrpc": "2.0", "id": 1, "method": "ping"}}, "nobody"),
    "mcp_call": ({"tool": "mcp__nobody__x", "arguments": {}}, "nobody"),
    "mcp_read_resource": ({"serverName": "nobody", "uri": "ui://x"}, "nobody"),
}
OWN_TESTS = {
    *("side_question", "generate_session_title", "get_status", "register_repo_root", "set_cwd", "get_plan"),
    *("export_conversation", "get_memory_dialog", "get_skills_dialog", "get_sandbox_dialog", "claim_session"),
    *("set_mcp_permission_mode_override", "mcp_authenticate", "mcp_oauth_callback_url", "mcp_clear_auth"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    folder = tmp_path_factory.mktemp("answers")
    (folder / "notes.txt").write_text("one\n")

    async def talk(harness: ProcessHarness) -> dict[str, Any]:
        rows = {**{name: fields for name, (fields, _) in NAMED.items()}, **PLAIN}
        async with harness:
            return {subtype: (await harness.request(subtype, **fields))["response"] for subtype, fields in rows.items()}

    return asyncio.run(talk(ProcessHarness(folder, HELLO)))


@pytest.mark.parametrize("subtype", PLAIN)
def test_a_request_that_a_plain_session_can_answer_is_answered(subtype: str, answers: dict[str, Json]) -> None:
    assert answers[subtype]["subtype"] == "success", answers[subtype]


@pytest.mark.parametrize("subtype", NAMED)
def test_a_request_about_what_is_not_there_names_it(subtype: str, answers: dict[str, Json]) -> None:
    assert NAMED[subtype][1] in str(answers[subtype])


def test_no_request_is_left_out() -> None:
    answered = {subtype for subtype, cls in list_requests().items() if cls.area}

    assert answered == {*PLAIN, *NAMED, *OWN_TESTS}
