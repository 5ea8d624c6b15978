"""Damaged transcripts: an exact beginning or a refusal, never something else."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import DamagedSession
from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from tests.helpers.store_conformance import CONVERSATION, FIRST, user, write

TALK = [user(seq, f"prompt {seq} " + "x" * (seq * 7)) for seq in range(8)]


def opened(config: Path, warnings: list[str]) -> tuple[ClaudeStore, Path]:
    store = ClaudeStore(config, EntryContext(cwd="/nowhere", version="1"), warnings.append)
    return store, config / "projects" / "-nowhere" / f"{FIRST}.jsonl"


def damaged(data: bytes) -> tuple[list[Entry], list[str]]:
    """What is read from a file with these bytes, and what is complained about. Raises DamagedSession."""
    warnings: list[str] = []
    with TemporaryDirectory() as config:
        store, path = opened(Path(config), warnings)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        return list(store.read(FIRST)), warnings


def file_of(entries: list[Entry]) -> bytes:
    with TemporaryDirectory() as config:
        store, path = opened(Path(config), [])
        write(store, FIRST, *entries)
        return path.read_bytes()


WHOLE = file_of(TALK)


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_cut_anywhere_gives_what_is_whole(cut: int) -> None:
    found, warnings = damaged(WHOLE[:cut])

    ends = [at + 1 for at, byte in enumerate(WHOLE) if byte == 0x0A]
    whole = sum(end - 1 <= cut for end in ends)  # without its line feed a record is still a record
    assert found == TALK[:whole]
    assert bool(warnings) == (cut not in (0, *ends, *(end - 1 for end in ends)))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.integers(1, 600))
def test_altered_bytes_give_a_beginning_or_a_refusal(start: int, mask: int, length: int) -> None:
    spoilt = bytearray(WHOLE)
    spoilt[start : start + length] = bytes(byte ^ mask for byte in spoilt[start : start + length])
    try:
        found, _ = damaged(bytes(spoilt))
    except DamagedSession:
        return

    assert found == TALK[: len(found)]


@given(st.integers(0, len(WHOLE) // 512))
def test_a_zeroed_sector_gives_a_beginning_or_a_refusal(sector: int) -> None:
    spoilt = WHOLE[: sector * 512] + bytes(min(512, len(WHOLE) - sector * 512)) + WHOLE[sector * 512 + 512 :]
    try:
        found, _ = damaged(spoilt)
    except DamagedSession:
        return

    assert found == TALK[: len(found)]


def test_a_hole_is_refused_with_its_place_and_the_way_out() -> None:
    lines = WHOLE.splitlines(keepends=True)
    with pytest.raises(DamagedSession) as raised:
        damaged(b"".join([*lines[:2], *lines[3:]]))

    assert "line 3 of" in str(raised.value)
    assert f"`parley sessions repair {FIRST}`" in str(raised.value)


def test_half_a_line_is_reported_once_and_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    warnings: list[str] = []
    store, path = opened(tmp_path, warnings)
    write(store, FIRST, *CONVERSATION[:3])
    path.write_bytes(path.read_bytes()[:-30])
    log = store.open(FIRST)

    assert list(log.entries()) == CONVERSATION[:2]
    assert warnings == [f"line 3 of {path} is incomplete or damaged; skipped"]
    log.append(CONVERSATION[2])
    log.close()
    assert list(store.read(FIRST)) == CONVERSATION[:3]
    assert len(warnings) == 1
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("half", [b"{", b"\0" * 200_000, b'{"type":"user","mess' + b"x" * 200_000])
def test_what_was_never_finished_is_cut_off_however_long_it_is(tmp_path: Path, half: bytes) -> None:
    store, path = opened(tmp_path, [])
    write(store, FIRST, *CONVERSATION[:2])
    whole = path.read_bytes()
    path.write_bytes(whole + half)
    log = store.open(FIRST)
    log.append(CONVERSATION[2])
    log.close()

    assert path.read_bytes().startswith(whole + b"{")
    assert list(store.read(FIRST)) == CONVERSATION[:3]


def test_a_whole_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    warnings: list[str] = []
    store, path = opened(tmp_path, warnings)
    write(store, FIRST, *CONVERSATION[:2])
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    log = store.open(FIRST)
    log.append(CONVERSATION[2])
    log.close()

    assert list(store.read(FIRST)) == CONVERSATION[:3]
    assert warnings == []


def test_a_file_of_nothing_but_half_a_line_is_started_again(tmp_path: Path) -> None:
    store, path = opened(tmp_path, [])
    write(store, FIRST, *CONVERSATION[:1])
    path.write_bytes(path.read_bytes()[:40])
    log = store.open(FIRST)
    log.append(CONVERSATION[0])
    log.close()

    assert list(store.read(FIRST)) == CONVERSATION[:1]
    assert path.read_bytes().count(b"\n") == 1


def test_a_record_that_has_lost_both_its_marks_is_not_taken_for_someone_elses() -> None:
    last = WHOLE.splitlines(keepends=True)[-1]
    odd = last.replace(b'"seq"', b'"ceq"').replace(b'"check"', b'"chdck"')
    found, warnings = damaged(WHOLE.removesuffix(last) + odd)

    assert (found, len(warnings)) == (TALK[:-1], 1)
