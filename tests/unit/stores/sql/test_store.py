"""Entries as rows that are chained by checksums."""

from __future__ import annotations

import pytest

from parley.errors import DamagedSession
from parley.stores.sql.store import Row, RowChain, RowDamage, find_damage, next_checksum

TEXTS = (b'{"text":"one"}', b'{"text":"two"}', b'{"text":"three"}')


def chained(*, before: int = 0) -> list[Row]:
    rows: list[Row] = []
    for seq, message in enumerate(TEXTS):
        before = next_checksum(before, seq, b"note", b"now", message, b"{}")
        rows.append((seq, b"note", b"now", message, b"{}", before))
    return rows


def texts(rows: list[Row]) -> list[str]:
    chain = RowChain("s", "a database")
    return [chain.entry(*row).message["text"] for row in rows]


def test_rows_in_their_places_are_read() -> None:
    assert texts(chained()) == ["one", "two", "three"]
    assert find_damage(chained()) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: [rows[0], (1, b"note", b"now", b'{"text":"tvo"}', b"{}", rows[1][5]), rows[2]],
        lambda rows: [rows[0], (1, b"\xff", b"now", *rows[1][3:]), rows[2]],
        lambda rows: [rows[0], (*rows[1][:5], None), rows[2]],
        lambda rows: [rows[0], (1, b"note", b"now", None, b"{}", rows[1][5]), rows[2]],
        lambda rows: [rows[0], (1, b"note", b"now", 7, b"{}", rows[1][5]), rows[2]],
        lambda rows: [rows[0], rows[2]],
        lambda rows: [rows[0], rows[0], rows[1], rows[2]],
    ],
    ids=["altered", "no text", "without checksum", "without message", "of another type", "missing", "twice"],
)
def test_a_row_that_does_not_follow_on_is_damage(spoil: object) -> None:
    assert callable(spoil)
    rows = spoil(chained())

    with pytest.raises(DamagedSession, match=r"Session s is damaged at entry \d in a database"):
        texts(rows)
    found = find_damage(rows)
    assert found == RowDamage(seq=rows[1][0], kept_bytes=len(TEXTS[0]) + 2, kept_messages=0)


def test_reading_continues_where_the_checksum_of_the_earlier_entries_is_known() -> None:
    rows = chained()
    later = RowChain("s", "a database", total=rows[1][5])

    assert later.entry(*rows[2]).seq == 2
