"""The screen: what is printed stays, once and in order, whatever is shown live below it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parley.terminal.interfaces.screen import Screen
from tests.helpers.terminal import Emulator

COLUMNS, ROWS = 12, 5
lines = st.lists(st.text(st.sampled_from("ab你👍 "), max_size=COLUMNS).map(str.rstrip), max_size=8)
fitting = lines.map(lambda found: [line[:5].rstrip() for line in found])
steps = st.lists(st.tuples(st.sampled_from(["print", "show"]), fitting), max_size=12)


def open_screen(columns: int = COLUMNS, rows: int = ROWS, **more: bool) -> tuple[Screen, Emulator]:
    emulator = Emulator(columns, rows)
    screen = Screen(
        has_cursor=more.pop("has_cursor", True),
        size=lambda: (emulator.columns, emulator.rows),
        write=lambda text: emulator.feed(text.replace("\n", "\r\n").encode()),
        **more,
    )
    return screen, emulator


def trimmed(found: list[str]) -> list[str]:
    return "\n".join(found).rstrip("\n").split("\n") if any(found) else []


@given(steps)
def test_printed_lines_stay_and_live_lines_are_replaced(done: list[tuple[str, list[str]]]) -> None:
    screen, emulator = open_screen()
    printed: list[str] = []
    live: list[str] = []
    for action, found in done:
        if action == "print":
            screen.print(found)
            printed += found
        else:
            screen.show(found)
            live = found
        assert emulator.lines == trimmed([*printed, *live[-(ROWS - 1) :]])


@given(lines)
def test_a_line_that_is_too_wide_is_printed_whole(found: list[str]) -> None:
    screen, emulator = open_screen()
    screen.show(["live"])
    screen.print(["x" * 30, *found])
    screen.clear()

    assert "".join(emulator.lines[:3]) == "x" * 30


def test_a_live_line_that_is_too_wide_is_cut() -> None:
    screen, emulator = open_screen()
    screen.print(["printed"])
    screen.show(["x" * 30])
    screen.show(["y" * 30, "z"])
    screen.clear()

    assert emulator.lines == ["printed"]


def test_the_cursor_is_put_into_the_live_lines() -> None:
    screen, emulator = open_screen()
    screen.print(["printed"])
    screen.show(["> abc", "def"], (0, 3))

    assert emulator.cursor == (1, 3)
    screen.show(["> abcd"], (0, 6))
    assert emulator.cursor == (1, 6)
    assert emulator.lines == ["printed", "> abcd"]


def test_a_frame_that_changes_nothing_writes_nothing() -> None:
    written: list[str] = []
    screen = Screen(has_cursor=True, size=lambda: (COLUMNS, ROWS), write=written.append)
    screen.show(["same"])
    count = len(written)
    screen.show(["same"])

    assert len(written) == count


def test_a_terminal_without_cursor_movement_gets_printed_lines_only() -> None:
    written: list[str] = []
    screen = Screen(has_cursor=False, size=lambda: (COLUMNS, ROWS), write=written.append)
    screen.show(["live"])
    screen.print(["printed"])

    assert "".join(written) == "printed\n"


def test_other_output_goes_above_the_live_lines() -> None:
    screen, emulator = open_screen()
    screen.show(["live"])
    screen.run_clear(lambda: emulator.feed(b"warning\r\n"))

    assert emulator.lines == ["warning", "live"]


def test_a_narrower_window_that_wraps_live_lines_is_counted() -> None:
    size = [12, 10]
    written: list[str] = []
    screen = Screen(has_cursor=True, size=lambda: (size[0], size[1]), write=written.append)
    screen.show(["x" * 10, "y" * 10])
    size[0] = 5
    screen.clear()

    assert "\x1b[3A\x1b[K" in written[-1]  # each line takes two rows now; the cursor is in the last


def test_a_terminal_that_cuts_lines_is_not_counted_so() -> None:
    size = [12, 10]
    written: list[str] = []
    screen = Screen(has_cursor=True, reflows=False, size=lambda: (size[0], size[1]), write=written.append)
    screen.show(["x" * 10, "y" * 10])
    size[0] = 5
    screen.clear()

    assert "\x1b[1A\x1b[K" in written[-1]
