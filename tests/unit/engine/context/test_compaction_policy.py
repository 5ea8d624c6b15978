"""When a conversation is compacted, what of it is kept, and that calls keep their results."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.context.compaction_policy import (
    CompactionPolicy,
    ContextGauge,
    find_keep_start,
    is_paired,
    make_policy,
    threshold,
)
from parley.engine.context.history import History
from parley.errors import UsageError
from parley.protocol.base import Json
from parley.stores.base import Entry


def user(uuid: str, *content: Json, **context: object) -> Entry:
    message: Json = {"type": "user", "message": {"role": "user", "content": list(content)}, "uuid": uuid}
    return Entry(seq=0, kind="user", at="", message=message, context=context)


def assistant(uuid: str, *content: Json) -> Entry:
    inner: Json = {"role": "assistant", "id": f"m{uuid}", "content": list(content)}
    return Entry(seq=0, kind="assistant", at="", message={"type": "assistant", "message": inner, "uuid": uuid})


def boundary(**metadata: object) -> Entry:
    told: Json = {"type": "system", "subtype": "compact_boundary", "compact_metadata": metadata, "uuid": "b"}
    return Entry(seq=0, kind="system", at="", message=told)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


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
        (CompactionPolicy(), 200_000, 143_000),
        (CompactionPolicy(), 1_000_000, 943_000),
        (CompactionPolicy(), 1_000, 500),
        (CompactionPolicy(percent=50), 200_000, 100_000),
        (CompactionPolicy(percent=99), 200_000, 143_000),
    ],
)
def test_there_is_room_for_an_answer_and_the_largest_result(wanted: CompactionPolicy, window: int, at: int) -> None:
    assert threshold(wanted, window, 128_000) == at


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
