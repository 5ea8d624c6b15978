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
from tests.helpers.session import PATIENCE_SECONDS, Json, Room

WAITS = "echo > started; while [ ! -e go ]; do sleep 0.02; done; echo slept"
SLOW = '[[turn]]\ntext = "A very long story."\ndelay_ms = 60000\n'
INTERRUPT = {"type": "control", "action": "interrupt"}
STATUS = {"type": "control", "action": "status"}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def visit(folder: Path, script: str, talk: Callable[[Room], Awaitable[None]], **options: Any) -> Room:
    """A talk in a room whose host speaks miriad."""

    async def go() -> Room:
        async with Room(folder, script, dialect="miriad", **options) as room:
            await talk(room)
        return room

    return asyncio.run(go())


def bash(command: str) -> str:
    return f"[[turn]]\ntools = [{{ name = 'Bash', input = {{ command = '{command}' }} }}]\n"


def text(*said: str) -> str:
    return "".join(f'[[turn]]\ntext = "{one}"\n' for one in said)


async def appears(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():  # noqa: ASYNC110, ASYNC240  # another process writes it
            await asyncio.sleep(0.01)


def heard_by_model(room: Room) -> list[Json]:
    """What the users' side of the conversation holds, without tool results."""
    return [
        block
        for message in room.session.journal.history.render()
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] != "tool_result"
    ]


def outputs(room: Room) -> list[Any]:
    return [line["tool_result"]["content"] for line in room.lines if line.get("subtype") == "tool_result"]


def ends(room: Room) -> list[tuple[str, str]]:
    return [(line["subtype"], line["session_id"]) for line in room.told("result")]


