"""The packages contain every file of the source once, and make takes the Python that it is given."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

from tests.helpers import paths

ROOT = paths.SOURCE.parent


def list_files() -> set[str]:
    """The files of the source, as they are tracked."""
    listed = subprocess.run(["git", "ls-files", "src/parley"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {path.removeprefix("src/") for path in listed.stdout.splitlines()}


def test_every_file_is_in_exactly_one_wheel_and_in_a_source_distribution(tmp_path: Path) -> None:
    for folder in (ROOT, ROOT / "packages" / "server", ROOT / "packages" / "kit"):
        build = ["-m", "hatchling", "build", "-d", str(tmp_path), "-t", "wheel", "-t", "sdist"]
        done = subprocess.run([sys.executable, *build], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    expected = list_files()
    assert {"parley/console/index.html", "parley/gateway/demo/sessions.toml"} <= expected
    wheels: Counter[str] = Counter()
    for wheel in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            wheels.update(name for name in archive.namelist() if name.startswith("parley/"))
    assert {name: wheels[name] for name in expected if wheels[name] != 1} == {}
    sources: set[str] = set()
    for source in tmp_path.glob("*.tar.gz"):
        with tarfile.open(source) as archive:
            sources |= {name.partition("/src/")[2] for name in archive.getnames()}
    assert expected <= sources


def test_make_refuses_a_python_that_the_virtual_environment_does_not_have(tmp_path: Path) -> None:
    for path in (
        "Makefile",
        "constraints.txt",
        "pyproject.toml",
        "packages/server/pyproject.toml",
        "packages/kit/pyproject.toml",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    version = 'if [ "$1" = -V ]; then echo Python {}; fi'
    programs = {"python": version.format("3.11.0"), "other": version.format("3.12.0"), "parley": "echo hello"}
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name, line in programs.items():
        (tmp_path / ".venv" / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)
    (tmp_path / ".venv" / "ready").touch()

    def make(*words: str) -> tuple[bool, str]:
        done = subprocess.run(["make", *words, "hello"], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode == 0, done.stdout + done.stderr

    assert make() == (True, "hello\n")
    assert make("PYTHON=.venv/bin/python") == (True, "hello\n")
    is_made, said = make("PYTHON=.venv/bin/other")
    assert (is_made, ".venv has Python 3.11.0, not Python 3.12.0; run first: rm -r .venv" in said) == (False, True)
    is_made, said = make("PYTHON=/nonexistent/python")
    assert (is_made, "/nonexistent/python" in said) == (False, True)
