"""A stream that breaks in the midst of an answer: what was told stays, nothing is told, run or counted twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from parley.models.event_synthesis import event_objects, message_json
from tests.helpers.http_server import Answer, cut_off, loopback, stream
from tests.helpers.session import Json, SessionHarness, texts

CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "echo once >> ran"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def events(*blocks: Json, id: str = "msg_1", usage: Json | None = None) -> list[Json]:
    usage = usage or {"input_tokens": 10, "output_tokens": 5}
    return list(event_objects(message_json(list(blocks), id=id, model="m", usage=usage), 40))


def sse(objects: Sequence[Json]) -> list[bytes]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in objects]


def behind(objects: list[Json], kind: str, which: int = 0) -> list[Json]:
    """The events up to the `which`th of a kind, that one included."""
    found = [at for at, event in enumerate(objects) if event["type"] == kind]
    return objects[: found[which] + 1]


def broken(objects: list[Json]) -> Answer:
    return cut_off(*sse(objects))


def whole(objects: list[Json]) -> Answer:
    return stream(*sse(objects))


class Talk:
    """One prompt, put to a server with these answers."""

    def __init__(self, folder: Path, *answers: Answer, retries: int = 2, **options: Any) -> None:
        self.folder = folder
        self.answers = answers
        self.retries = retries
        self.options = {"model": "claude-opus-5-5", "permission_mode": "bypassPermissions", **options}
        self.sent: list[list[Json]] = []

    async def run(self) -> Talk:
        async with loopback(*self.answers) as server:
            harness = SessionHarness(self.folder, "", **self.options)
            harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "CLAUDE_CODE_MAX_RETRIES": str(self.retries)}
            harness.stamp = msgspec.structs.replace(harness.stamp, sleep=lambda seconds: asyncio.sleep(0))
            async with harness:
                harness.prompt("go")
                self.result = await harness.receive("result")
            self.lines = harness.lines
            self.sent = [json.loads(request.body)["messages"] for request in server.heard]
        return self

    def told(self, kind: str) -> list[Json]:
        return [line for line in self.lines if line["type"] == kind]

    def words(self) -> list[str]:
        return texts(iter(self.told("assistant")))

    def retried(self) -> list[int]:
        return [line["attempt"] for line in self.lines if line.get("subtype") == "api_retry"]

    def blocks(self, call: int) -> list[tuple[str, list[str]]]:
        """Who said what kinds of blocks in a request."""
        return [(message["role"], [block["type"] for block in message["content"]]) for message in self.sent[call]]


async def test_a_finished_text_stays_and_the_model_is_asked_to_continue_after_it(tmp_path: Path) -> None:
    cut = behind(events(text("One."), text("Two, lost")), "content_block_delta", 1)
    conversation = await Talk(tmp_path, broken(cut), whole(events(text("Two."), id="msg_2"))).run()

    assert conversation.words() == ["One.", "Two."]
    assert conversation.result["result"] == "One.\n\nTwo."
    assert (conversation.result["is_error"], conversation.result["terminal_reason"], conversation.retried()) == (
        False,
        "completed",
        [1],
    )
    assert conversation.blocks(1) == [("user", ["text"]), ("assistant", ["text"]), ("user", ["text"])]
    assert [line["isSynthetic"] for line in conversation.told("user")] == [True]


async def test_what_is_sent_to_continue_begins_with_what_was_sent_before(tmp_path: Path) -> None:
    cut = behind(events(text("One.")), "content_block_stop")
    conversation = await Talk(tmp_path, broken(cut), whole(events(text("Two."), id="msg_2"))).run()

    first, second = (str(sent).replace(", 'cache_control': {'type': 'ephemeral'}", "") for sent in conversation.sent)
    assert second.startswith(first[:-1])


async def test_a_finished_call_runs_once_and_half_a_call_never(tmp_path: Path) -> None:
    half = {**CALL, "id": "t2", "input": {"command": "echo half >> ran; " + "x" * 60}}
    cut = behind(events(CALL, half), "content_block_delta", 1)
    conversation = await Talk(tmp_path, broken(cut), whole(events(text("Done."), id="msg_2"))).run()

    assert (tmp_path / "ran").read_text() == "once\n"
    assert conversation.blocks(1) == [("user", ["text"]), ("assistant", ["tool_use"]), ("user", ["tool_result"])]
    assert (conversation.result["result"], conversation.result["num_turns"], conversation.retried()) == (
        "Done.",
        2,
        [1],
    )


async def test_a_thought_alone_is_not_an_answer_and_the_same_is_asked_again(tmp_path: Path) -> None:
    cut = behind(events(THOUGHT, text("x")), "content_block_stop")
    conversation = await Talk(tmp_path, broken(cut), whole(events(THOUGHT, text("Yes."), id="msg_1"))).run()

    assert conversation.sent[0] == conversation.sent[1]
    assert conversation.result["result"] == "Yes."


async def test_an_answer_that_comes_again_under_the_same_id_is_a_message_of_its_own(tmp_path: Path) -> None:
    cut = behind(events(THOUGHT, text("x")), "content_block_stop")
    again = events(THOUGHT, CALL, id="msg_1")
    conversation = await Talk(tmp_path, broken(cut), whole(again), whole(events(text("Done."), id="msg_2"))).run()

    assert conversation.blocks(2) == [
        ("user", ["text"]),
        ("assistant", ["thinking", "tool_use"]),
        ("user", ["tool_result"]),
    ]


async def test_nothing_is_missing_where_only_the_last_event_is(tmp_path: Path) -> None:
    conversation = await Talk(tmp_path, broken(behind(events(text("All.")), "message_delta"))).run()

    assert (conversation.words(), conversation.result["result"], conversation.retried()) == (["All."], "All.", [])


async def test_who_follows_the_stream_sees_its_end_and_what_was_given_up(tmp_path: Path) -> None:
    cut = behind(events(text("One."), text("Two, lost")), "content_block_delta", 1)
    answers = broken(cut), whole(events(text("Two."), id="msg_2"))
    conversation = await Talk(tmp_path, *answers, include_partial_messages=True).run()

    followed = [line for line in conversation.told("stream_event") if line["api_message_id"] == "msg_1"]
    last, end = followed[-2:]
    assert last["event"] == {"type": "content_block_stop", "index": 1}
    assert end["event"] == {"type": "message_stop"}
    assert end["abandoned_blocks"] == {"api_message_id": "msg_1", "from_block_index": 1}
    assert conversation.words() == ["One.", "Two."]


async def test_broken_calls_cost_what_they_said_they_cost_and_only_once(tmp_path: Path) -> None:
    cut = behind(events(text("One.")), "content_block_stop")
    conversation = await Talk(tmp_path, broken(cut), whole(events(text("Two."), id="msg_2"))).run()

    used = conversation.result["usage"]
    assert (used["input_tokens"], used["output_tokens"]) == (20, 6)  # the broken one had said "1" when it began
    by_model = conversation.result["modelUsage"]["claude-opus-5-5"]
    assert (by_model["inputTokens"], by_model["outputTokens"]) == (20, 6)


async def test_a_model_that_never_gets_to_an_end_is_given_up_and_every_call_has_its_result(tmp_path: Path) -> None:
    cuts = [behind(events({**CALL, "id": f"t{n}"}, id=f"msg_{n}"), "content_block_stop") for n in range(3)]
    conversation = await Talk(tmp_path, *map(broken, cuts)).run()

    assert conversation.retried() == [1, 2]
    assert (
        conversation.result["subtype"],
        conversation.result["is_error"],
        conversation.result["terminal_reason"],
    ) == (
        "success",
        True,
        "api_error",
    )
    results = [block["tool_use_id"] for line in conversation.told("user") for block in line["message"]["content"]]
    assert results == ["t0", "t1", "t2"]
    assert (tmp_path / "ran").read_text() == "once\nonce\n"  # the last one was given up with the turn
    assert conversation.told("assistant")[-1]["error"] == "server_error"


async def test_an_answer_that_comes_to_its_end_is_the_end_of_the_trouble(tmp_path: Path) -> None:
    rounds: list[Answer] = []
    for n in range(3):
        rounds.append(broken(behind(events(text("x"), id=f"msg_{n}a"), "content_block_start")))
        rounds.append(whole(events({**CALL, "id": f"t{n}"}, id=f"msg_{n}b")))
    conversation = await Talk(tmp_path, *rounds, whole(events(text("Done."), id="msg_end")), retries=1).run()

    assert (conversation.retried(), conversation.result["result"]) == ([1, 1, 1], "Done.")
