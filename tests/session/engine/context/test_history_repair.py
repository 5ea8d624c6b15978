"""A conversation that a backend refuses is repaired once; a session is never lost to one bad block."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.context.history_repair import NO_DOCUMENT, NO_IMAGE, NO_RESULT, find_blamed, repair_messages
from tests.helpers.session import Json, SessionHarness

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


def scenario(*contents: list[Json]) -> list[Json]:
    return [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]


@pytest.mark.parametrize(
    ("broken", "sound"),
    [
        (
            scenario([text("a")], [call("1")], [text("b")]),
            scenario([text("a")], [call("1")], [missing("1"), text("b")]),
        ),
        (scenario([text("a")], [call("1")]), scenario([text("a")], [call("1")], [missing("1")])),
        (scenario([text("a"), result("9")]), scenario([text("a")])),
        (scenario([text("a\0")]), scenario([text("a\N{REPLACEMENT CHARACTER}")])),
        (
            scenario([text("a")], [call("1")], [text("b"), result("1")]),
            scenario([text("a")], [call("1")], [result("1"), text("b")]),
        ),
        (scenario([text("a")], [text(" ")], [text("b")]), scenario([text("a"), text("b")])),
        (scenario([text("a")], [thought(""), text("b")]), scenario([text("a")], [text("b")])),
        (scenario([text("a"), BROKEN_IMAGE]), scenario([text("a"), text(NO_IMAGE)])),
        (
            scenario([text("a")], [call("1")], [result("1", [BROKEN_IMAGE])]),
            scenario([text("a")], [call("1")], [result("1", [text(NO_IMAGE)])]),
        ),
        (
            scenario([text("a")], [call("1")], [result("1")], [call("1"), text("b")], [text("c")]),
            scenario([text("a")], [call("1")], [result("1")], [text("b")], [text("c")]),
        ),
    ],
)
def test_what_a_backend_refuses_is_mended(broken: list[Json], sound: list[Json]) -> None:
    assert repair_messages(broken) == sound
    assert repair_messages(sound) == sound


def test_a_good_image_stays() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}

    assert repair_messages(scenario([image])) == scenario([image])


def image(data: str) -> Json:
    """Images that differ by a letter."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" + data}}


PDF: Json = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}


@pytest.mark.parametrize(
    ("warning", "left"),
    [
        ("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum", [text(NO_IMAGE), image("b")]),
        ("messages.2.content.0.tool_result.content.0.image: too many pixels", [image("a"), text(NO_IMAGE)]),
        ("Could not process image", [text(NO_IMAGE)] * 2),
        ("messages.7.content.3.image: no such place", [text(NO_IMAGE)] * 2),
        ("messages: something else", [image("a"), image("b")]),
    ],
)
def test_an_image_goes_if_it_is_complained_about(warning: str, left: list[Json]) -> None:
    first, second = left

    def conversation(one: Json, other: Json) -> list[Json]:
        return scenario([text("a"), one], [call("1")], [result("1", [other])])

    messages = conversation(image("a"), image("b"))
    assert repair_messages(messages, find_blamed(messages, warning)) == conversation(first, second)


def test_calls_of_another_backend_are_spelled_as_the_api_spells_them() -> None:
    odd = scenario([text("a")], [{**call("functions.read:0"), "name": "fs.read"}], [result("functions.read:0")])

    assert repair_messages(odd) == scenario(
        [text("a")], [{**call("functions_read_0"), "name": "fs_read"}], [result("functions_read_0")]
    )


async def heard(folder: Path, script: str, *prompts: object) -> tuple[list[Json], list[Json], list[Json]]:
    """The results, the notices, and the conversation as it is sent."""

    async with SessionHarness(folder, script) as harness:
        results = []
        for prompt in prompts:
            harness.send({"type": "user", "message": {"role": "user", "content": prompt}})
            results.append(await harness.receive("result"))
        notices = [line for line in harness.messages("system") if line["subtype"] == "informational"]
        return results, notices, harness.session.journal.history.render()


async def test_a_refused_conversation_is_repaired_and_tried_again(tmp_path: Path) -> None:
    script = REFUSAL + "[[turn]]\ntext = 'I see.'\n"
    [only], notices, messages = await heard(tmp_path, script, [BROKEN_IMAGE, text("What is this?")])

    assert only["result"] == "I see."
    assert [notice["tag"] for notice in notices] == ["history_repaired"]
    assert messages[0]["content"][0] == text(NO_IMAGE)


@pytest.mark.parametrize(("block", "instead"), [(image("a"), NO_IMAGE), (PDF, NO_DOCUMENT)])
async def test_what_only_the_backend_knows_to_be_bad_is_left_out_from_then_on(
    tmp_path: Path, block: Json, instead: str
) -> None:
    words = f"messages.0.content.0.{block['type']}.source: not a valid PDF or image"
    refusal = f"[[turn]]\nerror = {{ status = 400, type = 'invalid_request_error', message = '{words}' }}\n"
    script = refusal + "[[turn]]\ntext = 'I see.'\n" * 2
    results, notices, messages = await heard(
        tmp_path, script, [block, text("What is this?")], [image("c"), text("And this?")]
    )

    assert [one["result"] for one in results] == ["I see."] * 2
    assert [notice["tag"] for notice in notices] == ["history_repaired"]
    assert [messages[at]["content"][0] for at in (0, 2)] == [text(instead), image("c")]


async def test_a_repair_that_does_not_help_is_an_error_and_the_session_continues(tmp_path: Path) -> None:
    script = REFUSAL * 2 + "[[turn]]\ntext = 'On.'\n"
    [first, second], notices, _ = await heard(tmp_path, script, [BROKEN_IMAGE, text("What is this?")], "go on")

    assert (first["is_error"], first["api_error_status"]) == (True, 400)
    assert second["result"] == "On."
    assert len(notices) == 1


async def test_a_refusal_of_a_sound_conversation_is_reported_at_once(tmp_path: Path) -> None:
    [first, second], notices, _ = await heard(tmp_path, REFUSAL + "[[turn]]\ntext = 'On.'\n", "go", "on")

    assert (first["is_error"], second["result"], notices) == (True, "On.", [])
