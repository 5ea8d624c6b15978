"""The official SDKs with `sandbox` options: our engine does what the original did.

The Python SDK plays the largest groups of `sandbox_parity.py`, the TypeScript SDK one. The program plays all with both.
"""

from __future__ import annotations

import json
import shutil

import pytest

from tests.compat.harness import ENGINE
from tests.compat.install import Client
from tests.helpers import sandbox_session
from tests.stress.workspace import sandbox_parity

pytest_plugins = ("tests.compat.clients",)
IN_PYTHON = ("auto-allowed", "files", "rules")
IN_TYPESCRIPT = ("approved host",)


def check(client: Client, names: tuple[str, ...]) -> int:
    """Play groups and compare. Returns the number of rows."""
    sandbox_session.require("bubblewrap")
    if shutil.which("curl") is None:
        pytest.skip("the commands need curl")
    groups = tuple(group for group in sandbox_parity.GROUPS if group.name in names)
    ours = sandbox_parity.run_engine(str(ENGINE), [client], groups)
    assert sandbox_parity.compare(ours, json.loads(sandbox_parity.RECORD.read_text())) == []
    return len(ours)


def test_programs_in_python_have_the_same_outcome_as_on_the_original(python_sdk: Client) -> None:
    if python_sdk.version == "0.1.50":
        pytest.skip("this release of the SDK is played in one version")
    assert check(python_sdk, IN_PYTHON) >= 25


def test_programs_in_typescript_have_the_same_outcome_as_on_the_original(typescript_sdk: Client) -> None:
    assert check(typescript_sdk, IN_TYPESCRIPT) == 2


def test_every_difference_is_real() -> None:
    """A reason for a difference that is gone would be wrong documentation."""
    names = {step.name for group in sandbox_parity.GROUPS for step in group.steps}
    assert set(sandbox_parity.DIFFERENCES) <= names
    assert set(json.loads(sandbox_parity.RECORD.read_text())) == names
    assert len(names) >= 50