def test_a_tool_call_is_announced_before_it_runs(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Work")
        line = await room.hear("assistant")
        assert line["message"]["content"][0]["name"] == "bash"
        assert outputs(room) == []
        await appears(tmp_path / "started")
        (tmp_path / "go").touch()
        await room.hear("result")

    room = visit(tmp_path, bash(WAITS) + text("Done."), talk)

    assert outputs(room) == ["slept"]


def test_what_comes_while_a_tool_runs_goes_in_as_one_user_message_before_the_next_model_call(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Work", session_id="s1")
        await appears(tmp_path / "started")
        room.prompt("be brief", session_id="s2")
        room.prompt("and kind", session_id="s3")
        await room.until(lambda line: line.get("position") == 2)
        (tmp_path / "go").touch()
        await room.hear("result")

    room = visit(tmp_path, bash(WAITS) + text("Done."), talk)

    assert [block["text"] for block in heard_by_model(room)] == ["Work", "be brief\n\nand kind"]
    assert [line for line in room.lines if line.get("subtype") == "injected"] == [
        {"type": "system", "subtype": "injected", "message_count": 2, "content_length": 18}
    ]
    assert ends(room) == [("success", "s1")]


def test_what_comes_too_late_for_the_turn_is_a_turn_of_its_own_in_order(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        for name in ("s1", "s2", "s3"):
            room.prompt(f"Hello from {name}", session_id=name)
        for _ in range(3):
            await room.hear("result")

    room = visit(tmp_path, text("one", "two", "three"), talk)

    assert ends(room) == [("success", "s1"), ("success", "s2"), ("success", "s3")]
    assert [line["position"] for line in room.lines if line.get("subtype") == "queued"] == [1, 2]
    assert [line["result"] for line in room.told("result")] == ["one", "two", "three"]


def test_an_interrupt_aborts_the_model_call_and_what_waits_is_run(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Tell me a story", session_id="s1")
        room.prompt("Are you there?", session_id="s2")
        await room.hear("system", "queued")
        room.say(INTERRUPT)
        await room.hear("system", "interrupted")
        assert (await room.hear("result"))["subtype"] == "cancelled"
        assert (await room.hear("result"))["result"] == "Yes."

    # The interrupted prompt is still in the last request, so the other one is looked for first.
    room = visit(tmp_path, text("Yes.").replace("[[turn]]", '[[turn]]\nwhen = "there"') + SLOW, talk)

    assert ends(room) == [("cancelled", "s1"), ("success", "s2")]


def test_an_interrupt_ends_a_tool_and_gives_a_result_that_is_no_error(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Work")
        await appears(tmp_path / "started")
        room.say(INTERRUPT)
        await room.hear("result")

    room = visit(tmp_path, bash(WAITS), talk)

    (ended,) = room.told("result")
    assert (ended["subtype"], ended["is_error"]) == ("cancelled", False)
    (output,) = [line["tool_result"] for line in room.lines if line.get("subtype") == "tool_result"]
    assert output["is_error"] is True


def test_an_interrupt_right_behind_the_prompt_gives_a_result_as_well(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Tell me a story")
        room.say(INTERRUPT, STATUS)
        await room.hear("result")
        room.say(INTERRUPT)
        assert (await room.hear("system", "error"))["message"] == "No turn is currently running"

    room = visit(tmp_path, SLOW, talk)

    assert [line["subtype"] for line in room.told("result")] == ["cancelled"]
    assert [line["running"] for line in room.lines if line.get("subtype") == "status"] == [True]


def test_a_failing_model_is_told_in_words_and_ends_the_turn_as_an_error(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Hello")
        await room.hear("result")
        room.prompt("Again")
        await room.hear("result")

    bad = "[[turn]]\nerror = { status = 400, type = 'invalid_request_error', message = 'nonsense' }\n"
    room = visit(tmp_path, bad + text("Hello."), talk)

    first, second = room.told("result")
    assert (first["subtype"], first["is_error"], first["result"]) == ("error", True, "API Error: 400 nonsense")
    assert [line["message"] for line in room.told("system")] == ["API Error: 400 nonsense"]
    assert second["subtype"] == "success"


def test_what_happens_between_turns_is_told(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Work in the background")
        await room.hear("result")
        (tmp_path / "go").touch()
        assert (await room.hear("result"))["result"] == "It is over."
        assert room.lines[-1]["session_id"] == room.session.id

    background = bash(WAITS).replace("input = { command", "input = { run_in_background = true, command")
    room = visit(tmp_path, background + text("Begun.", "It is over."), talk)

    said = [line["message"]["content"][0].get("text") for line in room.told("assistant")]
    assert said[-2:] == ["Begun.", "It is over."]


def test_variables_that_a_prompt_brings_reach_the_commands_of_tools(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Greet", environment={"GREETING": "hello"})
        await room.hear("result")

    room = visit(tmp_path, bash("echo $GREETING") + text("Done."), talk)

    assert outputs(room) == ["hello"]


def test_what_no_process_can_have_in_its_environment_is_left_out_and_told(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Greet", environment={"GREETING": "hello", "A": "a\0b", "B=C": "d", "": "e"})
        await room.hear("result")

    room = visit(tmp_path, bash("echo $GREETING") + text("Done."), talk)

    assert outputs(room) == ["hello"]
    [fault] = [line["message"] for line in room.lines if line.get("subtype") == "error"]
    assert fault == "environment: no variables, and left out: 'A', 'B=C', ''"


def test_instructions_that_a_prompt_brings_replace_those_before(tmp_path: Path) -> None:
    texts: list[str | None] = []

    async def talk(room: Room) -> None:
        for own_prompt in ("Be kind.", "Be kind.", "Be brief."):
            room.prompt("Hello", system_prompt=own_prompt)
            await room.hear("result")
            texts.append(room.session.journal.system_text)

    script = "at_end = 'repeat'\n" + text("Hello.")
    room = visit(tmp_path, script, talk, database=str(tmp_path / "agent.db"))

    assert texts == ["Be kind.", "Be kind.", "Be brief."]
    kinds = [entry.kind for entry in room.session.config.storage.log.entries()]
    assert kinds.count("prompt") == 2


def test_servers_that_a_prompt_brings_are_there_for_it(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Add", mcp_servers={"workshop": own("workshop.py", "stdio")})
        await room.hear("result")

    call = "[[turn]]\ntools = [{ name = 'mcp__workshop__add', input = { a = 2, b = 3 } }]\n"
    room = visit(tmp_path, call + text("Done."), talk)

    assert outputs(room) == [[{"type": "text", "text": "5"}]]
    (asked,) = [line["message"]["content"][0] for line in room.told("assistant")][:1]
    assert (asked["name"], asked["input"]) == ("mcp__workshop__add", {"a": 2, "b": 3})


def test_a_server_that_cannot_be_had_is_told_and_the_prompt_is_run(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Hello", mcp_servers={"broken": {"command": "/nowhere/at/all"}})
        await room.hear("result")

    room = visit(tmp_path, text("Hello."), talk)

    assert ends(room) == [("success", room.session.id)]
    assert any("broken" in line["message"] for line in room.lines if line.get("subtype") == "error")


def test_a_prompt_that_cannot_be_read_has_a_result_and_the_next_is_run(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.say({"type": "user", "message": {"role": "user", "content": 5}, "session_id": "theirs"})
        refused = await room.hear("result")
        assert (refused["subtype"], refused["session_id"]) == ("error", "theirs")
        room.prompt("Hello", environment="no", session_id="theirs", uuid="u1")
        refused = await room.hear("result")
        assert (refused["subtype"], refused["session_id"]) == ("error", "theirs")
        room.prompt("Hello")
        assert (await room.hear("result"))["result"] == "Hello."

    visit(tmp_path, text("Hello."), talk)


def test_pictures_in_a_message_are_kept(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}}

    async def talk(room: Room) -> None:
        content = [{"type": "text", "text": "Look"}, picture]
        room.say({"type": "user", "message": {"role": "user", "content": content}})
        await room.hear("result")

    room = visit(tmp_path, text("A dot."), talk)

    assert [block["type"] for block in heard_by_model(room)] == ["text", "image"]


def test_nobody_can_be_asked(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        with pytest.raises(HostGone):
            await room.session.host.request(Elicitation(mcp_server_name="s", message="Your name?"))

    room = visit(tmp_path, text("Hello."), talk)

    assert room.lines == []


def test_everything_is_allowed_that_no_rule_denies(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("Work")
        await room.hear("result")

    script = bash("touch made") + bash("touch forbidden") + text("Done.")
    room = visit(tmp_path, script, talk, disallowed_tools=("Bash(touch forbidden)",))

    assert (tmp_path / "made").exists()
    assert not (tmp_path / "forbidden").exists()
    assert [line["tool_result"].get("is_error") for line in room.lines if "tool_result" in line] == [None, True]


def test_at_the_end_nobody_waits_for_a_server_that_does_not_answer(tmp_path: Path) -> None:
    class Patient(Room):
        def __init__(self, folder: Path, script: str, **options: Any) -> None:
            super().__init__(folder, script, **options)
            self.environment["MCP_TIMEOUT"] = str(10 * PATIENCE_SECONDS * 1000)

    async def go() -> Room:
        async with Patient(tmp_path, text("Hi."), dialect="miriad") as room:
            mute = {"command": "/bin/sh", "args": ["-c", "echo > started; exec sleep 999"]}
            room.prompt("go", mcp_servers={"mute": mute})
            await appears(tmp_path / "started")
            room.say(INTERRUPT)
            await room.hear("result")
        return room

    room = asyncio.run(go())

    assert room.lines[-1]["message"] == "The session ended before the answer was there."


def test_a_server_of_a_prompt_that_fails_is_told_once(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        room.prompt("go")
        await room.hear("result")
        room.prompt("on", mcp_servers={"gone": {"command": "/no/such/program"}})
        await room.hear("result")

    room = visit(tmp_path, text("Hi.", "Ho."), talk)

    assert len([line for line in room.lines if "gone" in str(line.get("message"))]) == 1
    assert len([complaint for complaint in room.complaints if "gone" in complaint]) == 1
