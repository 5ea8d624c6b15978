"""The prompts that were sent."""

from __future__ import annotations

import stat
from pathlib import Path

from parley.terminal.prompts import PromptLog


def test_prompts_are_read_newest_first_and_each_once(tmp_path: Path) -> None:
    log = PromptLog(tmp_path / "parley")
    for text in ("one", "two\nlines", "one", "three"):
        log.append(text)

    assert log.read() == ["three", "one", "two\nlines"]


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    PromptLog(tmp_path).append("secret")

    assert stat.S_IMODE((tmp_path / "history.jsonl").stat().st_mode) == 0o600


def test_a_damaged_or_missing_file_is_no_error(tmp_path: Path) -> None:
    log = PromptLog(tmp_path)
    assert log.read() == []
    (tmp_path / "history.jsonl").write_bytes(b'{"text": "good"}\n[1]\nno json\n{"text": 7}\n')

    assert log.read() == ["good"]
