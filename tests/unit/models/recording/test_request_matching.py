"""What is compared when a request is matched with a recorded one."""

from __future__ import annotations

from typing import Any

import pytest

from parley.models.recording.request_matching import describe_difference, normalize, without_cache_marks
from tests.helpers.models import assistant, user
from tests.helpers.models import text as says

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
