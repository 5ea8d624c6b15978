"""A machine without a sandbox (T-18): what needs one does not run. The system calls fail in the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import kernel
from tests.helpers.policies import Json, Machine, Run
from tests.process.sandbox.test_commands import ENABLED, NO_BUBBLEWRAP, need, script

COMMAND = "echo ran > ran.txt"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def run_without_sandbox(machine: Machine, sandbox: Json, *argv: str, managed: Json | None = None) -> Run:
    """A session on an old kernel. Either bubblewrap is not installed, or it has no namespaces."""
    machine.prefix = kernel.wrap("landlock") if managed else kernel.wrap("landlock", "namespaces")
    return machine.run(*argv, settings={"sandbox": sandbox}, managed=managed, script=script(COMMAND))


@pytest.mark.parametrize("managed", [None, NO_BUBBLEWRAP], ids=["no namespaces", "no bubblewrap"])
@pytest.mark.parametrize("sandbox", [ENABLED, {**ENABLED, "failIfUnavailable": True}], ids=["default", "required"])
def test_a_session_that_needs_the_sandbox_does_not_start(machine: Machine, sandbox: Json, managed: Json | None) -> None:
    done = run_without_sandbox(machine, sandbox, "--permission-mode", "bypassPermissions", managed=managed)

    assert done.result["startup_failure_reason"] == "sandbox_required_unavailable"
    assert done.of("system", "init") == []
    assert not (machine.work / "ran.txt").exists()


def test_nothing_is_allowed_because_of_a_sandbox_that_is_not_there(machine: Machine) -> None:
    done = run_without_sandbox(machine, {**ENABLED, "failIfUnavailable": False})

    assert done.of("system", "init")[0]["sandbox"] == "none"
    assert "there is no one to ask" in done.outputs[0][1]
    assert not (machine.work / "ran.txt").exists()


def test_a_session_that_can_do_without_runs_commands_outside_and_says_so(machine: Machine) -> None:
    optional = {**ENABLED, "failIfUnavailable": False}
    done = run_without_sandbox(machine, optional, "--permission-mode", "bypassPermissions")

    assert done.of("system", "init")[0]["sandbox"] == "none"
    assert "sandbox" in done.stderr
    assert (machine.work / "ran.txt").read_text() == "ran\n"


def test_landlock_has_no_network_even_for_allowed_hosts(machine: Machine) -> None:
    need("landlock")
    sandbox = {**ENABLED, "network": {"allowedDomains": ["*"]}}
    connect = "bash -c 'echo > /dev/tcp/127.0.0.1/9' 2>&1; echo; bash -c 'echo > /dev/udp/127.0.0.1/9' 2>&1; env"
    done = machine.run(settings={"sandbox": sandbox}, managed=NO_BUBBLEWRAP, script=script(connect))

    said = done.outputs[0][1]
    assert said.count("socket: Operation not permitted") == 2
    assert "HTTP_PROXY" not in said
    assert "the network: commands have no network under Landlock" in said
    assert "sandbox.network has no effect: commands have no network under Landlock; install bubblewrap." in done.notices
