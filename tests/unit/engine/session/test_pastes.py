"""Pasted text is marked for the model."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.session.pastes import add_pastes

Json = dict[str, Any]
IMAGE: Json = {"type": "image", "source": {}}


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def pasted(text: str) -> str:
    return f"<pasted_content>\n{text}\n</pasted_content>"


@pytest.mark.parametrize(
    ("given", "appended"),
    [
        (["a", "b"], [pasted("a"), pasted("b")]),
        ([[said("a"), IMAGE, said("b")]], [pasted("a\nb")]),
        (["", [IMAGE], 7, None, [said("x"), "y", {"type": "text", "text": 1}]], [pasted("x")]),
        ("not a list", []),
    ],
)
def test_pasted_texts_are_appended_in_order(given: Any, appended: list[str]) -> None:
    warnings: list[str] = []
    found = add_pastes([said("Look:")], given, None, warnings.append)
    assert found == [said("Look:"), *map(said, appended)]
    assert warnings == []


def test_a_list_that_is_too_long_is_ignored_and_reported() -> None:
    warnings: list[str] = []
    assert add_pastes([said("Hi")], ["x"] * 1001, None, warnings.append) == [said("Hi")]
    assert warnings == [
        "pasted_content of a prompt is ignored: it has 1001 entries and blocks; at most 1000 are allowed"
    ]


def test_pastes_in_the_prompt_are_marked_where_they_stand() -> None:
    content = [said("x = 1"), said("see x = 1 and x = 1, then y"), IMAGE]
    found = add_pastes(content, None, ["x = 1", "  ", "y", "gone", 3], lambda text: None)
    assert found == [said("x = 1"), said(f"see {pasted('x = 1')} and x = 1, then {pasted('y')}"), IMAGE]


def test_a_prompt_without_text_has_nothing_to_mark() -> None:
    assert add_pastes([IMAGE], None, ["x"], lambda text: None) == [IMAGE]
