"""A recording is replayed only to its own conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.errors import ModelError
from parley.models.recording import RecordedEnd, RecordedEvent, RecordedRequest, RecordingHeader, without_cache_marks
from parley.models.replay import Replay, describe_difference, normalize
from parley.stores.records import MODEL, RecordWriter
from parley.testing.virtual_time import run_in_virtual_time
from tests.helpers.models import asking, assistant, heard, refusal, user
from tests.helpers.models import text as says

STOP = msgspec.Raw(b'{"type":"message_stop"}')


def recorded(folder: Path, *prompts: str) -> Path:
    """A recording with one request per prompt and empty answers."""
    path = folder / "tape.jsonl"
    writer = RecordWriter.create(path, MODEL, RecordingHeader())
    for call, prompt in enumerate(prompts, 1):
        writer.append(0, RecordedRequest(call=call, messages=[user(prompt)]))
        writer.append(20_000, RecordedEvent(call=call, data=STOP))
        writer.append(20_000, RecordedEnd(call=call))
    writer.close()
    return path


async def test_a_recording_of_another_conversation_is_reported_at_the_first_request(tmp_path: Path) -> None:
    model = Replay(recorded(tmp_path, "Hi"))

    assert await refusal(model, asking(user("Ho"))) == vars(
        ModelError(
            f"recording {tmp_path}/tape.jsonl does not match this conversation: "
            "messages[0].content[0].text is 'Hi' in the recording and 'Ho' in this conversation",
            kind="recording_diverged",
        )
    )


async def test_a_departure_says_at_which_request(tmp_path: Path) -> None:
    model = Replay(recorded(tmp_path, "one", "two"))
    await heard(model, asking(user("one")))

    with pytest.raises(
        ModelError, match=r"differs from request 2 on: .* is 'two' in the recording and '2' in this conversation"
    ):
        await heard(model, asking(user("2")))


async def test_a_recording_without_answers_left_is_an_error(tmp_path: Path) -> None:
    model = Replay(recorded(tmp_path, "one"))
    await heard(model, asking(user("one")))

    with pytest.raises(ModelError, match=r"has no more answers \(1 recorded\)"):
        await heard(model, asking(user("one")))


async def test_in_order_nothing_is_compared(tmp_path: Path) -> None:
    model = Replay(recorded(tmp_path, "one"), in_order=True)

    assert [event.type for event in await heard(model, asking(user("whatever")))] == ["message_stop"]


@pytest.mark.parametrize(("pace", "seconds"), [(0, 0), (1, 20), (0.5, 10)])
def test_a_recording_is_played_without_waiting_or_at_its_pace(tmp_path: Path, pace: float, seconds: int) -> None:
    took, _ = run_in_virtual_time(heard(Replay(recorded(tmp_path, "one"), pace=pace), asking(user("one"))))

    assert round(took) == seconds


TAPE = {"cwd": "/home/me/one", "home": "/home/me", "tmp": "/tmp"}
HERE = {"cwd": "/srv/two", "home": "/home/you", "tmp": "/var/tmp"}


def parted(recorded: list[Any], asked: list[Any]) -> str | None:
    return describe_difference(normalize(recorded, TAPE), normalize(asked, HERE))


@pytest.mark.parametrize(
    ("recorded", "here"),
    [
        ("at 2026-11-15T23:52:01.538Z", "at 2027-01-02T03:04:05Z"),
        ("on 2026-11-15", "on 2031-01-01"),
        ("it is 23:52:01", "it is 00:00:00"),
        ("in /home/me/one/a.txt", "in /srv/two/a.txt"),
        ("in /home/me", "in /home/you"),
        ("kept in /tmp/x", "kept in /var/tmp/x"),
        ("task 00000000-0000-4000-8000-000000000001", "task 0a0a0a0a-0000-4000-8000-000000000002"),
        ("task 0123456789abcdef", "task fedcba9876543210"),
    ],
)
def test_what_varies_from_run_to_run_is_the_same(recorded: str, here: str) -> None:
    assert parted([user(recorded)], [user(here)]) is None


def test_markers_signatures_and_the_short_form_of_a_text_do_not_count() -> None:
    marked = {**says("Hi"), "cache_control": {"type": "ephemeral"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "a"}

    assert parted([user("Hi"), assistant(thought)], [user([marked]), assistant({**thought, "signature": "b"})]) is None


@pytest.mark.parametrize(
    ("here", "said"),
    [
        ([user("Ho")], "messages[0].content[0].text is 'Hi' in the recording and 'Ho' in this conversation"),
        ([user("Hi"), user("x")], "messages has 1 items in the recording and 2 in this conversation"),
        (
            [{"role": "assistant", "content": "Hi"}],
            "messages[0].role is 'user' in the recording and 'assistant' in this conversation",
        ),
        ([user([])], "messages[0].content has 1 items in the recording and 0 in this conversation"),
    ],
)
def test_a_departure_is_reported_with_its_place(here: list[Any], said: str) -> None:
    assert parted([user("Hi")], here) == said


def test_the_part_of_a_long_text_around_the_difference_is_shown() -> None:
    told = parted([user("a" * 500 + "X" + "b" * 500)], [user("a" * 500 + "Y" + "b" * 500)]) or ""

    assert f"…'{'a' * 20}X{'b' * 19}'…" in told
    assert f"…'{'a' * 20}Y{'b' * 19}'…" in told


def test_a_folder_is_not_a_part_of_a_longer_name() -> None:
    assert parted([user("/tmp-x")], [user("/var/tmp-x")]) is not None


def test_marks_are_taken_off_blocks_and_off_results() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{**says("x"), **mark}]}

    assert without_cache_marks([user([{**says("Hi"), **mark}, result])]) == [
        user([says("Hi"), {"type": "tool_result", "tool_use_id": "t", "content": [says("x")]}])
    ]
