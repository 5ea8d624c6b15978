"""A machine for every test, and a Messages API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.policies import Machine, MessagesApi, messages_api


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with messages_api() as serving:
        yield serving
