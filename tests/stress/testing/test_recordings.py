"""The short form of `recordings.py`."""

from __future__ import annotations

from pathlib import Path

from tests.stress.testing import recordings


def test_recordings_replay_byte_for_byte_and_rerun_without_a_difference(tmp_path: Path) -> None:
    figures = recordings.run(tmp_path, recordings=3, replays=100)

    assert figures[2].startswith("re-run against the executable: 3 of 3 recordings equal")
