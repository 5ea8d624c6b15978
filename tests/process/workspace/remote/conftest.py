from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.remote_workspace import ServerThread


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def server(tmp_path: Path, root: Path) -> Iterator[ServerThread]:
    started = ServerThread(root, tmp_path / "state", grace_seconds=60)
    yield started
    started.close()
