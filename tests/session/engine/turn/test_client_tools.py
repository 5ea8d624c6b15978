"""Tools that the client runs: declared, called, answered by a `tool_result`, and never forgotten while they wait."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.engine.turn.client_tools import CLIENT_CLOSED, parse_client_tools
from parley.errors import UsageError
from parley.stores.files.claude import project_key
from tests.helpers.session import Json, Room

WEATHER = {
    "name": "weather",
    "description": "Tells the weather of a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
LAMP = {"name": "lamp", "description": "Switches a lamp."}
CALL = "{ name = 'weather', id = 't1', input = { place = 'Rome' } }"
SECOND = "{ name = 'lamp', id = 't2', input = { on = true } }"
TOUCH = "{ name = 'Bash', id = 't0', input = { command = 'touch made' } }"


def script(*turns: str) -> str:
    return "".join(f"[[turn]]\ntools = [{calls}]\n" for calls in turns) + "[[turn]]\ntext = 'Done.'\n"


def results(*answers: tuple[str, Any], **fields: Any) -> Json:
    content = [{"type": "tool_result", "tool_use_id": call, "content": said} for call, said in answers]
    return {"type": "user", "message": {"role": "user", "content": content}, **fields}


async def talk(folder: Path, turns: str, client: Callable[[Room], Awaitable[None]], **options: Any) -> Room:
    """One session in which the client declares its tools, says its prompt and then does as it is told."""

    async with Room(folder, turns, **options) as room:
        await room.ask("initialize", clientTools=[WEATHER, LAMP])
        room.prompt("go")
        await client(room)
    return room


async def called(room: Room, call: str) -> Json:
    """The line in which the model calls."""
    return await room.until(
        lambda line: line["type"] == "assistant" and [block.get("id") for block in line["message"]["content"]] == [call]
    )


def told_results(room: Room) -> list[Json]:
    return [
        block
        for line in room.told("user")
        for block in line["message"]["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]


def notes(folder: Path, session_id: str) -> list[Json]:
    """What the session's log has beside the conversation."""
    path = folder / "home" / ".claude" / "projects" / project_key(str(folder)) / f"{session_id}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["type"] == "parley"]


