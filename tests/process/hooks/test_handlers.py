"""Every kind of handler and the fields that they share, through the executable.

One session has a handler of each kind; `if` gives each a command of its own to deny.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.hooks import results, specific
from tests.helpers.http_server import loopback, whole
from tests.helpers.mcp import config, own, script
from tests.helpers.process import ProcessHarness

JUDGE = '[[turn]]\nwhen = \'%s\'\ntext = \'{"ok": false, "reason": "%s"}\'\n'
DENY = specific(permissionDecision="deny", permissionDecisionReason="The command says no")
KINDS: dict[str, dict[str, Any]] = {
    "command": {"type": "command", "command": f"echo '{json.dumps(DENY)}'"},
    "http": {"type": "http"},
    "down": {"type": "http", "url": "http://127.0.0.1:9/check"},
    "prompt": {"type": "prompt", "prompt": "Is this harmless? $ARGUMENTS"},
    "agent": {"type": "agent", "prompt": "Do the tests pass?"},
    "mcp_tool": {"type": "mcp_tool", "server": "guard", "tool": "decide", "input": {"input": "${tool_input}"}},
}
REASONS = {
    "command": "The command says no",
    "http": "The server says no",
    "down": "could not be fetched",
    "prompt": "The model says no",
    "agent": "The agent says no",
    "mcp_tool": "no touching",
}
COMMANDS = {kind: f"touch {kind} #hook" for kind in KINDS}


def turns(folder: Path) -> str:
    """Calls that are denied one by one, and two that are not."""
    look = script([("Read", {"file_path": str(folder / "log.txt")})])
    return (
        script(*([("Bash", {"command": command})] for command in [*COMMANDS.values(), "touch free", "touch free"]))
        + script("Done.")
        + JUDGE % ("Is this harmless", REASONS["prompt"])
        + look.replace("[[turn]]", "[[turn]]\nwhen = 'Do the tests pass'")
        + JUDGE % ("tests fail", REASONS["agent"])
        + "[[turn]]\nwhen = 'The build broke'\ntext = 'I will look.'\n"
    )


def settings(url: str) -> dict[str, Any]:
    before = [
        {**handler, "if": f"Bash(touch {kind} *)", **({"url": url} if kind == "http" else {})}
        for kind, handler in KINDS.items()
    ]
    after: list[dict[str, Any]] = [
        {"command": "echo once >> once", "once": True},
        {"command": "echo each >> each"},
        {"command": "read < begin; echo ran > ran; echo > broken", "async": True, "once": True},
        {"command": "read < broken; echo The build broke >&2; exit 2", "asyncRewake": True, "once": True},
    ]
    commands = [{"type": "command", "if": "Bash(touch free)", **handler} for handler in after]
    return {"hooks": {"PreToolUse": [{"hooks": before}], "PostToolUse": [{"matcher": "Bash", "hooks": commands}]}}


async def talk(folder: Path) -> dict[str, Any]:
    (folder / "log.txt").write_text("tests fail")
    for name in ("begin", "broken"):
        os.mkfifo(folder / name)
    begin = os.open(folder / "begin", os.O_RDWR)  # with both ends open, a write waits for nobody
    answer = specific(permissionDecision="deny", permissionDecisionReason=REASONS["http"])
    async with loopback(whole(200, json.dumps(answer).encode())) as server:
        harness = ProcessHarness(
            folder,
            turns(folder),
            *("--dangerously-skip-permissions", "--strict-mcp-config"),
            *("--mcp-config", *config(guard=own("gatekeeper.py", str(folder / "questions")))),
            settings=settings(f"{server.url}/check"),
            PARLEY_WEBFETCH_ALLOW_PRIVATE="1",
        )
        async with asyncio.timeout(110), harness:
            first = await harness.turn()
            # The turn has ended, and both commands in the background still wait: the first one lets the second go.
            is_waiting = not (folder / "ran").exists()
            os.write(begin, b"\n")
            second = await harness.receive("result")
    os.close(begin)
    told = dict(zip([*KINDS, "free", "again"], results(harness), strict=True))
    asked = [json.loads(request.body) for request in server.heard]
    return {
        "folder": folder,
        "told": told,
        "asked": asked,
        "is_waiting": is_waiting,
        "results": (first["result"], second["result"]),
    }


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return asyncio.run(talk(tmp_path_factory.mktemp("handlers")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_of_every_kind_denies_the_call_that_its_if_names(kind: str, session: dict[str, Any]) -> None:
    assert REASONS[kind] in session["told"][kind]
    assert not (session["folder"] / kind).exists()


def test_the_session_continues_and_other_calls_run(session: dict[str, Any]) -> None:
    assert (session["folder"] / "free").exists()
    assert session["results"] == ("Done.", "I will look.")  # the second one is that of asyncRewake


def test_an_http_handler_receives_the_input_of_its_own_call_only(session: dict[str, Any]) -> None:
    [input] = session["asked"]
    assert (input["hook_event_name"], input["tool_input"]) == ("PreToolUse", {"command": COMMANDS["http"]})


def test_once_runs_one_time_and_async_after_the_turn(session: dict[str, Any]) -> None:
    folder = session["folder"]
    assert (folder / "once").read_text() == "once\n"
    assert (folder / "each").read_text() == "each\neach\n"
    assert session["is_waiting"]
    assert (folder / "ran").read_text() == "ran\n"


UNKNOWN = {
    "Bash(touch:*)": [
        "x=touch; $x made",
        "$(echo touch) made",
        "cp /usr/bin/touch t; ./t made",
        "read c <<< touch; $c made",
    ],
    "Edit(made)": ["f=made; echo x > $f", "echo x | tee $(echo made)"],
    "Read(log.txt)": ["f=log.txt; cat $f > made", "find . -type f -exec cat {} + > made"],
}
"""Commands that a rule may match, which is not known before they run."""
OTHERS = {
    "Bash(touch:*)": ["mkdir free-1 && cd free-1 && pwd", "for f in *.txt; do echo $f; done"],
    "Edit(made)": ["echo x > free-2"],
    "Read(log.txt)": ["echo x > free-3", "ls"],
    "WebFetch(domain:example.com)": ["x=touch; $x free-4"],
}


async def test_a_handler_runs_if_it_is_not_known_whether_its_if_matches(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("tests fail")
    names = dict.fromkeys([*UNKNOWN, *OTHERS])
    hooks = [
        {"type": "command", "if": rule, "command": f"grep -qF '#{n}' && exit 2; exit 0"} for n, rule in enumerate(names)
    ]
    lines = [(f"{line} #{n}", rule) for n, rule in enumerate(names) for line in UNKNOWN.get(rule, [])]
    free = [f"{line} #{n}" for n, rule in enumerate(names) for line in OTHERS.get(rule, [])]
    turns = script(*([("Bash", {"command": line})] for line in [*(line for line, _ in lines), *free]), "Done.")

    async with ProcessHarness(
        tmp_path,
        turns,
        "--dangerously-skip-permissions",
        settings={"hooks": {"PreToolUse": [{"hooks": hooks}]}},
        IS_SANDBOX="1",
    ) as harness:
        await harness.turn()

    told = results(harness)
    assert ["hook error" in text for text in told] == [True] * len(lines) + [False] * len(free), told
    assert not (tmp_path / "made").exists()
