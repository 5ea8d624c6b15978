"""Official clients with `parley tap` between them and the engine: nothing changes for them, and all is recorded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from parley.stores.wire_recording import read_wire_recording
from tests.compat.harness import ENGINE, HELLO, Stage, installed
from tests.compat.install import CURRENT_PYTHON, TYPESCRIPT, Client


@pytest.mark.parametrize("client", [CURRENT_PYTHON, TYPESCRIPT], ids=["python", "typescript"])
def test_a_client_works_through_a_tap(client: Client, tmp_path: Path) -> None:
    script, talks = tmp_path / "claude", tmp_path / "talks"
    talks.mkdir()
    words = ["tap", "--install", str(script), "--record", f"{talks}/", "--quiet", "--", str(ENGINE)]
    subprocess.run([str(ENGINE), *words], check=True, stdout=subprocess.DEVNULL)

    report = Stage(installed(client), tmp_path).run("query", [HELLO], prompt="Hi", engine=str(script))

    assert report.of("raised") == []
    assert "Hello there." in str(report.messages)
    (talk,) = talks.iterdir()
    recording = read_wire_recording(talk)
    assert recording.exit_code == 0
    assert any(b'"type":"result"' in line for line in recording.sent_by("engine"))
    assert any(b"initialize" in line for line in recording.sent_by("client"))
    assert b"a-key-for-tests" not in talk.read_bytes()