async def test_the_result_that_the_client_gives_goes_to_the_model_as_that_of_every_tool(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")
        room.say(results(("t1", "sunny"), session_id="default", tool_use_result={"degrees": 31}))
        result = await room.hear("result")
        assert result["result"] == "Done."
        assert result["num_turns"] == 2

    room = await talk(tmp_path, script(CALL), client)

    [line] = room.told("user")
    assert line["message"]["content"] == [{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}]
    assert line["tool_use_result"] == {"degrees": 31}
    assert {"weather", "lamp"} <= set(next(room.told("system"))["tools"])


@pytest.mark.parametrize(
    ("given", "content"),
    [([5], "[5]"), ([{"type": "text", "text": 5}], [{"type": "text", "text": "5"}]), ([{"odd": 1}], '[{"odd":1}]')],
)
async def test_a_result_that_no_model_can_read_becomes_one_that_it_can(
    tmp_path: Path, given: Any, content: Any
) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")
        room.say(results(("t1", given)))
        assert (await room.hear("result"))["result"] == "Done."

    assert [block["content"] for block in told_results(await talk(tmp_path, script(CALL), client))] == [content]


async def test_the_decision_and_the_wait_are_on_record_before_the_client_answers(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")
        room.say(results(("t1", "sunny")))
        await room.hear("result")

    room = await talk(tmp_path, script(CALL), client)
    kept = [note for note in notes(tmp_path, room.session.id) if note["kind"] in ("permission", "question")]

    assert [note["kind"] for note in kept] == ["permission", "question"]
    assert {"tool": "weather", "decision": "allow", "source": "client", "effect": True}.items() <= kept[0][
        "message"
    ].items()
    assert kept[1]["message"] == {"request_id": "t1", "tool_use_id": "t1", "waits_for": "client"}


async def test_a_failure_of_the_client_is_an_error_for_the_model(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")
        block = {"type": "tool_result", "tool_use_id": "t1", "content": "no such place", "is_error": True}
        room.say({"type": "user", "message": {"role": "user", "content": [block]}})
        await room.hear("result")

    [block] = told_results(await talk(tmp_path, script(CALL), client))

    assert block == {"type": "tool_result", "tool_use_id": "t1", "content": "no such place", "is_error": True}


async def test_several_calls_wait_together_and_one_line_answers_them_in_any_order(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t2")
        room.say(results(("t2", "on"), ("t1", "sunny")))
        await room.hear("result")

    room = await talk(tmp_path, script(f"{CALL}, {SECOND}"), client)

    assert {block["tool_use_id"]: block["content"] for block in told_results(room)} == {"t1": "sunny", "t2": "on"}


async def test_a_result_that_comes_before_its_call_is_waited_for_is_not_lost(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")  # told, but another call stands before it and asks
        question = await room.hear("control_request")
        room.say(results(("t1", "sunny")))
        response = {"subtype": "success", "request_id": question["request_id"], "response": {"behavior": "allow"}}
        room.say({"type": "control_response", "response": response})
        await room.hear("result")

    room = await talk(tmp_path, script(f"{TOUCH}, {CALL}"), client, permission_prompt_tool="stdio")

    assert [block["content"] for block in told_results(room)][1] == "sunny"


async def test_words_beside_a_result_join_the_turn(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")
        line = results(("t1", "sunny"))
        line["message"]["content"].append({"type": "text", "text": "and hurry"})
        room.say(line)
        await room.hear("result")

    room = await talk(tmp_path, script(CALL), client)
    *_, answered, _ = room.session.journal.history.render()

    assert [block.get("content") or block.get("text") for block in answered["content"]] == ["sunny", "and hurry"]
    assert len(list(room.told("result"))) == 1


async def test_while_a_call_waits_the_session_requires_action(tmp_path: Path) -> None:
    room = Room(tmp_path, script(CALL))
    room.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    async with room:
        await room.ask("initialize", clientTools=[WEATHER])
        room.prompt("go")
        await room.until(lambda line: line.get("state") == "requires_action")
        assert room.session.state == "requires_action"
        room.say(results(("t1", "sunny")))
        await room.hear("result")

    assert [line["state"] for line in room.lines if line.get("subtype") == "session_state_changed"] == [
        "running",
        "requires_action",
        "running",
        "idle",
    ]


async def test_an_interrupt_ends_the_wait_and_a_late_result_is_dropped(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")
        await room.ask("interrupt")
        result = await room.hear("result")
        assert result["terminal_reason"] == "aborted_tools"
        room.prompt("next")
        room.say(results(("t1", "too late")))
        await room.hear("result")

    room = await talk(tmp_path, script(CALL), client)

    assert [block["tool_use_id"] for block in told_results(room)] == ["t1"]
    assert len(list(room.told("result"))) == 2
    assert any("no call of a client tool waits for the result of t1" in complaint for complaint in room.complaints)


async def test_a_result_for_nothing_that_comes_while_nothing_runs_has_its_own_bad_result(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await room.hear("result")
        room.say(results(("t9", "for whom?")))
        refused = await room.hear("result")
        assert refused["is_error"] is True
        assert "t9" in refused["errors"][0]

    await talk(tmp_path, "[[turn]]\ntext = 'Hello.'\n", client)


async def test_results_for_nothing_that_come_together_have_a_bad_result_each(tmp_path: Path) -> None:
    late = [results((name, "for whom?")) for name in ("t7", "t8", "t9")]

    async def client(room: Room) -> None:
        await room.hear("result")
        room.say(b"\n".join(json.dumps(line).encode() for line in late))

    room = await talk(tmp_path, "[[turn]]\ntext = 'Hello.'\n", client)

    refused = [line["errors"][0] for line in room.told("result") if line["is_error"]]
    assert [name in error for name, error in zip(("t7", "t8", "t9"), refused, strict=True)] == [True] * 3


async def test_a_client_that_hangs_up_ends_the_wait_and_the_turn_goes_on(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        await called(room, "t1")
        await room.leave()

    room = await talk(tmp_path, script(CALL), client)

    [block] = told_results(room)
    assert block["content"] == CLIENT_CLOSED
    assert block["is_error"] is True
    [result] = room.told("result")
    assert result["result"] == "Done."


async def test_a_rule_that_denies_a_client_tool_is_kept(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        result = await room.hear("result")
        assert [denial["tool_name"] for denial in result["permission_denials"]] == ["weather"]

    [block] = told_results(await talk(tmp_path, script(CALL), client, disallowed_tools=("weather(*)", "weather")))

    assert block["is_error"] is True


async def test_a_guard_is_asked_before_a_client_tool_is_waited_for(tmp_path: Path) -> None:
    async def client(room: Room) -> None:
        question = await room.hear("control_request")
        assert question["request"]["tool_name"] == "weather"
        denial = {"behavior": "deny", "message": "Not now"}
        response = {"subtype": "success", "request_id": question["request_id"], "response": denial}
        room.say({"type": "control_response", "response": response})
        await room.hear("result")

    [block] = told_results(await talk(tmp_path, script(CALL), client, guard=True, permission_prompt_tool="stdio"))

    assert block["content"] == "Not now"


async def test_a_client_tool_goes_before_one_of_ours_until_it_is_withdrawn(tmp_path: Path) -> None:
    read = "{ name = 'Read', id = 't1', input = { file_path = '/nowhere' } }"

    async with Room(tmp_path, script(read) + script(read.replace("t1", "t2"))) as room:
        await room.ask("initialize", clientTools=[{"name": "Read"}])
        room.prompt("go")
        await called(room, "t1")
        room.say(results(("t1", "read by the client")))
        await room.hear("result")
        await room.ask("initialize", clientTools=[])
        room.prompt("again")
        await room.hear("result")
    first, second = told_results(room)
    assert first["content"] == "read by the client"
    assert second["is_error"] is True


async def left_waiting(folder: Path) -> tuple[str, Json]:
    """A session whose engine ended while a client tool was waited for: its id, and the line with the call."""
    room = Room(folder, script(CALL))
    room.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    await room.__aenter__()
    await room.ask("initialize", clientTools=[WEATHER])
    room.prompt("go")
    line = await called(room, "t1")
    await room.until(lambda line: line.get("state") == "requires_action")
    await room.crash()
    return room.session.id, line


async def test_a_call_that_waits_is_told_again_in_a_dialect_of_whole_answers_too(tmp_path: Path) -> None:
    """Such a dialect holds an answer until it is complete; this one was complete before."""

    async def resumed(session_id: str) -> Json:
        async with Room(tmp_path, "[[turn]]\ntext = 'On.'\n", resume=session_id, dialect="spec001") as room:
            await room.ask("initialize", clientTools=[WEATHER])
            again = await called(room, "t1")
            room.say(results(("t1", "sunny")))
            await room.hear("result")
        return again

    session_id, _ = await left_waiting(tmp_path)
    assert "uuid" not in await resumed(session_id)


async def test_a_resumed_session_tells_the_waiting_call_again_and_takes_its_result(tmp_path: Path) -> None:
    async def second(session_id: str) -> tuple[Json, Room]:
        async with Room(tmp_path, "[[turn]]\ntext = 'Now done.'\n", resume=session_id) as room:
            await room.ask("initialize", clientTools=[WEATHER])
            again = await called(room, "t1")
            room.say(results(("t1", "sunny")))
            await room.hear("result")
        return again, room

    session_id, line = await left_waiting(tmp_path)
    again, room = await second(session_id)

    assert again == line
    assert [block["content"] for block in told_results(room)] == ["sunny"]
    [result] = room.told("result")
    assert result["result"] == "Now done."


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ({"name": "x"}, "must be a list"),
        ([{"description": "nameless"}], "name"),
        ([{"name": "not a name"}], "name"),
        ([WEATHER, WEATHER], "comes twice"),
    ],
)
def test_declarations_that_are_none_are_refused_in_clear_words(tools: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_client_tools(tools)


async def test_a_bad_declaration_fails_the_handshake_and_not_the_session(tmp_path: Path) -> None:
    async with Room(tmp_path, "[[turn]]\ntext = 'Hello.'\n") as room:
        answer = await room.ask("initialize", clientTools=[{"name": "no good"}])
        room.prompt("go")
        assert (await room.hear("result"))["result"] == "Hello."

    assert answer["response"]["subtype"] == "error"


@pytest.mark.parametrize("given", ["inline", "file"])
async def test_the_command_line_declares_client_tools_inline_or_in_a_file(tmp_path: Path, given: str) -> None:
    text = json.dumps([WEATHER])
    (tmp_path / "tools.json").write_text(text)

    option = text if given == "inline" else "tools.json"
    async with Room(tmp_path, script(CALL), client_tools=option, input_format="stream-json", tools=()) as room:
        room.prompt("go")
        await called(room, "t1")
        room.say(results(("t1", "sunny")))
        await room.hear("result")

    assert next(room.told("system"))["tools"] == ["weather"]


def test_client_tools_without_a_stream_to_answer_on_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--input-format stream-json"):
        Room(tmp_path, script(CALL), client_tools=json.dumps([WEATHER])).composed()


CALLS = [f"{{ name = 'lamp', id = 'c{number}', input = {{ on = true }} }}" for number in range(4)]


def schedule(seed: int) -> Callable[[Room], Awaitable[None]]:
    """A client that answers in any order, twice, early, not at all, or interrupts or hangs up instead."""
    dice = random.Random(seed)

    async def client(room: Room) -> None:
        told = dice.sample([f"c{number}" for number in range(4)], 4)
        await called(room, f"c{dice.randrange(4)}")
        for call in told:
            act = dice.choice(("answer", "answer", "answer", "twice", "words", "interrupt", "hang up"))
            if act == "hang up":
                break
            if act == "interrupt":
                await room.ask("interrupt")
                break
            line = results((call, "on"))
            if act == "words":
                line["message"]["content"].append({"type": "text", "text": "and so on"})
            room.say(line, *([line] if act == "twice" else []))

    return client


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_a_client_does_every_call_has_one_result_and_every_turn_too(tmp_path: Path, seed: int) -> None:
    both = f"[[turn]]\ntools = [{', '.join(CALLS)}]\n" + 5 * "[[turn]]\ntext = 'Done.'\n"
    room = await talk(tmp_path, both, schedule(seed))

    ids = [block["tool_use_id"] for block in told_results(room)]
    assert sorted(ids) == ["c0", "c1", "c2", "c3"]
    inits = [line for line in room.told("system") if line["subtype"] == "init"]
    refused = [line for line in room.told("result") if "errors" in line and "client tool" in line["errors"][0]]
    assert len(list(room.told("result"))) == len(inits) + len(refused)
    assert room.session.journal.history.open_calls() == {}
