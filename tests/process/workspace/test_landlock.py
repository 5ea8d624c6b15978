"""Behind a fence a program reads what it may and nothing else; we ourselves are not fenced in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.workspace.landlock import READ, READ_FILE, RUN, Gap, can_fence, fenced

RG = str(Path(sys.executable).parent / "rg")

pytestmark = pytest.mark.skipif(not can_fence(), reason="this kernel has no Landlock")


@pytest.fixture
def gaps(tmp_path: Path) -> Iterator[list[Gap]]:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("needle\n")
    folder, program = os.open(tmp_path / "in", os.O_RDONLY), os.open(RG, os.O_PATH)
    yield [Gap(folder, READ), Gap(program, RUN | READ_FILE)]
    os.close(folder)
    os.close(program)


def found(*paths: Path) -> str:
    asked = [RG, "--no-config", "--no-messages", "-l", "needle", *map(str, paths)]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def test_what_lies_outside_cannot_be_read(tmp_path: Path, gaps: list[Gap]) -> None:
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out" / "file")
    paths = (tmp_path / "out", tmp_path / "in" / "link")

    assert len(found(*paths).splitlines()) == 2
    assert fenced(lambda: found(*paths), gaps) == ""
    assert fenced(lambda: found(tmp_path / "in" / "file"), gaps) == f"{tmp_path}/in/file\n"


def test_nothing_can_be_written(tmp_path: Path, gaps: list[Gap]) -> None:
    def write() -> None:
        (tmp_path / "in" / "file").write_text("changed")

    with pytest.raises(PermissionError):
        fenced(write, gaps)


def test_nothing_else_can_be_run(gaps: list[Gap]) -> None:
    with pytest.raises(PermissionError):
        fenced(lambda: subprocess.run(["/bin/true"], check=False), gaps)


def test_the_fence_is_gone_with_its_thread(tmp_path: Path, gaps: list[Gap]) -> None:
    fenced(lambda: None, gaps)

    assert (tmp_path / "out" / "file").read_text() == "needle\n"
    assert found(tmp_path / "out") == f"{tmp_path}/out/file\n"


def test_a_gap_that_is_no_descriptor_starts_nothing(gaps: list[Gap]) -> None:
    started: list[int] = []

    with pytest.raises(OSError, match="Bad file descriptor"):
        fenced(lambda: started.append(1), [*gaps, Gap(-1, READ)])
    assert started == []
