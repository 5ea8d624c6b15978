"""A conversation that a backend refuses is repaired once; a session is never lost to one bad block."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from room import Json, Room

from parley.engine.repair import NO_IMAGE, NO_RESULT, repaired

PNG = "iVBORw0KGgo="
REFUSAL = '[[turn]]\nerror = { status = 400, type = "invalid_request_error", message = "Could not process image" }\n'
BROKEN_IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {}}


def result(id: str, content: object = "found") -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def missing(id: str) -> Json:
    return {**result(id, NO_RESULT), "is_error": True}


def thought(signature: str) -> Json:
    return {"type": "thinking", "thinking": "Hm.", "signature": signature}


def talk(*contents: list[Json]) -> list[Json]:
    return [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]


@pytest.mark.parametrize(
    ("broken", "sound"),
    [
        (talk([text("a")], [call("1")], [text("b")]), talk([text("a")], [call("1")], [missing("1"), text("b")])),
        (talk([text("a")], [call("1")]), talk([text("a")], [call("1")], [missing("1")])),
        (talk([text("a"), result("9")]), talk([text("a")])),
        (
            talk([text("a")], [call("1")], [text("b"), result("1")]),
            talk([text("a")], [call("1")], [result("1"), text("b")]),
        ),
        (talk([text("a")], [text(" ")], [text("b")]), talk([text("a"), text("b")])),
        (talk([text("a")], [thought(""), text("b")]), talk([text("a")], [text("b")])),
        (talk([text("a"), BROKEN_IMAGE]), talk([text("a"), text(NO_IMAGE)])),
        (
            talk([text("a")], [call("1")], [result("1", [BROKEN_IMAGE])]),
            talk([text("a")], [call("1")], [result("1", [text(NO_IMAGE)])]),
        ),
        (
            talk([text("a")], [call("1")], [result("1")], [call("1"), text("b")], [text("c")]),
            talk([text("a")], [call("1")], [result("1")], [text("b")], [text("c")]),
        ),
    ],
)
def test_what_a_backend_refuses_is_mended(broken: list[Json], sound: list[Json]) -> None:
    assert repaired(broken) == sound
    assert repaired(sound) == sound


def test_signed_thoughts_go_only_if_it_is_thoughts_that_are_complained_about() -> None:
    messages = talk([text("a")], [thought("s"), text("b")])

    assert repaired(messages, "image exceeds 5 MB") == messages
    assert repaired(messages, "Invalid `signature` in `thinking` block") == talk([text("a")], [text("b")])


def test_a_good_image_stays() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}

    assert repaired(talk([image])) == talk([image])


def heard(folder: Path, script: str, *prompts: object) -> tuple[list[Json], list[Json], list[Json]]:
    """The results, the notices, and the conversation as it is sent."""

    async def played() -> tuple[list[Json], list[Json], list[Json]]:
        async with Room(folder, script) as room:
            results = []
            for prompt in prompts:
                room.say({"type": "user", "message": {"role": "user", "content": prompt}})
                results.append(await room.hear("result"))
            notices = [line for line in room.told("system") if line["subtype"] == "informational"]
            return results, notices, room.session.record.history.messages()

    return asyncio.run(played())


def test_a_refused_conversation_is_repaired_and_tried_again(tmp_path: Path) -> None:
    script = REFUSAL + "[[turn]]\ntext = 'I see.'\n"
    [only], notices, messages = heard(tmp_path, script, [BROKEN_IMAGE, text("What is this?")])

    assert only["result"] == "I see."
    assert [notice["tag"] for notice in notices] == ["history_repaired"]
    assert messages[0]["content"][0] == text(NO_IMAGE)


def test_a_repair_that_does_not_help_is_an_error_and_the_session_goes_on(tmp_path: Path) -> None:
    script = REFUSAL * 2 + "[[turn]]\ntext = 'On.'\n"
    [first, second], notices, _ = heard(tmp_path, script, [BROKEN_IMAGE, text("What is this?")], "go on")

    assert (first["is_error"], first["api_error_status"]) == (True, 400)
    assert second["result"] == "On."
    assert len(notices) == 1


def test_a_refusal_of_a_sound_conversation_is_told_at_once(tmp_path: Path) -> None:
    [first, second], notices, _ = heard(tmp_path, REFUSAL + "[[turn]]\ntext = 'On.'\n", "go", "on")

    assert (first["is_error"], second["result"], notices) == (True, "On.", [])
