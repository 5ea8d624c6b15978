"""Programs that the engine starts by itself: neither the session nor the repository chooses them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parley.errors import ModelError
from parley.settings.credentials import cloud_options
from parley.workspace.search_path import find_trusted, with_absolute_python_path, with_trusted_path
from tests.helpers.forked import PARLEY
from tests.helpers.hostile_git import git, has_git, make_repository

pytestmark = pytest.mark.skipif(not has_git, reason="git is not installed")

PLANTED = {
    "another working directory": "added/bin",
    "the repository around the working directory": "outer/repository/node_modules/.bin",
    "a repository around that one": "outer/bin",
    "a folder that commands in the sandbox can write": "scratch/bin",
    "a link into the working directory": "links",
    "a folder that everybody can write": "shared",
    "a private folder": "private",
}


class Ground:
    """A session in `outer/repository/package`, and a canary for a program in one of the folders."""

    def __init__(self, root: Path) -> None:
        self.root, self.package = root, root / "outer/repository/package"
        for folder in (self.package, root / "home", root / "added"):
            folder.mkdir(parents=True)
        (self.package / "a.txt").write_text("beta\n")
        make_repository(root / "outer", root / "home")
        make_repository(self.package.parent, root / "home")

    def plant(self, where: str, name: str) -> Path:
        """A program that leaves a mark and finds nothing; returns the folder for PATH."""
        folder = self.root / PLANTED[where]
        target = self.package / "tools" if where.startswith("a link") else folder
        for each in (folder, target):
            each.mkdir(parents=True, exist_ok=True)
        program = target / name
        program.write_text(f'#!/bin/sh\n: > "{self.root}/ran"\nexit 1\n')
        program.chmod(0o755)
        if target != folder:
            (folder / name).symlink_to(program)
        folder.chmod(0o777 if where.endswith("everybody can write") else 0o755)
        return folder

    def run(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PARLEY, *words],
            cwd=self.package,
            env={"HOME": str(self.root / "home"), "PATH": f"{folder}:/usr/bin:/bin", "IS_SANDBOX": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    @property
    def has_run(self) -> bool:
        return (self.root / "ran").exists()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.parametrize("where", PLANTED)
def test_programs_come_only_from_folders_that_the_session_cannot_change(ground: Ground, where: str) -> None:
    folder = ground.plant(where, "rg")
    ground.plant(where, "git")
    settings = {"sandbox": {"filesystem": {"allowWrite": [str(ground.root / "scratch")]}}}
    options = ["--add-dir", str(ground.root / "added"), "--settings", json.dumps(settings)]
    options += ["--permission-mode", "bypassPermissions"]  # otherwise the search cannot leave a mark
    agent = {"description": "d", "prompt": "say Hi.", "isolation": "worktree"}
    prompt = f'call Grep {{"pattern": "beta"}}\ncall Task {json.dumps(agent)}\nshow'

    said = ground.run(folder, "-p", "--model", "offline", *options, "--", prompt)

    found = "No files found" if where == "a private folder" else "Found 1 file\na.txt"
    assert (said.stdout[: len(found)], ground.has_run) == (found, where == "a private folder")


def test_a_worktree_of_a_session_is_not_made_by_the_repositorys_git(ground: Ground) -> None:
    folder = ground.plant("the repository around the working directory", "git")

    said = ground.run(folder, "-p", "--model", "offline", "--worktree", "one", "say Hi.")

    assert (said.stdout.strip(), ground.has_run) == ("Hi.", False)


def test_neither_a_start_nor_an_agent_uses_another_repository(ground: Ground) -> None:
    """The tree is hostile: its worktrees are links to others, and its objects are those of another repository."""
    other, theirs = ground.root / "other", ground.root / "theirs"
    make_repository(other, ground.root / "home", "secret.txt")
    git(other, ground.root / "home", "worktree", "add", "-q", str(theirs))
    tree = ground.package.parent
    folder = tree / ".claude/worktrees"
    folder.mkdir(parents=True)
    (folder / ".git").write_text(f"gitdir: {other}/.git\n")
    (folder / "evil").symlink_to(theirs)
    (folder / "evil.lock").touch()
    for part in ("objects", "refs"):
        shutil.rmtree(tree / ".git" / part)
        (tree / ".git" / part).symlink_to(other / ".git" / part)
    agent = {"description": "d", "prompt": 'call Read {"file_path": "secret.txt"}\nshow', "isolation": "worktree"}

    said = ground.run(Path("/bin"), "-p", "--model", "offline", "--", f"call Task {json.dumps(agent)}\nshow")

    assert "leads to another repository" in said.stdout
    assert (theirs / "secret.txt").exists()


@pytest.mark.parametrize(("where", "word"), [("the repository around", "ask"), ("a private folder", "allow")])
def test_a_program_of_the_repository_is_not_a_known_one(ground: Ground, where: str, word: str) -> None:
    folder = ground.plant(next(each for each in PLANTED if each.startswith(where)), "wc")

    said = ground.run(folder, "permissions", "check", "Bash", '{"command": "wc -l a.txt"}')

    assert said.stdout.startswith(f"{word}:")


@pytest.mark.parametrize("where", ["another working", "the repository around", "a link into", "a private folder"])
def test_a_key_helper_finds_no_program_of_the_session(ground: Ground, where: str) -> None:
    folder = ground.plant(next(each for each in PLANTED if each.startswith(where)), "print-key")
    settings = json.dumps({"apiKeyHelper": "LANG=C print-key"})
    options = ("--add-dir", str(ground.root / "added"), "--settings", settings)

    said = ground.run(folder, "-p", "--model", "sonnet", "--offline", *options, "--", "Hi")

    assert ground.has_run == (where == "a private folder"), said


@pytest.mark.parametrize("where", ["another working", "a link into", "a private folder"])
def test_neither_does_the_helper_of_a_cloud(ground: Ground, where: str) -> None:
    folder = ground.plant(next(each for each in PLANTED if each.startswith(where)), "print-key")
    settings = {"awsCredentialExport": "print-key"}

    with pytest.raises(ModelError):
        cloud_options("bedrock", {"PATH": str(folder)}, settings, [str(ground.package), str(ground.root / "added")])

    assert ground.has_run == (where == "a private folder")


def test_the_way_to_a_program_is_followed_through_every_link(tmp_path: Path) -> None:
    work, tools, bins = tmp_path / "work", tmp_path / "tools", tmp_path / "bin"
    for folder in (work, tools, bins):
        folder.mkdir()
    (tools / "one").write_text("#!/bin/sh\n")
    (tools / "one").chmod(0o755)
    (work / "step").symlink_to(tools)
    (tmp_path / "way").symlink_to(work / "step")
    (bins / "two").symlink_to("../way/one")
    environment = {"PATH": f"{tmp_path}/way:{bins}", "HOME": "/nowhere"}

    assert find_trusted("one", environment, []) == f"{tmp_path}/way/one"
    assert find_trusted("two", environment, []) == f"{bins}/two"
    assert find_trusted("one", environment, [str(work)]) is None
    assert find_trusted("two", environment, [str(work)]) is None
    assert with_trusted_path(environment, [str(work)])["PATH"] == str(bins)


def test_a_session_in_the_root_folder_has_the_programs_of_the_system(tmp_path: Path) -> None:
    found = with_trusted_path({"PATH": f"{tmp_path}:/usr/bin"}, ["/"])

    assert found["PATH"] == "/usr/bin"


def test_a_repository_in_the_home_folder_does_not_hide_the_users_programs(tmp_path: Path) -> None:
    for folder in (".git", ".local/bin", "project/.git", "project/bin"):
        (tmp_path / folder).mkdir(parents=True)
    path = f"{tmp_path}/project/bin:{tmp_path}/.local/bin"

    found = with_trusted_path({"PATH": path, "HOME": str(tmp_path)}, [str(tmp_path / "project")])

    assert found["PATH"] == f"{tmp_path}/.local/bin"


# Python.


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder with modules that leave a mark when they are imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("asyncio", "json", "msgspec", "platform", "shutil", "signal", "sitecustomize", "subprocess"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    return folder


@pytest.mark.parametrize("command", [[sys.executable, "-m", "parley"], [PARLEY]])
@pytest.mark.parametrize("words", [["doctor"], ["-p", "--model", "offline", "say Hi."]])
def test_nothing_is_imported_from_the_working_directory(
    modules: Path, tmp_path: Path, command: list[str], words: list[str]
) -> None:
    environment = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*command, *words], cwd=modules, env=environment, capture_output=True, text=True, timeout=90, check=False
    )

    assert done.stdout
    assert not (tmp_path / "ran").exists()


def test_a_python_path_stays_what_it_is_where_it_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"PYTHONPATH": os.pathsep.join(["", "src", "/opt/lib"])}

    assert with_absolute_python_path(given) == {"PYTHONPATH": f"{tmp_path}/src{os.pathsep}/opt/lib"}
    assert with_absolute_python_path({}) == {}
