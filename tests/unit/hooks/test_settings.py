"""Command hooks from settings, and the warnings about invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.settings import load_entries
from parley.settings.base import SettingsValue


def layer(hooks: Any, path: str = "/s.json") -> SettingsValue:
    return SettingsValue(value=hooks, source="user", path=path, root="/")


def group(*handlers: Any, **fields: Any) -> Any:
    return [{"hooks": list(handlers), **fields}]


def test_every_field_of_a_command_is_read() -> None:
    more = {"args": ["-x"], "timeout": 5, "async": True, "onFailure": "block"}
    handler = {"type": "command", "command": "check", **more}

    (entry,), flaws = load_entries([layer({"PreToolUse": group(handler, matcher="Bash")})])

    assert (entry.event, entry.matcher, entry.command, entry.args) == ("PreToolUse", "Bash", "check", ("-x",))
    assert (entry.timeout_seconds, entry.in_background, entry.on_failure, entry.source) == (
        5.0,
        True,
        "block",
        "/s.json",
    )
    assert flaws == []


def test_the_layers_come_in_their_order_and_a_command_only_once() -> None:
    first = layer({"Stop": group({"command": "a"}, {"command": "b"})}, "/managed")
    second = layer({"Stop": group({"command": "b"}, {"command": "c"})}, "/user")

    found, _ = load_entries([first, second])

    assert [(entry.command, entry.source) for entry in found] == [("a", "/managed"), ("b", "/managed"), ("c", "/user")]


@pytest.mark.parametrize(
    ("hooks", "word"),
    [
        ({"Nonsense": group({"command": "a"})}, "unknown event"),
        ({"Stop": "a"}, "must be an object"),
        ({"Stop": [{"matcher": 1, "hooks": []}]}, "must be an object"),
        ({"Stop": [{"command": "a"}]}, "must be an object"),
        ({"Stop": group("a")}, "a hook must be an object"),
        ({"Stop": group({"type": "prompt", "prompt": "a"})}, "of type 'prompt' are not supported"),
        ({"Stop": group({"type": "command"})}, "command must be a string"),
        ({"Stop": group({"command": "a", "args": [1]})}, "command must be a string"),
    ],
)
def test_what_cannot_be_run_is_told_and_left_out(hooks: Any, word: str) -> None:
    found, (flaw,) = load_entries([layer(hooks)])

    assert (found, word in str(flaw), "/s.json" in str(flaw)) == ([], True, True)


@pytest.mark.parametrize(
    ("handler", "matcher", "word"),
    [({"command": "a", "once": True}, "", "once"), ({"command": "a"}, "(", "matcher '('")],
)
def test_what_is_not_heeded_is_told(handler: Any, matcher: str, word: str) -> None:
    found, (flaw,) = load_entries([layer({"PreToolUse": group(handler, matcher=matcher)})])

    assert (len(found), word in flaw.text) == (1, True)


@pytest.mark.parametrize(
    "groups",
    [
        "check",
        [{"command": "check"}],
        group("check"),
        group({"type": "http", "url": "http://localhost"}),
        group({"type": "command", "cmd": "check"}),
    ],
)
def test_a_guard_that_cannot_be_run_stays_and_fails(groups: Any) -> None:
    (entry,), (flaw,) = load_entries([layer({"PreToolUse": groups})])

    assert (entry.on_failure, entry.unusable in flaw.text, "the call is denied" in flaw.text) == ("block", True, True)


def test_a_guard_that_cannot_be_run_and_may_fail_is_left_out() -> None:
    found, (flaw,) = load_entries([layer({"PreToolUse": group({"type": "http", "onFailure": "continue"})})])

    assert (found, "denied" in flaw.text) == ([], False)
