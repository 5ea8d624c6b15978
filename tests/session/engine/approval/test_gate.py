"""Asking the host for permission: what is asked, and what each answer does. A real host end talks to a real engine."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.compose.composer import Composer
from parley.engine.approval.request import input_digest
from parley.errors import UsageError
from parley.protocol.options import CliOptions
from parley.stores.files.store import project_key
from tests.helpers.session import Json, SessionHarness

WRITE = "{ name = 'Write', id = 't1', input = { file_path = 'new.txt', content = 'x' } }"
TOUCH = "{ name = 'Bash', id = 't1', input = { command = 'touch made', description = 'Make it' } }"
AGAIN = "{ name = 'Bash', id = 't2', input = { command = 'touch made2' } }"


def script(*turns: str) -> str:
    return "".join(f"[[turn]]\ntools = [{calls}]\n" for calls in turns) + "[[turn]]\ntext = 'Done.'\n"


def answered(request: Json, answer: Any) -> Json:
    response = {"subtype": "success", "request_id": request["request_id"], "response": answer}
    return {"type": "control_response", "response": response}


async def scenario(
    folder: Path,
    turns: str,
    host: Callable[[SessionHarness], Awaitable[None]] | None = None,
    environment: dict[str, str] | None = None,
    **options: Any,
) -> SessionHarness:
    """One turn in which the host does as it is told; the room remembers all lines."""
    given = {"permission_prompt_tool": "stdio", **options}

    harness = SessionHarness(folder, turns, **given)
    harness.environment |= environment or {}
    async with harness:
        harness.prompt("go")
        if host is not None:
            await host(harness)
        await harness.receive("result")
    return harness


def answering(*answers: Any) -> Callable[[SessionHarness], Awaitable[None]]:
    async def host(harness: SessionHarness) -> None:
        for answer in answers:
            request = await harness.receive("control_request")
            harness.send(answered(request, answer))

    return host


def asked(harness: SessionHarness) -> list[Json]:
    return [line["request"] for line in harness.messages("control_request")]


def results(harness: SessionHarness) -> list[Json]:
    blocks = [
        block for line in harness.messages("user") for block in line["message"]["content"] if isinstance(block, dict)
    ]
    return [block for block in blocks if block["type"] == "tool_result"]


def metas(harness: SessionHarness) -> list[Json]:
    return [meta for line in harness.messages("user") for meta in line.get("tool_result_meta", ())]


def last(harness: SessionHarness) -> Json:
    return list(harness.messages("result"))[-1]


def denied_lines(harness: SessionHarness) -> list[Json]:
    return [line for line in harness.messages("system") if line["subtype"] == "permission_denied"]


def records(harness: SessionHarness) -> list[Json]:
    return [entry.message for entry in harness.session.config.storage.log.entries() if entry.kind == "permission"]


# The question.


async def test_a_permission_request_has_all_that_a_person_needs(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(TOUCH), answering({"behavior": "allow"}))

    assert asked(harness) == [
        {
            "subtype": "can_use_tool",
            "tool_name": "Bash",
            "display_name": "Bash",
            "title": "Run this command?",
            "input": {"command": "touch made", "description": "Make it"},
            "input_sha256": "7d60bcc1ba4525296b59c4495f9d6220159bffafb54eba9c6303aeb6007ff26f",
            "description": "Make it",
            "permission_suggestions": [
                {
                    "type": "addRules",
                    "rules": [{"toolName": "Bash", "ruleContent": "touch made *"}],
                    "behavior": "allow",
                    "destination": "localSettings",
                },
                {"type": "addDirectories", "directories": [str(tmp_path)], "destination": "session"},
                {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
            ],
            "blocked_path": str(tmp_path / "made"),
            "tool_use_id": "t1",
        }
    ]
    assert (tmp_path / "made").exists()


async def test_a_question_by_a_rule_names_the_rule(tmp_path: Path) -> None:
    settings = '{"permissions": {"ask": ["Bash(touch:*)"]}}'
    harness = await scenario(tmp_path, script(TOUCH), answering({"behavior": "allow"}), settings=settings)

    [question] = asked(harness)
    assert question["matched_ask_rule"] == "Bash(touch:*)"
    assert question["decision_reason_type"] == "rule"
    assert question["suppress_always_allow_rule"] is True
    assert "permission_suggestions" not in question


async def test_a_question_about_a_danger_says_that_no_is_the_better_answer(tmp_path: Path) -> None:
    call = "{ name = 'Bash', id = 't1', input = { command = 'rm -rf /' } }"
    harness = await scenario(
        tmp_path, script(call), answering({"behavior": "deny", "message": "no"}), allowed_tools=("Bash",)
    )

    [question] = asked(harness)
    assert (question["decision_reason_type"], question["default_to_no"]) == ("safetyCheck", True)


async def test_a_question_says_whether_the_kind_of_tool_alone_is_its_reason(tmp_path: Path) -> None:
    deny = {"behavior": "deny", "message": "no"}
    harness = await scenario(tmp_path, script(WRITE, TOUCH), answering(deny, deny))

    assert [question.get("server_policy_ask_only") for question in asked(harness)] == [True, None]


async def test_the_hash_of_what_is_shown_is_the_one_on_record(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(TOUCH), answering({"behavior": "allow"}))

    [question], [record] = asked(harness), records(harness)
    assert question["input_sha256"] == record["input_sha256"] == input_digest(question["input"])


@pytest.mark.parametrize(
    ("call", "description", "title"),
    [
        ("{ name = 'Write', input = { file_path = 'sub/a.txt', content = '' } }", "sub/a.txt", "Write sub/a.txt?"),
        ("{ name = 'Read', input = { file_path = '/etc/hostname' } }", "/etc/hostname", "Read /etc/hostname?"),
        ("{ name = 'Bash', input = { command = 'npm test' } }", "npm test", "Run this command?"),
        (
            "{ name = 'WebFetch', input = { url = 'https://a.b/', prompt = 'p' } }",
            "https://a.b/",
            "Fetch https://a.b/?",
        ),
        ("{ name = 'Glob', input = { pattern = '/etc/*' } }", None, "Use Glob?"),
    ],
)
async def test_a_question_describes_the_call_in_few_words(
    tmp_path: Path, call: str, description: str | None, title: str
) -> None:
    harness = await scenario(tmp_path, script(call), answering({"behavior": "deny", "message": "no"}))

    [question] = asked(harness)
    assert (question.get("description"), question["title"]) == (description, title)


async def test_while_a_question_waits_the_session_requires_action(tmp_path: Path) -> None:
    environment = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
    harness = await scenario(tmp_path, script(TOUCH), answering({"behavior": "allow"}), environment)
    states = [line["state"] for line in harness.messages("system") if line["subtype"] == "session_state_changed"]

    assert states == ["running", "requires_action", "running", "idle"]


# Answers.


async def test_an_allow_runs_the_call_and_is_recorded(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(TOUCH), answering({"behavior": "allow", "toolUseID": "t1"}))

    assert metas(harness) == [{"id": "t1", "permission_decision": {"decision": "accept", "source": "user_temporary"}}]
    [record] = records(harness)
    assert record.pop("elapsed_ms") >= 0
    assert len(record.pop("input_sha256")) == 64
    assert record == {
        "tool_use_id": "t1",
        "tool": "Bash",
        "decision": "allow",
        "source": "host",
        "reason": "",
        "mode": "default",
        "asked": True,
        "effect": True,
        "cwd": str(tmp_path),
    }


async def test_a_call_that_no_one_is_asked_about_is_recorded_with_its_rule(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(TOUCH), allowed_tools=("Bash(touch:*)",))

    [record] = records(harness)
    assert (record["rule"], record["rule_source"], record["asked"]) == ("Bash(touch:*)", "flag", False)


async def test_the_input_returned_by_the_client_runs(tmp_path: Path) -> None:
    answer = {"behavior": "allow", "updatedInput": {"command": "echo changed"}}
    harness = await scenario(tmp_path, script(TOUCH), answering(answer))

    assert results(harness)[0]["content"] == "changed"
    assert not (tmp_path / "made").exists()


async def test_a_host_cannot_change_an_input_into_a_denied_one(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET")
    answer = {"behavior": "allow", "updatedInput": {"command": "cat .env"}}
    harness = await scenario(tmp_path, script(TOUCH), answering(answer), disallowed_tools=("Read(.env)",))

    assert "SECRET" not in str(harness.lines)
    assert records(harness)[0]["decision"] == "deny"
    assert records(harness)[0]["rule"] == "Read(.env)"


async def test_an_approved_file_is_the_one_that_was_shown(tmp_path: Path) -> None:
    """Whoever puts a link in its place between the question and the answer gains nothing."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("SECRET")
    (tmp_path / "plain").write_text("plain")
    call = f"{{ name = 'Read', id = 't1', input = {{ file_path = '{tmp_path}/plain' }} }}"

    async def host(harness: SessionHarness) -> None:
        request = await harness.receive("control_request")
        (tmp_path / "plain").unlink()
        (tmp_path / "plain").symlink_to(tmp_path / "secret")
        harness.send(answered(request, {"behavior": "allow"}))

    harness = await scenario(work, script(call), host)

    assert "SECRET" not in str(harness.lines)
    assert results(harness)[0]["is_error"] is True


