"""Files with credentials in a working directory: no tool shows what is in them without approval, in any mode.

The session is in the home folder, which has a key of every kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.workspace.sensitive_names import KEY_NAMES, KEY_PATHS
from tests.helpers import sandbox_session

MODES = ("default", "plan", "dontAsk", "acceptEdits")
SECRET = "hunter2"
NESTED = ("work/.ssh/id_rsa", "work/deep/er/.NPMRC", "work/.docker/config.json", "work/gh/.config/gh/hosts.yml")
CONFINED = {"enabled": False}
UNCONFINED = {"enabled": False, "confineReaders": False}
Calls = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in (*KEY_NAMES, *KEY_PATHS, *NESTED, "notes.txt", "work/plain.txt"):
        path = home / name
        path = path / "inner.txt" if not path.suffix and "_" not in path.name else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("visible\n" if path.suffix == ".txt" and path.name != "inner.txt" else f"{SECRET} {name}\n")
    return home


def grep(**input: object) -> tuple[str, dict[str, Any]]:
    return "Grep", {"pattern": f"{SECRET}|visible", "output_mode": "content", **input}


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "Bash", {"command": command}


@pytest.mark.parametrize("mode", MODES)
def test_a_search_of_a_folder_shows_no_credentials(mode: str, home: Path) -> None:
    modes: list[dict[str, Any]] = [{}, {"output_mode": "count"}, {"output_mode": "files_with_matches"}]
    calls = [grep(**more) for more in (*modes, {"path": "work"}, {"path": ".", "glob": "**/*"}, {"-i": True})]
    ran = sandbox_session.play(calls, home, "--permission-mode", mode, sandbox=UNCONFINED)
    assert SECRET not in "".join(ran.outputs)
    assert "notes.txt" in ran.outputs[0]
    assert "Not searched, because of credentials" in ran.outputs[0]


NAMING: Calls = [
    grep(path=".ssh"),
    grep(path=".npmrc"),
    grep(path="work/.docker/config.json"),
    ("Read", {"file_path": "work/.ssh/id_rsa"}),
    ("Read", {"file_path": ".config/gh/inner.txt"}),
    ("Read", {"file_path": "mcp-logins.json"}),
    ("Read", {"file_path": ".bash_history"}),
    bash("cat .config/claude/config.json"),
    bash("head -n 1 work/deep/er/.NPMRC"),
    bash("cat .[a-n]*"),
]


@pytest.mark.parametrize("sandbox", [CONFINED, UNCONFINED])
def test_a_call_that_names_credentials_is_not_allowed(sandbox: dict[str, bool], home: Path) -> None:
    calls = [
        (name, input | ({"file_path": str(home / input["file_path"])} if name == "Read" else {}))
        for name, input in NAMING
    ]
    ran = sandbox_session.play(calls, home, "--permission-mode", "default", sandbox=sandbox)
    assert len(ran.outputs) == len(calls)
    assert [output for output in ran.outputs if SECRET in output or "was not given" not in output] == []


SEARCHING = (
    *(f"grep -r{flags} {SECRET} ." for flags in ("", "n", "I")),
    *(f"grep -R {SECRET}", f"grep -rh {SECRET} work", f"rg --hidden {SECRET} .", f"rg -uuu {SECRET} work"),
    *(f"git grep --no-index {SECRET}", "diff -r work .config", f"cd work && grep -r {SECRET} ."),
)


@pytest.mark.parametrize("mode", ["default", "dontAsk"])
@pytest.mark.parametrize("sandbox", [CONFINED, UNCONFINED])
def test_a_command_that_searches_a_folder_shows_none(sandbox: dict[str, bool], mode: str, home: Path) -> None:
    ran = sandbox_session.play(
        [bash("cat notes.txt"), *map(bash, SEARCHING)], home, "--permission-mode", mode, sandbox=sandbox
    )
    assert len(ran.outputs) == len(SEARCHING) + 1
    assert [output for output in ran.outputs if SECRET in output] == []
    assert ran.outputs[0] == "visible"
    assert all("approval" in output or "was not given" in output for output in ran.outputs[1:])


def test_a_copy_of_a_folder_with_credentials_asks(home: Path) -> None:
    ran = sandbox_session.run("cp -r work copy", home, "--permission-mode", "acceptEdits", sandbox=CONFINED)
    assert "was not given" in ran.output
    assert not (home / "copy").exists()


def test_an_approved_search_shows_them(home: Path) -> None:
    flags = ("--permission-mode", "default", "--allowedTools", "Read(./.ssh)", "Bash(grep:*)")
    calls = [grep(path=".ssh"), bash(f"grep -r {SECRET} .ssh")]
    ran = sandbox_session.play(calls, home, *flags, sandbox=CONFINED)
    assert [SECRET in output for output in ran.outputs] == [True, True]


def test_a_memory_file_does_not_import_them(home: Path) -> None:
    (home / "CLAUDE.md").write_text(f"See @./.npmrc and @{home}/work/.ssh/id_rsa and @./notes.txt\n")
    ran = sandbox_session.run("true", home, "--permission-mode", "default", sandbox=CONFINED)
    assert "may contain keys or passwords" in ran.stderr
