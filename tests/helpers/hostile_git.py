"""Repositories whose `.git` runs a program, made with a real git: one for each way that we know of."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.helpers.environment import base_environment

ENVIRONMENT = {
    **base_environment(),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "LC_ALL": "C",
}
has_git = shutil.which("git") is not None


class Ground:
    """A repository with a commit and a change, and a canary beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work, self.home, self.mark = root / "work", root / "home", root / "ran"
        self.program = root / "canary"
        for folder in (self.work, self.home):
            folder.mkdir()
        self.program.write_text(f"#!/bin/sh\n: > {self.mark}\n")
        self.program.chmod(0o755)
        make_repository(self.work, self.home)

    def git(self, *words: str, cwd: Path | None = None) -> str:
        return git(cwd or self.work, self.home, *words)

    def config(self, key: str, value: str) -> None:
        self.git("config", "--local", key, value)

    def append(self, name: str, text: str) -> None:
        with (self.work / ".git" / name).open("a") as file:
            file.write(text)

    def script(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.program, path)
        path.chmod(0o755)


def git(cwd: Path, home: Path, *words: str) -> str:
    environment = {**ENVIRONMENT, "HOME": str(home)}
    done = subprocess.run(
        ["git", *words], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.stdout


def make_repository(folder: Path, home: Path, name: str = "a.txt") -> None:
    folder.mkdir(exist_ok=True)
    git(folder, home, "init", "-q", "-b", "main")
    (folder / name).write_text("one\n")
    git(folder, home, "add", ".")
    git(folder, home, "-c", "commit.gpgsign=false", "commit", "-q", "-m", "first")
    (folder / name).write_text("two\n")


def configured(key: str, value: str = "{canary}") -> Callable[[Ground], None]:
    return lambda ground: ground.config(key, value.format(canary=ground.program, root=ground.root))


def raw(text: str, name: str = "config") -> Callable[[Ground], None]:
    return lambda ground: ground.append(name, text.format(canary=ground.program, root=ground.root))


def with_attributes(attribute: str, *settings: tuple[str, str]) -> Callable[[Ground], None]:
    def make(ground: Ground) -> None:
        (ground.work / ".gitattributes").write_text(f"*.txt {attribute}\n")
        for key, value in settings:
            configured(key, value)(ground)

    return make


def make_index_stale(ground: Ground) -> None:
    """The next `git status` writes the index: a file has another time than in it, and the same contents."""
    (ground.work / "same.txt").write_text("same\n")
    ground.git("add", "same.txt")
    os.utime(ground.work / "same.txt", (0, 0))


def hook(name: str) -> Callable[[Ground], None]:
    def make(ground: Ground) -> None:
        make_index_stale(ground)
        ground.script(ground.work / ".git" / "hooks" / name)

    return make


def hooks_path(ground: Ground) -> None:
    make_index_stale(ground)
    ground.script(ground.work / "scripts" / "post-index-change")
    ground.config("core.hooksPath", "scripts")


def included(key: str) -> Callable[[Ground], None]:
    def make(ground: Ground) -> None:
        (ground.work / "more").write_text(f"[core]\n\tfsmonitor = {ground.program}\n")
        ground.config(key, str(ground.work / "more"))

    return make


def worktree_config(ground: Ground) -> None:
    ground.config("extensions.worktreeConfig", "true")
    ground.append("config.worktree", f"[core]\n\tfsmonitor = {ground.program}\n")


def elsewhere(ground: Ground) -> Path:
    """Another repository of the person's, with a program in its configuration."""
    other = ground.root / "other"
    make_repository(other, ground.home)
    git(other, ground.home, "config", "core.fsmonitor", str(ground.program))
    return other


def worktree_elsewhere(ground: Ground) -> None:
    (ground.root / "private").mkdir()
    ground.config("core.worktree", str(ground.root / "private"))


def gitfile(ground: Ground) -> None:
    shutil.rmtree(ground.work / ".git")
    (ground.work / ".git").write_text(f"gitdir: {elsewhere(ground)}/.git\n")


def clean_gitfile(ground: Ground) -> None:
    gitfile(ground)
    git(ground.root / "other", ground.home, "config", "--unset", "core.fsmonitor")


def common_dir(ground: Ground) -> None:
    (ground.work / ".git" / "commondir").write_text(f"{elsewhere(ground)}/.git\n")


def linked(ground: Ground) -> None:
    shutil.rmtree(ground.work / ".git")
    (ground.work / ".git").symlink_to(elsewhere(ground) / ".git")


def linked_objects(ground: Ground) -> None:
    objects = ground.work / ".git" / "objects"
    folder = next(path for path in sorted(objects.iterdir()) if len(path.name) == 2)
    folder.rename(ground.root / "elsewhere")
    folder.symlink_to(ground.root / "elsewhere")


def alternates(ground: Ground) -> None:
    objects = elsewhere(ground) / ".git" / "objects"
    (ground.work / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n")


def gitlink(ground: Ground) -> None:
    """A submodule that no .gitmodules knows."""
    make_repository(ground.work / "sub", ground.home)
    ground.git("add", "sub")
    git(ground.work / "sub", ground.home, "config", "core.fsmonitor", str(ground.program))


def nested_gitlink(ground: Ground) -> None:
    make_repository(ground.work / "sub", ground.home)
    make_repository(ground.work / "sub" / "deep", ground.home)
    git(ground.work / "sub", ground.home, "add", "deep")
    git(ground.work / "sub", ground.home, "commit", "-q", "-m", "deep")
    ground.git("add", "sub")
    git(ground.work / "sub" / "deep", ground.home, "config", "core.fsmonitor", str(ground.program))


def compressed_gitlink(ground: Ground) -> None:
    gitlink(ground)
    ground.git("update-index", "--index-version", "4")


def split_gitlink(ground: Ground) -> None:
    gitlink(ground)
    ground.git("update-index", "--split-index")


def bare_with_empty_git(ground: Ground) -> None:
    """Git passes over an empty `.git` and takes the folder itself."""
    shutil.rmtree(ground.work / ".git")
    (ground.work / ".git").mkdir()
    plant(ground.work, ground.program)


def broken_head(ground: Ground) -> None:
    """Git passes over a `.git` without a proper HEAD, and continues above."""
    sub = ground.work / "sub"
    make_repository(sub, ground.home)
    (sub / ".git" / "HEAD").write_text("nothing\n")
    ground.config("core.fsmonitor", str(ground.program))


def plant(folder: Path, program: Path) -> None:
    (folder / "objects").mkdir()
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {program}\n"
    )


def promisor(ground: Ground) -> None:
    ground.config("core.repositoryformatversion", "1")
    ground.config("extensions.partialClone", "origin")
    ground.config("remote.origin.url", f"ext::{ground.program} %S")
    ground.config("remote.origin.promisor", "true")
    ground.config("protocol.ext.allow", "always")
    blob = ground.git("rev-parse", "HEAD:a.txt").strip()
    (ground.work / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


RUNNING: dict[str, Callable[[Ground], None]] = {
    "core.fsmonitor": configured("core.fsmonitor"),
    "core.fsmonitor in capitals": raw("[CORE]\n\tFSMONITOR = {canary}\n"),
    "core.fsmonitor beside its header": raw("[core] fsmonitor = {canary}\n"),
    "core.fsmonitor on two lines": raw("[core]\n\tfsmonitor = \\\n{canary}\n"),
    "core.fsmonitor in quotes": raw('[core]\n\tfsmonitor = "{canary}"\n'),
    "diff.external": configured("diff.external"),
    "textconv": with_attributes("diff=x", ("diff.x.textconv", "{canary}")),
    "diff.x.command": with_attributes("diff=x", ("diff.x.command", "{canary}")),
    "filter clean": with_attributes("filter=x", ("filter.x.clean", "{canary}")),
    "filter process": with_attributes("filter=x", ("filter.x.process", "{canary}")),
    "a filter that is called lfs": with_attributes("filter=lfs", ("filter.lfs.clean", "{canary}")),
    "hook": hook("post-index-change"),
    "core.hooksPath": hooks_path,
    "include.path": included("include.path"),
    "includeIf": included("includeIf.gitdir:/**.path"),
    "config.worktree": worktree_config,
    "a .git that is a file": gitfile,
    "a .git that is a link": linked,
    "commondir": common_dir,
    "a submodule": gitlink,
    "a submodule of a submodule": nested_gitlink,
    "a submodule in a compressed index": compressed_gitlink,
    "a submodule in a split index": split_gitlink,
    "an empty .git": bare_with_empty_git,
    "a promisor": promisor,
}
"""A command that only reads would run the canary, as git itself shows."""

NAMING: dict[str, Callable[[Ground], None]] = {
    "filter smudge": with_attributes("filter=x", ("filter.x.smudge", "{canary}")),
    "core.pager": configured("core.pager"),
    "core.pager that looks like less": configured("core.pager", "less `{canary}`"),
    "pager.log": configured("pager.log"),
    "core.sshCommand": configured("core.sshCommand"),
    "gpg.program": configured("gpg.program"),
    "gpg.ssh.program": configured("gpg.ssh.program"),
    "log.showSignature": configured("log.showSignature", "true"),
    "format.pretty": configured("format.pretty", "%G?"),
    "pretty.x": configured("pretty.x", "%G?"),
    "credential.helper": configured("credential.helper", "!{canary}"),
    "core.alternateRefsCommand": configured("core.alternateRefsCommand"),
    "uploadpack.packObjectsHook": configured("uploadpack.packObjectsHook"),
    "trailer.x.command": configured("trailer.x.command"),
    "trailer.x.cmd": configured("trailer.x.cmd"),
    "interactive.diffFilter": configured("interactive.diffFilter"),
    "merge.x.driver": configured("merge.x.driver"),
    "difftool.x.cmd": configured("difftool.x.cmd"),
    "mergetool.x.cmd": configured("mergetool.x.cmd"),
    "gc.recentObjectsHook": configured("gc.recentObjectsHook"),
    "core.gitProxy": configured("core.gitProxy"),
    "core.askPass": configured("core.askPass"),
    "core.editor": configured("core.editor"),
    "sequence.editor": configured("sequence.editor"),
    "remote.x.vcs": configured("remote.x.vcs", "canary"),
    "remote.x.uploadpack": configured("remote.x.uploadpack"),
    "a remote helper": configured("remote.x.url", "ext::{canary}"),
    "a submodule's update": configured("submodule.x.update", "!{canary}"),
    "diff.submodule": configured("diff.submodule", "diff"),
    "status.submoduleSummary": configured("status.submoduleSummary", "true"),
    "core.attributesFile": configured("core.attributesFile", "{root}/attributes"),
    "lfs.extension": configured("lfs.extension.x.clean"),
    "lfs.customtransfer": configured("lfs.customtransfer.x.path"),
    "http.proxy": configured("http.proxy", "http://evil.example"),
    "svn-remote": configured("svn-remote.x.url", "file:///x"),
    "a section that is not known": configured("novel.program"),
    "a NUL": raw('[diff "external\0"]\n\twordregex = {canary}\n'),
    "no section": raw("x = [\n"),
    "core.worktree": worktree_elsewhere,
    "a .git that is a file, with nothing else wrong": clean_gitfile,
    "alternates": alternates,
    "linked objects": linked_objects,
    "another hook": hook("reference-transaction"),
}
"""What names a program, leads elsewhere or cannot be judged, though no command of ours may come to it."""
