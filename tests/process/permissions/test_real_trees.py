"""Decisions in real trees: symlinks to the outside, repositories that name programs, programs on PATH.

A line of real_trees.jsonl: the `tree` that is built, the `command` (a list joins its parts; `["a", 3]` is "aaa"),
optional `mode` and rules (`allow`, `deny`), the expected decision (`expect`; "not allow" is ask or deny), and `why`.
With `plant`, the session's folder becomes a repository after the session has started. The decision is that of
`parley permissions check`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from parley.compose.setup.permission_check import PermissionChecker
from parley.protocol.options import CliOptions
from tests.helpers import paths

Row = dict[str, Any]
ROWS: list[Row] = [
    json.loads(line) for line in (paths.DATA / "permissions" / "real_trees.jsonl").read_text().splitlines()
]
HOSTILE = "[core]\n\tfsmonitor = x\n"
SPELLINGS = {
    "continued line": "[core]\n\tfsmonitor = a\\\n b\n",
    "one line section": "[core] fsmonitor = x\n",
    "quoted value": '[CORE]\n\tFsMonitor="x y" ; comment\n',
}
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def spelled(command: str | list[Any]) -> str:
    if isinstance(command, str):
        return command
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in command)


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def git(cwd: Path, *words: str) -> None:
    identity = ("-c", "user.name=Me", "-c", "user.email=me@example.com")
    subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True)


class Trees:
    """Builds the trees of the rows below one folder: `w` is the working directory, `out` and `home` are outside."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root, root / "w"
        self.path = SYSTEM_PATH
        write(root, "out/secret.txt", "out/sub/x", "home/.ssh/id_rsa", "home/.netrc", "home/notes.txt")
        write(
            self.work, "README.md", "src/main.py", "src/util.py", "docs/guide.md", "docs/secret.md", ".env", "data.csv"
        )
        write(self.work, "conf/app.toml", "a.txt", "script.py")

    def build(self, tree: str) -> None:
        kind, _, detail = tree.partition(" ")
        BUILDERS[kind](self, detail)

    def link(self, name: str, target: str) -> None:
        (self.work / name).symlink_to(target)

    def build_plain(self, detail: str) -> None:
        self.link("dotgit", ".git")

    def build_inner(self, detail: str) -> None:
        self.link("code", "src")
        self.link("alias.md", "README.md")

    def build_links(self, detail: str) -> None:
        self.link("link.txt", "../out/secret.txt")
        self.link("linkdir", "../out")
        self.link("src/leak.py", "../../out/secret.txt")
        self.link("inner", "src")
        self.link("proc", "/proc/self")

    def build_lists(self, detail: str) -> None:
        """Lists of files, names with special characters, and a folder to copy."""
        md5 = "d41d8cd98f00b204e9800998ecf8427e"
        lists = {
            "good.sum": f"{md5}  README.md\n{md5} *src/main.py\n",
            "near.sum": f"{md5}  README.md\n{md5}  .env\n",
            "out.sum": f"{md5}  README.md\n{md5}  ../out/secret.txt\n",
            "tag.sum": f"MD5 (../out/secret.txt) = {md5}\n",
            "blank.sum": f"  {md5}\t ../out/secret.txt\n",
            "escaped.sum": f"\\{md5}  ../out/secret.txt\n",
            "names": ".env\0",
        }
        for name, text in lists.items():
            (self.work / name).write_text(text)
        self.link("0", "../out")
        self.link("cwd", "/proc/self/cwd")
        write(self.work, "conf2/.mcp.json", "conf2/a")

    def build_git(self, detail: str) -> None:
        git(self.root, "init", "-q", "-b", "main", str(self.work))
        git(self.work, "add", "-A")
        git(self.work, "commit", "-q", "-m", "one")
        (self.work / "README.md").write_text("changed\n")
        git(self.work, "commit", "-q", "-a", "-m", "two")
        if detail:
            key, _, value = detail.partition("=")
            git(self.work, "config", key, value)

    def build_hidden(self, detail: str) -> None:
        """A repository that names a program in an unusual place."""
        self.build_git("")
        own = self.work / ".git"
        if detail == "hook post-index-change":
            self.program(own / "hooks" / "post-index-change")
        elif detail == "hooks path":
            self.program(self.work / "evil" / "post-index-change")
            git(self.work, "config", "core.hooksPath", "evil")
        elif detail == "worktree config":
            git(self.work, "config", "extensions.worktreeConfig", "true")
            (own / "config.worktree").write_text(HOSTILE)
        elif detail == "gitdir file":
            own.rename(self.work / "store")
            own.write_text("gitdir: store\n")
            append(self.work / "store" / "config", HOSTILE)
        elif detail == "commondir":
            common = self.work / "common"
            git(self.root, "clone", "-q", "--bare", str(self.work), str(common))
            append(common / "config", HOSTILE)
            (own / "commondir").write_text("../common\n")
        elif detail == "submodule":
            git(self.root, "clone", "-q", str(self.work), str(self.root / "other"))
            local = ("-c", "protocol.file.allow=always")
            git(self.work, *local, "submodule", "add", "-q", str(self.root / "other"), "sub")
            append(own / "modules" / "sub" / "config", HOSTILE)
        elif detail == "nested repository":
            git(self.root, "clone", "-q", str(self.work), str(self.work / "sub"))
            git(self.work / "sub", "config", "core.fsmonitor", "x")
        elif detail == "config link":
            (self.work / "evil.cfg").write_text((own / "config").read_text() + HOSTILE)
            (own / "config").unlink()
            (own / "config").symlink_to("../evil.cfg")
        elif detail == "hooks link":
            self.program(self.work / "evil" / "post-index-change")
            shutil.rmtree(own / "hooks")
            (own / "hooks").symlink_to("../evil")
        else:
            append(own / "config", SPELLINGS[detail])

    def build_path(self, detail: str) -> None:
        for name in ("wc", "cat", "pip", "touch"):
            self.program(self.work / ".venv" / "bin" / name)
        write(self.work, "evil")
        inside = self.work / ".venv" / "bin"
        if detail == "venv":
            self.path = f"{inside}:{SYSTEM_PATH}"
        elif detail == "empty entry":
            for name in ("wc", "cat", "touch"):
                self.program(self.work / name)
            self.path = f"{self.work}/:{SYSTEM_PATH}"
        elif detail == "links to the system":
            for name, target in {
                "head": "/usr/bin/head",
                "tail": "/bin/sh",
                "sort": "/tmp/sort",
                "uniq": "uniq2",
            }.items():
                (inside / name).symlink_to(target)
            (inside / "wc").rename(inside / "uniq2")
            (inside / "python3").symlink_to("python")
            (inside / "python").symlink_to("/usr/bin/python3.11")
            self.path = f"{inside}:{SYSTEM_PATH}"
        elif detail == "link out":
            (self.root / "tools").symlink_to(inside)
            self.path = f"{self.root / 'tools'}:{SYSTEM_PATH}"
        else:
            (self.root / "tools").mkdir()
            for name in ("wc", "cat", "touch"):
                (self.root / "tools" / name).symlink_to(inside / name)
            self.path = f"{self.root / 'tools'}:{SYSTEM_PATH}"

    def program(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n:\n")
        path.chmod(0o755)

    def plant(self) -> None:
        git(self.root, "init", "-q", "--bare", str(self.root / "planted"))
        for entry in (self.root / "planted").iterdir():
            entry.rename(self.work / entry.name)

    def uproot(self) -> None:
        for name in ("HEAD", "config", "description"):
            (self.work / name).unlink(missing_ok=True)
        for name in ("objects", "refs", "hooks", "info", "branches"):
            shutil.rmtree(self.work / name, ignore_errors=True)


BUILDERS: dict[str, Callable[[Trees, str], None]] = {
    "plain": Trees.build_plain,
    "inner": Trees.build_inner,
    "lists": Trees.build_lists,
    "links": Trees.build_links,
    "git": Trees.build_git,
    "git:": Trees.build_hidden,
    "path": Trees.build_path,
}


def decisions(rows: list[Row], root: Path, setenv: Callable[[str, str], None]) -> Iterator[tuple[Row, str, str]]:
    trees = Trees(root)
    trees.build(rows[0]["tree"])
    for name, value in {"HOME": str(root / "home"), "PATH": trees.path, "IS_SANDBOX": "1"}.items():
        setenv(name, value)
    for row in sorted(rows, key=lambda row: row.get("plant", False)):
        options = CliOptions(
            permission_mode=row.get("mode", "default"),
            allowed_tools=tuple(row.get("allow", ())),
            disallowed_tools=tuple(row.get("deny", ())),
            allow_skip_permissions=True,
        )
        judge = PermissionChecker(options, str(trees.work), lambda text: None)
        if row.get("plant"):
            judge.check("Bash", {"command": "true"})
            trees.plant()
        judged = judge.check("Bash", {"command": spelled(row["command"])})
        yield row, judged.decision, judged.reason
        if row.get("plant"):
            trees.uproot()


def fits(row: Row, decision: str) -> bool:
    if row["expect"] == "not allow":
        return decision != "allow"
    return bool(decision == row["expect"])


GROUPS = {
    tree: list(rows) for tree, rows in groupby(sorted(ROWS, key=lambda row: row["tree"]), lambda row: row["tree"])
}


@pytest.mark.parametrize("tree", GROUPS)
def test_a_call_in_a_tree_is_decided_as_its_row_says(
    tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(decisions(GROUPS[tree], tmp_path, monkeypatch.setenv))
    wrong = [
        f"{spelled(row['command'])[:80]!r} ({row.get('mode')}): {decision}, expected {row['expect']}; {reason}"
        for row, decision, reason in found
        if not fits(row, decision)
    ]
    assert wrong == []
