"""An MCP tool answers permission questions: a real server, and the engine that calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.compose.composer import Composer
from parley.errors import UsageError
from parley.protocol.options import CliOptions
from tests.helpers import paths
from tests.helpers.session import Json, SessionHarness

PROGRAM = paths.MCP_SERVERS / "gatekeeper.py"
NAME = "mcp__gate__decide"


def script(*commands: str) -> str:
    calls = [
        f"{{ name = 'Bash', id = 't{number}', input = {{ command = {json.dumps(command)} }} }}"
        for number, command in enumerate(commands, 1)
    ]
    return "".join(f"[[turn]]\ntools = [{call}]\n" for call in calls) + "[[turn]]\ntext = 'Done.'\n"


def servers(folder: Path) -> tuple[str, ...]:
    gate = {"command": sys.executable, "args": [str(PROGRAM), str(folder / "asked")]}
    return (json.dumps({"mcpServers": {"gate": gate}}),)


async def scenario(folder: Path, *commands: str, **options: Any) -> SessionHarness:
    given = {"permission_prompt_tool": NAME, "mcp_config": servers(folder), **options}
    async with SessionHarness(folder, script(*commands), **given) as harness:
        harness.prompt("go")
        await harness.receive("result")
    return harness


def questions(folder: Path) -> list[Json]:
    file = folder / "asked"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def contents(harness: SessionHarness) -> list[str]:
    blocks = [
        block for line in harness.messages("user") for block in line["message"]["content"] if isinstance(block, dict)
    ]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def records(harness: SessionHarness) -> list[tuple[str, str, str]]:
    kept = [entry.message for entry in harness.session.config.storage.log.entries() if entry.kind == "permission"]
    return [(record["decision"], record["source"], record["reason"]) for record in kept]


def denials(harness: SessionHarness) -> list[Json]:
    return [line for line in harness.messages("system") if line["subtype"] == "permission_denied"]


async def test_the_tool_is_asked_and_its_yes_lets_the_call_run(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, "touch made #yes")

    assert questions(tmp_path) == [{"tool_name": "Bash", "input": {"command": "touch made #yes"}, "tool_use_id": "t1"}]
    assert (tmp_path / "made").exists()
    assert records(harness) == [("allow", "prompt_tool", NAME)]
    assert list(harness.messages("control_request")) == []


async def test_the_input_that_it_gives_is_what_runs(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, "touch made #altered")

    assert contents(harness) == ["altered"]
    assert not (tmp_path / "made").exists()


async def test_the_rules_that_it_gives_count_from_then_on(tmp_path: Path) -> None:
    await scenario(tmp_path, "touch one #granted", "touch two")

    assert len(questions(tmp_path)) == 1
    assert (tmp_path / "two").exists()


async def test_its_denial_goes_to_the_model_and_the_host_is_informed(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, "touch made #no")

    assert contents(harness) == ["the gate is shut"]
    [line] = denials(harness)
    assert (line["decision_reason_type"], line["decision_reason"]) == ("permissionPromptTool", NAME)


UNCLEAR = ("other", "delegate", "fail", "prose", "nothing", "crash", "unheard-of", "twice", "bypass", "misspelt")


@pytest.mark.parametrize("word", UNCLEAR)
async def test_whatever_is_not_clearly_a_yes_is_a_denial_with_a_reason(tmp_path: Path, word: str) -> None:
    harness = await scenario(tmp_path, f"touch made #{word}")

    assert not (tmp_path / "made").exists()
    assert records(harness) == [("deny", "prompt_tool", NAME)]
    assert "ermission" in contents(harness)[0]
    assert len(denials(harness)) == 1
    assert not (tmp_path / "home/.claude/settings.json").exists()


async def test_a_tool_that_is_not_there_denies_everything_that_would_be_asked(tmp_path: Path) -> None:
    harness = await scenario(tmp_path, "touch made", "ls", mcp_config=None)

    assert not (tmp_path / "made").exists()
    assert "There is no MCP tool 'mcp__gate__decide'" in contents(harness)[0]
    assert [record[0] for record in records(harness)] == ["deny", "allow"]


async def test_a_server_that_does_not_start_is_named_in_the_denial(tmp_path: Path) -> None:
    broken = json.dumps({"mcpServers": {"gate": {"command": "/nowhere/gate"}}})
    harness = await scenario(tmp_path, "touch made", mcp_config=(broken,))

    assert "'gate' is not connected (failed)" in contents(harness)[0]
    assert not (tmp_path / "made").exists()


async def test_the_model_is_neither_offered_the_tool_nor_can_it_call_it(tmp_path: Path) -> None:
    call = f"[[turn]]\ntools = [{{ name = '{NAME}', id = 't1', input = {{ tool_name = 'Bash' }} }}]\n"
    text = call + "[[turn]]\ntext = 'Done.'\n"
    given = {"permission_prompt_tool": NAME, "mcp_config": servers(tmp_path), "allowed_tools": (NAME,)}
    async with SessionHarness(tmp_path, text, **given) as harness:
        harness.prompt("go")
        await harness.receive("result")

    [init] = [line for line in harness.messages("system") if line["subtype"] == "init"]
    assert NAME not in init["tools"]
    assert "No such tool" in contents(harness)[0]
    assert questions(tmp_path) == []


async def test_rules_and_the_guard_come_first_as_with_a_host(tmp_path: Path) -> None:
    denied = await scenario(tmp_path, "touch made #yes", disallowed_tools=("Bash(touch:*)",))
    assert (questions(tmp_path), records(denied)[0][:2]) == ([], ("deny", "rule"))

    guarded = await scenario(tmp_path, "echo hello #no", guard=True)
    assert (len(questions(tmp_path)), records(guarded)[-1][:2]) == (1, ("deny", "prompt_tool"))


@pytest.mark.parametrize("name", ["Bash", "mcp__gate", "nonsense", ""])
def test_only_a_tool_of_a_server_may_answer(tmp_path: Path, name: str) -> None:
    composer = Composer(
        CliOptions(model="offline", permission_prompt_tool=name), {"HOME": str(tmp_path)}, str(tmp_path)
    )
    with pytest.raises(UsageError, match="must be stdio or mcp__SERVER__TOOL"):
        composer.make_config()


@pytest.mark.parametrize(("word", "made", "denied"), [("yes", True, 0), ("no", False, 1)])
def test_one_prompt_through_the_executable_asks_the_tool(tmp_path: Path, word: str, made: bool, denied: int) -> None:
    (tmp_path / "script.toml").write_text(script(f"touch made #{word}"))
    [config] = servers(tmp_path)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "parley", "-p", "go", "--output-format", "json", "--model", "scripted:script.toml"),
            *("--mcp-config", config, "--permission-prompt-tool", NAME),
        ],
        cwd=tmp_path,
        env={"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (tmp_path / "made").exists() is made
    assert len(json.loads(done.stdout)["permission_denials"]) == denied
