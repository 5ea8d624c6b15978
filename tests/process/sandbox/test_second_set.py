"""Ways out of the sandbox that an independent review found. Each test is a way, and a control where that is not plain.

The review is a second set of attempts; the first is in `test_escapes.py`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from parley.workspace.search_path import with_trusted_path
from tests.helpers import sandbox_session
from tests.helpers.hostile_git import git, make_repository
from tests.helpers.sandbox_session import KINDS

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is for Linux")
LATER = "(while [ ! -e go ]; do sleep 0.05; done; echo evil > {name}; touch done) > /dev/null 2>&1 &"
"""A process that outlives its command, and changes a file later."""
FIRST_PROCESS = """
start = int(next(line for line in open("/proc/1/maps") if " rw" in line).split("-")[0], 16)
memory = open("/proc/1/mem", "r+b", buffering=0)
memory.seek(start)
data = memory.read(8)
memory.seek(start)
memory.write(data)
print("ESCAPED")
"""
FLAGS = """
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x40086602, struct.pack("l", 0x40))
print("ESCAPED")
"""
CAPABILITY = """
import os
open("program", "w").close()
os.setxattr("program", "security.capability", bytes.fromhex("01000002" + "80000000" + "00" * 12))
print("ESCAPED")
"""
SCHEDULING = """
import contextlib, ctypes, os, sys
pid = int(sys.argv[1])
actions = {
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
    "affinity": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)),
}
for name, action in actions.items():
    with contextlib.suppress(PermissionError):
        action()
        print("ESCAPED", name)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


def python(code: str, *arguments: object) -> str:
    return shlex.join(["/usr/bin/env", "python3", "-c", code, *map(str, arguments)])


def bash(*commands: str) -> list[sandbox_session.Call]:
    return [("Bash", {"command": command}) for command in commands]


def test_the_first_process_of_the_sandbox_cannot_be_written_to(folder: Path) -> None:
    """The one of bubblewrap has no system call filter."""
    sandbox_session.require("bubblewrap")
    ran = sandbox_session.run(python(FIRST_PROCESS), folder)
    assert "ESCAPED" not in ran.output
    assert "Permission denied" in ran.output


def test_landlock_keeps_flags_of_files_outside(folder: Path, tmp_path: Path) -> None:
    sandbox_session.require("landlock")
    outside = tmp_path / "outside.txt"
    outside.touch()
    ran = sandbox_session.run(
        python(FLAGS, outside), folder, kind="landlock", sandbox={"filesystem": {"allowRead": [str(outside)]}}
    )
    assert "ESCAPED" not in ran.output
    assert "Operation not permitted" in ran.output


def test_landlock_gives_no_program_capabilities(folder: Path) -> None:
    sandbox_session.require("landlock")
    ran = sandbox_session.run(python(CAPABILITY), folder, kind="landlock")
    assert "ESCAPED" not in ran.output
    assert os.listxattr(folder / "program") == []


