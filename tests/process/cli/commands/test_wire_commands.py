"""`parley fake` and `parley replay` as commands. The pages in docs/testing run most of what they do."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.process.cli.conftest import PARLEY

CRASH = """
[on.initialize]
error = "not now"

[[turn]]
steps = [{ say = "Half of this line.", half = true }, { stderr = "out of memory" }, { kill = "SIGKILL" }]
"""
TALK = """\
{"parley_records": "conversation", "version": 1, "command": ["claude"]}
{"n": 1, "at_ms": 1, "from": "client", "line": "{\\"type\\":\\"user\\",\\"uuid\\":\\"u1\\"}"}
{"n": 2, "at_ms": 2, "from": "engine", "line": "{\\"type\\":\\"result\\",\\"uuid\\":\\"u1\\"}"}
{"n": 3, "at_ms": 3, "from": "engine", "line": "half", "eol": false}
{"n": 4, "at_ms": 3, "from": "engine_stderr", "line": "out of memory"}
{"n": 5, "at_ms": 4, "exit_code": -9}
"""


def run(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [PARLEY, *map(str, words)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_a_fake_engine_is_killed_in_the_middle_of_a_line(tmp_path: Path) -> None:
    scenario = tmp_path / "crash.toml"
    scenario.write_text(CRASH)
    request = '{"type":"control_request","request_id":"r","request":{"subtype":"initialize"}}\n'
    done = run("fake", scenario, stdin=f'{request}{{"type":"user","message":{{"content":"go"}}}}\n')

    assert (done.returncode, done.stderr) == (-9, "out of memory\n")
    answer, init, half = done.stdout.split("\n")
    assert answer == '{"type":"control_response","response":{"subtype":"error","request_id":"r","error":"not now"}}'
    assert init.startswith('{"type":"system","subtype":"init"')
    assert '"type":"message"' in half


def test_a_replayed_engine_ends_as_the_recorded_one_with_the_ids_of_this_run(tmp_path: Path) -> None:
    recording = tmp_path / "talk.jsonl"
    recording.write_text(TALK)
    done = run("replay", recording, stdin='{"uuid":"another","type":"user"}\n')

    assert (done.returncode, done.stderr) == (-9, "out of memory\n")
    assert done.stdout == '{"type":"result","uuid":"another"}\nhalf'


def test_a_cut_recording_is_refused_with_its_line(tmp_path: Path) -> None:
    recording = tmp_path / "talk.jsonl"
    recording.write_text("".join(TALK.splitlines(keepends=True)[:-1])[:-4])
    done = run("replay", recording)

    assert done.returncode == 1
    assert f"{recording}:5: found no exit code" in done.stderr
