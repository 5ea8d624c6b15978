"""The conversation as the model sees it, when it is compacted, and that calls keep their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.context.history import (
    BINDING,
    CompactionPolicy,
    ContextGauge,
    History,
    Reader,
    find_keep_start,
    is_paired,
    make_policy,
    threshold,
)
from parley.engine.context.system_prompt import mark_messages
from parley.errors import UsageError
from parley.models.backends import anthropic
from parley.models.backends.anthropic import Anthropic
from parley.models.backends.openai import OpenAI
from parley.models.backends.reasoning_items import PHASE, pack, without_reasoning_items
from parley.models.backends.responses import OpenAIResponses
from parley.models.base import ModelRequest
from parley.models.encoding import PrefixEncoder
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import Json
from parley.stores.base import Entry
from tests.helpers.model_bodies import chat_body, responses_body


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


THOUGHT: Json = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
PACKED: Json = {**THOUGHT, "signature": pack("m", {"id": "r1", "encrypted_content": "e"})}
PIXEL: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
LOADED: Json = {**RESULT, "content": [{"type": "tool_reference", "tool_name": "Grep"}]}
SHOWN: Json = {**RESULT, "content": [text("See"), PIXEL], "is_error": True}
MEMORY = text("Contents of /a/CLAUDE.md:\n\nBe brief.")
SAID = [text("a"), text(" "), text("é", citations=[]), {**text("f"), PHASE: "final_answer"}, THOUGHT, PACKED, CALL]
BLOCKS = st.lists(st.sampled_from(SAID), max_size=3)
LINES = st.one_of(
    st.tuples(st.just("assistant"), BLOCKS, st.sampled_from(["m1", "m2", "m3", None])),
    st.tuples(
        st.just("user"),
        st.lists(st.sampled_from([text("b"), text(""), MEMORY, PIXEL, RESULT, LOADED, SHOWN]), max_size=3),
        st.none(),
    ),
    st.tuples(st.just("cut"), st.integers(0, 30), st.none()),
    st.tuples(st.just("boundary"), st.integers(0, 30), st.none()),
    st.tuples(st.just("reset"), st.none(), st.none()),
    st.tuples(st.just("repair"), st.sampled_from(["thinking", "messages.1.content.0"]), st.none()),
)


def make_entries(lines: list[tuple[str, Any, str | None]]) -> Iterator[Entry | str]:
    """The entries of a random log. A text is the reason of a rejection."""
    for number, (kind, value, id) in enumerate(lines):
        if kind in ("assistant", "user"):
            yield entry(kind, value, id, uuid=f"u{number}")
        elif kind == "cut":
            yield Entry(seq=0, kind="cut", at="", message={"after": f"u{value}"})
        elif kind == "boundary":
            kept = {"preserved_messages": {"uuids": [f"u{value}"]}}
            boundary = {"type": "system", "subtype": "compact_boundary", "compact_metadata": kept}
            yield Entry(seq=0, kind="system", at="", message=boundary)
            summary = entry("user", "Summary.", uuid=f"s{number}")
            yield msgspec.structs.replace(summary, context={"isCompactSummary": True})
        elif kind == "reset":
            yield Entry(seq=0, kind="conversation_reset", at="", message={})
        else:
            yield value


def take(history: History, step: Entry | str) -> None:
    if not isinstance(step, str):
        history.apply(step)
    elif (repair := history.repair(step)) is not None:
        history.apply(Entry(seq=0, kind="repair", at="", message=repair))


@given(st.lists(LINES, max_size=30), st.integers(0, 30))
def test_messages_that_are_kept_are_those_that_would_be_made_again(
    lines: list[tuple[str, Any, str | None]], end: int
) -> None:
    kept, encoder, done = History(), PrefixEncoder(), list[Entry | str]()
    for each in make_entries(lines):
        done.append(each)
        fresh = History()
        for history, steps in ((kept, [each]), (fresh, done)):
            for step in steps:
                take(history, step)

        assert kept.render(end) == fresh.render(end)
        blocks = [block for part in kept.list_messages() for block in part.content]
        assert len(kept.memory_texts) == blocks.count(MEMORY)
        assert b"[%b]" % bytes(encoder.encode(kept.render())) == msgspec.json.encode(fresh.render())


ENDPOINT = ModelEndpoint(
    base_url="", auth=None, extra_body={"top_k": 3}, declared=frozenset({"reasoning_content", "reasoning_effort"})
)
TOOLS: list[Json] = [
    {"name": "Read", "description": "Reads.", "input_schema": {}, "cache_control": {"type": "ephemeral"}},
    {"name": "Grep", "description": "Finds.", "input_schema": {}, "defer_loading": True},
    {"type": "web_search_20250305", "name": "web_search"},
]
DROPPED = st.frozensets(
    st.sampled_from(["thinking", "metadata", "cache_control", "defer_loading", "phase", "reasoning_content"])
)


def make_request(messages: list[Json], number: int) -> ModelRequest:
    return ModelRequest(
        model="m",
        system=[text("Be brief.")] if number % 3 else [],
        messages=mark_messages(messages),
        tools=TOOLS if number % 2 else [],
        max_tokens=100,
        thinking={"type": "adaptive"},
        session_id="s",
    )


def messages_body(request: ModelRequest, dropped: frozenset[str]) -> Json:
    body = anthropic.drop_fields(anthropic.build_body(request, ENDPOINT.extra_body), dropped)
    return {**body, "messages": [one for message in body["messages"] for one in without_reasoning_items(message)]}


@given(st.lists(LINES, max_size=20), st.lists(DROPPED, min_size=1, max_size=3), st.integers(0, 20))
def test_bodies_that_reuse_what_was_sent_are_those_of_a_new_process(
    lines: list[tuple[str, Any, str | None]], dropped: list[frozenset[str]], end: int
) -> None:
    """Byte for byte, whatever was cut, summarized, repaired, reset or asked beside, and what a server rejects."""
    backends: list[tuple[Anthropic | OpenAI, Callable[[ModelRequest, frozenset[str]], Json]]] = [
        (Anthropic(ENDPOINT), messages_body),
        (
            OpenAI(ENDPOINT, "m", str),
            lambda request, fields: {**chat_body(request, "m", ENDPOINT.declared, fields), **ENDPOINT.extra_body},
        ),
        (
            OpenAIResponses(ENDPOINT, "m", str),
            lambda request, fields: {**responses_body(request, "m", fields), **ENDPOINT.extra_body},
        ),
    ]
    history = History()
    for number, step in enumerate(make_entries(lines)):
        take(history, step)
        fields = dropped[number * len(dropped) // (2 * len(lines))]
        for messages in (history.render(), history.render(end)):
            for backend, build_body in backends:
                request = make_request(messages, number // 4)

                found = backend.encode_body(request, ENDPOINT, fields)

                assert b"".join(found) == msgspec.json.encode(build_body(request, fields))


READERS = [(model, start) for model in ("claude-fable-5-2", "claude-opus-5-5") for start in (b"1", b"2")]
STEPS = st.lists(
    st.one_of(
        LINES,
        st.tuples(st.just("answer"), st.lists(st.sampled_from([text("a"), CALL]), min_size=1, max_size=2), st.none()),
        st.tuples(st.just("read by"), st.sampled_from(READERS), st.none()),
    ),
    max_size=30,
)


@given(STEPS)
def test_thinking_is_sent_only_to_its_model_and_behind_what_it_was_made_with(
    steps: list[tuple[str, Any, str | None]],
) -> None:
    """Whatever was cut, summarized, repaired or changed: what stands before a block is what its model saw."""
    history, made = History(), dict[str, tuple[str, bytes, list[Json]]]()
    owner, start = READERS[0]
    for number, (kind, value, id) in enumerate(steps):
        if kind == "read by":
            owner, start = value
        history.read_by(Reader(owner=owner, start=start, convert=list))
        if kind == "answer":
            sent = history.render()
            thought = {"type": "thinking", "thinking": "", "signature": f"s{number}"}
            made[thought["signature"]] = owner, start, sent
            line = entry("assistant", [thought, *value], f"a{number}", uuid=f"u{number}")
            history.apply(
                msgspec.structs.replace(line, seq=number, context={BINDING: {"owner": owner, "prefix": history.prefix}})
            )
        elif kind != "read by":
            for step in make_entries([(kind, value, id)]):
                take(history, step)

        messages = history.render()
        for at, message in enumerate(messages):
            for block in message["content"]:
                if block.get("type") == "thinking":
                    assert made[block["signature"]] == (owner, start, messages[:at])


def test_messages_before_the_last_answer_are_the_same_objects_every_time() -> None:
    history = History()
    for each in (entry("user", "a"), entry("assistant", "b", "m1"), entry("user", "c"), entry("assistant", "d", "m2")):
        history.apply(each)
    before = history.render()
    history.apply(entry("user", "e"))

    after = history.render()

    assert [one is other for one, other in zip(before, after, strict=False)] == [True, True, False, False]
    assert after[:4] == history.render()[:4]
    assert all(one is other for one, other in zip(after[:4], history.render(), strict=False))


def test_a_list_that_is_in_use_stays_as_it_is_and_another_is_used_again() -> None:
    history, lists = History(), []
    for number in range(3):
        history.apply(entry("user", f"question {number}"))
        history.apply(entry("assistant", [text(f"answer {number}")], f"m{number}"))
        lists.append(mark_messages(history.render()))
    kept = [[message["content"][0]["text"] for message in rendered] for rendered in lists]
    last = id(lists.pop())
    history.apply(entry("user", "the end"))

    assert kept == [
        ["question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2"][: 2 * n] for n in (1, 2, 3)
    ]
    assert id(history.render()) == last
    assert [message["content"] for message in history.render()][-2:] == [[text("answer 2")], [text("the end")]]


def user(uuid: str, *content: Json, **context: object) -> Entry:
    message: Json = {"type": "user", "message": {"role": "user", "content": list(content)}, "uuid": uuid}
    return Entry(seq=0, kind="user", at="", message=message, context=context)


def assistant(uuid: str, *content: Json) -> Entry:
    inner: Json = {"role": "assistant", "id": f"m{uuid}", "content": list(content)}
    return Entry(seq=0, kind="assistant", at="", message={"type": "assistant", "message": inner, "uuid": uuid})


def boundary(**metadata: object) -> Entry:
    told: Json = {"type": "system", "subtype": "compact_boundary", "compact_metadata": metadata, "uuid": "b"}
    return Entry(seq=0, kind="system", at="", message=told)


def call(id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {}}


def result(id: str, words: str = "x") -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": words}


def heard(*entries: Entry) -> History:
    history = History()
    for entry in entries:
        history.apply(entry)
    return history


TALK = (user("1", text("one")), assistant("2", text("two")), user("3", text("three")), assistant("4", text("four")))


@pytest.mark.parametrize(
    ("wanted", "window", "at"),
    [
        (CompactionPolicy(), 200_000, 185_000),
        (CompactionPolicy(), 1_000_000, 985_000),
        (CompactionPolicy(), 1_000, 500),
        (CompactionPolicy(percent=50), 200_000, 100_000),
        (CompactionPolicy(percent=99), 200_000, 185_000),
    ],
)
def test_there_is_room_for_the_next_answer(wanted: CompactionPolicy, window: int, at: int) -> None:
    assert threshold(wanted, window, 10_000) == at


def test_what_the_backend_counted_goes_before_our_estimate() -> None:
    gauge = ContextGauge()
    before = gauge.estimate(150)
    gauge.measure(1_000, 150)

    assert (before, gauge.estimate(180)) == (150, 1_030)
    gauge.reset(10)
    assert gauge.estimate(60) == 60


def test_a_count_that_cannot_be_is_not_believed() -> None:
    """Some servers say 1 whatever they are sent; a tokenizer that is better than ours by a third is one."""
    gauge = ContextGauge()
    gauge.measure(1, 10_000)
    assert gauge.estimate(10_500) == 10_500
    gauge.measure(7_000, 10_000)
    assert gauge.estimate(10_500) == 7_500


def test_images_and_documents_do_not_change_a_count() -> None:
    """What they take no one knows but the backend."""
    image: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100}}
    pdf: Json = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 10**6}}
    history = heard(
        user("1", text("x" * 400), image, pdf),
        assistant("2", call("a")),
        user("3", {**result("a"), "content": [text("y" * 400), image]}),
    )
    gauge = ContextGauge()
    gauge.measure(500, history.tokens, history.media_tokens)

    assert history.media_tokens == 1_600 + 10_000 + 1_600
    assert gauge.estimate(history.tokens + 7) == 507
    assert (
        heard(user("1", image), boundary(preserved_segment={"anchor_uuid": "s"}), user("s", text("Sum."))).media_tokens
        == 0
    )


def test_a_conversation_that_was_just_compacted_is_not_compacted_again() -> None:
    gauge = ContextGauge()
    assert gauge.has_grown(500, 1_000)
    gauge.reset(500)

    assert not gauge.has_grown(600, 1_000)
    assert gauge.has_grown(601, 1_000)


def test_the_last_answer_is_kept_with_the_results_of_its_calls() -> None:
    working = (*TALK, user("5", text("go")), assistant("6", call("a"), call("b")), user("7", result("a"), result("b")))

    assert find_keep_start(heard(*TALK).list_messages(), 100) == 3
    assert find_keep_start(heard(*working).list_messages(), 100) == 5


def test_what_is_too_large_is_not_kept_but_a_prompt_always_is() -> None:
    large = (*TALK, user("5", text("go")), assistant("6", call("a")), user("7", result("a", "x" * 1_000)))

    assert find_keep_start(heard(*large).list_messages(), 100) == 7
    assert find_keep_start(heard(*TALK, user("5", text("x" * 1_000))).list_messages(), 100) == 4


def test_a_prompt_alone_is_too_little() -> None:
    assert find_keep_start(heard().list_messages(), 100) is None
    assert find_keep_start(heard(user("1", text("one"))).list_messages(), 100) is None


def test_after_a_boundary_come_the_summary_and_the_preserved_messages() -> None:
    kept = {"anchor_uuid": "s", "uuids": ["4"], "all_uuids": ["4"]}
    ends = {"anchor_uuid": "s", "head_uuid": "4", "tail_uuid": "4"}
    expected = [
        {"role": "user", "content": [text("Sum.")]},
        {"role": "assistant", "content": [text("four")]},
        {"role": "user", "content": [text("next")]},
    ]
    behind = (user("s", text("Sum."), isCompactSummary=True), user("5", text("next")))

    for metadata in ({"preserved_segment": ends, "preserved_messages": kept}, {"preserved_segment": ends}):
        assert heard(*TALK, boundary(**metadata), *behind).render() == expected
    # Older ones of the original preserve nothing.
    assert heard(*TALK, boundary(trigger="auto"), *behind).render() == [
        {"role": "user", "content": [text("Sum."), text("next")]}
    ]


def test_a_boundary_without_its_summary_changes_nothing() -> None:
    """An engine that ends between the two lines has lost nothing."""
    ends = {"preserved_segment": {"anchor_uuid": "s"}}

    assert heard(*TALK, boundary(**ends)).render() == heard(*TALK).render()
    assert len(heard(*TALK, boundary(**ends), user("5", text("next"))).render()) == 5


def test_one_may_go_back_to_a_line_before_the_boundary() -> None:
    ends = {"preserved_segment": {"anchor_uuid": "s"}}
    cut = Entry(seq=0, kind="cut", at="", message={"after": "2"})
    history = heard(*TALK, boundary(**ends), user("s", text("Sum.")), cut)

    assert history.render() == heard(*TALK[:2]).render()


def test_a_result_that_was_removed_stays_so_and_another_with_its_id_is_seen() -> None:
    """Some servers number their calls, so that ids are used again after a compaction."""
    first = (user("1", text("one")), assistant("2", call("t0")), user("3", result("t0", "old")))
    removed = Entry(seq=0, kind="results_removed", at="", message={"calls": ["t0"]})
    summary = (boundary(trigger="auto"), user("s", text("Sum."), isCompactSummary=True))
    history = heard(*first, removed, *summary, assistant("4", call("t0")), user("5", result("t0", "new")))

    assert history.render()[-1]["content"] == [result("t0", "new")]
    assert history.results == {"t0": "new"}
    history.apply(Entry(seq=0, kind="cut", at="", message={"after": "3"}))
    assert history.render() == heard(*first, removed).render() != heard(*first).render()


@st.composite
def conversations(draw: st.DrawFn) -> list[Entry]:
    """Conversations at a place where the model could be asked, sometimes with odd ones of another program."""
    entries: list[Entry] = []
    steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 300), st.booleans()), max_size=8)
    for number, (prompts, calls, size, is_odd) in enumerate(draw(steps)):
        if prompts or not entries:
            entries.append(user(f"u{number}", text("p" * size)))
        ids = [f"t{number}-{at}" for at in range(calls)]
        entries.append(assistant(f"a{number}", text("said"), *map(call, ids)))
        entries += [user(f"r{id}", result(id, "r" * size)) for id in ids]
        if is_odd:
            entries.append(user(f"o{number}", result(f"lost-{number}")))
    if draw(st.booleans()):
        entries.append(user("last", text("and now?")))
    return entries


@given(conversations(), st.integers(0, 200))
def test_what_is_kept_is_paired_and_compacting_is_a_fold(entries: list[Entry], most_tokens: int) -> None:
    history = heard(*entries)
    at = find_keep_start(history.list_messages(), most_tokens)
    if at is None:
        return
    uuids = [uuid for message in history.list_messages()[at:] for uuid in message.uuids]
    ends = {"anchor_uuid": "s", **({"head_uuid": uuids[0], "tail_uuid": uuids[-1]} if uuids else {})}
    kept = {"preserved_messages": {"anchor_uuid": "s", "uuids": uuids}} if uuids else {}
    compacted = heard(*entries, boundary(preserved_segment=ends, **kept), user("s", text("Sum.")))

    assert is_paired(compacted.list_messages())
    assert compacted.open_calls() == {}
    assert compacted.render()[0]["role"] == "user"
    assert compacted.render()[0]["content"][0] == text("Sum.")
    roles = [message["role"] for message in compacted.render()]
    assert all(one != other for one, other in pairwise(roles))


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({}, CompactionPolicy()),
        ({"disabled": True}, CompactionPolicy(is_allowed=False)),
        ({"auto_disabled": True}, CompactionPolicy(is_automatic=False)),
        ({"auto_disabled": True, "flag": ""}, CompactionPolicy()),
        ({"flag": "off"}, CompactionPolicy(is_automatic=False)),
        ({"flag": "5000", "window": 7}, CompactionPolicy(window=5000)),
        ({"window": 7, "percent": 80}, CompactionPolicy(window=7, percent=80)),
    ],
)
def test_what_the_person_wants(given_: Json, expected: CompactionPolicy) -> None:
    nothing: Json = {"disabled": False, "auto_disabled": False, "flag": None, "window": None, "percent": None}

    assert make_policy(**{**nothing, **given_}) == expected


@pytest.mark.parametrize("wrong", [{"flag": "sometimes"}, {"flag": "0"}, {"percent": 0}, {"percent": 101}])
def test_nonsense_is_refused(wrong: Json) -> None:
    nothing: Json = {"disabled": False, "auto_disabled": False, "flag": None, "window": None, "percent": None}

    with pytest.raises(UsageError):
        make_policy(**{**nothing, **wrong})