def test_landlock_keeps_the_scheduling_of_other_processes(folder: Path) -> None:
    sandbox_session.require("landlock")
    control = subprocess.run(
        [sys.executable, "-c", SCHEDULING, str(os.getpid())], capture_output=True, text=True, check=True
    )
    assert control.stdout.count("ESCAPED") == 3
    ran = sandbox_session.run(python(SCHEDULING, os.getpid()), folder, kind="landlock")
    assert "ESCAPED" not in ran.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_folder_does_not_show_the_credentials_beside_it(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox_session.require(kind)
    home = folder.parent / f"{folder.name}.session" / "home"
    (home / ".cargo/bin").mkdir(parents=True)
    (home / ".cargo/credentials.toml").write_text("SECRET")
    (home / ".cargo/bin/tool").write_text("visible")
    monkeypatch.setenv("PATH", f"{home}/.cargo/bin:{os.environ['PATH']}")
    ran = sandbox_session.run("cat ~/.cargo/credentials.toml ~/.cargo/bin/tool", folder, kind=kind)
    assert "visible" in ran.output
    assert "SECRET" not in ran.output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read them without a sandbox")
@pytest.mark.parametrize("kind", KINDS)
def test_backups_of_password_hashes_are_hidden(kind: str, folder: Path) -> None:
    sandbox_session.require(kind)
    ran = sandbox_session.run(
        "cat /etc/shadow- /etc/gshadow- /var/backups/*shadow* 2> /dev/null; echo end", folder, kind=kind
    )
    assert "root:" not in ran.output
    assert "end" in ran.output


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_left_process_changes_later_is_undone(kind: str, folder: Path) -> None:
    sandbox_session.require(kind)
    wait = "touch go; while [ ! -e done ]; do sleep 0.05; done"
    ran = sandbox_session.play(bash(LATER.format(name=".mcp.json"), wait, "echo next"), folder, kind=kind)
    assert not (folder / ".mcp.json").exists()
    assert "decides what runs later; the change was undone" in "".join(ran.outputs)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("mode", [0o300, 0o555, 0o000])
def test_a_folder_that_its_owner_cannot_change_is_restored(mode: int, tmp_path: Path) -> None:
    """Root can change every folder, so this runs as another user."""
    code = (
        "import os, sys; from parley.workspace.sandbox.protected_entries import FolderIndex, restore_entries\n"
        "top, mode = sys.argv[1], int(sys.argv[2]); folder = top + '/project'; os.mkdir(folder)\n"
        "index = FolderIndex([folder]); before = index.entries\n"
        "open(folder + '/.mcp.json', 'w').close(); os.chmod(folder, mode)\n"
        "print(restore_entries(index, before, top + '/refused')); os.chmod(folder, 0o700); print(os.listdir(folder))"
    )
    source = Path(__file__).parents[3] / "src"
    top = tmp_path / "top"
    top.mkdir()
    os.chown(top, 65534, 65534)
    # The other user may not be able to read our source, so it is imported first.
    start = "import os, sys; sys.path.insert(0, sys.argv.pop(1)); import parley.workspace.sandbox.protected_entries\n"
    program = f"{start}os.setgid(65534); os.setuid(65534)\n{code}"
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(parent.stat().st_mode | 0o111)
    done = subprocess.run(
        [sys.executable, "-c", program, str(source), str(top), str(mode)], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [f"['{top}/project/.mcp.json']", "[]"], done.stderr


def test_a_deep_tree_or_a_large_file_is_no_way_to_keep_a_hook(folder: Path) -> None:
    sandbox_session.require("landlock")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    hooks = folder / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-commit").write_text("original")
    deep = "import os; os.chdir('.git/hooks')\nfor _ in range(1200): os.mkdir('a'); os.chdir('a')"
    large = "echo evil > .git/hooks/pre-push; truncate -s 40M .git/hooks/pre-push; echo evil > .git/hooks/pre-commit"
    sandbox_session.run(f"{python(deep)}; {large}", folder, kind="landlock")
    assert (hooks / "pre-commit").read_text() == "original"
    assert not (hooks / "pre-push").exists()
    assert not (hooks / "a").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_cleaning_up_changes_nothing_outside(kind: str, folder: Path, tmp_path: Path) -> None:
    """Where commands may write to our own folders, because the settings allow it."""
    sandbox_session.require(kind)
    temporary, outside = tmp_path / "temporary", tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    temporary.mkdir()
    own = f"{temporary}/parley-{os.getuid()}"
    record = json.dumps([str(outside / "empty"), (outside / "empty").stat().st_ino])
    command = (
        f"rm -rf {own}/refused; ln -s {outside} {own}/refused; echo evil > .npmrc;"
        f"for file in {own}/placeholders/*; do echo {shlex.quote(record)} >> $file; done; ls {own}"
    )
    environment = {"env": {"CLAUDE_CODE_TMPDIR": str(temporary)}}
    ran = sandbox_session.run(
        command,
        folder,
        *("--managed-settings", json.dumps({**environment, **landlock_only(kind)})),
        sandbox={"filesystem": {"allowWrite": [str(temporary)]}},
    )
    assert "refused" in ran.output
    assert os.listdir(outside) == ["empty"]
    assert not (folder / ".npmrc").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["anywhere", "in worktrees", "through a link"])
def test_a_forged_worktree_opens_no_folder_outside(kind: str, form: str, folder: Path, tmp_path: Path) -> None:
    sandbox_session.require(kind)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("SECRET")
    gitdir = folder / ("common/worktrees/one" if form == "in worktrees" else "fake")
    gitdir.mkdir(parents=True)
    if form == "through a link":  # `commondir` is as git writes it, and leads out
        (outside / "worktrees").symlink_to(folder)
        (folder / "link").symlink_to(outside / "worktrees/fake")
    (folder / ".git").write_text(f"gitdir: {folder / 'link' if form == 'through a link' else gitdir}\n")
    (gitdir / "HEAD").write_text("ref: refs/heads/main\n")
    (gitdir / "gitdir").write_text(f"{folder}/.git\n")
    (gitdir / "commondir").write_text(f"{outside}\n")
    ran = sandbox_session.play(bash(f"echo evil > {outside}/new", f"cat {outside}/kept"), folder, kind=kind)
    reader = sandbox_session.run(f"cat {outside}/kept", folder, "--permission-mode", "default", kind=kind)
    assert (os.path.exists(outside / "new"), "SECRET" in reader.output) == (False, False), ran.outputs


@pytest.mark.parametrize("kind", KINDS)
def test_git_works_in_a_real_worktree(kind: str, folder: Path, tmp_path: Path) -> None:
    sandbox_session.require(kind)
    make_repository(folder, tmp_path / "home")
    tree = tmp_path / "tree"
    git(folder, tmp_path / "home", "worktree", "add", "-q", str(tree))
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m inside && git log -1 --format=%s"
    ran = sandbox_session.play(bash(commit, f"echo evil >> {folder}/.git/config"), tree, kind=kind)
    assert ran.outputs[0] == "inside", ran.outputs
    assert "evil" not in (folder / ".git/config").read_text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taken", ["a link", "a folder"])
def test_a_name_that_another_user_has_taken_stops_no_command(
    kind: str, taken: str, folder: Path, tmp_path: Path
) -> None:
    sandbox_session.require(kind)
    usual = tmp_path / "temporary" / f"parley-{os.getuid()}"
    usual.parent.mkdir()
    if taken == "a link":
        usual.symlink_to(tmp_path)
    elif os.geteuid() == 0:
        usual.mkdir()
        os.chown(usual, 12345, 12345)
    else:
        pytest.skip("only root can give a folder to another user")
    managed = {"env": {"CLAUDE_CODE_TMPDIR": str(usual.parent)}, **landlock_only(kind)}
    command = 'echo kept > "$TMPDIR/note" && cat "$TMPDIR/note"'
    ran = sandbox_session.run(command, folder, "--managed-settings", json.dumps(managed))
    assert (ran.output, "belongs to another user" in ran.stderr) == ("kept", True), ran


@pytest.mark.parametrize("kind", KINDS)
def test_a_hard_link_is_no_way_to_change_a_protected_file(kind: str, folder: Path, tmp_path: Path) -> None:
    sandbox_session.require(kind)
    make_repository(folder, tmp_path / "home")
    hook = folder / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    (folder / "notes.txt").hardlink_to(folder / ".git/config")
    (folder / "script").hardlink_to(hook)
    before = (folder / ".git/config").read_text()
    ran = sandbox_session.play(bash("echo evil >> notes.txt", "echo evil >> script"), folder, kind=kind)
    assert ((folder / ".git/config").read_text(), hook.read_text()) == (before, "#!/bin/sh\n"), ran.outputs


def landlock_only(kind: str) -> dict[str, object]:
    return {"sandbox": {"bwrapPath": "/nonexistent"}} if kind == "landlock" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_program_is_read_only_in_a_working_directory(kind: str, tmp_path: Path) -> None:
    sandbox_session.require(kind)
    project = tmp_path / "project"
    packages = project / "env"
    packages.mkdir(parents=True)
    source = Path(__file__).parents[3] / "src/parley"
    subprocess.run(["cp", "-r", str(source), str(packages / "parley")], check=True)
    target = packages / "parley/errors.py"
    before = target.read_text()
    code = "from parley.workspace.sandbox import launcher; print(*launcher.installation_paths(), sep='\\n')"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(packages / "parley") in shown.stdout.splitlines()
    (project / "model.toml").write_text(
        "[[turn]]\ntools = [{ name = 'Bash', input = { command = 'echo evil >> env/parley/errors.py' } }]\n"
        "[[turn]]\ntext = 'done'\n"
    )
    flags = ["--managed-settings", json.dumps(landlock_only(kind))] if kind == "landlock" else []
    subprocess.run(
        [
            *(sys.executable, "-m", "parley", "-p", "go", "--model", "scripted:model.toml", *flags),
            *("--permission-mode", "bypassPermissions", "--settings", json.dumps({"sandbox": {"enabled": True}})),
        ],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(packages), "HOME": str(tmp_path), "IS_SANDBOX": "1"},
        stdin=subprocess.DEVNULL,
        check=True,
        capture_output=True,
    )
    assert target.read_text() == before


def test_our_own_programs_are_not_taken_from_a_working_directory(tmp_path: Path) -> None:
    (tmp_path / "project/.venv/bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "project/.venv/bin")
    path = f"{tmp_path}/project/.venv/bin:{tmp_path}/link:/usr/bin:{tmp_path}/project2"
    (tmp_path / "project2").mkdir()
    found = with_trusted_path({"PATH": path}, [str(tmp_path / "project")])
    assert found["PATH"] == f"/usr/bin:{tmp_path}/project2"
