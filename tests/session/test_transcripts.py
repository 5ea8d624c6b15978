"""The talks: each file is an example for the docs and a test. `tests/helpers/talks.py` describes their format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import paths
from tests.helpers.talks import play

TALKS = sorted(paths.TRANSCRIPTS.glob("*.talk"))


@pytest.mark.parametrize("path", TALKS, ids=lambda path: path.stem)
async def test_the_transcript_plays_as_written(path: Path, tmp_path: Path) -> None:
    await play(path.read_text(), tmp_path)
