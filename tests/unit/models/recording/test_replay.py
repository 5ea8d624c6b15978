"""A recording is replayed only to its own conversation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from parley.errors import ModelError
from parley.models.recording.format import RecordedEnd, RecordedEvent, RecordedRequest, RecordingHeader
from parley.models.recording.replay import Replay
from parley.stores.records import MODEL, RecordWriter
from parley.testing.virtual_time import run_in_virtual_time
from tests.helpers.models import asking, heard, refusal, user

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
