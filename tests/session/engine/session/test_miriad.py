"""What the engine does for a host that speaks miriad: real sessions, real tools, the lines of document 002."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.host import HostGone
from parley.protocol.messages.requests import Elicitation
from tests.helpers.mcp import own
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.session import Json, SessionHarness

WAITS = "echo > started; while [ ! -e go ]; do sleep 0.02; done; echo slept"
SLOW = '[[turn]]\ntext = "A very long story."\ndelay_ms = 60000\n'
INTERRUPT = {"type": "control", "action": "interrupt"}
STATUS = {"type": "control", "action": "status"}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def visit(
    folder: Path, script: str, scenario: Callable[[SessionHarness], Awaitable[None]], **options: Any
) -> SessionHarness:
    """A talk in a room whose host speaks miriad."""

    async with SessionHarness(folder, script, dialect="miriad", **options) as harness:
        await scenario(harness)
    return harness


def bash(command: str) -> str:
    return f"[[turn]]\ntools = [{{ name = 'Bash', input = {{ command = '{command}' }} }}]\n"


def text(*said: str) -> str:
    return "".join(f'[[turn]]\ntext = "{one}"\n' for one in said)


async def appears(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)


def heard_by_model(harness: SessionHarness) -> list[Json]:
    """What the users' side of the conversation holds, without tool results."""
    return [
        block
        for message in harness.session.journal.history.render()
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] != "tool_result"
    ]


def outputs(harness: SessionHarness) -> list[Any]:
    return [line["tool_result"]["content"] for line in harness.lines if line.get("subtype") == "tool_result"]


def ends(harness: SessionHarness) -> list[tuple[str, str]]:
    return [(line["subtype"], line["session_id"]) for line in harness.messages("result")]


