"""Command hooks from settings, and the warnings about invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.command import CommandHook
from parley.hooks.settings import load_hooks
from parley.permissions.base import ToolRequest
from parley.settings.base import SettingsValue


def layer(hooks: Any, path: str = "/s.json") -> SettingsValue:
    return SettingsValue(value=hooks, source="user", path=path, root="/")


def group(*handlers: Any, **fields: Any) -> Any:
    return [{"hooks": list(handlers), **fields}]


def test_every_field_of_a_command_is_read() -> None:
    more = {"args": ["-x"], "timeout": 5, "async": True, "onFailure": "block"}
    handler = {"type": "command", "command": "check", **more}

    (entry,), problems = load_hooks([layer({"PreToolUse": group(handler, matcher="Bash")})])

    assert isinstance(entry, CommandHook)
    assert (entry.event, entry.matcher, entry.command, entry.args) == ("PreToolUse", "Bash", "check", ("-x",))
    assert (entry.timeout_seconds, entry.in_background, entry.on_failure, entry.source) == (
        5.0,
        True,
        "block",
        "/s.json",
    )
    assert problems == []


@pytest.mark.parametrize(
    "own",
    [
        {"type": "command", "command": "a"},
        {"type": "http", "url": "https://a.example", "onFailure": "block"},
        {"type": "prompt", "prompt": "a", "model": "b"},
        {"type": "agent", "prompt": "a", "model": "b"},
        {"type": "mcp_tool", "server": "a", "tool": "b"},
    ],
)
def test_every_kind_has_the_shared_fields(own: Any) -> None:
    shared = {"if": "Bash(git *)", "once": True, "timeout": 7, "statusMessage": "Checking"}

    (entry,), flaws = load_hooks([layer({"PostToolUse": group({**own, **shared})})])

    assert (entry.kind, entry.condition_text, entry.once, flaws) == (own["type"], "Bash(git *)", True, [])
    assert (entry.timeout_seconds, entry.status_message) == (7.0, "Checking")
    assert entry.on_failure == own.get("onFailure", "continue")
    assert getattr(entry, "model", None) == own.get("model")


def test_if_on_an_event_without_a_call_is_reported_and_the_hook_never_runs() -> None:
    (entry,), (flaw,) = load_hooks([layer({"Stop": group({"command": "a", "if": "Bash(git *)"})})])

    assert "needs a tool call" in flaw.text
    assert entry.condition is not None
    assert not entry.condition(ToolRequest(tool="Bash", input={}, cwd="/"))


def test_the_layers_come_in_their_order_and_a_command_only_once() -> None:
    first = layer({"Stop": group({"command": "a"}, {"command": "b"})}, "/managed")
    second = layer({"Stop": group({"command": "b"}, {"command": "c"})}, "/user")

    found, _ = load_hooks([first, second])

    assert [(entry.subject, entry.source) for entry in found] == [("a", "/managed"), ("b", "/managed"), ("c", "/user")]


@pytest.mark.parametrize(
    ("hooks", "word"),
    [
        ({"Nonsense": group({"command": "a"})}, "unknown event"),
        ({"Stop": "a"}, "must be an object"),
        ({"Stop": [{"matcher": 1, "hooks": []}]}, "must be an object"),
        ({"Stop": [{"command": "a"}]}, "must be an object"),
        ({"Stop": group("a")}, "a hook must be an object"),
        ({"Setup": group({"command": "a"})}, "never run: there is no --init"),
        ({"Stop": group({"type": "carrier-pigeon"})}, "of type 'carrier-pigeon' are not supported"),
        ({"SessionEnd": group({"type": "prompt", "prompt": "a"})}, "this event cannot be blocked"),
        ({"Stop": group({"type": "prompt"})}, "prompt and model must be strings"),
        ({"Stop": group({"type": "agent", "prompt": "a", "model": 1})}, "prompt and model must be strings"),
        ({"Stop": group({"type": "http", "url": "ftp://a"})}, "url must be an http or https URL"),
        ({"Stop": group({"type": "http", "url": "http://a", "headers": {"a": 1}})}, "headers must be an object"),
        ({"Stop": group({"type": "mcp_tool", "server": "a"})}, "server and tool must be strings"),
        ({"Stop": group({"command": "a", "shell": "fish"})}, "shell 'fish' must be one of bash, powershell"),
        ({"Stop": group({"type": "command"})}, "command must be a string"),
        ({"Stop": group({"command": "a", "args": [1]})}, "command must be a string"),
        ({"Stop": group({"command": "a", "shell": ["bash"]})}, "must be one of bash"),
    ],
)
def test_what_cannot_be_run_is_reported_and_left_out(hooks: Any, word: str) -> None:
    found, (problem,) = load_hooks([layer(hooks)])

    assert (found, word in str(problem), "/s.json" in str(problem)) == ([], True, True)


@pytest.mark.parametrize(
    ("handler", "matcher", "word"),
    [
        ({"command": "a", "onze": True}, "", "onze"),
        ({"command": "a", "url": "b"}, "", "url"),
        ({"command": "a", "if": 1}, "", "`if` must be a permission rule"),
        ({"command": "a"}, "(", "matcher '('"),
    ],
)
def test_what_is_not_heeded_is_reported(handler: Any, matcher: str, word: str) -> None:
    found, (problem,) = load_hooks([layer({"PreToolUse": group(handler, matcher=matcher)})])

    assert (len(found), word in problem.text) == (1, True)


@pytest.mark.parametrize(
    "groups",
    [
        "check",
        [{"command": "check"}],
        group("check"),
        group({"type": "http", "url": "localhost"}),
        group({"type": "command", "cmd": "check"}),
    ],
)
def test_a_guard_that_cannot_be_run_stays_and_fails(groups: Any) -> None:
    (entry,), (problem,) = load_hooks([layer({"PreToolUse": groups})])

    assert (entry.on_failure, entry.unusable in problem.text, "the call is denied" in problem.text) == (
        "block",
        True,
        True,
    )


def test_a_guard_that_cannot_be_run_and_may_fail_is_left_out() -> None:
    found, (problem,) = load_hooks([layer({"PreToolUse": group({"type": "http", "onFailure": "continue"})})])

    assert (found, "denied" in problem.text) == ([], False)
