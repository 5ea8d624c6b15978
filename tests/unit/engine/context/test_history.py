"""The conversation as the model sees it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.context.history import History
from parley.protocol.base import Json
from parley.stores.base import Entry


def entry(kind: str, content: str | list[Json], id: str | None = None, **more: object) -> Entry:
    inner: Json = {"role": kind, "content": content, **({"id": id} if id else {})}
    return Entry(seq=0, kind=kind, at="", message={"type": kind, "message": inner, **more})


def text(text: str, **more: object) -> Json:
    return {"type": "text", "text": text, **more}


def messages(*entries: Entry) -> list[Json]:
    history = History()
    for each in entries:
        history.apply(each)
    return history.render()


CALL: Json = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "t1", "content": "a"}


def test_a_text_becomes_a_block_and_blocks_stay_as_they_are() -> None:
    image: Json = {"type": "image", "source": {"type": "url"}}

    assert messages(entry("user", "Hello"), entry("assistant", [text("Hi", citations=[])], "m1")) == [
        {"role": "user", "content": [text("Hello")]},
        {"role": "assistant", "content": [text("Hi", citations=[])]},
    ]
    assert messages(entry("user", [text("a"), image])) == [{"role": "user", "content": [text("a"), image]}]


def test_the_blocks_of_one_answer_are_one_message() -> None:
    thought: Json = {"type": "thinking", "thinking": "Hm.", "signature": "s"}

    assert messages(
        entry("user", "Hello"),
        entry("assistant", [thought], "m1"),
        entry("assistant", [text("Look.")], "m1"),
        entry("assistant", [CALL], "m1"),
        entry("user", [RESULT]),
        entry("assistant", [text("Done.")], "m2"),
    ) == [
        {"role": "user", "content": [text("Hello")]},
        {"role": "assistant", "content": [thought, text("Look."), CALL]},
        {"role": "user", "content": [RESULT]},
        {"role": "assistant", "content": [text("Done.")]},
    ]


def test_answers_with_different_ids_or_none_are_messages_of_their_own() -> None:
    assert messages(
        entry("assistant", "a", "m1"), entry("assistant", "b", "m2"), entry("assistant", "c"), entry("assistant", "d")
    ) == [{"role": "assistant", "content": [text(letter)]} for letter in "abcd"]


def test_what_users_say_in_a_row_is_one_message() -> None:
    assert messages(entry("user", [RESULT]), entry("user", "stop"), entry("user", [text("go on")])) == [
        {"role": "user", "content": [RESULT, text("stop"), text("go on")]}
    ]


@pytest.mark.parametrize("empty", ["", " ", "\n\t"])
def test_texts_that_say_nothing_are_left_out(empty: str) -> None:
    assert messages(
        entry("user", empty), entry("assistant", [text(empty), CALL], "m1"), entry("user", [RESULT, text(empty)])
    ) == [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}]


def test_what_is_not_said_is_not_part_of_it() -> None:
    assert messages(
        entry("user", "Hello"),
        Entry(seq=1, kind="result", at="", message={"type": "result"}),
        Entry(seq=2, kind="prompt", at="", message={"text": "Be brief."}),
        Entry(seq=3, kind="telepathy", at="", message={}),
        entry("assistant", "API Error: 529 busy", "m1", is_api_error_message=True),
    ) == [{"role": "user", "content": [text("Hello")]}]


def test_prompts_that_follow_each_other_are_parts_of_one_message() -> None:
    history = History()
    for each in (entry("user", "a"), entry("user", "b"), entry("assistant", "c", "m1")):
        history.apply(each)

    assert [part.content for part in history.list_messages()] == [[text("a")], [text("b")], [text("c")]]
    assert [message["content"] for message in history.render()] == [[text("a"), text("b")], [text("c")]]


def test_an_entry_stays_as_it_was_when_its_message_grows() -> None:
    first = entry("user", [text("a")])
    messages(first, entry("user", "b"))

    assert first == entry("user", [text("a")])


TEXTS = ["", "a", [text("b"), text("")]]
IDS = st.sampled_from(["m1", "m2", None])
ENTRIES = st.lists(
    # Only a model calls, and only it is answered: a log has it no other way.
    st.builds(entry, st.just("user"), st.sampled_from([*TEXTS, [RESULT]]), IDS)
    | st.builds(entry, st.just("assistant"), st.sampled_from([*TEXTS, [CALL]]), IDS),
    max_size=12,
)


@given(ENTRIES)
def test_what_was_sent_is_sent_again_byte_for_byte(entries: list[Entry]) -> None:
    history, before = History(), b"["
    for each in entries:
        history.apply(each)
        if history.open_calls():
            continue  # nothing is sent before every call has its result
        now = msgspec.json.encode(history.render())
        # A message that grows continues where its list of blocks ended.
        assert now.startswith(before.removesuffix(b"]").removesuffix(b"}").removesuffix(b"]"))
        before = now


def test_a_cut_leaves_the_lines_up_to_a_point() -> None:
    lines = [entry("user", "a"), entry("assistant", [CALL], "m1"), entry("user", [RESULT]), entry("user", "b")]
    for uuid, line in zip("wxyz", lines, strict=True):
        line.message["uuid"] = uuid
    history = History()
    for line in [*lines, cut("x")]:
        history.apply(line)

    assert [message["role"] for message in history.render()] == ["user", "assistant"]
    assert history.open_calls() == {"t1": "Read"}
    assert history.cut_off == {"y", "z"}


def test_a_cut_at_a_line_that_is_not_there_changes_nothing() -> None:
    assert messages(entry("user", "a"), cut("x")) == messages(entry("user", "a"))


def test_a_conversation_may_be_cut_at_an_error_that_no_model_sees() -> None:
    failed = entry("assistant", "API Error", "m1")
    failed.message.update(uuid="x", is_api_error_message=True)

    assert messages(entry("user", "a"), failed, entry("user", "b"), cut("x")) == messages(entry("user", "a"))


def cut(after: str) -> Entry:
    return Entry(seq=9, kind="cut", at="", message={"after": after})


def test_results_stand_in_the_order_of_their_calls_and_before_what_else_was_said() -> None:
    """Calls that ran together end as they like; the next request is the same whichever was quicker."""
    other_call, other_result = {**CALL, "id": "t2"}, {**RESULT, "tool_use_id": "t2"}
    begin = (entry("user", "Go"), entry("assistant", [CALL, other_call], "m1"))

    found = messages(*begin, entry("user", [other_result]), entry("user", "Hurry"), entry("user", [RESULT]))

    assert found == messages(*begin, entry("user", [RESULT]), entry("user", [other_result]), entry("user", "Hurry"))
    assert found[-1]["content"] == [RESULT, other_result, text("Hurry")]
