"""`parley conform` and `parley conform-client` as executables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PARLEY = str(Path(sys.executable).parent / "parley")
CLIENT = """
import json, subprocess, sys
flags = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
engine = subprocess.Popen([sys.argv[1], *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def send(line):
    engine.stdin.write(json.dumps(line) + "\\n")
    engine.stdin.flush()

send({"type": "user", "message": {"role": "user", "content": "hi"}})
for text in engine.stdout:
    line = json.loads(text)
    if line["type"] == "control_request":
        body = {"subtype": "success", "request_id": line["request_id"], "response": {"behavior": BEHAVIOUR}}
        send({"type": "control_response", "response": body})
    elif line["type"] == "result":
        engine.stdin.close()
        sys.exit(int(line["is_error"]))
sys.exit(3)
"""


def conform(*words: str, command: str = "conform") -> subprocess.CompletedProcess[str]:
    return subprocess.run([PARLEY, command, *words], capture_output=True, text=True, timeout=120, check=False)


def engine(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_our_engine_passes_a_handful_of_checks(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = conform("--only", "two-turns,deny", "--json", str(report), "--html", str(tmp_path / "r.html"), "--", PARLEY)

    assert done.returncode == 0, done.stdout
    checks = json.loads(report.read_text())["checks"]
    assert len(checks) > 50
    assert {check["status"] for check in checks} == {"passed"}
    assert "Not on a Tuesday" in next(check["sent"] for check in checks if check["id"] == "permission.deny")
    assert "<table>" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("script", "came"),
    [
        ("echo garbage; sleep 600", "no answer to initialize within 1 s"),
        ("sleep 600", "no answer to initialize within 1 s"),
        ("exit 7", "the engine ended before: answer to initialize; exit code 7"),
    ],
)
def test_a_useless_engine_fails_every_check_and_the_suite_ends(tmp_path: Path, script: str, came: str) -> None:
    done = conform("--only", "turn.*", "--timeout", "1", "--workers", "8", "--", engine(tmp_path / "engine", script))

    assert done.returncode == 1
    assert "FAILED turn.one-result" in done.stdout
    assert came in done.stdout
    assert "score: 0 of" in done.stdout


def test_wrong_usage_is_explained() -> None:
    assert "unknown level 'x' (choose from core, control, sessions, dialects)" in conform("--level", "x").stderr
    assert "missing argument ENGINE" in conform("--only", "turn.*").stderr
    assert "no executable 'nosuch'" in conform("--", "nosuch").stderr
    assert "no check matches --only x" in conform("--only", "x", "--", "sh").stderr
    assert "no check matches --only x" in conform("--only", "x", "--", "sh", command="conform-client").stderr


def test_a_client_is_judged_by_what_it_sends(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(CLIENT.replace("BEHAVIOUR", "'deny'"))
    bad.write_text(CLIENT.replace("BEHAVIOUR", "'perhaps'"))
    only = ("--only", "client.prompt,client.flags,client.half-lines,client.permission,client.early-exit")

    passed = conform(*only, "--", sys.executable, str(good), "{engine}", command="conform-client")
    failed = conform(*only, "--", sys.executable, str(bad), "{engine}", command="conform-client")

    assert passed.returncode == 0, passed.stdout
    assert "score: 5 of 5" in passed.stdout
    assert failed.returncode == 1
    assert "FAILED client.permission" in failed.stdout
