"""`parley attach` prints exactly what clients received, while the session runs and later."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.environment import base_environment

PARLEY = str(Path(sys.executable).with_name("parley"))
STREAM = ("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
KEPT = ("user", "assistant", "result")
SECONDS = 60
SCRIPT = """
[[turn]]
thinking = 'Hm.'
text = "I'll look \u2028 now."
tools = [
  { name = 'Glob', id = 't1', input = { pattern = '*.toml' } },
  { name = 'Glob', id = 't2', input = { pattern = '*.none' } },
]
[[turn]]
tools = [{ name = 'Bash', id = 't3', input = { command = 'echo done; false' } }]
[[turn]]
text = 'Done.'
[[turn]]
text = 'More.'
"""


def environment(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), **base_environment(), "IS_SANDBOX": "1"}


def start(folder: Path, *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [PARLEY, *argv], cwd=folder, env=environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def engine(folder: Path) -> subprocess.Popen[bytes]:
    (folder / "script.toml").write_text(SCRIPT)
    return start(folder, *STREAM, "--model", "scripted:script.toml", "--permission-mode", "bypassPermissions")


def turn(process: subprocess.Popen[bytes], text: str) -> list[bytes]:
    """The lines of one turn."""
    assert process.stdin is not None
    assert process.stdout is not None
    line = {"type": "user", "message": {"role": "user", "content": text}}
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.flush()
    lines = [process.stdout.readline()]
    while json.loads(lines[-1])["type"] != "result":
        lines.append(process.stdout.readline())
    return lines


def kept(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if json.loads(line)["type"] in KEPT]


def session_of(lines: list[bytes]) -> str:
    return str(json.loads(lines[-1])["session_id"])


def attached(folder: Path, *argv: str) -> list[bytes]:
    done = subprocess.run(
        [PARLEY, "attach", *argv], cwd=folder, env=environment(folder), capture_output=True, timeout=SECONDS, check=True
    )
    assert done.stderr == b""
    return done.stdout.splitlines(keepends=True)


def without_prompts(lines: list[bytes]) -> list[bytes]:
    """A client does not receive its own prompts."""
    return [line for line in lines if not isinstance(json.loads(line).get("message", {}).get("content"), str)]


def test_what_is_replayed_is_what_was_sent_byte_for_byte(tmp_path: Path) -> None:
    process = engine(tmp_path)
    told = kept(turn(process, "go"))
    process.communicate(timeout=SECONDS)

    assert len(told) == 10
    assert without_prompts(attached(tmp_path, session_of(told))) == told


def test_a_cursor_gives_exactly_what_is_missing(tmp_path: Path) -> None:
    process = engine(tmp_path)
    session_id = session_of(turn(process, "go"))
    process.communicate(timeout=SECONDS)
    numbered = [line.split(b"\t", 1) for line in attached(tmp_path, session_id, "--numbered")]

    for at, (seq, _) in enumerate(numbered):
        if at % 4 == 0:
            rest = [line for _, line in numbered[at + 1 :]]
            assert attached(tmp_path, session_id, "--after", seq.decode()) == rest


def test_what_comes_is_reported_as_it_comes_until_no_one_holds_the_session(tmp_path: Path) -> None:
    process = engine(tmp_path)
    first = kept(turn(process, "go"))
    viewer = start(tmp_path, "attach", session_of(first))
    assert viewer.stdout is not None
    seen = [viewer.stdout.readline() for _ in range(len(first) + 1)]
    second = kept(turn(process, "more"))
    process.communicate(timeout=SECONDS)
    rest, _ = viewer.communicate(timeout=SECONDS)

    assert without_prompts(seen) == first
    assert without_prompts(rest.splitlines(keepends=True)) == second


def test_a_viewer_of_a_killed_engine_ends_too(tmp_path: Path) -> None:
    process = engine(tmp_path)
    first = kept(turn(process, "go"))
    viewer = start(tmp_path, "attach", session_of(first))
    assert viewer.stdout is not None
    viewer.stdout.readline()
    process.kill()
    process.communicate(timeout=SECONDS)
    viewer.communicate(timeout=SECONDS)

    assert viewer.returncode == 0


def test_an_unknown_session_and_a_bad_number_are_reported(tmp_path: Path) -> None:
    def refused(*argv: str) -> bytes:
        command = [PARLEY, "attach", *argv]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=SECONDS, check=False
        )
        assert (done.returncode, done.stdout) == (2 if b"\nUsage: " in done.stderr else 1, b"")
        return done.stderr

    unknown = "11111111-1111-4111-8111-111111111111"
    assert unknown.encode() in refused(unknown)
    assert b"--after" in refused(unknown, "--after", "x")
    assert b"unexpected argument 'b'" in refused("a", "b")


def test_a_session_is_found_in_any_layout(run: Any) -> None:
    session_id = "00000000-0000-4000-8000-000000000001"
    run("-p", "--model", "offline", "--store", "folder", "--session-id", session_id, "say Here.")
    attached = run("attach", session_id, "--numbered")

    assert (attached.returncode, attached.stderr) == (0, "")
    assert [line.split('"', 4)[3] for line in attached.stdout.splitlines()] == ["user", "assistant", "result"]
