"""What a browser has to load."""

from __future__ import annotations

import gzip
from pathlib import Path

import parley

CONSOLE = Path(parley.__file__).parent / "console"
MOST_BYTES = 150_000


def test_all_files_are_small_when_compressed() -> None:
    sizes = {
        str(path.relative_to(CONSOLE)): len(gzip.compress(path.read_bytes(), 9))
        for path in CONSOLE.rglob("*")
        if path.suffix in (".html", ".css", ".js", ".svg")
    }

    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_the_licences_of_vendored_code_are_kept() -> None:
    licences = (CONSOLE / "vendor" / "LICENSES").read_text()

    for path in (CONSOLE / "vendor").glob("*.js"):
        assert path.name in licences
    assert "The MIT License" in licences
    assert "Apache License" in licences
