"""Files that decide what runs later stay as they are, whatever a sandboxed command does to them (T-17).

Every protected name is attacked in every folder of `LAYOUTS`. The folders are working directories of one session.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from parley.workspace import sensitive_names as rules
from tests.helpers import sandbox_session
from tests.helpers.sandbox_session import KINDS

FILES = sorted(rules.PROTECTED_FILES)
FOLDERS = sorted(rules.PROTECTED_FOLDERS - {".git"})
PAIRS = [os.path.join(*pair) for pair in rules.PROTECTED_PAIRS]
PARENTS = {parent for parent, _ in rules.PROTECTED_PAIRS}
"""Folders that are not protected themselves."""
LAYOUTS = ("present", "absent", "cased", "cased_absent", "nested/a", "empty/a/b/c/d", "linked", "repository")

ATTACK = """
import contextlib, os, shutil, sys

def attempt(action, *arguments):
    with contextlib.suppress(OSError):
        action(*arguments)

def write(path, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    descriptor = os.open(path, flags, 0o755)
    os.write(descriptor, b"EVIL")
    os.close(descriptor)

def attack(path, number):
    mine = os.path.join(os.path.dirname(path), "mine%d" % number)
    attempt(write, path)
    attempt(write, path, os.O_WRONLY | os.O_APPEND)
    attempt(os.chmod, path, 0o777)
    attempt(os.truncate, path, 0)
    attempt(os.link, path, mine + ".hard")
    attempt(write, mine + ".hard", os.O_WRONLY)
    attempt(os.symlink, path, mine + ".soft")
    attempt(write, mine + ".soft", os.O_WRONLY)
    attempt(write, "/proc/self/root" + path)
    attempt(os.unlink, path)
    attempt(os.rename, path, mine + ".moved")
    attempt(write, mine)
    attempt(os.replace, mine, path)
    attempt(os.symlink, "/etc/passwd", path)
    for inner in ("inner.txt", "new.txt", "hooks/pre-commit", "settings.json", "config"):
        attempt(os.makedirs, os.path.dirname(os.path.join(path, inner)))
        attempt(write, os.path.join(path, inner))
        attempt(os.unlink, os.path.join(path, inner))
        attempt(write, os.path.join(path, inner))
    attempt(os.rename, path, mine + ".folder")
    attempt(shutil.rmtree, path)
    attempt(write, path)

for number, path in enumerate(sys.argv[1:]):
    attack(path, number)
"""


def fill(folder: Path, change: type[str] | None = None) -> None:
    """Create every protected name in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / (name if change is None else name.upper())).write_text("original")
    for name in [*FOLDERS, *PAIRS]:
        inner = folder / (name if change is None else name.upper())
        inner.mkdir(parents=True)
        (inner / "inner.txt").write_text("original")


def make_layouts(base: Path) -> list[str]:
    """Make the folders. Returns the paths to attack."""
    names = [*FILES, *FOLDERS, *PAIRS]
    for layout in LAYOUTS:
        (base / layout).mkdir(parents=True)
    fill(base / "present")
    fill(base / "cased", str)
    fill(base / "nested/a")
    (base / "linked" / "targets").mkdir()
    for name in FILES:
        (base / "linked" / "targets" / f"real-{name.strip('.')}").write_text("original")
        (base / "linked" / name).symlink_to(f"targets/real-{name.strip('.')}")
    subprocess.run(["git", "init", "-q", str(base / "repository")], check=True)
    (base / "repository" / ".git" / "hooks" / "post-commit").write_text("original")
    plain = [base / layout / name for layout in ("present", "absent", "nested/a", "empty/a/b/c/d") for name in names]
    cased = [base / layout / name.upper() for layout in ("cased", "cased_absent") for name in names]
    linked = [base / "linked" / name for name in FILES]
    git = [base / "repository" / ".git" / name for name in ("hooks/post-commit", "hooks/pre-commit", "config")]
    return [str(path) for path in (*plain, *cased, *linked, *git, base / "repository" / ".git" / "hooks")]


