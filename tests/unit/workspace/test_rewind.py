from __future__ import annotations

import pytest

from parley.workspace.base import RewindReport
from parley.workspace.checkpoints import (
    COUNTED_BYTES,
    ChangeRow,
    FileState,
    MessageRow,
    RestoreGoal,
    RewindTally,
    Verdict,
    find_goals,
    line_counts,
)


def state(content: str) -> FileState:
    return FileState(sha256=content, mode=0o644, copy=f"{content}@v1")


def change(path: str, before: str | None, after: str | None) -> ChangeRow:
    return ChangeRow(path=path, before=None if before is None else state(before), after=after, temp_name="b")


ROWS: list[MessageRow | ChangeRow] = [
    MessageRow(id="m1"),
    change("a", "a0", "a1"),
    MessageRow(id="m2"),
    change("b", None, "b1"),
    change("a", "a1", "a2"),
    change("b", "b1", "b2"),
    MessageRow(id="m3"),
]


def test_files_go_back_to_what_they_were_before_their_first_change_since() -> None:
    assert find_goals(ROWS, "m1") == [
        RestoreGoal(path="a", target=state("a0"), ours="a2"),
        RestoreGoal(path="b", target=None, ours="b2"),
    ]
    assert find_goals(ROWS, "m2") == [
        RestoreGoal(path="b", target=None, ours="b2"),
        RestoreGoal(path="a", target=state("a1"), ours="a2"),
    ]


def test_after_the_last_change_nothing_is_to_be_done() -> None:
    assert find_goals(ROWS, "m3") == []


def test_a_message_that_never_came_has_no_goals() -> None:
    assert find_goals(ROWS, "m4") is None


@pytest.mark.parametrize(
    ("target", "ours", "now", "verdict"),
    [
        ("old", "new", "new", "restore"),
        ("old", "new", "old", "as it was"),
        ("old", "new", "theirs", "leave alone"),
        ("old", "new", None, "restore"),
        (None, "new", "new", "restore"),
        (None, "new", None, "as it was"),
        (None, "new", "theirs", "leave alone"),
        ("old", None, None, "restore"),
        ("old", None, "theirs", "leave alone"),
        ("old", "old", "old", "as it was"),
    ],
)
def test_what_someone_else_wrote_is_left_alone(
    target: str | None, ours: str | None, now: str | None, verdict: Verdict
) -> None:
    goal = RestoreGoal(path="a", target=None if target is None else state(target), ours=ours)

    assert goal.verdict(now) == verdict


@pytest.mark.parametrize(
    ("now", "then", "counts"),
    [
        (b"ALPHA\nbeta\n", b"alpha\nbeta\n", (1, 1)),
        (b"n\n", None, (0, 1)),
        (None, b"a\nb\n", (2, 0)),
        (b"a\n", b"a", (1, 1)),
        (b"b\na\n", b"a\nb\n", (0, 0)),
        (b"a\na\n", b"a\n", (0, 1)),
        (b"x\n" * COUNTED_BYTES, b"a\nb", (2, COUNTED_BYTES)),
        (b"", None, (0, 0)),
    ],
)
def test_lines_that_come_and_go_are_counted(now: bytes | None, then: bytes | None, counts: tuple[int, int]) -> None:
    assert line_counts(now, then) == counts


def test_a_tally_reports_what_was_restored_and_what_was_left() -> None:
    tally = RewindTally()
    tally.restore("a", b"2\n", b"1\n")
    tally.leave("b", "it was changed")
    tally.leave("c", "a link", is_link=True)

    assert tally.report() == RewindReport(
        possible=True,
        reason="Not rewound: b (it was changed); c (a link)",
        files=("a",),
        left_alone=("b", "c"),
        skipped_links=1,
        insertions=1,
        deletions=1,
    )


def test_where_all_is_left_alone_nothing_was_possible() -> None:
    tally = RewindTally()
    tally.leave("b", "it was changed")

    assert not tally.report().possible
    assert RewindTally().report() == RewindReport(possible=True)
