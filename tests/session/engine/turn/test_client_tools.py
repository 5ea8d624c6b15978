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
from parley.stores.files.store import project_key
from tests.helpers.session import Json, SessionHarness

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


async def scenario(
    folder: Path, turns: str, client: Callable[[SessionHarness], Awaitable[None]], **options: Any
) -> SessionHarness:
    """One session in which the client declares its tools, says its prompt and then does as it is told."""

    async with SessionHarness(folder, turns, **options) as harness:
        await harness.request("initialize", clientTools=[WEATHER, LAMP])
        harness.prompt("go")
        await client(harness)
    return harness


async def called(harness: SessionHarness, call: str) -> Json:
    """The line in which the model calls."""
    return await harness.receive_until(
        lambda line: line["type"] == "assistant" and [block.get("id") for block in line["message"]["content"]] == [call]
    )


def told_results(harness: SessionHarness) -> list[Json]:
    return [
        block
        for line in harness.messages("user")
        for block in line["message"]["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]


def notes(folder: Path, session_id: str) -> list[Json]:
    """What the session's log has beside the conversation."""
    path = folder / "home" / ".claude" / "projects" / project_key(str(folder)) / f"{session_id}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["type"] == "parley"]


async def test_the_result_of_a_client_tool_goes_to_the_model_like_any_other(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")
        harness.send(results(("t1", "sunny"), session_id="default", tool_use_result={"degrees": 31}))
        result = await harness.receive("result")
        assert result["result"] == "Done."
        assert result["num_turns"] == 2

    harness = await scenario(tmp_path, script(CALL), client)

    [line] = harness.messages("user")
    assert line["message"]["content"] == [{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}]
    assert line["tool_use_result"] == {"degrees": 31}
    assert {"weather", "lamp"} <= set(next(harness.messages("system"))["tools"])


@pytest.mark.parametrize(
    ("given", "content"),
    [([5], "[5]"), ([{"type": "text", "text": 5}], [{"type": "text", "text": "5"}]), ([{"odd": 1}], '[{"odd":1}]')],
)
async def test_a_result_that_no_model_can_read_becomes_one_that_it_can(
    tmp_path: Path, given: Any, content: Any
) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")
        harness.send(results(("t1", given)))
        assert (await harness.receive("result"))["result"] == "Done."

    assert [block["content"] for block in told_results(await scenario(tmp_path, script(CALL), client))] == [content]


async def test_the_decision_and_the_wait_are_on_record_before_the_client_answers(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")
        harness.send(results(("t1", "sunny")))
        await harness.receive("result")

    harness = await scenario(tmp_path, script(CALL), client)
    kept = [note for note in notes(tmp_path, harness.session.id) if note["kind"] in ("permission", "question")]

    assert [note["kind"] for note in kept] == ["permission", "question"]
    assert {"tool": "weather", "decision": "allow", "source": "client", "effect": True}.items() <= kept[0][
        "message"
    ].items()
    assert kept[1]["message"] == {"request_id": "t1", "tool_use_id": "t1", "waits_for": "client"}


async def test_a_failure_of_the_client_is_an_error_for_the_model(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")
        block = {"type": "tool_result", "tool_use_id": "t1", "content": "no such place", "is_error": True}
        harness.send({"type": "user", "message": {"role": "user", "content": [block]}})
        await harness.receive("result")

    [block] = told_results(await scenario(tmp_path, script(CALL), client))

    assert block == {"type": "tool_result", "tool_use_id": "t1", "content": "no such place", "is_error": True}


async def test_several_calls_wait_together_and_one_line_answers_them_in_any_order(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t2")
        harness.send(results(("t2", "on"), ("t1", "sunny")))
        await harness.receive("result")

    harness = await scenario(tmp_path, script(f"{CALL}, {SECOND}"), client)

    assert {block["tool_use_id"]: block["content"] for block in told_results(harness)} == {"t1": "sunny", "t2": "on"}


async def test_a_result_that_comes_before_its_call_is_waited_for_is_not_lost(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")  # told, but another call stands before it and asks
        question = await harness.receive("control_request")
        harness.send(results(("t1", "sunny")))
        response = {"subtype": "success", "request_id": question["request_id"], "response": {"behavior": "allow"}}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")

    harness = await scenario(tmp_path, script(f"{TOUCH}, {CALL}"), client, permission_prompt_tool="stdio")

    assert [block["content"] for block in told_results(harness)][1] == "sunny"


async def test_words_beside_a_result_join_the_turn(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")
        line = results(("t1", "sunny"))
        line["message"]["content"].append({"type": "text", "text": "and hurry"})
        harness.send(line)
        await harness.receive("result")

    harness = await scenario(tmp_path, script(CALL), client)
    *_, answered, _ = harness.session.journal.history.render()

    assert [block.get("content") or block.get("text") for block in answered["content"]] == ["sunny", "and hurry"]
    assert len(list(harness.messages("result"))) == 1


async def test_while_a_call_waits_the_session_requires_action(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, script(CALL))
    harness.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    async with harness:
        await harness.request("initialize", clientTools=[WEATHER])
        harness.prompt("go")
        await harness.receive_until(lambda line: line.get("state") == "requires_action")
        assert harness.session.state == "requires_action"
        harness.send(results(("t1", "sunny")))
        await harness.receive("result")

    assert [line["state"] for line in harness.lines if line.get("subtype") == "session_state_changed"] == [
        "running",
        "requires_action",
        "running",
        "idle",
    ]


async def test_an_interrupt_ends_the_wait_and_a_late_result_is_dropped(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")
        await harness.request("interrupt")
        result = await harness.receive("result")
        assert result["terminal_reason"] == "aborted_tools"
        harness.prompt("next")
        harness.send(results(("t1", "too late")))
        await harness.receive("result")

    harness = await scenario(tmp_path, script(CALL), client)

    assert [block["tool_use_id"] for block in told_results(harness)] == ["t1"]
    assert len(list(harness.messages("result"))) == 2
    assert any(
        "a tool_result was dropped: no client tool call waits for it (t1)" in warning for warning in harness.warnings
    )


async def test_a_result_for_nothing_that_comes_while_nothing_runs_has_its_own_bad_result(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await harness.receive("result")
        harness.send(results(("t9", "for whom?")))
        refused = await harness.receive("result")
        assert refused["is_error"] is True
        assert "t9" in refused["errors"][0]

    await scenario(tmp_path, "[[turn]]\ntext = 'Hello.'\n", client)


async def test_results_for_nothing_that_come_together_have_a_bad_result_each(tmp_path: Path) -> None:
    late = [results((name, "for whom?")) for name in ("t7", "t8", "t9")]

    async def client(harness: SessionHarness) -> None:
        await harness.receive("result")
        harness.send(b"\n".join(json.dumps(line).encode() for line in late))

    harness = await scenario(tmp_path, "[[turn]]\ntext = 'Hello.'\n", client)

    refused = [line["errors"][0] for line in harness.messages("result") if line["is_error"]]
    assert [name in error for name, error in zip(("t7", "t8", "t9"), refused, strict=True)] == [True] * 3


async def test_a_client_that_hangs_up_ends_the_wait_and_the_turn_continues(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        await called(harness, "t1")
        await harness.close()

    harness = await scenario(tmp_path, script(CALL), client)

    [block] = told_results(harness)
    assert block["content"] == CLIENT_CLOSED
    assert block["is_error"] is True
    [result] = harness.messages("result")
    assert result["result"] == "Done."


async def test_a_rule_that_denies_a_client_tool_is_kept(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        result = await harness.receive("result")
        assert [denial["tool_name"] for denial in result["permission_denials"]] == ["weather"]

    [block] = told_results(await scenario(tmp_path, script(CALL), client, disallowed_tools=("weather(*)", "weather")))

    assert block["is_error"] is True


async def test_a_guard_is_asked_before_a_client_tool_is_waited_for(tmp_path: Path) -> None:
    async def client(harness: SessionHarness) -> None:
        question = await harness.receive("control_request")
        assert question["request"]["tool_name"] == "weather"
        denial = {"behavior": "deny", "message": "Not now"}
        response = {"subtype": "success", "request_id": question["request_id"], "response": denial}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")

    [block] = told_results(await scenario(tmp_path, script(CALL), client, guard=True, permission_prompt_tool="stdio"))

    assert block["content"] == "Not now"


async def test_a_client_tool_goes_before_one_of_ours_until_it_is_withdrawn(tmp_path: Path) -> None:
    read = "{ name = 'Read', id = 't1', input = { file_path = '/nowhere' } }"

    async with SessionHarness(tmp_path, script(read) + script(read.replace("t1", "t2"))) as harness:
        await harness.request("initialize", clientTools=[{"name": "Read"}])
        harness.prompt("go")
        await called(harness, "t1")
        harness.send(results(("t1", "read by the client")))
        await harness.receive("result")
        await harness.request("initialize", clientTools=[])
        harness.prompt("again")
        await harness.receive("result")
    first, second = told_results(harness)
    assert first["content"] == "read by the client"
    assert second["is_error"] is True


async def left_waiting(folder: Path) -> tuple[str, Json]:
    """A session whose engine ended while a client tool was waited for: its id, and the line with the call."""
    harness = SessionHarness(folder, script(CALL))
    harness.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    await harness.__aenter__()
    await harness.request("initialize", clientTools=[WEATHER])
    harness.prompt("go")
    line = await called(harness, "t1")
    await harness.receive_until(lambda line: line.get("state") == "requires_action")
    await harness.crash()
    return harness.session.id, line


async def test_a_waiting_call_is_sent_again_in_a_dialect_of_whole_answers_too(tmp_path: Path) -> None:
    """Such a dialect holds an answer until it is complete; this one was complete before."""

    async def resumed(session_id: str) -> Json:
        async with SessionHarness(
            tmp_path, "[[turn]]\ntext = 'On.'\n", resume=session_id, dialect="spec001"
        ) as harness:
            await harness.request("initialize", clientTools=[WEATHER])
            again = await called(harness, "t1")
            harness.send(results(("t1", "sunny")))
            await harness.receive("result")
        return again

    session_id, _ = await left_waiting(tmp_path)
    assert "uuid" not in await resumed(session_id)


async def test_a_resumed_session_reports_the_waiting_call_again_and_takes_its_result(tmp_path: Path) -> None:
    async def second(session_id: str) -> tuple[Json, SessionHarness]:
        async with SessionHarness(tmp_path, "[[turn]]\ntext = 'Now done.'\n", resume=session_id) as harness:
            await harness.request("initialize", clientTools=[WEATHER])
            again = await called(harness, "t1")
            harness.send(results(("t1", "sunny")))
            await harness.receive("result")
        return again, harness

    session_id, line = await left_waiting(tmp_path)
    again, harness = await second(session_id)

    assert again == line
    assert [block["content"] for block in told_results(harness)] == ["sunny"]
    [result] = harness.messages("result")
    assert result["result"] == "Now done."


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ({"name": "x"}, "must be a list"),
        ([{"description": "nameless"}], "name"),
        ([{"name": "not a name"}], "name"),
        ([WEATHER, WEATHER], "used twice"),
    ],
)
def test_declarations_that_are_invalid_are_refused_in_clear_words(tools: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_client_tools(tools)


async def test_a_bad_declaration_fails_the_handshake_and_not_the_session(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, "[[turn]]\ntext = 'Hello.'\n") as harness:
        answer = await harness.request("initialize", clientTools=[{"name": "no good"}])
        harness.prompt("go")
        assert (await harness.receive("result"))["result"] == "Hello."

    assert answer["response"]["subtype"] == "error"


@pytest.mark.parametrize("given", ["inline", "file"])
async def test_the_command_line_declares_client_tools_inline_or_in_a_file(tmp_path: Path, given: str) -> None:
    text = json.dumps([WEATHER])
    (tmp_path / "tools.json").write_text(text)

    option = text if given == "inline" else "tools.json"
    async with SessionHarness(
        tmp_path, script(CALL), client_tools=option, input_format="stream-json", tools=()
    ) as harness:
        harness.prompt("go")
        await called(harness, "t1")
        harness.send(results(("t1", "sunny")))
        await harness.receive("result")

    assert next(harness.messages("system"))["tools"] == ["weather"]


def test_client_tools_without_a_stream_to_answer_on_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--input-format stream-json"):
        SessionHarness(tmp_path, script(CALL), client_tools=json.dumps([WEATHER])).composed()


CALLS = [f"{{ name = 'lamp', id = 'c{number}', input = {{ on = true }} }}" for number in range(4)]


def schedule(seed: int) -> Callable[[SessionHarness], Awaitable[None]]:
    """A client that answers in any order, twice, early, not at all, or interrupts or hangs up instead."""
    dice = random.Random(seed)

    async def client(harness: SessionHarness) -> None:
        told = dice.sample([f"c{number}" for number in range(4)], 4)
        await called(harness, f"c{dice.randrange(4)}")
        for call in told:
            act = dice.choice(("answer", "answer", "answer", "twice", "words", "interrupt", "hang up"))
            if act == "hang up":
                break
            if act == "interrupt":
                await harness.request("interrupt")
                break
            line = results((call, "on"))
            if act == "words":
                line["message"]["content"].append({"type": "text", "text": "and so on"})
            harness.send(line, *([line] if act == "twice" else []))

    return client


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_a_client_does_every_call_has_one_result_and_every_turn_too(tmp_path: Path, seed: int) -> None:
    both = f"[[turn]]\ntools = [{', '.join(CALLS)}]\n" + 5 * "[[turn]]\ntext = 'Done.'\n"
    harness = await scenario(tmp_path, both, schedule(seed))

    ids = [block["tool_use_id"] for block in told_results(harness)]
    assert sorted(ids) == ["c0", "c1", "c2", "c3"]
    inits = [line for line in harness.messages("system") if line["subtype"] == "init"]
    refused = [line for line in harness.messages("result") if "errors" in line and "client tool" in line["errors"][0]]
    assert len(list(harness.messages("result"))) == len(inits) + len(refused)
    assert harness.session.journal.history.open_calls() == {}
