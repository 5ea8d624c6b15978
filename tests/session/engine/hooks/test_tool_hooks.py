"""Hooks around tool calls, through a real session: what they may decide, change and say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.hooks import tool_hooks
from parley.engine.hooks.tool_hooks import replace_output
from parley.engine.turn.tool_executor import CUT_OFF
from parley.tools.base import ToolOutput
from tests.helpers.hooks import (
    ALLOW,
    SILENCE,
    answering,
    asked,
    contexts,
    matcher,
    permissions,
    play,
    questions,
    register,
    reply,
    results,
    specific,
    transcript,
    until_result,
)
from tests.helpers.session import Json, SessionHarness


def script(*commands: str) -> str:
    turns = [f"[[turn]]\ntools = [{{ name = 'Bash', input = {{ command = '{command}' }} }}]" for command in commands]
    return "\n".join([*turns, "[[turn]]\ntext = 'Done.'"])


TOUCH = script("touch a.txt")
STDIO = {"permission_prompt_tool": "stdio"}


async def run(scenario: Any) -> None:
    await scenario()


async def test_a_hook_is_notified_of_a_call_before_it_is_decided_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            await play(harness, {"PreToolUse": {}})
        (input,) = asked(harness)
        assert input == {
            "session_id": harness.session.id,
            "transcript_path": str(transcript(harness)),
            "cwd": str(tmp_path),
            "prompt_id": input["prompt_id"],
            "permission_mode": "default",
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": "touch a.txt"},
            "tool_use_id": input["tool_use_id"],
        }
        kinds = [line["request"]["subtype"] for line in harness.messages("control_request")]
        assert kinds == ["hook_callback", "can_use_tool"]
        assert permissions(harness) == [("allow", "host")]

    await run(scenario)


WATCH = "[[turn]]\ntools = [{ name = 'Monitor', input = { command = 'touch a.txt', description = 'W' } }]\n"


async def test_a_hook_for_bash_sees_a_monitor_which_runs_commands_too(tmp_path: Path) -> None:
    events = ("PreToolUse", "PermissionRequest", "PostToolUse")
    async with SessionHarness(tmp_path, WATCH + script(), input_format="stream-json", **STDIO) as harness:
        await register(harness, {event: [matcher(event, matcher="Bash")] for event in events})
        harness.prompt("go")
        await until_result(harness, {event: {} for event in events})
    seen = [(input["hook_event_name"], input["tool_name"], input["tool_input"]["command"]) for input in asked(harness)]
    assert sorted(seen) == sorted((event, "Monitor", "touch a.txt") for event in events)


async def test_a_hook_for_bash_may_deny_a_monitor(tmp_path: Path) -> None:
    options: Json = {"input_format": "stream-json", "allowed_tools": ("Monitor",)}
    async with SessionHarness(tmp_path, WATCH + script(), **options) as harness:
        await register(harness, {"PreToolUse": [matcher("PreToolUse", matcher="^Bash$")]})
        harness.prompt("go")
        await until_result(harness, {"PreToolUse": specific(permissionDecision="deny")})
    assert permissions(harness) == [("deny", "hook")]


@pytest.mark.parametrize(
    ("word", "ran", "was_asked", "record"),
    [("allow", True, 0, ("allow", "hook")), ("deny", False, 0, ("deny", "hook")), ("ask", True, 1, ("allow", "host"))],
)
async def test_a_hook_decides(tmp_path: Path, word: str, ran: bool, was_asked: int, record: Any) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            said = specific(permissionDecision=word, permissionDecisionReason="because")
            result = await play(harness, {"PreToolUse": said})
        assert ((tmp_path / "a.txt").exists(), len(questions(harness)), permissions(harness)) == (
            ran,
            was_asked,
            [record],
        )
        assert [denial["tool_name"] for denial in result["permission_denials"]] == ([] if ran else ["Bash"])
        if word == "deny":
            assert results(harness) == ["PreToolUse:Bash hook error: because"]

    await run(scenario)


@pytest.mark.parametrize(
    ("options", "word", "record"),
    [
        ({"disallowed_tools": ("Bash(touch:*)",)}, "allow", ("deny", "rule")),
        ({"settings": '{"permissions": {"ask": ["Bash(touch:*)"]}}'}, "allow", ("deny", "nobody")),
        ({"guard": True}, "allow", ("deny", "nobody")),
        ({"allowed_tools": ("Bash(touch:*)",)}, "deny", ("deny", "hook")),
        ({"allowed_tools": ("Bash(touch:*)",)}, "ask", ("deny", "nobody")),
        ({"permission_mode": "bypassPermissions"}, "deny", ("deny", "hook")),
        ({"permission_mode": "dontAsk"}, "allow", ("allow", "hook")),
        ({"permission_mode": "dontAsk"}, "ask", ("deny", "mode")),
        ({"permission_mode": "plan"}, "allow", ("allow", "hook")),
    ],
)
async def test_rules_and_hooks_have_their_order(tmp_path: Path, options: Json, word: str, record: Any) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **options) as harness:
            await play(harness, {"PreToolUse": specific(permissionDecision=word)})
        assert permissions(harness) == [record]
        assert (tmp_path / "a.txt").exists() is (record[0] == "allow")

    await run(scenario)


async def test_a_hook_may_change_the_input(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            said = specific(updatedInput={"command": "touch b.txt"}, permissionDecision="allow")
            await play(harness, {"PreToolUse": said})
        assert (tmp_path / "b.txt").exists()
        assert not (tmp_path / "a.txt").exists()

    await run(scenario)


async def test_a_changed_input_that_a_rule_denies_is_denied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, disallowed_tools=("Bash(rm:*)",)) as harness:
            said = specific(updatedInput={"command": "rm script.toml"}, permissionDecision="allow")
            await play(harness, {"PreToolUse": said})
        assert permissions(harness) == [("deny", "rule")]
        assert (tmp_path / "script.toml").exists()

    await run(scenario)


async def test_a_denied_input_stays_denied_whatever_a_hook_makes_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("rm script.toml"), disallowed_tools=("Bash(rm:*)",)) as harness:
            said = specific(updatedInput={"command": "true"}, permissionDecision="allow")
            await play(harness, {"PreToolUse": said})
        assert permissions(harness) == [("deny", "rule")]

    await run(scenario)


async def test_a_changed_input_that_does_not_fit_the_tool_is_an_error_for_the_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH) as harness:
            await play(harness, {"PreToolUse": specific(updatedInput={"cmd": 1}, permissionDecision="allow")})
        assert "the input from a hook is invalid" in results(harness)[0]
        assert permissions(harness) == []

    await run(scenario)


async def test_a_hook_that_stops_the_turn_stops_it_before_the_call_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        two = (
            "{ name = 'Bash', input = { command = 'touch a.txt' } }, { name = 'Bash', input = { command = 'touch b' } }"
        )
        async with SessionHarness(tmp_path, f"[[turn]]\ntools = [{two}]\n[[turn]]\ntext = 'never'", **STDIO) as harness:
            said = {"continue": False, "stopReason": "enough", "systemMessage": "hello"}
            result = await play(harness, {"PreToolUse": said})
        assert (result["terminal_reason"], result["subtype"], result["result"]) == ("hook_stopped", "success", "")
        assert (result["permission_denials"], questions(harness), len(asked(harness))) == ([], [], 1)
        assert [text.split(":")[0] for text in results(harness)] == ["PreToolUse", "This call did not run"]
        notices = [line for line in harness.messages("system") if line["subtype"] == "informational"]
        texts = [line["content"] for line in notices]
        assert texts == ["PreToolUse:Bash says: hello", "PreToolUse:Bash hook stopped the turn: enough"]
        first = next(harness.messages("assistant"))["message"]["content"][0]["id"]
        assert [line["tool_use_id"] for line in notices] == [first, first]
        assert not (tmp_path / "a.txt").exists()

    await run(scenario)


async def test_hooks_after_a_call_receive_its_outcome_and_may_add_context_for_the_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("echo one", "exit 3"), **STDIO) as harness:
            answers = {
                "PostToolUse": specific(additionalContext="seen"),
                "PostToolUseFailure": {"decision": "block", "reason": "look again"},
                "PostToolBatch": specific(additionalContext="batch"),
            }
            await play(harness, answers)
        good, bad = asked(harness, "PostToolUse")[0], asked(harness, "PostToolUseFailure")[0]
        assert (good["tool_response"]["stdout"], good["duration_ms"] >= 0) == ("one", True)
        assert (bad["error"], bad["is_interrupt"]) == ("Exit code 3", False)
        batches = [call["tool_response"] for input in asked(harness, "PostToolBatch") for call in input["tool_calls"]]
        assert batches == ["one", "Exit code 3"]
        assert [text.splitlines()[1] for text in contexts(harness)] == [
            "seen",
            "batch",
            "The hook reports a problem: look again",
            "batch",
        ]

    await run(scenario)


async def test_contexts_come_after_all_results_of_an_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        two = "{ name = 'Bash', input = { command = 'echo a' } }, { name = 'Bash', input = { command = 'echo b' } }"
        async with SessionHarness(tmp_path, f"[[turn]]\ntools = [{two}]\n[[turn]]\ntext = 'Done.'") as harness:
            await play(harness, {"PostToolUse": specific(additionalContext="seen")})
            messages = harness.session.journal.history.render()
        kinds = [block["type"] for block in messages[2]["content"]]
        assert kinds == ["tool_result", "tool_result", "text", "text"]

    await run(scenario)


async def test_a_hook_may_put_another_output_in_the_place_of_the_tools(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("echo secret")) as harness:
            new = {"stdout": "replaced", "stderr": "", "interrupted": False, "isImage": False}
            await play(harness, {"PostToolUse": specific(updatedToolOutput=new, updatedMCPToolOutput="not this")})
        (line,) = harness.messages("user")
        assert (results(harness), line["tool_use_result"]) == (["replaced"], new)
        assert "secret" not in harness.raw.decode().replace("echo secret", "").replace('"stdout":"secret"', "")

    await run(scenario)


@pytest.mark.parametrize(
    ("new", "content"),
    [
        ("text", "text"),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        ({"content": [{"type": "text", "text": "a"}]}, [{"type": "text", "text": "a"}]),
        ({"stdout": "out", "stderr": "err"}, "out\nerr"),
        ({"any": 1}, '{"any":1}'),
        ([{"nonsense": 1}], '[{"nonsense":1}]'),
    ],
)
def test_a_replaced_output_is_shown_to_the_model(new: Any, content: Any) -> None:
    assert replace_output(ToolOutput(content="old", detail="old"), new) == ToolOutput(content=content, detail=new)


async def test_a_hook_after_a_call_may_end_the_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("echo one")) as harness:
            result = await play(harness, {"PostToolUse": {"continue": False, "stopReason": "enough"}})
        assert (result["terminal_reason"], results(harness)) == ("hook_stopped", ["one"])

    await run(scenario)


async def test_matchers_choose_who_is_asked_and_task_is_agent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("echo one")) as harness:
            hooks = [matcher("bash", matcher="Bash"), matcher("edits", matcher="Edit|Write"), matcher("all", "more")]
            await register(harness, {"PreToolUse": hooks})
            harness.prompt("go")
            await until_result(harness, {})
        ids = [line["request"]["callback_id"] for line in harness.messages("control_request")]
        assert ids == ["bash", "all", "more"]

    await run(scenario)


async def test_hooks_are_asked_all_at_once_and_the_call_waits_for_the_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH) as harness:
            await register(harness, {"PreToolUse": [matcher(*(f"h{n}" for n in range(32)))]})
            harness.prompt("go")
            lines = [await harness.receive("control_request") for _ in range(32)]
            allow = specific(permissionDecision="allow")
            for line in reversed(lines[1:]):
                harness.send({"type": "control_response", "response": success(line, allow)})
            assert (await harness.request("get_binary_version"))["response"]["subtype"] == "success"
            assert not (tmp_path / "a.txt").exists()
            harness.send({"type": "control_response", "response": success(lines[0], allow)})
            await harness.receive("result")
        assert (tmp_path / "a.txt").exists()

    await run(scenario)


def success(line: Json, answer: Json) -> Json:
    return {"subtype": "success", "request_id": line["request_id"], "response": answer}


# Permission questions.


async def test_the_host_and_the_hook_are_asked_together_and_the_first_answer_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            await play(harness, {"PermissionRequest": SILENCE})
            cancelled = [line["request_id"] for line in harness.messages("control_cancel_request")]
        asks = {line["request"]["subtype"]: line["request_id"] for line in harness.messages("control_request")}
        assert cancelled == [asks["hook_callback"]]
        assert permissions(harness) == [("allow", "host")]
        suggestions = questions(harness)[0]["permission_suggestions"]
        assert asked(harness)[0]["permission_suggestions"] == suggestions

    await run(scenario)


@pytest.mark.parametrize(
    ("decision", "record", "text"),
    [
        ({"behavior": "allow"}, ("allow", "hook"), "(Bash completed with no output)"),
        ({"behavior": "deny", "message": "no"}, ("deny", "hook"), "no"),
        ({"behavior": "deny"}, ("deny", "hook"), "A hook denied the permission."),
    ],
)
async def test_a_hook_that_is_faster_than_the_host_decides(
    tmp_path: Path, decision: Json, record: Any, text: str
) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            await play(harness, {"PermissionRequest": specific(decision=decision)}, permission=SILENCE)
            cancelled = [line["request_id"] for line in harness.messages("control_cancel_request")]
        asks = {line["request"]["subtype"]: line["request_id"] for line in harness.messages("control_request")}
        assert (cancelled, permissions(harness), results(harness)) == ([asks["can_use_tool"]], [record], [text])

    await run(scenario)


@pytest.mark.parametrize("first", ["hook_callback", "can_use_tool"])
async def test_of_answers_that_come_together_a_denial_counts(tmp_path: Path, first: str) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            await register(harness, {"PermissionRequest": [matcher("h")]})
            harness.prompt("go")
            lines = [await harness.receive("control_request") for _ in range(2)]
            said = {"hook_callback": specific(decision={"behavior": "deny"}), "can_use_tool": ALLOW}
            lines.sort(key=lambda line: bool(line["request"]["subtype"] != first))
            answers = [json.dumps(reply(line, said[line["request"]["subtype"]])) for line in lines]
            harness.send("\n".join(answers).encode())
            await harness.receive("result")
        assert (permissions(harness), (tmp_path / "a.txt").exists()) == ([("deny", "hook")], False)

    await run(scenario)


async def test_the_state_is_running_again_when_a_hook_has_answered_for_the_host(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = SessionHarness(tmp_path, TOUCH, **STDIO)
        harness.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
        async with harness:
            await play(harness, {"PermissionRequest": specific(decision=ALLOW)}, permission=SILENCE)
        states = [line["state"] for line in harness.messages("system") if line["subtype"] == "session_state_changed"]
        assert states == ["running", "requires_action", "running", "idle"]

    await run(scenario)


async def test_a_callback_that_is_registered_twice_is_asked_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, skip_permissions=True) as harness:
            await register(harness, {"PreToolUse": [matcher("h"), matcher("h", matcher="Bash")]})
            harness.prompt("go")
            await until_result(harness, {"h": {}})
        assert (len(asked(harness)), (tmp_path / "a.txt").exists(), harness.warnings) == (2, True, [])

    await run(scenario)


@pytest.mark.parametrize(("said", "source"), [(specific(decision={"behavior": "allow"}), "hook"), ({}, "nobody")])
async def test_where_no_one_can_be_asked_the_hook_is(tmp_path: Path, said: Json, source: str) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH) as harness:
            await play(harness, {"PermissionRequest": said})
        assert permissions(harness) == [("allow" if source == "hook" else "deny", source)]

    await run(scenario)


async def test_an_interrupt_withdraws_both_questions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            await register(harness, {"PermissionRequest": [matcher("h")]})
            harness.prompt("go")
            await harness.receive_until(lambda line: line.get("request", {}).get("subtype") == "hook_callback")
            await harness.request("interrupt")
            result = await harness.receive("result")
            cancelled = [line["request_id"] for line in harness.messages("control_cancel_request")]
        assert sorted(cancelled) == sorted(line["request_id"] for line in harness.messages("control_request"))
        assert result["terminal_reason"] == "aborted_tools"

    await run(scenario)


async def test_a_question_that_stays_open_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_hooks, "NOTIFICATION_SECONDS", 0)

    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            await register(harness, {"Notification": [matcher("h", matcher="permission_prompt")]})
            harness.prompt("go")
            react = answering(harness, {}, permission=SILENCE)
            line = await harness.receive_until(
                lambda line: (react(line), line.get("request", {}).get("subtype") == "hook_callback")[1]
            )
            question = next(line for line in harness.messages("control_request"))
            harness.send({"type": "control_response", "response": success(question, {"behavior": "allow"})})
            await harness.receive("result")
        assert line["request"]["input"]["message"] == "Your permission is needed to use Bash"

    await run(scenario)


# Failures.


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ValueError("broken"), "the client answered with an error: broken"),
        ({"continue": "maybe"}, "the output is invalid"),
        ("deny", "the output is invalid"),
        ({"permisionDecision": "deny"}, "the output has no decision, but it has unknown keys: permisionDecision"),
        (SILENCE, "the hook did not answer within 0.05 s"),
    ],
    ids=["error", "invalid", "nonsense", "misspelt", "timeout"],
)
@pytest.mark.parametrize("policy", ["continue", "block", None])
async def test_a_failed_hook_blocks_unless_its_matcher_says_otherwise(
    tmp_path: Path, answer: Any, told: str, policy: str | None
) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO, include_hook_events=True) as harness:
            await register(harness, {"PreToolUse": [matcher("h", timeout=0.05, onFailure=policy)]})
            harness.prompt("go")
            await until_result(harness, {"h": answer})
        blocks = policy != "continue"
        assert permissions(harness) == [("deny", "hook") if blocks else ("allow", "host")]
        assert blocks is (f"the hook (callback h) failed: {told}" in results(harness)[0])
        assert any(told in warning and "PreToolUse:Bash" in warning for warning in harness.warnings)
        (response,) = [line for line in harness.messages("system") if line["subtype"] == "hook_response"]
        assert (response["outcome"], told in response["stderr"]) == ("error", True)
        assert len(list(harness.messages("control_cancel_request"))) == (answer is SILENCE)

    await run(scenario)


@pytest.mark.parametrize(
    ("event", "answer", "record", "key"),
    [
        ("PreToolUse", {"permissionDecision": "deny"}, ("deny", "hook"), "permissionDecision (in the wrong place"),
        ("PreToolUse", {"decision": "approve", "future": 1}, ("allow", "hook"), "future"),
        ("PermissionRequest", specific(decison={"behavior": "allow"}), ("allow", "host"), "decison"),
        ("PostToolUse", {"adittionalContext": "x"}, ("allow", "host"), "adittionalContext"),
    ],
)
async def test_keys_of_an_answer_that_are_not_known_are_reported_to_the_host_once(
    tmp_path: Path, event: str, answer: Json, record: Any, key: str
) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("touch a", "touch b"), **STDIO) as harness:
            await play(harness, {event: answer})
        assert permissions(harness) == [record, record]
        told = [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]
        assert [(key in text, f"{event}:Bash (callback {event})" in text) for text in told] == [(True, True)]
        assert told[0] in harness.warnings

    await run(scenario)


async def test_an_interrupt_withdraws_a_pending_hook(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO, include_hook_events=True) as harness:
            await register(harness, {"PreToolUse": [matcher("h")]})
            harness.prompt("go")
            asked = await harness.receive_until(lambda line: line.get("request", {}).get("subtype") == "hook_callback")
            await harness.request("interrupt")
            cancelled = await harness.receive("control_cancel_request")
            response = await harness.receive("system", "hook_response")
            result = await harness.receive("result")
            harness.prompt("once more")
            await until_result(harness, {})
        assert cancelled["request_id"] == asked["request_id"]
        assert (response["outcome"], result["terminal_reason"]) == ("cancelled", "aborted_tools")
        assert not (tmp_path / "a.txt").exists()

    await run(scenario)


async def test_an_interrupt_while_a_hook_is_notified_of_a_call_keeps_what_the_call_gave(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("echo it ran"), skip_permissions=True) as harness:
            await register(harness, {"PostToolUse": [matcher("h")]})
            harness.prompt("go")
            await harness.receive_until(lambda line: line.get("request", {}).get("subtype") == "hook_callback")
            await harness.request("interrupt")
            result = await harness.receive("result")
            harness.prompt("once more")
            await until_result(harness, {})
        [told] = [line for line in harness.messages("user") if "tool_use_result" in line]
        assert result["terminal_reason"] == "aborted_tools"
        assert told["message"]["content"][0]["content"] == "it ran"
        assert told["tool_use_result"]["stdout"] == "it ran"

    await run(scenario)


async def test_an_interrupt_keeps_what_each_of_several_calls_gave(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "a.txt").write_text("first")
        (tmp_path / "b.txt").write_text("second")
        calls = ", ".join(f'{{ name = "Read", input = {{ file_path = "{tmp_path}/{name}.txt" }} }}' for name in "ab")
        async with SessionHarness(tmp_path, f'[[turn]]\ntools = [{calls}]\n[[turn]]\ntext = "Go on."\n') as harness:
            await register(harness, {"PostToolUse": [matcher("h")]})
            harness.prompt("go")
            for _ in range(2):
                await harness.receive_until(lambda line: line.get("request", {}).get("subtype") == "hook_callback")
            await harness.request("interrupt")
            await harness.receive("result")
            harness.prompt("once more")
            await until_result(harness, {})
        told = [
            line["message"]["content"][0]["content"] for line in harness.messages("user") if "tool_use_result" in line
        ]
        assert ["first" in told[0], "second" in told[1], len(told)] == [True, True, 2]

    await run(scenario)


@pytest.mark.parametrize("by", ["interrupt", "interrupt after a second initialize", "hang up", "failure"])
async def test_an_output_that_a_guard_has_not_seen_is_withheld(tmp_path: Path, by: str) -> None:
    async def scenario() -> None:
        (tmp_path / "notes.txt").write_text("the secret")
        async with SessionHarness(tmp_path, script("cat notes.txt"), skip_permissions=True) as harness:
            await register(harness, {"PostToolUse": [matcher("redact", onFailure="block")]})
            harness.prompt("go")
            question = await harness.receive_until(
                lambda line: line.get("request", {}).get("subtype") == "hook_callback"
            )
            if by == "failure":
                harness.send(reply(question, ValueError("broken")))
            elif by != "hang up":
                if by != "interrupt":
                    await register(harness, {"PostToolUse": []})
                await harness.request("interrupt")
            await (harness.close() if by == "hang up" else harness.receive("result"))
            [told] = [line for line in harness.messages("user") if "tool_use_result" in line]
        why = {
            "failure": "the client answered with an error: broken",
            "hang up": "the client disconnected before it answered",
        }
        expected = f"the hook (callback redact) failed: {why[by]}" if by in why else CUT_OFF
        text = f"The call ran, and its output is withheld: {expected}."
        assert (told["message"]["content"][0]["content"], told["tool_use_result"]) == (text, f"Error: {text}")
        assert "the secret" not in transcript(harness).read_text()

    await run(scenario)


@pytest.mark.parametrize("answer", [ValueError("broken"), specific(updatedToolOutput="redacted")])
async def test_a_file_that_the_model_did_not_get_is_shown_by_the_next_call(tmp_path: Path, answer: Any) -> None:
    (tmp_path / "a.txt").write_text("the text " * 100)
    look = "[[turn]]\ntools = [{ name = 'Read', input = { file_path = 'a.txt' } }]\n"
    async with SessionHarness(tmp_path, look * 3 + "[[turn]]\ntext = 'Done.'\n", skip_permissions=True) as harness:
        await register(harness, {"PostToolUse": [matcher("redact", onFailure="block")]})
        answers = iter([answer, {}, {}])
        harness.prompt("go")
        await until_result(harness, {"redact": lambda given: next(answers)})
        told = results(harness)

    assert ["the text" in text for text in told] == [False, True, False]
    assert "has not changed" in told[2]


async def test_the_output_of_a_subagents_call_is_withheld_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "notes.txt").write_text("the secret")
        call = "{ name = 'Agent', input = { description = 'd', prompt = 'look', subagent_type = 'general-purpose' } }"
        delegates = f"[[turn]]\ntools = [{call}]\n[[turn]]\nwhen = 'look'\n{script('cat notes.txt')[9:]}"
        async with SessionHarness(tmp_path, delegates, skip_permissions=True) as harness:
            await register(harness, {"PostToolUse": [matcher("redact", matcher="Bash", onFailure="block")]})
            harness.prompt("go")
            await harness.receive_until(lambda line: line.get("request", {}).get("subtype") == "hook_callback")
            task = next(line["task_id"] for line in harness.messages("system") if line["subtype"] == "task_started")
            await harness.request("stop_task", task_id=task)
            await harness.receive("control_cancel_request")

    await run(scenario)
    (log,) = tmp_path.glob("home/.claude/projects/*/*/subagents/*.jsonl")
    assert ("its output is withheld" in log.read_text(), "the secret" in log.read_text()) == (True, False)


async def test_what_hooks_said_about_a_finished_call_outlives_an_interrupt_of_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        two = "{ name = 'Bash', input = { command = 'echo a' } }, { name = 'Bash', input = { command = 'sleep 600' } }"
        async with SessionHarness(tmp_path, f"[[turn]]\ntools = [{two}]", skip_permissions=True) as harness:
            await register(harness, {"PostToolUse": [matcher("h")], "PreToolUse": [matcher("p")]})
            harness.prompt("go")
            react = answering(harness, {"h": specific(additionalContext="seen")})
            started: list[Json] = []

            def wanted(line: Json) -> bool:
                react(line)
                started.extend([line] if line.get("request", {}).get("callback_id") == "p" else [])
                return len(started) == 2

            await harness.receive_until(wanted)
            await harness.request("interrupt")
            await harness.receive("result")
            messages = harness.session.journal.history.render()
        kinds = [block["type"] for block in messages[2]["content"]]
        assert (kinds, [text.splitlines()[1] for text in contexts(harness)]) == (
            ["tool_result", "tool_result", "text", "text"],
            ["seen"],
        )

    await run(scenario)


async def test_hooks_are_consulted_about_a_file_that_a_prompt_mentions(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "notes.txt").write_text("buy milk")
        async with SessionHarness(tmp_path, script()) as harness:
            await play(harness, {"PostToolUse": specific(additionalContext="is old")}, prompt="look at @notes.txt")
            (said, _) = harness.session.journal.history.render()
        assert [word in str(said["content"]) for word in ("buy milk", "is old")] == [True, True]

    await run(scenario)


async def test_a_hook_may_end_what_a_prompt_mentions(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "notes.txt").write_text("buy milk")
        async with SessionHarness(tmp_path, script()) as harness:
            said = {"continue": False, "stopReason": "enough"}
            await play(harness, {"PostToolUse": said}, prompt="look at @notes.txt")
            (told, _) = harness.session.journal.history.render()
        assert "buy milk" not in str(told["content"])
        texts = [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]
        assert texts[-1] == "@notes.txt was not included: a hook stopped it: enough"

    await run(scenario)


async def test_a_call_is_decided_on_in_the_mode_that_counts_when_its_hooks_are_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO, skip_permissions=True) as harness:
            await register(harness, {"PreToolUse": [matcher("h")]})
            harness.prompt("go")
            question = await harness.receive_until(
                lambda line: line.get("request", {}).get("subtype") == "hook_callback"
            )
            await harness.request("set_permission_mode", mode="default")
            harness.send(reply(question, {}))
            await until_result(harness, {}, permission={"behavior": "deny", "message": "no"})
        assert (permissions(harness), (tmp_path / "a.txt").exists()) == ([("deny", "host")], False)

    await run(scenario)


async def test_a_hook_may_end_the_turn_instead_of_answering_a_permission_question(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, TOUCH, **STDIO) as harness:
            said = {"continue": False, "stopReason": "enough"}
            result = await play(harness, {"PermissionRequest": said}, permission=SILENCE)
        assert (result["terminal_reason"], result["subtype"]) == ("hook_stopped", "success")
        assert results(harness) == ["PermissionRequest:Bash hook error: a hook ended the turn: enough"]
        assert (permissions(harness), (tmp_path / "a.txt").exists()) == ([("deny", "hook")], False)

    await run(scenario)


async def test_what_cannot_be_kept_is_replaced_in_what_hooks_say_to_the_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SessionHarness(tmp_path, script("echo a"), skip_permissions=True) as harness:
            await play(harness, {"PostToolUse": specific(additionalContext="a\0b")})
        assert [text.splitlines()[1] for text in contexts(harness)] == ["a\ufffdb"]

    await run(scenario)


async def test_a_host_that_hangs_up_fails_its_hooks(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = SessionHarness(tmp_path, TOUCH, permission_mode="acceptEdits")
        async with harness:
            await register(harness, {"PreToolUse": [matcher("h")]})
            harness.prompt("go")
            await harness.receive_until(lambda line: line.get("request", {}).get("subtype") == "hook_callback")
        assert permissions(harness) == [("deny", "hook")]
        assert not (tmp_path / "a.txt").exists()

    await run(scenario)


# Tools of MCP servers.

MCP_ANSWERS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
    "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "secret"}]},
}


async def test_the_output_of_an_mcp_tool_has_a_field_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        calling = "[[turn]]\ntools = [{ name = 'mcp__s__look', input = {} }]\n[[turn]]\ntext = 'Done.'"
        async with SessionHarness(tmp_path, calling, permission_prompt_tool="stdio") as harness:
            hooks = {"PostToolUse": [matcher("h", matcher="mcp__s__.*")]}
            request = {"subtype": "initialize", "hooks": hooks, "sdkMcpServers": ["s"]}
            harness.send({"type": "control_request", "request_id": "i", "request": request})
            harness.prompt("go")
            react = answering(harness, {"h": specific(updatedMCPToolOutput="hidden")})
            await harness.receive_until(lambda line: serve_or(react, harness, line) or line["type"] == "result")
        assert results(harness) == ["hidden"]
        assert asked(harness)[0]["tool_name"] == "mcp__s__look"

    await run(scenario)


def serve_or(react: Any, harness: SessionHarness, line: Json) -> bool:
    """Answer for the server `s`, or as the host. Never what is waited for."""
    request = line.get("request", {})
    if request.get("subtype") != "mcp_message":
        react(line)
        return False
    message = request["message"]
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": MCP_ANSWERS.get(message["method"], {})}
    harness.send({"type": "control_response", "response": success(line, {"mcp_response": answer})})
    return False
