"""The kinds of handlers in settings, and the fields that all of them share, through a real session."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.hooks import contexts, permissions, results, specific
from tests.helpers.http_server import loopback, whole
from tests.helpers.mcp import config, own, script, visit
from tests.helpers.session import Json, SessionHarness

TOUCH = [("Bash", {"command": "touch a.txt"})]
TURNS = script(TOUCH, "Done.")
JUDGE = "[[turn]]\nwhen = 'Answer with one JSON object'\ntext = '''%s'''\n"
PRIVATE = {"PARLEY_WEBFETCH_ALLOW_PRIVATE": "1"}


def hooks(event: str, *handlers: Json, matcher: str = "", **more: Any) -> str:
    return json.dumps({"hooks": {event: [{"matcher": matcher, "hooks": list(handlers)}]}, **more})


async def one_turn(harness: SessionHarness) -> Json:
    harness.prompt("go")
    return await harness.receive("result")


async def run(
    folder: Path, turns: str, settings: str, environment: dict[str, str] | None = None, **options: Any
) -> SessionHarness:
    async def talk(harness: SessionHarness) -> None:
        await one_turn(harness)

    return await visit(folder, turns, talk, environment, settings=settings, **{"skip_permissions": True, **options})


# http


async def test_an_http_hook_posts_the_input_and_its_reply_decides(tmp_path: Path) -> None:
    answer = specific(permissionDecision="deny", permissionDecisionReason="Not on Mondays")
    async with loopback(whole(200, json.dumps(answer).encode())) as server:
        handler = {"type": "http", "url": f"{server.url}/check"}
        harness = await run(tmp_path, TURNS, hooks("PreToolUse", handler), PRIVATE)

    [request] = server.heard
    assert (request.line, request.headers["content-type"]) == ("POST /check HTTP/1.1", "application/json")
    input = json.loads(request.body)
    assert (input["hook_event_name"], input["tool_input"]) == ("PreToolUse", {"command": "touch a.txt"})
    assert ("Not on Mondays" in results(harness)[0], (tmp_path / "a.txt").exists()) == (True, False)


async def test_an_http_hook_without_an_opinion_changes_nothing_and_text_is_context(tmp_path: Path) -> None:
    async with loopback(whole(200, b"It is Monday."), whole(200, b"")) as server:
        handler = {"type": "http", "url": server.url}
        settings = {"hooks": {event: [{"hooks": [handler]}] for event in ("UserPromptSubmit", "PreToolUse")}}
        harness = await run(tmp_path, TURNS, json.dumps(settings), PRIVATE)

    assert (tmp_path / "a.txt").exists()
    assert len(server.heard) == 2
    assert contexts(harness) == ["<hook-context from='UserPromptSubmit'>\nIt is Monday.\n</hook-context>"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (whole(500, b"down"), "answered with status 500: down"),
        (whole(302, b"", {"location": "http://example.com"}), "answered with status 302"),
        (whole(200, b"{broken"), "is not valid JSON"),
    ],
)
async def test_an_http_guard_that_fails_denies_the_call(tmp_path: Path, answer: Any, words: str) -> None:
    async with loopback(answer) as server:
        harness = await run(tmp_path, TURNS, hooks("PreToolUse", {"type": "http", "url": server.url}), PRIVATE)

    assert (words in results(harness)[0], (tmp_path / "a.txt").exists()) == (True, False)
    assert ["failed" in text and words in text for text in harness.warnings] == [True]


@pytest.mark.parametrize(
    ("url", "environment", "more", "words"),
    [
        ("http://127.0.0.1:9/", PRIVATE, {}, "could not be fetched"),
        ("http://127.0.0.1:9/", {}, {}, "is not public"),
        ("http://[::1]:9/", {}, {"allowedHttpHookUrls": ["http://*"]}, "is not public"),
        ("https://hooks.example.com/a", {}, {"allowedHttpHookUrls": []}, "does not match allowedHttpHookUrls"),
        (
            "https://evil.example/hooks.good.example/",
            {},
            {"allowedHttpHookUrls": ["https://*good.example/*"]},
            "does not match allowedHttpHookUrls",
        ),
    ],
)
async def test_a_url_that_is_down_private_or_not_listed_denies_the_call(
    tmp_path: Path, url: str, environment: dict[str, str], more: Json, words: str
) -> None:
    harness = await run(tmp_path, TURNS, hooks("PreToolUse", {"type": "http", "url": url}, **more), environment)

    assert (words in results(harness)[0], (tmp_path / "a.txt").exists()) == (True, False)


async def test_a_private_host_that_the_user_lists_by_name_may_be_called(tmp_path: Path) -> None:
    async with loopback(whole(200, b"{}")) as server:
        settings = hooks(
            "PreToolUse", {"type": "http", "url": f"{server.url}/check"}, allowedHttpHookUrls=[f"{server.url}/*"]
        )
        await run(tmp_path, TURNS, settings)

    assert (len(server.heard), (tmp_path / "a.txt").exists()) == (1, True)


async def test_only_listed_variables_reach_the_headers(tmp_path: Path) -> None:
    async with loopback(whole(200, b"{}")) as server:
        handler = {
            "type": "http",
            "url": server.url,
            "headers": {
                "Authorization": "Bearer $MINE",
                "X-All": "${MINE}-${OTHER}-$UNLISTED",
                "X-Key": "$ANTHROPIC_API_KEY",
            },
            "allowedEnvVars": ["MINE", "OTHER", "ANTHROPIC_API_KEY"],
        }
        settings = hooks("PreToolUse", handler, httpHookAllowedEnvVars=["MINE", "UNLISTED", "ANTHROPIC_API_KEY"])
        more = {"MINE": "m", "OTHER": "o", "UNLISTED": "u", "ANTHROPIC_API_KEY": "sk-secret"}
        await run(tmp_path, TURNS, settings, PRIVATE | more)

    headers = server.heard[0].headers
    assert (headers["authorization"], headers["x-all"], headers["x-key"]) == ("Bearer m", "m--", "")


async def test_the_length_of_a_request_is_that_of_its_body(tmp_path: Path) -> None:
    async with loopback(whole(200, b"{}")) as server:
        headers = {"Content-Length": "2", "transfer-encoding": "chunked", "X-Kept": "yes"}
        handler = {"type": "http", "url": server.url, "headers": headers}
        await run(tmp_path, TURNS, hooks("PreToolUse", handler), PRIVATE)

    [request] = server.heard
    assert json.loads(request.body)["hook_event_name"] == "PreToolUse"
    assert int(request.headers["content-length"]) == len(request.body)
    assert (request.headers["x-kept"], "transfer-encoding" in request.headers) == ("yes", False)


@pytest.mark.parametrize(
    ("managed", "is_called"),
    [({}, True), ({"allowedHttpHookUrls": [], "httpHookAllowedEnvVars": []}, False)],
)
async def test_lists_of_a_user_do_not_limit_the_hooks_of_an_administrator(
    tmp_path: Path, managed: Json, is_called: bool
) -> None:
    own = json.dumps({"allowedHttpHookUrls": [], "httpHookAllowedEnvVars": []})
    async with loopback(whole(200, b"{}")) as server:
        headers = {"X-Mine": "$MINE"}
        handler = {"type": "http", "url": server.url, "headers": headers, "allowedEnvVars": ["MINE"]}
        required = hooks("PreToolUse", handler, **managed)
        await run(tmp_path, TURNS, own, PRIVATE | {"MINE": "m"}, managed_settings=required)

    assert [request.headers["x-mine"] for request in server.heard] == (["m"] if is_called else [])


async def test_a_project_cannot_list_urls(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"allowedHttpHookUrls": ["http://127.0.0.1/*"]}))
    settings = hooks("PreToolUse", {"type": "http", "url": "http://127.0.0.1:9/"})
    harness = await run(tmp_path, TURNS, settings)

    assert "is not public" in results(harness)[0]


# prompt and agent


@pytest.mark.parametrize(
    ("text", "is_made"),
    [
        ('{"ok": true}', True),
        ('```json\n{"ok": true}\n```', True),
        ('{"ok": false, "reason": "It touches files"}', False),
        ("I think it is fine.", False),
        ('{"ok": "yes"}', False),
    ],
)
async def test_a_model_judges_a_call(tmp_path: Path, text: str, is_made: bool) -> None:
    handler = {"type": "prompt", "prompt": "Is this harmless? $ARGUMENTS"}
    turns = f"[[turn]]\nwhen = 'go'\n{script(TOUCH).removeprefix('[[turn]]')}" + JUDGE % text
    harness = await run(tmp_path, turns + "[[turn]]\ntext = 'Done.'\n", hooks("PreToolUse", handler))

    assert (tmp_path / "a.txt").exists() is is_made
    if "reason" in text:
        assert "It touches files" in results(harness)[0]
    elif not is_made:
        assert "the model did not answer" in results(harness)[0]


async def test_a_model_keeps_a_turn_from_ending(tmp_path: Path) -> None:
    handler = {"type": "prompt", "prompt": "Is everything done?"}
    turns = script("Half done.") + JUDGE % '{"ok": false, "reason": "Write the tests"}'
    turns += script("All done.") + JUDGE % '{"ok": true}'
    harness = await run(tmp_path, turns, hooks("Stop", handler))

    assert [line["result"] for line in harness.messages("result")] == ["All done."]
    assert ["Write the tests" in text for text in contexts(harness)] == [True]


@pytest.mark.parametrize("continues", [True, False])
async def test_a_block_of_a_model_ends_the_turn_unless_it_continues(tmp_path: Path, continues: bool) -> None:
    handler = {"type": "prompt", "prompt": "Fine?", "continueOnBlock": continues}
    turns = script(TOUCH) + JUDGE % '{"ok": false, "reason": "Bad file"}' + script("Done.")
    harness = await run(tmp_path, turns, hooks("PostToolUse", handler))

    [result] = harness.messages("result")
    assert result["terminal_reason"] == ("completed" if continues else "hook_stopped")


async def test_a_model_that_does_not_exist_denies_the_call(tmp_path: Path) -> None:
    handler = {"type": "prompt", "prompt": "Fine?", "model": "scripted:/no/such/file"}
    harness = await run(tmp_path, TURNS, hooks("PreToolUse", handler))

    assert ("failed" in results(harness)[0], (tmp_path / "a.txt").exists()) == (True, False)


@pytest.mark.parametrize(("content", "is_made"), [("tests pass", True), ("tests fail", False)])
async def test_an_agent_reads_files_and_then_judges(tmp_path: Path, content: str, is_made: bool) -> None:
    (tmp_path / "log.txt").write_text(content)
    read = {"file_path": str(tmp_path / "log.txt")}
    answer = {"ok": True} if is_made else {"ok": False, "reason": "They fail"}
    looks = script([("Read", read)]).replace("[[turn]]", "[[turn]]\nwhen = 'Do the tests pass'")
    turns = script(TOUCH) + looks + script(json.dumps(answer), "Done.")
    handler = {"type": "agent", "prompt": "Do the tests pass?"}
    settings = {
        "hooks": {"PreToolUse": [{"hooks": [handler]}, {"matcher": "Read", "hooks": [{"command": "cat >> told"}]}]}
    }
    harness = await run(tmp_path, turns, json.dumps(settings))

    assert (tmp_path / "a.txt").exists() is is_made
    [input] = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert (input["tool_input"], input["agent_type"]) == (read, "hook-agent")
    assert ("allow", "mode") in permissions(harness) or is_made is False


async def test_an_agent_of_a_hook_can_neither_write_nor_read_what_a_rule_denies(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hush")
    path = json.dumps(str(tmp_path / "secret.txt"))
    turns = (
        script(TOUCH)
        + f"[[turn]]\ntools = [{{ name = 'Read', id = 'r1', input = {{ file_path = {path} }} }}, "
        + "{ name = 'Bash', id = 'r2', input = { command = 'touch b.txt' } }]\n"
        + '[[turn]]\nwhen = \'denied\'\ntext = \'{"ok": false, "reason": "Denied"}\'\n'
        + script("Done.")
    )
    handler = {"type": "agent", "prompt": "Fine?"}
    settings = hooks("PreToolUse", handler, permissions={"deny": ["Read(secret.txt)"]})
    harness = await run(tmp_path, turns, settings)

    assert ((tmp_path / "b.txt").exists(), (tmp_path / "a.txt").exists()) == (False, False)
    assert "hush" not in json.dumps(harness.lines)


# mcp_tool


async def test_a_tool_of_a_server_decides(tmp_path: Path) -> None:
    handler = {
        "type": "mcp_tool",
        "server": "guard",
        "tool": "decide",
        "input": {"name": "${tool_name}", "input": "${tool_input}", "id": "id-${tool_use_id}", "none": "${a.b}"},
    }
    turns = script([("Bash", {"command": "touch a.txt #hook"})], "Done.")
    harness = await run(tmp_path, turns, hooks("PreToolUse", handler, matcher="Bash"), mcp_config=guard(tmp_path))

    assert ("no touching" in results(harness)[0], (tmp_path / "a.txt").exists()) == (True, False)
    assert json.loads((tmp_path / "questions").read_text()) == {
        "name": "Bash",
        "input": {"command": "touch a.txt #hook"},
        "id": "id-t1",
        "none": "",
    }


def guard(folder: Path) -> tuple[str, ...]:
    return config(guard=own("gatekeeper.py", str(folder / "questions")))


@pytest.mark.parametrize(
    ("server", "tool", "command", "words"),
    [
        ("nowhere", "decide", "touch a.txt", "there is no MCP server 'nowhere'"),
        ("guard", "sing", "touch a.txt", "has no tool 'sing'"),
        ("guard", "decide", "touch a.txt #fail", "guard/decide failed: no idea"),
    ],
)
async def test_a_server_or_a_tool_that_is_missing_or_fails_denies_the_call(
    tmp_path: Path, server: str, tool: str, command: str, words: str
) -> None:
    handler = {"type": "mcp_tool", "server": server, "tool": tool, "input": {"input": "${tool_input}"}}
    turns = script([("Bash", {"command": command})], "Done.")
    harness = await run(tmp_path, turns, hooks("PreToolUse", handler), mcp_config=guard(tmp_path))

    assert (words in results(harness)[0], (tmp_path / "a.txt").exists()) == (True, False)


# Shared fields.


@pytest.mark.parametrize(
    ("rule", "command", "runs"),
    [
        ("Bash(git *)", "touch a.txt", False),
        ("Bash(touch *)", "touch a.txt", True),
        ("Bash(touch *)", "true && touch a.txt", True),
        ("Bash(touch *)", "true", False),
        ("Write(*.txt)", "touch a.txt", False),
        ("Bash(", "touch a.txt", True),
    ],
)
async def test_if_limits_the_calls_a_hook_runs_for(tmp_path: Path, rule: str, command: str, runs: bool) -> None:
    turns = script([("Bash", {"command": command})], "Done.")
    harness = await run(tmp_path, turns, hooks("PreToolUse", {"command": "touch ran", "if": rule}))

    assert (tmp_path / "ran").exists() is runs
    assert ["is not a valid permission rule" in text for text in harness.warnings] == [True] * (rule == "Bash(")


async def test_if_works_after_a_call_and_for_other_tools(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    read: list[tuple[str, Json]] = [("Read", {"file_path": str(tmp_path / "a.py")})]
    settings = {
        "hooks": {
            "PostToolUse": [
                {"hooks": [{"command": "touch py", "if": "Read(*.py)"}, {"command": "touch md", "if": "Read(*.md)"}]}
            ]
        }
    }
    await run(tmp_path, script(read, "Done."), json.dumps(settings))

    assert ((tmp_path / "py").exists(), (tmp_path / "md").exists()) == (True, False)


async def test_once_runs_only_the_first_time(tmp_path: Path) -> None:
    await run(tmp_path, script(TOUCH, TOUCH, "Done."), hooks("PreToolUse", {"command": "echo x >> ran", "once": True}))

    assert (tmp_path / "ran").read_text() == "x\n"


async def test_async_rewake_wakes_the_model_after_exit_code_2(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    handler = {"command": "read < go; echo The build broke >&2; exit 2", "asyncRewake": True}
    turns = script(TOUCH, "Done.") + "[[turn]]\nwhen = 'The build broke'\ntext = 'I will look.'\n"
    async with SessionHarness(
        tmp_path, turns, settings=hooks("PostToolUse", handler), skip_permissions=True
    ) as harness:
        first = await one_turn(harness)
        (tmp_path / "go").write_text("\n")
        second = await harness.receive("result")

    assert (first["result"], second["result"]) == ("Done.", "I will look.")


async def test_the_listing_has_every_kind_with_its_fields_and_no_secrets(tmp_path: Path) -> None:
    handlers: list[Json] = [
        {"type": "command", "command": "true", "statusMessage": "Checking", "if": "Bash(git *)", "once": True},
        {"type": "http", "url": "http://me:pw@a.example/x?token=t", "headers": {"Authorization": "Bearer secret"}},
        {"type": "prompt", "prompt": "Fine?", "model": "small"},
        {"type": "agent", "prompt": "Fine?"},
        {"type": "mcp_tool", "server": "s", "tool": "t"},
    ]
    async with SessionHarness(tmp_path, TURNS, settings=hooks("PreToolUse", *handlers)) as harness:
        listed = (await harness.request("get_hooks_listing"))["response"]["response"]

    assert [hook["type"] for hook in listed["hooks"]] == ["command", "http", "prompt", "agent", "mcp_tool"]
    first, second = listed["hooks"][:2]
    assert (first["statusMessage"], first["if"], first["once"]) == ("Checking", "Bash(git *)", True)
    assert (second["url"], second["headers"]) == ("http://a.example/x", ["Authorization"])
    assert [word in json.dumps(listed) for word in ("secret", "pw@", "token=")] == [False] * 3


async def test_powershell_runs_pwsh(tmp_path: Path) -> None:
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "pwsh").write_text('#!/bin/sh\nprintf "%s|" "$@" > ran\n')
    (bin / "pwsh").chmod(0o755)
    handler = {"command": "Write-Output hi", "shell": "powershell"}
    await run(tmp_path, TURNS, hooks("PreToolUse", handler), {"PATH": f"{bin}:/usr/bin:/bin"})

    assert (tmp_path / "ran").read_text() == "-NoProfile|-NonInteractive|-Command|Write-Output hi|"
