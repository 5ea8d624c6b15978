"""What a command writes: in memory, in a file, and what happens when neither takes more."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.process import processes as module
from parley.workspace.process.processes import CommandOutput, OutputRecord, private_folder


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow further: a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heeded = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heeded)


def test_little_output_makes_no_file(tmp_path: Path) -> None:
    output = CommandOutput(10, lambda: tmp_path / "file")
    output.take(b"01234")
    output.take(b"56789")
    output.close()
    assert (bytes(output.kept), output.total_bytes, output.path) == (b"0123456789", 10, None)
    assert list(tmp_path.iterdir()) == []


def test_output_beyond_the_limit_is_whole_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    output = CommandOutput(10, lambda: tmp_path / "new" / "file")
    for part in (b"01234", b"56789a", b"bc"):
        output.take(part)
    output.close()
    assert (bytes(output.kept), output.total_bytes) == (b"0123456789", 13)
    assert output.path == tmp_path / "new" / "file"
    assert output.path.read_bytes() == b"0123456789abc"
    assert output.path.stat().st_mode & 0o777 == 0o600
    assert output.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_of_output_ends_at_the_cap_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_CAP_BYTES", 1 << 20)
    record = OutputRecord(tmp_path / "file")
    for _ in range(10):
        record.take(bytes(300_000))
    record.close()
    assert record.path.stat().st_size == 1 << 20
    assert (record.total_bytes, record.problem) == (3_000_000, "the output after 1 MB was dropped")


def test_a_full_disk_costs_the_rest_of_the_file_and_nothing_else(tmp_path: Path) -> None:
    output = CommandOutput(4, lambda: tmp_path / "file")
    with largest_file(1000):
        for _ in range(3):
            output.take(bytes(600))
        output.close()
    assert (output.total_bytes, len(output.kept)) == (1800, 4)
    assert output.problem == "the rest could not be saved: File too large"
    assert (tmp_path / "file").stat().st_size == 1000


def test_a_folder_that_cannot_be_made_costs_the_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    output = CommandOutput(4, lambda: tmp_path / "taken" / "file")
    for _ in range(3):
        output.take(b"0123456789")
    output.close()
    assert (bytes(output.kept), output.total_bytes, output.path) == (b"0123", 30, None)
    assert output.problem == "it could not be saved: Not a directory"


def test_a_file_that_is_there_already_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("mine", "link"):
        with pytest.raises(FileExistsError):
            OutputRecord(tmp_path / name)
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()


def test_a_private_folder_is_closed_to_others_even_if_it_was_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    folder = private_folder(tmp_path, "a", "b")
    assert folder == tmp_path / "a" / "b"
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]


def test_a_link_in_place_of_a_private_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "theirs")
    with pytest.raises(ToolError, match="is a symbolic link"):
        private_folder(tmp_path, "a", "b")
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.chown(tmp_path / "a", 65534, 65534)
    with pytest.raises(ToolError, match="belongs to another user"):
        private_folder(tmp_path, "a", "b")
    assert list((tmp_path / "a").iterdir()) == []
