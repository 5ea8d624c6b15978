"""A short form of `suites.py`: tests of signals, lost clients, kills and secrets, through the launcher."""

from __future__ import annotations

import sys

import pytest

from tests.stress.resident.suites import run

REPRESENTATIVE = (
    "tests/process/cli/test_host_disconnect.py",
    "tests/process/cli/test_process_secrets.py",
    "tests/process/cli/test_no_session.py",
    "tests/process/engine/recovery/test_pending_approvals.py",
)


@pytest.mark.skipif(sys.platform != "linux", reason="`parley resident` works only on Linux")
@pytest.mark.parametrize("module", REPRESENTATIVE)
def test_existing_tests_pass_through_the_launcher(module: str) -> None:
    code, count = run([module])
    assert code == 0
    assert count > 0  # on a busy machine, some sessions start without the server
