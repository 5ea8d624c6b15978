"""The files in `deploy/`: systemd accepts the unit, and the commands of both start a server."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.helpers import paths
from tests.helpers.forked import PARLEY
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port

DEPLOY = paths.ROOT / "deploy"
UNIT = (DEPLOY / "parley.service").read_text()
COMPOSE = (DEPLOY / "compose.yaml").read_text()
COMMANDS = {
    "unit": re.findall(r"^ExecStart=\S+ (.*)$", UNIT, flags=re.MULTILINE),
    "compose": re.findall(r"^ +command: (.*)$", COMPOSE, flags=re.MULTILINE),
}


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "parley.service"
    unit.write_text(UNIT.replace("/opt/parley/bin/parley", PARLEY))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("which", COMMANDS)
def test_the_command_starts_a_server_that_drains(tmp_path: Path, which: str) -> None:
    (command,) = COMMANDS[which]
    port = free_port()
    for path in ("/var/lib/parley", "/home/parley/.claude", "/srv/work", "/work"):
        command = re.sub(rf"(?<=\s){path}(?=[/\s])", str(tmp_path), command)
    command = re.sub(r"(?<=--listen )\S+", f"127.0.0.1:{port}", command)
    environment = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "config"), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        [PARLEY, *shlex.split(command), "--model", "offline"], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("listening on" in line for line in lines)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_SECONDS) as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGTERM)
        rest = list(lines)
        assert process.wait(PATIENCE_SECONDS) == 0, rest
        assert '"event":"stopped"' in rest[-1]
    finally:
        process.kill()
        process.communicate()
