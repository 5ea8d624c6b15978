"""Reasoning items in thinking blocks."""

from __future__ import annotations

import pytest

from parley.models.backends.reasoning_items import PHASE, PREFIX, pack, unpack, without_reasoning_items
from parley.protocol.base import Json
from tests.helpers.models import assistant, text, user

ITEM: Json = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "gAAA",
    "status": "completed",
}
KEPT = {name: value for name, value in ITEM.items() if name != "status"}


def test_an_item_comes_back_without_its_status() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": pack("gpt-5", ITEM)}
    redacted = {"type": "redacted_thinking", "data": pack("gpt-5", ITEM)}

    assert unpack(thought, "gpt-5") == unpack(redacted, "gpt-5") == KEPT


def test_reasoning_that_is_not_encrypted_comes_back_too() -> None:
    item: Json = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]}

    assert unpack({"type": "thinking", "signature": pack("m", item)}, "m") == item


def test_an_item_without_reasoning_is_not_kept() -> None:
    assert pack("m", {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": None}) == ""


def test_the_item_of_another_model_is_dropped() -> None:
    assert unpack({"type": "thinking", "signature": pack("gpt-5", ITEM)}, "gpt-6") is None


@pytest.mark.parametrize("signature", ["", "c2NyaXB0ZWQ=", PREFIX, f"{PREFIX}!", f"{PREFIX}e30=", f"{PREFIX}/w=="])
def test_a_signature_of_another_kind_holds_no_item(signature: str) -> None:
    assert unpack({"type": "thinking", "thinking": "Hm.", "signature": signature}, "m") is None


def test_other_backends_get_neither_items_nor_phases() -> None:
    packed = {"type": "thinking", "thinking": "Hm.", "signature": pack("m", ITEM)}
    redacted = {"type": "redacted_thinking", "data": pack("m", ITEM)}
    own = {"type": "thinking", "thinking": "Hm.", "signature": "theirs"}

    assert without_reasoning_items(assistant(packed, redacted, own, {**text("Yes."), PHASE: "final_answer"})) == [
        assistant(own, text("Yes."))
    ]


def test_a_message_without_items_is_the_same_object() -> None:
    for message in (
        user("Hi"),
        assistant({"type": "thinking", "thinking": "Hm.", "signature": "theirs"}, text("Yes.")),
    ):
        (found,) = without_reasoning_items(message)
        assert found is message
