"""`parley init` and `parley link` through the real executable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE_SECONDS
from tests.process.cli.conftest import PARLEY

NAMES = [
    ".claude/settings.json",
    ".claude/README.md",
    ".mcp.example.json",
    "agent.py",
    "test_agent.py",
]


def run_python(folder: Path, environment: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_what_init_writes_works_at_once(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    done = run("init", "project")
    project = tmp_path / "project"

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[: len(NAMES)] == [f"wrote    project/{name}" for name in NAMES]
    assert "Next:\n  cd project\n  python -m pytest test_agent.py " in done.stdout
    # It must not clean up after the other test runs of the machine.
    own = {**environment, "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    tested = run_python(project, own, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert (tested.returncode, "2 passed" in tested.stdout) == (0, True), tested.stdout
    assert not Path(environment["HOME"], ".claude").exists()
    assert "mcpServers" in json.loads((project / ".mcp.example.json").read_text())


def test_the_agent_that_init_writes_fails_if_its_turn_fails(
    run: Any, tmp_path: Path, environment: dict[str, str]
) -> None:
    run("init")
    done = run_python(tmp_path, environment, "agent.py", "Hi")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("Error: No API key: set ANTHROPIC_API_KEY")


def test_the_settings_that_init_writes_are_understood_without_a_warning(run: Any, tmp_path: Path) -> None:
    assert "Next:\n  python -m pytest test_agent.py " in run("init").stdout

    denied = run("permissions", "check", "Read", str(tmp_path / ".env"))
    assert (denied.returncode, "parley trust" in denied.stderr) == (2, True)
    run("trust", ".")
    allowed = run("permissions", "check", "Bash", "python -m pytest -q")
    assert (allowed.returncode, allowed.stderr) == (0, "")


def test_init_changes_nothing_that_exists(run: Any, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    (tmp_path / "test_agent.py").symlink_to("nowhere")

    result = json.loads(run("init", "--json").stdout)
    again = run("init")

    assert result["kept"] == ["agent.py", "test_agent.py"]
    assert result["written"] == [name for name in NAMES if name not in result["kept"]]
    assert (tmp_path / "agent.py").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    assert again.stdout.splitlines()[0] == "kept     .claude/settings.json (it exists)"


def test_init_says_why_it_cannot_write(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("init", "file")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")


@pytest.mark.parametrize(("name", "program"), [("claude", "parley"), ("miriad-code", "parley-miriad")])
def test_a_link_in_a_directory_of_the_users_choice(
    run: Any, tmp_path: Path, environment: dict[str, str], name: str, program: str
) -> None:
    (tmp_path / "bin").mkdir()
    path = f"{tmp_path / 'bin'}:{environment['PATH']}"

    done = run("link", name, "bin", PATH=path)

    link = tmp_path / "bin" / name
    target = Path(PARLEY).with_name(program)
    assert done.stderr == f"Linking {link} to {target}\n"
    assert done.stdout.splitlines() == [f"{link} is now a link to {target}", f"`{name}` on the PATH is this link"]
    assert os.path.realpath(link) == os.path.realpath(target)
    version = subprocess.run([link, "--version"], env=environment, capture_output=True, text=True, check=True)
    assert "Claude Code" in version.stdout
    again = run("link", name, "bin", PATH=path)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines()[0] == f"{link} is already a link to {target}"


def test_the_default_is_a_directory_of_the_home_on_the_path(
    run: Any, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "home" / ".local" / "bin"
    folder.mkdir(parents=True)

    nowhere = run("link")
    assert (nowhere.returncode, "no directory on the PATH is inside your home directory" in nowhere.stderr) == (1, True)
    would = json.loads(run("link", "--dry-run", "--json", PATH=f"{environment['PATH']}:{folder}").stdout)
    assert (would["link"], would["created"], (folder / "claude").is_symlink()) == (f"{folder}/claude", False, False)
    run("link", PATH=f"{environment['PATH']}:{folder}")
    assert os.path.realpath(folder / "claude") == os.path.realpath(PARLEY)


def test_another_program_that_comes_first_is_named(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    other = tmp_path / "first" / "claude"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)

    beaten = run("link", "claude", "second", PATH=f"{tmp_path}/first:{tmp_path}/second:{environment['PATH']}")
    assert beaten.stdout.splitlines()[1] == f"`claude` on the PATH is {other}, not this link"
    aside = run("link", "claude", "second", PATH=f"{tmp_path}/first:{environment['PATH']}")
    assert aside.stdout.splitlines()[1] == f"{tmp_path}/second is not on the PATH; `claude` on the PATH is {other}"
    refused = run("link", "claude", "first")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"Error: {other} exists and is not replaced")
    assert other.read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        (("claud",), 2, "cannot link 'claud' (did you mean claude?)"),
        (("vim",), 2, "cannot link 'vim' (choose from claude, miriad-code)"),
        (("claude", "none"), 1, "cannot create the link"),
        (("claude", "a", "b"), 2, "unexpected argument 'b'"),
    ],
)
def test_a_link_that_cannot_be_is_refused(run: Any, argv: tuple[str, ...], code: int, reason: str) -> None:
    done = run("link", *argv)

    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr
