"""The bounded log of both directions."""

from __future__ import annotations

import json
from pathlib import Path

from parley.gateway.wire_log import WireLog
from parley.stores.wire_recording import Direction

LINE = json.dumps({"type": "x", "text": "y" * 100}).encode() + b"\n"


async def test_the_oldest_records_are_dropped_and_numbers_continue(tmp_path: Path) -> None:
    wire = WireLog(tmp_path / "wire", max_bytes=8000)
    for _ in range(200):
        wire.add(Direction.OUT, LINE)
        wire.flush()
    records = wire.read(0, 1000, 10**6)
    assert wire.last() == 200
    assert [record[0] for record in records] == list(range(201 - len(records), 201))
    assert 20 < len(records) < 100
    size = sum(path.stat().st_size for path in (tmp_path / "wire").iterdir())
    assert size < 8000 + 8 * 200
    again = WireLog(tmp_path / "wire", max_bytes=8000)
    assert again.last() == 200
    again.add(Direction.IN, LINE + LINE)
    again.flush()
    assert [(record[0], record[2], record[3]) for record in again.read(200, 10, 10**6)] == [
        (201, "in", len(LINE)),
        (202, "in", len(LINE)),
    ]


async def test_pages_have_at_most_so_many_records_and_bytes(tmp_path: Path) -> None:
    wire = WireLog(tmp_path / "wire")
    wire.add(Direction.OUT, LINE * 50)
    wire.flush()
    assert [record[0] for record in wire.read(10, 3, 10**6)] == [11, 12, 13]
    assert [record[0] for record in wire.read(0, 50, 1)] == [1]
    assert wire.read(50, 10, 10**6) == []
    assert wire.read(99, 10, 10**6) == []


async def test_what_a_crash_cut_is_removed(tmp_path: Path) -> None:
    wire = WireLog(tmp_path / "wire")
    wire.add(Direction.OUT, LINE * 2)
    wire.flush()
    [path] = (tmp_path / "wire").iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    again = WireLog(tmp_path / "wire")
    again.add(Direction.OUT, LINE)
    again.flush()
    assert [record[0] for record in again.read(0, 10, 10**6)] == [1, 2]


async def test_lines_are_written_without_a_flush_when_many_wait(tmp_path: Path) -> None:
    wire = WireLog(tmp_path / "wire")
    wire.add(Direction.OUT, LINE * 10_000)
    assert len(wire.read(0, 10**6, 10**9)) == 10_000
    wire.remove()
    assert not (tmp_path / "wire").exists()