async def test_rules_in_an_answer_apply_from_then_on(tmp_path: Path) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "touch:*"}]
    update = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
    answer = {"behavior": "allow", "updatedPermissions": [update]}
    harness = await scenario(tmp_path, script(TOUCH, AGAIN), answering(answer))

    assert len(asked(harness)) == 1
    assert (tmp_path / "made2").exists()


async def test_rules_for_later_sessions_are_written_to_their_settings(tmp_path: Path) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "touch:*"}]
    update = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "localSettings"}
    answer = {"behavior": "allow", "updatedPermissions": [update]}
    await scenario(tmp_path, script(TOUCH), answering(answer))

    assert "Bash(touch:*)" in (tmp_path / ".claude" / "settings.local.json").read_text()


async def test_a_mode_of_an_answer_is_reported_and_counts(tmp_path: Path) -> None:
    update = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    answer = {"behavior": "allow", "updatedPermissions": [update]}
    harness = await scenario(tmp_path, script(TOUCH, AGAIN), answering(answer))

    assert [line["permissionMode"] for line in harness.messages("system") if line["subtype"] == "status"] == [
        "acceptEdits"
    ]
    assert len(asked(harness)) == 1


async def test_an_answer_cannot_bypass_what_the_launch_did_not_allow(tmp_path: Path) -> None:
    update = {"type": "setMode", "mode": "bypassPermissions", "destination": "session"}
    allow = {"behavior": "allow", "updatedPermissions": [update]}
    harness = await scenario(tmp_path, script(TOUCH, AGAIN), answering(allow, {"behavior": "allow"}))

    assert len(asked(harness)) == 2
    assert any("bypassPermissions" in warning for warning in harness.warnings)


