"""Run the attempts as a Bash command of a real session: our executable, a scripted model, and settings."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.helpers.patience import TEST_SECONDS

if TYPE_CHECKING:
    from tests.helpers.escape.stage import Stage

MODEL = """
[[turn]]
tools = [{{ name = "Bash", input = {{ command = {command}, timeout = 100000 }} }}]

[[turn]]
text = "done"
"""
OUTPUT = "work/output.log"


def run_in_sandbox(stage: Stage, kind: str, names: list[str]) -> str:
    """The output of the attempts. Raises AssertionError if the session did not use the sandbox."""
    script = stage.base / "model.toml"
    command = f"{shlex.join(stage.command(names))} > {OUTPUT} 2>&1"
    script.write_text(MODEL.format(command=json.dumps(command)))
    settings = {
        "sandbox": {
            "enabled": True,
            "failIfUnavailable": True,
            "allowUnsandboxedCommands": False,
            "filesystem": {"denyRead": [stage.config["secrets"]["denied"], str(stage.base / "denied")]},
            "network": {"allowedDomains": ["allowed.example"]},
        }
    }
    managed = {"sandbox": {"bwrapPath": "/nonexistent"}} if kind == "landlock" else {}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "parley", "--print", "go", "--model", f"scripted:{script}"),
            *("--permission-mode", "bypassPermissions", "--output-format", "stream-json", "--verbose"),
            *("--settings", json.dumps(settings), "--managed-settings", json.dumps(managed)),
        ],
        cwd=stage.workspace,
        env={**stage.environment(), "IS_SANDBOX": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        close_fds=False,
        check=False,
        timeout=TEST_SECONDS,
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert f'"sandbox":"{kind}"' in said, said[-3000:]
    output = stage.workspace / OUTPUT
    assert output.exists(), said[-3000:]
    return output.read_text("latin-1")
