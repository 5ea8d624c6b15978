"""The programs on the pages about the SDK run as they stand, and print what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths

PATIENCE_SECONDS = 120
BLOCK = re.compile(r'```(python|sh)(?: title="([\w.]+)")?\n(.*?\n)```(?:\n\n```text\n(.*?\n)```)?', re.DOTALL)


def blocks(page: str) -> list[tuple[str, str, str, str]]:
    """Language, file name, code and shown output of every block."""
    return BLOCK.findall((paths.DOCS / page).read_text(encoding="utf-8"))


PROGRAMS = [
    pytest.param(code, shown, id=f"{page}-{number}")
    for page in ("guide.md", "sdk.md", "testing.md")
    for number, (language, title, code, shown) in enumerate(blocks(page))
    if language == "python" and not title
]
TESTS = [
    pytest.param(title, code, id=f"{page}-{title}")
    for page in ("guide.md", "testing.md")
    for _, title, code, _ in blocks(page)
    if title
]


def run(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"HOME": str(home), "PATH": search, "LANG": "C.UTF-8"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=home, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.parametrize(("code", "shown"), PROGRAMS)
def test_a_program_prints_what_the_page_shows(tmp_path: Path, code: str, shown: str) -> None:
    (tmp_path / "program.py").write_text(code, encoding="utf-8")
    done = run([sys.executable, "-W", "error", "program.py"], tmp_path)

    assert shown
    assert (done.stdout, done.stderr, done.returncode) == (shown, "", 0)


@pytest.mark.parametrize(("title", "code"), TESTS)
def test_a_test_on_the_page_passes(tmp_path: Path, title: str, code: str) -> None:
    (tmp_path / title).write_text(code, encoding="utf-8")
    done = run([sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", title], tmp_path)

    assert "2 passed" in done.stdout, done.stdout


def test_no_block_is_left_out() -> None:
    text = "".join((paths.DOCS / page).read_text(encoding="utf-8") for page in ("guide.md", "sdk.md", "testing.md"))

    assert text.count("```python") == len(PROGRAMS) + len(TESTS)
