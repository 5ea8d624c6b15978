"""Short runs of tests/stress/engine/callbacks.py, which goes as far as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.engine import callbacks


@pytest.mark.parametrize("kind", callbacks.KINDS)
@pytest.mark.parametrize("form", callbacks.FORMS)
def test_every_callback_is_asked_once_many_at_a_time_whatever_the_order_of_the_answers(
    tmp_path: Path, kind: str, form: str
) -> None:
    assert callbacks.scenario(tmp_path, kind=kind, form=form, calls=64, at_once=32, seed=1) == []
