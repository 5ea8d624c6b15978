"""Short runs of what goes as far as you like: kills while a memory is tidied up, and recall in a long session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers import paths
from tests.stress.memory import curator_kills


async def test_a_curator_that_is_killed_leaves_whole_entries(tmp_path: Path) -> None:
    seen = await curator_kills.storm(tmp_path, kills=4, parallel=2, seed=3, each=2)

    assert seen.problems == []
    assert seen.kills >= 4


def test_in_a_long_session_the_view_stays_small_and_every_fact_is_found() -> None:
    programme = paths.ROOT / "bench" / "recall.py"
    words = [sys.executable, str(programme), "--messages", "240", "--facts", "12", "--turns", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "answers with the fact in them: 12 of 12" in done.stdout
