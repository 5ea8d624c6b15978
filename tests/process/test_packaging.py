"""The wheel and the source distribution contain the files that are not Python."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.helpers import paths

ROOT = paths.SOURCE.parent


def data_files() -> set[str]:
    """The files of the package that are not Python, as they are tracked."""
    listed = subprocess.run(["git", "ls-files", "src/parley"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {path.removeprefix("src/") for path in listed.stdout.splitlines() if not path.endswith(".py")}


def test_the_console_and_the_demo_are_in_both_distributions(tmp_path: Path) -> None:
    build = ["-m", "hatchling", "build", "-d", str(tmp_path), "-t", "wheel", "-t", "sdist"]
    done = subprocess.run([sys.executable, *build], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = data_files()
    assert {"parley/console/index.html", "parley/gateway/demo/sessions.toml"} <= expected
    [wheel], [source] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert expected <= set(archive.namelist())
    with tarfile.open(source) as archive:
        assert expected <= {name.partition("/src/")[2] for name in archive.getnames()}