BYPASS = {"type": "setMode", "mode": "bypassPermissions"}
ADD = {"type": "addRules", "behavior": "allow"}
REFUSED: dict[str, tuple[Json, str]] = {
    "bypass": (BYPASS, "bypassPermissions was not allowed at launch"),
    "malformed rule": ({**ADD, "rules": [{"toolName": "WebFetch", "ruleContent": "x"}]}, "must be domain:HOST"),
    "unknown key": ({**ADD, "rules": [{"toolName": "Bash", "rule_content": "ls"}]}, "rule_content"),
    "no directory": ({"type": "addDirectories", "directories": [""]}, "is not a directory"),
}


@pytest.mark.parametrize("destination", ["userSettings", "projectSettings", "localSettings", "session"])
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("by", ["host", "hook"])
async def test_an_update_that_is_refused_is_not_stored_nor_anything_that_comes_with_it(
    tmp_path: Path, destination: str, name: str, by: str
) -> None:
    refused, why = REFUSED[name]
    good = {**ADD, "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}]}
    updates = [{**update, "destination": destination} for update in (good, refused)]
    allow = {"behavior": "allow", "updatedPermissions": updates}
    hooks: Json = {}
    if by == "hook":
        told = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": allow}}
        handler = {"type": "command", "command": f"echo '{json.dumps(told)}'"}
        hooks = {"settings": json.dumps({"hooks": {"PermissionRequest": [{"hooks": [handler]}]}})}
        hooks["permission_prompts"] = "none"
    harness = await scenario(tmp_path, script(TOUCH, AGAIN), None if by == "hook" else answering(allow, allow), **hooks)

    assert [why in result["content"] for result in results(harness)] == [True, True]
    assert [file.name for file in tmp_path.glob("made*")] == []
    files = [*tmp_path.glob(".claude/*.json"), *tmp_path.glob("home/.claude/settings*.json")]
    assert [file.name for file in files if "permissions" in file.read_text()] == []
    with_next = await scenario(tmp_path, script(), **hooks)
    assert [line["permissionMode"] for line in with_next.messages("system") if line["subtype"] == "init"] == ["default"]


SUCCESS = b'{"type":"control_response","response":{"subtype":"success","request_id":ID,"response":'
TWICE = b'{"type":"control_response","response":{"subtype":"error"},"response":{"subtype":"success","request_id":ID,'
DOUBLED = [
    SUCCESS + b'DENY,"response":ALLOW}}',
    TWICE + b'"response":ALLOW}}',
    SUCCESS + b'{"behavior":"deny","message":"no","beh\\u0061vior":"allow"}}}',
    SUCCESS + b'{"behavior":"allow","updatedInput":{"command":"true","command":"touch made"}}}}',
]


@pytest.mark.parametrize("number", range(len(DOUBLED)))
async def test_an_answer_that_has_a_key_twice_is_refused_and_denies_the_call(tmp_path: Path, number: int) -> None:
    async def host(harness: SessionHarness) -> None:
        asked_as = json.dumps((await harness.receive("control_request"))["request_id"]).encode()
        line = DOUBLED[number].replace(b"ID", asked_as).replace(b"ALLOW", b'{"behavior":"allow"}')
        harness.send(line.replace(b"DENY", b'{"behavior":"deny","message":"no"}'))

    harness = await scenario(tmp_path, script(TOUCH), host)

    assert not (tmp_path / "made").exists()
    assert "duplicate key" in results(harness)[0]["content"]
    assert any("duplicate key" in warning for warning in harness.warnings)


async def test_an_answer_of_no_known_kind_denies_the_call_at_once(tmp_path: Path) -> None:
    async def host(harness: SessionHarness) -> None:
        request = await harness.receive("control_request")
        response = {"subtype": "sucess", "request_id": request["request_id"], "response": {"behavior": "allow"}}
        harness.send({"type": "control_response", "response": response})

    harness = await scenario(tmp_path, script(TOUCH), host)

    assert ("sucess" in results(harness)[0]["content"], (tmp_path / "made").exists()) == (True, False)


async def test_the_message_of_a_denial_goes_to_the_model(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(TOUCH), answering({"behavior": "deny", "message": "Not today"}))

    assert results(harness) == [{"type": "tool_result", "content": "Not today", "is_error": True, "tool_use_id": "t1"}]
    assert metas(harness)[0]["permission_decision"] == {"decision": "reject", "source": "user_reject"}
    assert [denial["tool_use_id"] for denial in last(harness)["permission_denials"]] == ["t1"]
    assert denied_lines(harness) == []
    assert not (tmp_path / "made").exists()


async def test_a_denial_that_interrupts_ends_the_turn(tmp_path: Path) -> None:
    answer = {"behavior": "deny", "message": "Stop", "interrupt": True}
    harness = await scenario(tmp_path, script(TOUCH, AGAIN), answering(answer))

    assert (last(harness)["subtype"], last(harness)["terminal_reason"]) == ("error_during_execution", "aborted_tools")
    assert metas(harness) == [{"id": "t1", "non_execution_kind": "user-rejected"}]
    assert len(asked(harness)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"behavior": "maybe"},
        {"behavior": "delegate"},
        {"behavior": "deny"},
        {"behavior": "allow", "toolUseID": "another"},
        {"behavior": "allow", "updatedInput": "touch made"},
        {"behavior": "allow", "updatedPermissions": [{"type": "grantEverything"}]},
        {"behavior": "allow", "updatedPermissions": "all"},
        {"behaviour": "allow"},
        {"behavior": "Allow"},
        {"behavior": "allow", "updated_input": {"command": "true"}},
        {"behavior": "allow", "updatedinput": {"command": "true"}},
        {"behavior": "allow", "input": {"command": "true"}},
        {"behavior": "allow", "interupt": True},
        ["allow"],
        "allow",
        None,
    ],
)
async def test_whatever_is_not_clearly_an_allow_is_a_denial(tmp_path: Path, answer: Any) -> None:
    harness = await scenario(tmp_path, script(TOUCH), answering(answer))

    assert not (tmp_path / "made").exists()
    assert results(harness)[0]["is_error"] is True
    assert metas(harness)[0]["permission_decision"] == {
        "decision": "reject",
        "source": "config",
        "reason_type": "other",
    }
    assert len(last(harness)["permission_denials"]) == 1
    assert last(harness)["subtype"] == "success"


