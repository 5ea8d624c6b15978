"""`python -m tests.run`: what the tests see of a machine, and what they leave on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths
from tests.helpers.environment import HIDDEN, base_environment, make_install_environment
from tests.helpers.mcp import alive
from tests.helpers.patience import PATIENCE_SECONDS

PROGRAM = """
import json, os, subprocess, tempfile

def test_it():
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    seen = {"pid": left.pid, "folder": tempfile.mkdtemp(), "variables": dict(os.environ)}
    with open(os.path.join(os.path.dirname(__file__), "seen.json"), "w") as file:
        json.dump(seen, file)
    END
"""
OF_THE_MACHINE = {
    "CI": "1",
    "IS_SANDBOX": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "COLUMNS": "20",
    "ANTHROPIC_API_KEY": "a-key",
    "https_proxy": "http://127.0.0.1:1",
    "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a subreaper")
@pytest.mark.parametrize(
    ("end", "code"), [("pass", 0), ("raise KeyboardInterrupt", 2), ("os.kill(os.getpid(), 9)", 137)]
)
def test_a_run_leaves_nothing_and_sees_no_variables_of_the_machine(tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "test_it.py").write_text(PROGRAM.replace("END", end))
    words = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path / "test_it.py")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.run", *words],
        cwd=paths.ROOT,
        env={"HOME": str(tmp_path), **base_environment(), **OF_THE_MACHINE},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert done.returncode == code, done.stdout + done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    variables = seen["variables"]
    assert not alive(seen["pid"])
    assert not Path(seen["folder"]).parent.exists()
    assert OF_THE_MACHINE.keys() & variables.keys() == set()
    install = make_install_environment(variables)
    assert {name: install[name] for name in ("https_proxy", "PIP_INDEX_URL")} == json.loads(variables[HIDDEN])
