"""No line is longer than the cap, and nothing is lost by it."""

from __future__ import annotations

import base64
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.session.config import ENVELOPE_BYTES
from parley.engine.turn.result_spill import fit_input, spill_to_file
from parley.engine.turn.turn import fits_line, longest_json
from parley.protocol.base import encode_json
from parley.tools.base import ToolOutput
from parley.workspace.process.processes import OutputFiles, ResultFile

CAP = 100_000


def containers(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.dictionaries(st.text(), values) | st.lists(values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results"


def fit(result: ToolOutput, folder: Path) -> ToolOutput:
    numbers = count(1)
    assert not fits_line(result, CAP)
    made = spill_to_file(result, CAP, lambda ending: ResultFile(folder / f"{next(numbers)}.{ending}", OutputFiles()))
    assert len(encode_json(made.content)) + len(encode_json(made.detail)) <= CAP - ENVELOPE_BYTES
    return made


def test_a_result_fits_if_content_and_detail_do_together() -> None:
    room = CAP - ENVELOPE_BYTES - 4  # the quotes
    assert fits_line(ToolOutput(content="x" * (room // 2), detail="x" * (room // 2)), CAP)
    assert not fits_line(ToolOutput(content="x" * (room // 2), detail="x" * (room // 2 + 1)), CAP)


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(), containers))
def test_the_estimated_length_of_a_result_is_never_too_short(value: object) -> None:
    assert longest_json(value) >= len(encode_json(value))


def test_the_hosts_copy_is_cut_before_the_models_text(folder: Path) -> None:
    text = "x" * 60_000
    made = fit(ToolOutput(content=text, detail={"file": {"content": text, "numLines": 1}}), folder)
    assert made.content == text
    assert made.detail["file"]["numLines"] == 1
    assert made.detail["file"]["content"].endswith("(50000 more characters)")
    assert not folder.exists()


def test_a_long_text_is_saved_to_a_file_and_the_line_has_its_path(folder: Path) -> None:
    text = "ü" * 120_000
    made = fit(ToolOutput(content=text, detail={"stdout": text}), folder)
    assert isinstance(made.content, str)
    assert str(folder / "1.txt") in made.content
    assert (folder / "1.txt").read_text() == text
    assert (folder / "1.txt").stat().st_mode & 0o777 == 0o600


def test_a_large_image_goes_to_a_file_and_its_neighbours_stay(folder: Path) -> None:
    picture = bytes(range(256)) * 600
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}
    caption = {"type": "text", "text": "a picture"}
    made = fit(ToolOutput(content=[caption, {"type": "image", "source": source}]), folder)
    assert made.content[0] == caption
    assert str(folder / "1.png") in made.content[1]["text"]  # type: ignore[index]  # a block
    assert (folder / "1.png").read_bytes() == picture


def test_lone_surrogates_in_a_text_do_not_stop_it_from_being_saved(folder: Path) -> None:
    numbers = count(1)
    made = spill_to_file(
        ToolOutput(content="\ufffd" * 200_000),
        CAP,
        lambda ending: ResultFile(folder / f"{next(numbers)}.{ending}", OutputFiles()),
    )
    assert "saved to" in str(made.content)


def test_the_input_of_a_callback_is_truncated_no_more_than_needed() -> None:
    short = {"prompt": "x" * 1_000, "session_id": "s"}
    long = {"prompt": "x" * (2 * CAP), "more": ["y" * 10], "session_id": "s"}
    made = fit_input(long, CAP)
    assert fit_input(short, CAP) is short
    assert (made["more"], made["session_id"], len(encode_json(made)) <= CAP) == (long["more"], "s", True)
    assert len(made["prompt"]) > CAP / 3
    assert made["prompt"].endswith("more characters)")


def test_a_long_list_of_short_texts_is_not_a_long_line(folder: Path) -> None:
    found = [{"uri": f"mem://{number}", "name": "short"} for number in range(10_000)]
    made = fit(ToolOutput(content=encode_json(found).decode(), detail=found), folder)
    assert made.detail == "(too large to show here)"
    assert (folder / "1.txt").read_bytes() == encode_json(found)
