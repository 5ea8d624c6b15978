"""Some random sed and awk scripts; script_fuzz.py runs as many as you like."""

from __future__ import annotations

import shutil

import pytest

from tests.stress.permissions import script_fuzz


@pytest.mark.skipif(not shutil.which("sed") or not script_fuzz.AWKS, reason="no sed or no awk")
def test_no_proven_script_writes_a_file() -> None:
    summary = script_fuzz.run(count=400, seed=1)

    assert summary.broken == []
    assert summary.ran > 30