async def test_an_error_is_a_denial_with_its_words(tmp_path: Path) -> None:
    async def host(harness: SessionHarness) -> None:
        request = await harness.receive("control_request")
        failure = {"subtype": "error", "request_id": request["request_id"], "error": "callback crashed"}
        harness.send({"type": "control_response", "response": failure})

    harness = await scenario(tmp_path, script(TOUCH), host)

    assert "callback crashed" in results(harness)[0]["content"]
    assert not (tmp_path / "made").exists()


async def test_a_second_answer_is_ignored(tmp_path: Path) -> None:
    async def host(harness: SessionHarness) -> None:
        request = await harness.receive("control_request")
        harness.send(answered(request, {"behavior": "deny", "message": "no"}), answered(request, {"behavior": "allow"}))

    harness = await scenario(tmp_path, script(TOUCH), host)

    assert results(harness)[0]["content"] == "no"
    assert not (tmp_path / "made").exists()


async def test_an_interrupt_withdraws_the_question_and_a_late_answer_is_ignored(tmp_path: Path) -> None:
    async def host(harness: SessionHarness) -> None:
        request = await harness.receive("control_request")
        await harness.request("interrupt")
        await harness.receive("control_cancel_request")
        harness.send(answered(request, {"behavior": "allow"}))

    harness = await scenario(tmp_path, script(TOUCH), host)

    assert not (tmp_path / "made").exists()
    assert last(harness)["terminal_reason"] == "aborted_tools"


