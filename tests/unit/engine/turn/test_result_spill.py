"""No line is longer than the cap, and nothing is lost by it."""

from __future__ import annotations

import base64
from itertools import count
from pathlib import Path

import pytest

from parley.engine.turn.result_spill import ENVELOPE_BYTES, fitted, fitted_input
from parley.protocol.base import spell
from parley.tools.base import Result

CAP = 100_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results"


def fit(result: Result, folder: Path) -> Result:
    numbers = count(1)
    made = fitted(result, CAP, lambda ending: folder / f"{next(numbers)}.{ending}")
    assert len(spell(made.content)) + len(spell(made.detail)) <= CAP - ENVELOPE_BYTES
    return made


def test_a_result_that_fits_is_left_as_it_is(folder: Path) -> None:
    result = Result(content="short", detail={"stdout": "short"}, is_error=False)
    assert fit(result, folder) is result
    assert not folder.exists()


def test_the_hosts_copy_is_cut_before_the_models_text(folder: Path) -> None:
    text = "x" * 60_000
    made = fit(Result(content=text, detail={"file": {"content": text, "numLines": 1}}), folder)
    assert made.content == text
    assert made.detail["file"]["numLines"] == 1
    assert made.detail["file"]["content"].endswith("(50000 more characters)")
    assert not folder.exists()


def test_a_long_text_goes_to_a_file_and_the_line_says_where(folder: Path) -> None:
    text = "ü" * 120_000
    made = fit(Result(content=text, detail={"stdout": text}), folder)
    assert isinstance(made.content, str)
    assert str(folder / "1.txt") in made.content
    assert (folder / "1.txt").read_text() == text
    assert (folder / "1.txt").stat().st_mode & 0o777 == 0o600


def test_a_large_image_goes_to_a_file_and_its_neighbours_stay(folder: Path) -> None:
    picture = bytes(range(256)) * 600
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}
    caption = {"type": "text", "text": "a picture"}
    made = fit(Result(content=[caption, {"type": "image", "source": source}]), folder)
    assert made.content[0] == caption
    assert str(folder / "1.png") in made.content[1]["text"]  # type: ignore[index]  # a block
    assert (folder / "1.png").read_bytes() == picture


def test_lone_surrogates_in_a_text_do_not_stop_it_from_being_saved(folder: Path) -> None:
    numbers = count(1)
    made = fitted(Result(content="\ufffd" * 200_000), CAP, lambda ending: folder / f"{next(numbers)}.{ending}")
    assert "saved to" in str(made.content)


def test_what_a_callback_is_told_loses_no_more_than_it_must() -> None:
    short = {"prompt": "x" * 1_000, "session_id": "s"}
    long = {"prompt": "x" * (2 * CAP), "more": ["y" * 10], "session_id": "s"}
    made = fitted_input(long, CAP)
    assert fitted_input(short, CAP) is short
    assert (made["more"], made["session_id"], len(spell(made)) <= CAP) == (long["more"], "s", True)
    assert len(made["prompt"]) > CAP / 3
    assert made["prompt"].endswith("more characters)")


def test_a_long_list_of_short_texts_is_no_long_line(folder: Path) -> None:
    found = [{"uri": f"mem://{number}", "name": "short"} for number in range(10_000)]
    made = fit(Result(content=spell(found).decode(), detail=found), folder)
    assert made.detail == "(too large to be told here)"
    assert (folder / "1.txt").read_bytes() == spell(found)
