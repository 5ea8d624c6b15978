"""The wheels of the three packages contain every file of the source once, and the source distributions the same."""

from __future__ import annotations

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