async def test_a_host_that_hangs_up_has_denied(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script(TOUCH), permission_prompt_tool="stdio") as harness:
        harness.prompt("go")
        await harness.receive("control_request")

    assert not (tmp_path / "made").exists()
    assert [(record["decision"], record["source"]) for record in records(harness)] == [("deny", "reply")]


# No one to ask.


async def test_where_no_one_can_be_asked_the_call_is_denied_and_reported(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(WRITE), permission_prompt_tool=None)

    [line] = denied_lines(harness)
    assert (line["tool_name"], line["tool_use_id"]) == ("Write", "t1")
    assert metas(harness)[0]["non_execution_kind"] == "user-rejected"
    assert len(last(harness)["permission_denials"]) == 1
    assert last(harness)["subtype"] == "success"


async def test_a_denial_fails_the_run_where_that_is_wanted(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(WRITE), permission_prompt_tool=None, fail_on_denial=True)

    assert (last(harness)["subtype"], last(harness)["is_error"]) == ("error_during_execution", True)
    assert last(harness)["errors"] == ["Permission was denied: Write"]


async def test_a_run_without_denials_does_not_fail(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script("{ name = 'Bash', input = { command = 'ls' } }"), fail_on_denial=True)

    assert last(harness)["subtype"] == "success"


async def test_dont_ask_denies_without_asking(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(TOUCH), permission_mode="dontAsk")

    assert asked(harness) == []
    assert denied_lines(harness)[0]["decision_reason_type"] == "mode"
    assert metas(harness)[0]["permission_decision"] == {"decision": "reject", "source": "config", "reason_type": "mode"}


# The guard.


READ = "{ name = 'Read', id = 't1', input = { file_path = 'script.toml' } }"


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions", "plan"])
async def test_with_guard_every_call_is_sent_to_the_client(tmp_path: Path, mode: str) -> None:
    answer = {"behavior": "deny", "message": "no"}
    harness = await scenario(
        tmp_path, script(READ), answering(answer), guard=True, permission_mode=mode, allowed_tools=("Read",)
    )

    assert [question["tool_name"] for question in asked(harness)] == ["Read"]
    assert results(harness)[0]["content"] == "no"


async def test_a_guarded_session_without_a_host_runs_nothing(tmp_path: Path) -> None:
    harness = await scenario(
        tmp_path, script(READ), guard=True, permission_prompt_tool=None, permission_mode="bypassPermissions"
    )

    assert results(harness)[0]["is_error"] is True
    assert len(last(harness)["permission_denials"]) == 1


async def test_a_host_may_become_the_guard_and_cannot_step_down(tmp_path: Path) -> None:
    async def host(harness: SessionHarness) -> None:
        request = await harness.receive("control_request")
        harness.send(answered(request, {"behavior": "allow"}))

    async with SessionHarness(tmp_path, script(READ), permission_mode="bypassPermissions") as harness:
        await harness.request("initialize", guard=True)
        await harness.request("initialize", guard=False)
        harness.prompt("go")
        await host(harness)
        await harness.receive("result")

    assert len(asked(harness)) == 1
    assert "is_error" not in results(harness)[0]


