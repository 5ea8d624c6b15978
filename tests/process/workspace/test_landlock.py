"""Behind a fence a program reads what it may and nothing else; we ourselves are not fenced in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.workspace.landlock import EXECUTE, READ, READ_FILE, AllowedPath, is_supported, run_restricted

RG = str(Path(sys.executable).parent / "rg")

pytestmark = pytest.mark.skipif(not is_supported(), reason="this kernel has no Landlock")


@pytest.fixture
def gaps(tmp_path: Path) -> Iterator[list[AllowedPath]]:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("needle\n")
    folder, program = os.open(tmp_path / "in", os.O_RDONLY), os.open(RG, os.O_PATH)
    yield [AllowedPath(folder, READ), AllowedPath(program, EXECUTE | READ_FILE)]
    os.close(folder)
    os.close(program)


def found(*paths: Path) -> str:
    asked = [RG, "--no-config", "--no-messages", "-l", "needle", *map(str, paths)]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def test_what_lies_outside_cannot_be_read(tmp_path: Path, gaps: list[AllowedPath]) -> None:
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out" / "file")
    paths = (tmp_path / "out", tmp_path / "in" / "link")

    assert len(found(*paths).splitlines()) == 2
    assert run_restricted(lambda: found(*paths), gaps) == ""
    assert run_restricted(lambda: found(tmp_path / "in" / "file"), gaps) == f"{tmp_path}/in/file\n"


def test_nothing_can_be_written(tmp_path: Path, gaps: list[AllowedPath]) -> None:
    def write() -> None:
        (tmp_path / "in" / "file").write_text("changed")

    with pytest.raises(PermissionError):
        run_restricted(write, gaps)


def test_nothing_else_can_be_run(gaps: list[AllowedPath]) -> None:
    with pytest.raises(PermissionError):
        run_restricted(lambda: subprocess.run(["/bin/true"], check=False), gaps)


def test_the_fence_is_gone_with_its_thread(tmp_path: Path, gaps: list[AllowedPath]) -> None:
    run_restricted(lambda: None, gaps)

    assert (tmp_path / "out" / "file").read_text() == "needle\n"
    assert found(tmp_path / "out") == f"{tmp_path}/out/file\n"


def test_a_gap_that_is_not_a_descriptor_starts_nothing(gaps: list[AllowedPath]) -> None:
    started: list[int] = []

    with pytest.raises(OSError, match="Bad file descriptor"):
        run_restricted(lambda: started.append(1), [*gaps, AllowedPath(-1, READ)])
    assert started == []