async def test_a_tool_call_is_announced_before_it_runs(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Work")
        line = await harness.receive("assistant")
        assert line["message"]["content"][0]["name"] == "bash"
        assert outputs(harness) == []
        await appears(tmp_path / "started")
        (tmp_path / "go").touch()
        await harness.receive("result")

    harness = await visit(tmp_path, bash(WAITS) + text("Done."), scenario)

    assert outputs(harness) == ["slept"]


async def test_prompts_during_a_tool_call_join_as_one_user_message_before_the_next_model_call(
    tmp_path: Path,
) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Work", session_id="s1")
        await appears(tmp_path / "started")
        harness.prompt("be brief", session_id="s2")
        harness.prompt("and kind", session_id="s3")
        await harness.receive_until(lambda line: line.get("position") == 2)
        (tmp_path / "go").touch()
        await harness.receive("result")

    harness = await visit(tmp_path, bash(WAITS) + text("Done."), scenario)

    assert [block["text"] for block in heard_by_model(harness)] == ["Work", "be brief\n\nand kind"]
    assert [line for line in harness.lines if line.get("subtype") == "injected"] == [
        {"type": "system", "subtype": "injected", "message_count": 2, "content_length": 18}
    ]
    assert ends(harness) == [("success", "s1")]


async def test_prompts_too_late_for_the_turn_get_their_own_turns_in_order(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        for name in ("s1", "s2", "s3"):
            harness.prompt(f"Hello from {name}", session_id=name)
        for _ in range(3):
            await harness.receive("result")

    harness = await visit(tmp_path, text("one", "two", "three"), scenario)

    assert ends(harness) == [("success", "s1"), ("success", "s2"), ("success", "s3")]
    assert [line["position"] for line in harness.lines if line.get("subtype") == "queued"] == [1, 2]
    assert [line["result"] for line in harness.messages("result")] == ["one", "two", "three"]


async def test_an_interrupt_aborts_the_model_call_and_queued_prompts_run(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Tell me a story", session_id="s1")
        harness.prompt("Are you there?", session_id="s2")
        await harness.receive("system", "queued")
        harness.send(INTERRUPT)
        await harness.receive("system", "interrupted")
        assert (await harness.receive("result"))["subtype"] == "cancelled"
        assert (await harness.receive("result"))["result"] == "Yes."

    # The interrupted prompt is still in the last request, so the other one is looked for first.
    harness = await visit(tmp_path, text("Yes.").replace("[[turn]]", '[[turn]]\nwhen = "there"') + SLOW, scenario)

    assert ends(harness) == [("cancelled", "s1"), ("success", "s2")]


async def test_an_interrupt_ends_a_tool_and_gives_a_result_that_is_not_an_error(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Work")
        await appears(tmp_path / "started")
        harness.send(INTERRUPT)
        await harness.receive("result")

    harness = await visit(tmp_path, bash(WAITS), scenario)

    (ended,) = harness.messages("result")
    assert (ended["subtype"], ended["is_error"]) == ("cancelled", False)
    (output,) = [line["tool_result"] for line in harness.lines if line.get("subtype") == "tool_result"]
    assert output["is_error"] is True


async def test_an_interrupt_right_after_the_prompt_gives_a_result_as_well(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Tell me a story")
        harness.send(INTERRUPT, STATUS)
        await harness.receive("result")
        harness.send(INTERRUPT)
        assert (await harness.receive("system", "error"))["message"] == "No turn is currently running"

    harness = await visit(tmp_path, SLOW, scenario)

    assert [line["subtype"] for line in harness.messages("result")] == ["cancelled"]
    assert [line["running"] for line in harness.lines if line.get("subtype") == "status"] == [True]


async def test_a_model_failure_is_described_and_ends_the_turn_as_an_error(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Hello")
        await harness.receive("result")
        harness.prompt("Again")
        await harness.receive("result")

    bad = "[[turn]]\nerror = { status = 400, type = 'invalid_request_error', message = 'nonsense' }\n"
    harness = await visit(tmp_path, bad + text("Hello."), scenario)

    first, second = harness.messages("result")
    assert (first["subtype"], first["is_error"], first["result"]) == ("error", True, "API Error: 400 nonsense")
    assert [line["message"] for line in harness.messages("system")] == ["API Error: 400 nonsense"]
    assert second["subtype"] == "success"


async def test_what_happens_between_turns_is_reported(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Work in the background")
        await harness.receive("result")
        (tmp_path / "go").touch()
        assert (await harness.receive("result"))["result"] == "It is over."
        assert harness.lines[-1]["session_id"] == harness.session.id

    background = bash(WAITS).replace("input = { command", "input = { run_in_background = true, command")
    harness = await visit(tmp_path, background + text("Begun.", "It is over."), scenario)

    said = [line["message"]["content"][0].get("text") for line in harness.messages("assistant")]
    assert said[-2:] == ["Begun.", "It is over."]


async def test_variables_that_a_prompt_brings_reach_the_commands_of_tools(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Greet", environment={"GREETING": "hello"})
        await harness.receive("result")

    harness = await visit(tmp_path, bash("echo $GREETING") + text("Done."), scenario)

    assert outputs(harness) == ["hello"]


async def test_what_no_process_can_have_in_its_environment_is_left_out_and_reported(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Greet", environment={"GREETING": "hello", "A": "a\0b", "B=C": "d", "": "e"})
        await harness.receive("result")

    harness = await visit(tmp_path, bash("echo $GREETING") + text("Done."), scenario)

    assert outputs(harness) == ["hello"]
    [fault] = [line["message"] for line in harness.lines if line.get("subtype") == "error"]
    assert fault == "environment: these variables are invalid and are ignored: 'A', 'B=C', ''"


async def test_instructions_that_a_prompt_brings_replace_those_before(tmp_path: Path) -> None:
    texts: list[str | None] = []

    async def scenario(harness: SessionHarness) -> None:
        for own_prompt in ("Be kind.", "Be kind.", "Be brief."):
            harness.prompt("Hello", system_prompt=own_prompt)
            await harness.receive("result")
            texts.append(harness.session.journal.system_text)

    script = "at_end = 'repeat'\n" + text("Hello.")
    harness = await visit(tmp_path, script, scenario, database=str(tmp_path / "agent.db"))

    assert texts == ["Be kind.", "Be kind.", "Be brief."]
    kinds = [entry.kind for entry in harness.session.config.storage.log.entries()]
    assert kinds.count("prompt") == 2


async def test_servers_that_a_prompt_brings_are_there_for_it(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Add", mcp_servers={"workshop": own("greeter.py")})
        await harness.receive("result")

    call = "[[turn]]\ntools = [{ name = 'mcp__workshop__add', input = { a = 2, b = 3 } }]\n"
    harness = await visit(tmp_path, call + text("Done."), scenario)

    assert outputs(harness) == [[{"type": "text", "text": "5"}]]
    (asked,) = [line["message"]["content"][0] for line in harness.messages("assistant")][:1]
    assert (asked["name"], asked["input"]) == ("mcp__workshop__add", {"a": 2, "b": 3})


async def test_a_server_that_cannot_be_had_is_reported_and_the_prompt_is_run(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Hello", mcp_servers={"broken": {"command": "/nowhere/at/all"}})
        await harness.receive("result")

    harness = await visit(tmp_path, text("Hello."), scenario)

    assert ends(harness) == [("success", harness.session.id)]
    assert any("broken" in line["message"] for line in harness.lines if line.get("subtype") == "error")


async def test_a_prompt_that_cannot_be_read_has_a_result_and_the_next_is_run(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.send({"type": "user", "message": {"role": "user", "content": 5}, "session_id": "theirs"})
        refused = await harness.receive("result")
        assert (refused["subtype"], refused["session_id"]) == ("error", "theirs")
        harness.prompt("Hello", environment="no", session_id="theirs", uuid="u1")
        refused = await harness.receive("result")
        assert (refused["subtype"], refused["session_id"]) == ("error", "theirs")
        harness.prompt("Hello")
        assert (await harness.receive("result"))["result"] == "Hello."

    await visit(tmp_path, text("Hello."), scenario)


async def test_images_in_a_message_are_kept(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}}

    async def scenario(harness: SessionHarness) -> None:
        content = [{"type": "text", "text": "Look"}, picture]
        harness.send({"type": "user", "message": {"role": "user", "content": content}})
        await harness.receive("result")

    harness = await visit(tmp_path, text("A dot."), scenario)

    assert [block["type"] for block in heard_by_model(harness)] == ["text", "image"]


async def test_without_a_client_the_call_is_denied(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        with pytest.raises(HostGone):
            await harness.session.outbox.host.request(Elicitation(mcp_server_name="s", message="Your name?"))

    harness = await visit(tmp_path, text("Hello."), scenario)

    assert harness.lines == []


async def test_everything_is_allowed_that_no_rule_denies(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Work")
        await harness.receive("result")

    script = bash("touch made") + bash("touch forbidden") + text("Done.")
    harness = await visit(tmp_path, script, scenario, disallowed_tools=("Bash(touch forbidden)",))

    assert (tmp_path / "made").exists()
    assert not (tmp_path / "forbidden").exists()
    assert [line["tool_result"].get("is_error") for line in harness.lines if "tool_result" in line] == [None, True]


async def test_at_the_end_no_one_waits_for_a_server_that_does_not_answer(tmp_path: Path) -> None:
    class Patient(SessionHarness):
        def __init__(self, folder: Path, script: str, **options: Any) -> None:
            super().__init__(folder, script, **options)
            self.environment["MCP_TIMEOUT"] = str(10 * PATIENCE_SECONDS * 1000)

    async with Patient(tmp_path, text("Hi."), dialect="miriad") as harness:
        mute = {"command": "/bin/sh", "args": ["-c", "echo > started; exec sleep 999"]}
        harness.prompt("go", mcp_servers={"mute": mute})
        await appears(tmp_path / "started")
        harness.send(INTERRUPT)
        await harness.receive("result")

    assert harness.lines[-1]["message"] == "The session ended before the answer was ready."


async def test_a_server_of_a_prompt_that_fails_is_reported_once(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        harness.prompt("on", mcp_servers={"gone": {"command": "/no/such/program"}})
        await harness.receive("result")

    harness = await visit(tmp_path, text("Hi.", "Ho."), scenario)

    assert len([line for line in harness.lines if "gone" in str(line.get("message"))]) == 1
    assert len([warning for warning in harness.warnings if "gone" in warning]) == 1