async def test_a_denied_call_stays_denied_under_the_guard(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, script(READ), guard=True, disallowed_tools=("Read(*.toml)",))

    assert asked(harness) == []
    assert denied_lines(harness)[0]["decision_reason"] == "Read(*.toml)"


async def test_no_hook_answers_for_the_guard(tmp_path: Path) -> None:
    decision = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
    hook = {"type": "command", "command": f"echo '{json.dumps(decision)}'"}
    settings = json.dumps({"hooks": {"PermissionRequest": [{"hooks": [hook]}]}})
    answer = {"behavior": "deny", "message": "no"}
    harness = await scenario(tmp_path, script(TOUCH), answering(answer), guard=True, settings=settings)

    assert results(harness)[0]["content"] == "no"
    assert not (tmp_path / "made").exists()

    harness = await scenario(tmp_path, script(TOUCH), settings=settings, permission_prompt_tool=None)
    assert (tmp_path / "made").exists()


# The rest of a session.


async def test_the_rules_are_listed_for_the_host(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script(READ), allowed_tools=("Read",), add_dirs=("more",)) as harness:
        result = await harness.request("list_permission_rules")

    state = result["response"]["response"]["state"]
    assert [row["rule"] for row in state["rules"]] == ["Read"]
    assert state["workspaceDirectories"] == [{"path": str(tmp_path / "more")}]


async def test_long_output_that_went_to_a_file_may_be_read_unasked_but_not_changed(tmp_path: Path) -> None:
    work, session_id = tmp_path / "work", "00000000-0000-4000-8000-00000000000a"
    work.mkdir()
    results = tmp_path / "home/.claude/projects" / project_key(str(work)) / session_id / "tool-results"
    results.mkdir(parents=True)
    (results / "x.txt").write_text("all of it")
    read = f"{{ name = 'Read', input = {{ file_path = '{results}/x.txt' }} }}"
    write = f"{{ name = 'Write', input = {{ file_path = '{results}/x.txt', content = '' }} }}"
    host = answering({"behavior": "deny", "message": "no"})
    harness = await scenario(work, script(read, write), host, {"HOME": str(tmp_path / "home")}, session_id=session_id)

    assert [question["tool_name"] for question in asked(harness)] == ["Write"]
    assert "all of it" in str(harness.lines)


async def test_searches_do_not_tell_of_what_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET")
    grep = "{ name = 'Grep', input = { pattern = 'SECRET|turn', output_mode = 'content' } }"
    glob = "{ name = 'Glob', input = { pattern = '**/*' } }"
    harness = await scenario(tmp_path, script(grep, glob), disallowed_tools=("Read(.env)",))

    told = [str(result["content"]) for result in results(harness)]
    assert "script.toml" in told[0] + told[1]
    assert ".env" not in told[0] + told[1]


async def test_flag_settings_that_come_later_count(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script(READ)) as harness:
        await harness.request("apply_flag_settings", settings={"permissions": {"deny": ["Read(*.toml)"]}})
        harness.prompt("go")
        await harness.receive("result")

    assert denied_lines(harness)[0]["decision_reason"] == "Read(*.toml)"


async def test_a_mode_no_one_knows_is_refused(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script(READ)) as harness:
        result = await harness.request("set_permission_mode", mode="nonsense")

    assert result["response"]["error_code"] == "invalid_mode"


@pytest.mark.parametrize(("user", "sandbox", "refused"), [(0, "", True), (0, "1", False), (1000, "", False)])
@pytest.mark.parametrize("options", [{"permission_mode": "bypassPermissions"}, {"skip_permissions": True}])
def test_root_may_bypass_permissions_only_in_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, sandbox: str, refused: bool, options: Json
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    composer = Composer(
        CliOptions(model="offline", **options), {"HOME": str(tmp_path), "IS_SANDBOX": sandbox}, str(tmp_path)
    )

    if refused:
        with pytest.raises(UsageError, match="root"):
            composer.make_config()
    else:
        assert composer.make_config().permissions.mode == "bypassPermissions"


def test_root_outside_of_a_sandbox_cannot_go_into_bypass_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    options = CliOptions(model="offline", allow_skip_permissions=True)

    assert Composer(options, {"HOME": str(tmp_path)}, str(tmp_path)).make_config().permissions.may_bypass is False