def look(base: Path) -> dict[str, object]:
    """Every entry, except those that the attack made under other names and what git may change."""
    found: dict[str, object] = {}
    for layout in LAYOUTS:
        for path in (base / layout).rglob("*"):
            inner = path.relative_to(base / layout)
            if any(part.startswith("mine") for part in inner.parts) or str(inner).lower() in PARENTS:
                continue
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            target = os.readlink(path) if path.is_symlink() else ""
            found[str(path)] = (status.st_mode, content, target)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_protected_names_are_unchanged_after_a_command(tmp_path: Path, kind: str) -> None:
    sandbox_session.require(kind)
    base = tmp_path / "layouts"
    targets = make_layouts(base)
    work = tmp_path / "work"
    work.mkdir()
    (work / "attack.py").write_text(ATTACK)
    (work / "targets").write_text("\n".join(targets))
    before = look(base)
    roots = [word for layout in LAYOUTS for word in ("--add-dir", str(base / layout.partition("/")[0]))]

    ran = sandbox_session.run(
        f"xargs -d '\\n' {sys.executable} -I -S attack.py < targets; echo finished", work, *roots, kind=kind
    )

    assert ran.sandbox == kind
    assert "finished" in ran.output
    after = look(base)
    changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    assert sorted((os.path.relpath(path, base), after.get(path)) for path in changed) == []


def test_the_attack_changes_everything_without_a_sandbox(tmp_path: Path) -> None:
    """The control: without this, the test above could not fail."""
    base = tmp_path / "layouts"
    targets = make_layouts(base)
    (tmp_path / "attack.py").write_text(ATTACK)
    before = look(base)

    subprocess.run([sys.executable, "-I", "-S", str(tmp_path / "attack.py"), *targets], check=True)

    after = look(base)
    assert [path for path in targets if before.get(path) == after.get(path) and "/.git/" not in path] == []


PLANT = """
mkdir -p sub/new/claude build; echo {} > sub/.mcp.json; echo {} > sub/new/claude/settings.json
mv sub/new/claude sub/new/.Claude; cp -r sub/new other; ln -s /etc/passwd sub/.bashrc; git init -q cloned
echo x > sub/npmrc; ln sub/npmrc sub/.npmrc; echo evil >> a/b/c/d/.envrc; echo x > build/.envrc
touch -d @1 sub sub/new other cloned build; chmod 0 sub; echo finished
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_protected_name_cannot_be_planted_where_nothing_was_protected(tmp_path: Path, kind: str) -> None:
    sandbox_session.require(kind)
    work = tmp_path / "work"
    (work / "a/b/c/d").mkdir(parents=True)
    (work / "a/b/c/d/.envrc").write_text("original")
    (work / "sub").mkdir()

    ran = sandbox_session.run(PLANT, work, kind=kind)

    assert "finished" in ran.output
    inner = (str(path.relative_to(work)) for path in work.rglob("*"))
    names = {name for name in inner if rules.is_protected(name)}
    assert names == {"a/b/c/d/.envrc"}
    assert (work / "a/b/c/d/.envrc").read_text() == "original"
    for name in ("sub/.mcp.json", "sub/new/.Claude", "other/.Claude", "sub/.bashrc", "cloned/.git", "sub/.npmrc"):
        assert f"{work / name}: it is protected, because it decides what runs later" in ran.output


@pytest.mark.parametrize("kind", KINDS)
def test_restoring_a_file_does_not_follow_a_folder_that_became_a_link(tmp_path: Path, kind: str) -> None:
    """The engine itself is not confined: it must not be led outside by what a command left."""
    sandbox_session.require(kind)
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work / "x" / "project", outside / "project"):
        folder.mkdir(parents=True)
    (work / "x" / "project" / ".bashrc").write_text("from the repository")
    (work / "x" / "project" / ".ssh").mkdir()
    (outside / "project" / "mine.txt").write_text("mine")
    (outside / ".envrc").write_text("mine")

    ran = sandbox_session.run(f"mv x y; ln -s {outside} x; echo finished", work, kind=kind)

    assert ran.sandbox == kind
    assert "finished" in ran.output
    assert {str(path.relative_to(outside)) for path in outside.rglob("*")} == {"project", "project/mine.txt", ".envrc"}
    assert (work / "x" / "project" / ".bashrc").read_text() == "from the repository"


@pytest.mark.parametrize("kind", KINDS)
def test_a_pattern_applies_to_files_that_appear_later_and_leaves_no_stub(tmp_path: Path, kind: str) -> None:
    sandbox_session.require(kind)
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    rules = {"filesystem": {"denyRead": ["**/*.env"], "denyWrite": ["*.lock"]}}
    file = {"file_path": str(work / "sub" / "late.env"), "content": "a-secret"}

    ran = sandbox_session.run("true", work, kind=kind, sandbox=rules)
    assert os.listdir(work) == ["sub"]

    calls = (("Bash", {"command": "true"}), ("Write", file), ("Bash", {"command": "cat sub/late.env"}))
    ran = sandbox_session.play(calls, work, kind=kind, sandbox=rules)
    assert "a-secret" not in ran.outputs[-1]
    assert "late.env" in ran.outputs[-1]
    assert os.listdir(work) == ["sub"]
