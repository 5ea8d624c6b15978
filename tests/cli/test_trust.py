"""`parley trust` through the real executable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PARLEY = str(Path(sys.executable).with_name("parley"))
PATIENCE_SECONDS = 90


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".claude").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return folder


@pytest.fixture
def parley(tmp_path: Path, project: Path) -> Any:
    def run(*argv: str) -> tuple[str, str, int]:
        done = subprocess.run(
            [PARLEY, *argv],
            capture_output=True,
            text=True,
            cwd=project,
            env={"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]},
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.stdout, done.stderr, done.returncode

    return run


@pytest.mark.parametrize("name", [".", "../project", "{project}"])
def test_a_folder_is_trusted_by_its_real_path(parley: Any, project: Path, name: str) -> None:
    assert parley("trust", name.format(project=project)) == (f"{project} is trusted\n", "", 0)
    assert parley("trust", "--list") == (f"{project}\n", "", 0)


def test_whoever_trusts_a_folder_is_told_what_comes_into_effect(parley: Any, project: Path) -> None:
    settings = {"apiKeyHelper": "evil", "permissions": {"allow": ["Bash(ls:*)"], "deny": ["Write"]}, "env": {"A": "1"}}
    (project / ".claude" / "settings.json").write_text(json.dumps(settings))

    place = f"({project}/.claude/settings.json)"
    assert parley("trust", ".")[0].splitlines() == [
        f"{project} is trusted",
        f"  in effect: permissions.allow=Bash(ls:*) {place}",
        f"  in effect: env.A=1 {place}",
    ]
    assert parley("trust", ".")[0].splitlines() == [f"{project} is trusted"]


def test_a_folder_is_forgotten(parley: Any, project: Path) -> None:
    parley("trust", ".")

    assert parley("trust", "--forget", ".") == (f"{project} is not trusted\n", "", 0)
    assert parley("trust", "--list") == ("", "", 0)


@pytest.mark.parametrize("argv", [(), ("--what",), ("a", "b"), ("",), ("--forget",)])
def test_a_command_line_that_says_something_else_is_refused(parley: Any, argv: tuple[str, ...]) -> None:
    stdout, stderr, code = parley("trust", *argv)

    assert (stdout, code) == ("", 1)
    assert stderr.startswith("Error: usage: parley trust DIR")


def test_a_folder_that_is_not_there_is_refused(parley: Any, project: Path) -> None:
    assert parley("trust", "none") == (
        "",
        f"Error: {project}/none is no folder that can be opened: No such file or directory\n",
        1,
    )


def test_the_usage_is_told(parley: Any) -> None:
    assert parley("trust", "--help")[0].startswith("usage: parley trust DIR")


def test_a_prompt_that_begins_with_the_word_may_be_given_behind_the_flags(parley: Any) -> None:
    assert parley("--print", "--model", "offline", "trust nobody")[2] == 0
