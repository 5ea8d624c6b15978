"""Lists to pick from."""

from __future__ import annotations

from parley.terminal.interfaces.dialogs import Picker, Row
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width

PLAIN = Styles(attributes=False)
MODELS = [Row("a", "Alpha one", "fast"), Row("b", "Beta two", "slow"), Row("c", "Gamma one", "slow")]


def press(picker: Picker, *keys: str) -> list[str] | None:
    """The keys of the rows that were picked; None if none were."""
    for key in keys:
        if len(key) == 1:
            picker.press("text", key)
        else:
            picker.press(key)
    return None if picker.result is None else [row.key for row in picker.result]


def test_the_selected_row_is_picked_with_enter() -> None:
    assert press(Picker("", MODELS), "down", "down", "down", "up", "enter") == ["b"]


def test_a_search_keeps_rows_with_all_words() -> None:
    picker = Picker("", MODELS)

    assert press(picker, *"one slow", "enter") == ["c"]
    assert [row.key for row in picker.matches] == ["c"]


def test_a_row_is_picked_with_its_key_if_nothing_can_be_searched() -> None:
    assert press(Picker("", MODELS, search=False), "B") == ["b"]
    assert not Picker("", MODELS, search=False).is_done


def test_several_rows_are_marked_before_enter() -> None:
    assert press(Picker("", MODELS, search=False, several=True), "c", "a", " ", " ", "enter") == ["a", "c"]


def test_escape_picks_nothing() -> None:
    picker = Picker("", MODELS)

    assert press(picker, "escape") is None
    assert picker.is_done


def test_enter_does_nothing_if_nothing_matches() -> None:
    picker = Picker("", MODELS)
    press(picker, *"zzz", "enter")

    assert not picker.is_done
    assert "  nothing matches" in picker.lines(PLAIN, 60, 20)


def test_it_fits_into_its_window_and_hostile_text_is_revealed() -> None:
    rows = [Row(str(number + 100), f"Row {number} \x1b[31m" + "x" * 100, "\u202edetail") for number in range(50)]
    picker = Picker("Which?", rows, preview=lambda row: "first\nsecond\x07")
    press(picker, *["down"] * 30)
    lines = picker.lines(PLAIN, 40, 14)

    assert len(lines) <= 15
    assert all(cell_width(line) <= 40 for line in lines)
    assert not set("\x1b\x07\u202e") & set("".join(lines))
    assert next(line for line in lines if line.startswith("❯")).startswith("❯ Row 30")
    assert "  │ second\\x07" in lines
    assert lines[-1] == "  31 of 50 · enter picks, esc cancels"
