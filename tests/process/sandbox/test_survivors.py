"""What is left of a sandbox when a process in it does not stop writing, and what is left in its git directories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import sandbox_session
from tests.helpers.sandbox_session import KINDS

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is for Linux")
WRITE = "echo evil > .npmrc; echo evil > sub/.mcp.json; touch started"
KEEP_WRITING = f"(trap '' TERM HUP INT; while :; do {WRITE}; done) > /dev/null 2>&1 &"
KILL_SUPERVISOR = (
    f"(trap '' TERM HUP INT; {WRITE}; kill -9 $(pgrep -x parley-keeper); while :; do {WRITE}; done) > /dev/null 2>&1 & "
    "while [ ! -e started ]; do sleep 0.01; done"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    return folder


def planted(folder: Path) -> list[Path]:
    return [path for path in (folder / ".npmrc", folder / "sub/.mcp.json") if path.exists()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", [KEEP_WRITING, KILL_SUPERVISOR])
def test_a_process_that_keeps_writing_loses_when_the_session_ends(command: str, kind: str, folder: Path) -> None:
    sandbox_session.require(kind)
    wait = "while [ ! -e started ]; do sleep 0.01; done"
    calls = [("Bash", {"command": each}) for each in (command, wait)]
    sandbox_session.play(calls, folder, kind=kind)
    assert (folder / "started").exists()
    assert planted(folder) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_keeps_writing_loses_when_the_engine_is_killed(kind: str, folder: Path, tmp_path: Path) -> None:
    sandbox_session.require(kind)
    call = sandbox_session.encode_table({"command": f"{KEEP_WRITING} sleep 60"})
    script = tmp_path / "model.toml"
    script.write_text(f"[[turn]]\ntools = [{{ name = 'Bash', input = {call} }}]\n[[turn]]\ntext = 'done'\n")
    managed = {"sandbox": {"enabled": True, **({"bwrapPath": "/nonexistent"} if kind == "landlock" else {})}}
    engine = subprocess.Popen(
        [
            *(sys.executable, "-m", "parley", "--print", "go", "--model", f"scripted:{script}"),
            *("--permission-mode", "bypassPermissions", "--managed-settings", json.dumps(managed)),
        ],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "IS_SANDBOX": "1", "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (folder / "started").exists():
            assert engine.poll() is None
            time.sleep(0.01)
    finally:
        engine.send_signal(signal.SIGKILL)
        engine.wait()
    deadline = time.monotonic() + 30
    while planted(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    (folder / "started").unlink(missing_ok=True)
    time.sleep(0.2)  # a process that is left would write again
    assert planted(folder) == []
    assert not (folder / "started").exists()


GIT_PLANTS = (
    "modules/lib/config.worktree",
    "modules/lib/commondir",
    "modules/deep/er/config.worktree",
    "modules/lib/hooks/pre-commit",
    "modules/lib/modules/inner/config",
    "worktrees/w/config.worktree",
    "worktrees/new/commondir",
    "modules/new/config",
)


@pytest.mark.parametrize("kind", KINDS)
def test_git_directories_below_the_top_one_are_protected_as_it_is(kind: str, folder: Path) -> None:
    sandbox_session.require(kind)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    git = folder / ".git"
    for name in ("modules/lib", "modules/deep/er"):
        subprocess.run(["git", "init", "-q", "--bare", str(git / name)], check=True)
    (git / "worktrees/w").mkdir(parents=True)
    for name, text in (("HEAD", "ref: refs/heads/w\n"), ("commondir", "../..\n"), ("gitdir", "/w/.git\n")):
        (git / "worktrees/w" / name).write_text(text)
    before = {path: path.read_bytes() for path in git.rglob("*") if path.name in ("config", "commondir", "gitdir")}
    plants = " ".join(f".git/{name}" for name in GIT_PLANTS)
    ran = sandbox_session.run(
        "git init -q --bare .git/modules/lib/modules/inner; git init -q --bare .git/modules/new; "
        "mkdir -p .git/worktrees/new; echo ref: refs/heads/x > .git/worktrees/new/HEAD; "
        f"for path in {plants}; do mkdir -p $(dirname $path); echo evil > $path; done; "
        "for path in .git/modules/*/config .git/worktrees/*/commondir .git/worktrees/*/gitdir; do echo evil >> $path; "
        "done; echo end",
        folder,
        kind=kind,
    )
    assert "end" in ran.output
    assert [name for name in GIT_PLANTS if (git / name).exists()] == []
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_bare_repository_is_protected_and_a_new_one_has_no_configuration(kind: str, folder: Path) -> None:
    sandbox_session.require(kind)
    subprocess.run(["git", "init", "-q", "--bare", str(folder / "store.git")], check=True)
    config = (folder / "store.git/config").read_text()
    sandbox_session.run(
        "git init -q --bare other; git config -f other/config core.fsmonitor evil; "
        "mkdir -p look/objects look/refs look/sub/.vscode; touch look/HEAD look/sub/.vscode/tasks.json; "
        "echo evil >> store.git/config; echo evil > store.git/hooks/post-update; echo evil > store.git/commondir",
        folder,
        kind=kind,
    )
    assert (folder / "store.git/config").read_text() == config
    assert not any((folder / name).exists() for name in ("store.git/commondir", "store.git/hooks/post-update"))
    assert not any((folder / name).exists() for name in ("other/config", "other/hooks", "look/sub/.vscode"))


@pytest.mark.parametrize("kind", KINDS)
def test_activate_scripts_stay_as_they_are_and_a_new_environment_keeps_its_own(kind: str, folder: Path) -> None:
    sandbox_session.require(kind)
    for name in (".venv", "env"):
        (folder / name / "bin").mkdir(parents=True)
        (folder / name / "bin/activate").write_text("original")
    sandbox_session.run(
        "for name in .venv env; do echo evil >> $name/bin/activate; rm -f $name/bin/activate; "
        "echo evil > $name/bin/activate.fish; done; mkdir -p venv/bin; echo new > venv/bin/activate",
        folder,
        kind=kind,
    )
    for name in (".venv", "env"):
        assert (folder / name / "bin/activate").read_text() == "original"
        assert not (folder / name / "bin/activate.fish").exists()
    assert (folder / "venv/bin/activate").read_text() == "new\n"
