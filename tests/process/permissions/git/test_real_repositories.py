"""Git in real repositories: no program of a repository runs without approval, and no denied file is printed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.policy import LaunchRules, SessionPolicy
from parley.permissions.rules import RuleSet
from tests.helpers.hostile_git import (
    ENVIRONMENT,
    NAMING,
    RUNNING,
    Ground,
    broken_head,
    git,
    has_git,
    make_repository,
    plant,
)
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.process import kill

Json = dict[str, Any]
MODES = ("default", "plan", "dontAsk", "acceptEdits")
READERS = (
    "git status", "git diff", "git diff --stat", "git log -p -1", "git show", "git blame a.txt", "git grep one",
    "git describe --always --dirty", "git ls-files -m", "git stash list", "git remote -v", "git branch -vv",
)  # fmt: skip
SHORTLY = ("git status", "git diff", "git log -p -1", "git describe --always --dirty")
HOSTILE = {**RUNNING, **NAMING}

pytestmark = pytest.mark.skipif(not has_git, reason="there is no git")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def opened(ground: Ground, *, cwd: Path | None = None, **given: Any) -> SessionPolicy:
    return SessionPolicy(
        LaunchRules(cwd=str(cwd or ground.work), user_root=str(ground.home), **given), RealFilesystem(str(ground.home))
    )


def decided(book: SessionPolicy, command: str, cwd: Path, mode: str = "default") -> Decision:
    return book.decide(ToolRequest(tool="Bash", input={"command": command}, cwd=str(cwd)), mode)


def is_ask(decision: Decision, mode: str = "default") -> bool:
    return isinstance(decision, Deny if mode == "dontAsk" else Ask)


# Programs of a repository.


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_what_names_a_program_is_asked_about(ground: Ground, make: Callable[[Ground], None]) -> None:
    make(ground)

    for mode in MODES:
        assert is_ask(decided(opened(ground), "git status", ground.work, mode), mode)
    ruled = opened(ground, allowed=("Bash(git status:*)", "Bash(git diff)"))
    assert is_ask(decided(ruled, "git status", ground.work))
    assert is_ask(decided(ruled, "git diff", ground.work))


def test_the_question_names_the_file_and_the_key(ground: Ground) -> None:
    ground.config("core.fsmonitor", "secret-value")

    decision = decided(opened(ground), "git status", ground.work)

    assert isinstance(decision, Ask)
    assert f"{ground.work}/.git/config sets core.fsmonitor" in decision.reason
    assert "secret-value" not in decision.reason
    denied = decided(opened(ground), "git status", ground.work, "dontAsk")
    assert isinstance(denied, Deny)
    assert "sets core.fsmonitor" in denied.message


@pytest.mark.parametrize("make", RUNNING.values(), ids=RUNNING)
def test_git_itself_would_run_it(ground: Ground, make: Callable[[Ground], None]) -> None:
    make(ground)

    for command in READERS:
        git(ground.work, ground.home, *command.split()[1:])

    assert ground.mark.exists()


EVERYDAY = """
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
\tignorecase = true
\tprecomposeunicode = true
\thooksPath = .husky/_
\tfsmonitor = false
\tautocrlf = input
\texcludesfile =
[remote "origin"]
\turl = git@github.com:me/project.git ; a comment
\tfetch = +refs/heads/*:refs/remotes/origin/*
\tgh-resolved = base
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
\tvscode-merge-base = origin/main
[branch "feature/\\"x\\""]
\trebase = true
[user]
\tname = "A # B"
\temail = a@b.example
\tsigningkey = ABCD
[pull]
\trebase = true
[init]
\tdefaultBranch = main
[color "status"]
\tadded = green bold
[color]
\tui
[submodule "lib"]
\turl = https://github.com/me/lib
\tactive = true
[lfs]
\trepositoryformatversion = 0
[lfs "https://github.com/me/project.git/info/lfs"]
\taccess = basic
[filter "lfs"]
\tclean = git-lfs clean -- %f
\tsmudge = git-lfs smudge -- %f
\tprocess = git-lfs filter-process
\trequired = true
[http "https://github.com/"]
\textraheader = AUTHORIZATION: basic abc
[extensions]
\tworktreeConfig = true
[commit]
\tgpgsign = true
[diff]
\talgorithm = histogram
[gui]
\tgeometry = 1x1
""".replace("\texcludesfile =\n", "")


def test_an_everyday_configuration_asks_nothing(ground: Ground) -> None:
    (ground.work / ".git" / "config").write_text(EVERYDAY)
    for name in ("pre-commit", "commit-msg"):
        ground.script(ground.work / ".git" / "hooks" / name)
        ground.script(ground.work / ".husky" / "_" / name)
    book = opened(ground, allowed=("Bash(git commit:*)", "Bash(git push:*)", "Bash(git -C:*)"))

    for mode in MODES:
        assert [command for command in READERS if is_ask(decided(book, command, ground.work, mode), mode)] == []
    for command in ("git commit -m x", "git push origin main", f"git -C {ground.work} push"):
        assert isinstance(decided(book, command, ground.work), Allow)


def test_submodules_worktrees_and_clones_ask_nothing(ground: Ground) -> None:
    lib = ground.root / "lib"
    make_repository(lib, ground.home)
    ground.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "lib")
    ground.git("commit", "-q", "-am", "lib")
    ground.git("worktree", "add", "-q", str(ground.root / "tree"))
    ground.git("clone", "-q", str(lib), str(ground.work / "cloned"))

    assert (ground.work / "lib" / ".git").is_file()
    for folder in (ground.work, ground.work / "lib", ground.work / "cloned"):
        assert isinstance(decided(opened(ground), "git status", folder), Allow)
        assert isinstance(decided(opened(ground, cwd=folder), "git diff", folder), Allow)
    tree = ground.root / "tree"
    assert isinstance(decided(opened(ground, cwd=tree), "git status", tree), Allow)


def test_a_clean_repository_above_a_broken_one_is_judged_too(ground: Ground) -> None:
    broken_head(ground)

    assert is_ask(decided(opened(ground), "git status", ground.work / "sub"))


def test_trust_accepts_what_the_repository_says_at_the_start_and_nothing_later(ground: Ground) -> None:
    ground.config("core.fsmonitor", str(ground.program))
    trusted = opened(ground, trusted=True)

    assert isinstance(decided(trusted, "git status", ground.work), Allow)
    ground.config("diff.external", str(ground.program))
    assert is_ask(decided(trusted, "git status", ground.work))
    ground.git("config", "--unset", "diff.external")
    ground.config("core.fsmonitor", f"{ground.program} other")
    assert is_ask(decided(trusted, "git status", ground.work))


@pytest.mark.parametrize(
    "command",
    [
        "git -c core.fsmonitor=./x status", "git --git-dir=x status", "git --git-dir x status", "git --exec-path=. log",
        "git --work-tree=/ status", "git --config-env=core.pager=X log", "git -C planted status", "git -p log",
        "cd planted && git status", "cp -r tpl new && git -C new status", "git -c core.hooksPath=x commit",
    ],
)  # fmt: skip
def test_a_rule_on_git_means_no_other_repository_or_program(ground: Ground, command: str) -> None:
    (ground.work / "planted").mkdir()
    plant(ground.work / "planted", ground.program)
    book = opened(ground, allowed=("Bash(git:*)", "Bash(cd planted && git status)"))

    assert is_ask(decided(book, command, ground.work, "acceptEdits"))


def test_a_rule_on_git_means_everyday_options(ground: Ground) -> None:
    book = opened(ground, allowed=("Bash(git:*)",))

    for command in (
        "git -c user.name=x commit -m y",
        "git -c core.pager=cat log",
        "git -C . push",
        "git --no-pager log",
    ):
        assert isinstance(decided(book, command, ground.work), Allow)


def test_an_alias_of_the_repository_is_not_meant_by_a_rule(ground: Ground) -> None:
    ground.config("alias.st", f"!{ground.program}")
    book = opened(ground, allowed=("Bash(git:*)",))

    assert is_ask(decided(book, "git st", ground.work))
    assert isinstance(decided(book, "git status", ground.work), Allow)


def test_what_a_pipe_adds_to_the_words_of_git_may_be_denied(ground: Ground) -> None:
    book = opened(ground, allowed=("Bash(xargs:*)", "Bash(git:*)"), denied=("Read(.env)",))

    assert is_ask(decided(book, "ls | xargs git diff a.txt", ground.work))
    assert isinstance(decided(book, "git push origin HEAD:.env2", ground.work), Allow)


# A repository that replaces the one at the start.


def test_a_repository_that_the_session_makes_is_not_the_one_of_a_rule(ground: Ground) -> None:
    for cwd in (ground.root / "empty", ground.work / "sub"):
        cwd.mkdir()
        book = opened(ground, cwd=cwd, allowed=("Bash(git:*)", "Bash(git status)"))
        assert isinstance(decided(book, "git status", cwd, "acceptEdits"), Allow)
        plant(cwd, ground.program)
        for command in ("git status", "git log", "git commit -m x"):
            assert is_ask(decided(book, command, cwd, "acceptEdits"))


def test_a_planted_repository_may_keep_its_objects_elsewhere(ground: Ground) -> None:
    empty, other = ground.root / "empty", ground.root / "other"
    empty.mkdir()
    make_repository(other, ground.home)
    book = opened(ground, cwd=empty, allowed=("Bash(git:*)",))
    assert isinstance(decided(book, "git status", empty), Allow)
    (empty / "HEAD").write_text("ref: refs/heads/main\n")
    (empty / "commondir").write_text(f"{other}/.git\n")

    assert is_ask(decided(book, "git status", empty, "acceptEdits"))


def test_a_repository_that_git_makes_during_the_session_may_be_used(ground: Ground) -> None:
    empty = ground.root / "empty"
    empty.mkdir()
    book = opened(ground, cwd=empty, allowed=("Bash(git:*)",))
    assert isinstance(decided(book, "git init", empty), Allow)
    make_repository(empty, ground.home)

    assert isinstance(decided(book, "git status", empty), Allow)
    assert isinstance(decided(book, "git commit -m x", empty), Allow)
    ground.script(empty / ".git" / "hooks" / "pre-commit")
    assert is_ask(decided(book, "git commit -m x", empty))


# Credentials.


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("git config --get user.name", True),
        ("git config --get-all remote.origin.fetch", True),
        ("git config --get branch.main.remote", True),
        ("git config --get core.hooksPath", True),
        ("git config --get remote.origin.url", True),
        ("git remote -v", True),
        ("git config --list", False),
        ("git config -l", False),
        ("git config --get-regexp .", False),
        ("git config --get-all http.extraheader", False),
        ("git config --get http.https://github.com/.extraheader", False),
        ("git config --get credential.helper", False),
        ("git config --get user.password", False),
        ("git config --get github.token", False),
        ("git config --get sendemail.smtppass", False),
        ("git config --get url.https://x.insteadof", False),
        ("git config get user.name", False),
    ],
)
def test_only_values_that_are_not_secrets_are_shown(ground: Ground, command: str, allowed: bool) -> None:
    ground.config("remote.origin.url", "https://github.com/me/x")

    assert isinstance(decided(opened(ground), command, ground.work), Allow) == allowed


@pytest.mark.parametrize(
    "command", ["git remote -v", "git remote get-url origin", "git config --get remote.origin.url"]
)
def test_a_url_with_a_password_is_not_shown(ground: Ground, command: str) -> None:
    ground.config("remote.origin.url", "https://me:secret@github.com/me/x")

    assert is_ask(decided(opened(ground), command, ground.work))
    assert isinstance(decided(opened(ground), "git status", ground.work), Allow)


def test_a_url_that_the_person_rewrites_with_a_token_is_not_shown(ground: Ground) -> None:
    (ground.home / ".gitconfig").write_text('[url "https://x:token@github.com/"]\n\tinsteadOf = https://github.com/\n')

    assert is_ask(decided(opened(ground), "git remote -v", ground.work))


# Through the executable.


class Talk:
    """A session with the executable; the host denies every request."""

    def __init__(self, engine: asyncio.subprocess.Process) -> None:
        self._engine = engine
        self.asked: list[str] = []
        self.told = ""

    def say(self, line: Json) -> None:
        assert self._engine.stdin is not None
        self._engine.stdin.write(json.dumps(line).encode() + b"\n")

    async def until(self, kind: str) -> None:
        assert self._engine.stdout is not None
        async for raw in self._engine.stdout:
            line = json.loads(raw)
            if line["type"] == "user":
                self.told += raw.decode()
            if line["type"] == "control_request":
                self.asked.append(line["request"]["input"].get("command", line["request"]["tool_name"]))
                response = {"behavior": "deny", "message": "no"}
                self.say(
                    {
                        "type": "control_response",
                        "response": {"subtype": "success", "request_id": line["request_id"], "response": response},
                    }
                )
            if line["type"] == kind:
                return
        raise AssertionError("the engine ended")

    async def mode(self, mode: str) -> None:
        request = {"subtype": "set_permission_mode", "mode": mode}
        self.say({"type": "control_request", "request_id": "r", "request": request})
        await self.until("control_response")

    async def turn(self) -> None:
        self.say({"type": "user", "message": {"role": "user", "content": "go"}})
        await self.until("result")


def scripted(turns: Iterable[list[tuple[str, Json]]]) -> str:
    text = ""
    for number, calls in enumerate(turns):
        tools = ", ".join(
            f'{{ name = "{name}", id = "c{number}_{at}", input = {{ {toml(input)} }} }}'
            for at, (name, input) in enumerate(calls)
        )
        text += f"[[turn]]\nchunk_chars = 100000\ntools = [{tools}]\n[[turn]]\ntext = 'Done.'\n"
    return text


def toml(input: Json) -> str:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in input.items())


@asynccontextmanager
async def started(ground: Ground, cwd: Path, turns: list[list[tuple[str, Json]]], *options: str) -> AsyncIterator[Talk]:
    script = ground.root / "script.toml"
    script.write_text(scripted(turns))
    engine = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", "--print", "--verbose", "--model", f"scripted:{script}"),
        *("--output-format", "stream-json", "--input-format", "stream-json", "--permission-prompt-tool", "stdio"),
        *options,
        cwd=cwd,
        env={
            **ENVIRONMENT,
            "HOME": str(ground.home),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("src")),
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield Talk(engine)
            assert engine.stdin is not None
            engine.stdin.close()
            assert await engine.wait() == 0
    finally:
        if engine.returncode is None:
            kill(engine)
            await engine.wait()


def bash(*commands: str) -> list[tuple[str, Json]]:
    return [("Bash", {"command": command}) for command in commands]


@pytest.mark.parametrize("rules", [(), ("--allowedTools", "Bash(git status:*)", "Bash(git diff:*)")])
async def test_no_canary_runs_in_a_hostile_repository(tmp_path: Path, rules: tuple[str, ...]) -> None:
    grounds = tmp_path / "clean"
    grounds.mkdir()
    ground = Ground(grounds)
    pristine = tmp_path / "pristine"
    shutil.copytree(ground.work, pristine)

    def restore() -> None:
        for entry in ground.work.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.copytree(pristine, ground.work, dirs_exist_ok=True)
        for name in ("other", "private"):
            shutil.rmtree(ground.root / name, ignore_errors=True)

    async def play() -> None:
        turns = [bash(*READERS), *[bash(*SHORTLY)] * (len(HOSTILE) * len(MODES) // 2)]
        async with started(ground, ground.work, turns, *rules) as conversation:
            await conversation.turn()
            assert conversation.asked == []  # in the clean repository
            for number, (name, make) in enumerate(HOSTILE.items()):
                restore()
                make(ground)
                ground.mark.unlink(missing_ok=True)
                for mode in MODES[(number + len(rules)) % 2 :: 2]:  # the others with the other rules
                    await conversation.mode(mode)
                    await conversation.turn()
                    assert not ground.mark.exists(), (name, mode)

    await play()


async def test_a_repository_that_the_model_writes_is_not_obeyed(ground: Ground) -> None:
    empty = ground.root / "empty"
    empty.mkdir()
    config = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {ground.program}\n"
    files = {"HEAD": "ref: refs/heads/main\n", "config": config, "objects/x": "x", "refs/x": "x"}
    writes: list[tuple[str, Json]] = [
        ("Write", {"file_path": str(empty / name), "content": text}) for name, text in files.items()
    ]

    rules = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash(git:*)", "Bash(git status)")
    async with started(ground, empty, [writes, bash("git status", "git diff", "git log")], *rules) as conversation:
        await conversation.turn()
        assert conversation.asked == ["Write"]  # the file that makes a repository of the folder
        for name, text in files.items():
            (empty / name).parent.mkdir(exist_ok=True)
            (empty / name).write_text(text)
        await conversation.turn()

    assert conversation.asked == ["Write", "git status", "git diff", "git log"]
    git(empty, ground.home, "status")
    assert ground.mark.exists()  # as git itself would have


# Denied files.

PRINTING = (
    "git log -p", "git log -p --all", "git show", "git show HEAD", "git show HEAD~1", "git diff", "git diff HEAD~1",
    "git diff --cached HEAD~1", "git diff HEAD~1 HEAD", "git diff -U0", "git diff --word-diff", "git log -S hunter2 -p",
    "git cat-file -p HEAD:.env", "git cat-file blob HEAD:.env", "git show HEAD:.env", "git show :.env",
    "git show HEAD:./.env", "git show :0:.env", "git blame .env", "git grep hunter2", "git grep hunter2 HEAD",
    "git stash show -p", "git diff-tree -p HEAD~1 HEAD", "git log -L1,1:.env", "git log -p -- .",
    "git diff HEAD~1 -- '*'",
    "git log -p -- ':(top).env'", "git log -p -- :/.env", "git log -p -- ':(icase).ENV'", "git status -v",
    "git diff HEAD~1:./ HEAD:./", "git show --stat -p", "git reflog show -p", "git log --cc -1 HEAD",
    "git log -m -1 -p",
    "git show 'HEAD@{0}'", "git show ':/add'", "git diff HEAD~1 -- .env", "git log --check -3", "git log -W -p",
    "cat .env", "git log -p -- sub", "git show HEAD:sub/.env", "git log --oneline --patch -- sub",
)  # fmt: skip
BY_RULE = (
    "git format-patch --stdout -2", "git archive HEAD", "git diff-index -p HEAD~1", "git diff-files -p",
    "git cat-file --batch-all-objects --batch", "git fast-export HEAD", "git range-diff HEAD~1...HEAD",
    "git log --patch-with-stat", "git show --patch-with-raw", "git whatchanged -p", "git annotate .env",
    "git bundle create - HEAD", "git diff --no-index /dev/null .env", "git -C sub show HEAD:.env", "git -P log -p",
    "git stash push -p", "git add -p", "git commit --dry-run -v", "git checkout -p HEAD~1", "git worktree add ../tree",
)  # fmt: skip
SECRET = "hunter2"


def keep_secrets(ground: Ground) -> None:
    (ground.work / "sub").mkdir()
    for number in (1, 2):
        (ground.work / ".env").write_text(f"KEY={SECRET}{number}\n")
        (ground.work / "sub" / ".env").write_text(f"KEY={SECRET}{number}\n")
        ground.git("add", ".")
        ground.git("commit", "-q", "-m", f"add {number}")
    (ground.work / ".env").write_text(f"KEY={SECRET}3\n")
    ground.git("stash")
    (ground.work / ".env").write_text(f"KEY={SECRET}4\n")
    ground.git("add", ".")


@pytest.mark.parametrize("rules", [(), ("Bash(git:*)",)])
async def test_no_denied_file_comes_out_of_git(ground: Ground, rules: tuple[str, ...]) -> None:
    keep_secrets(ground)
    blob = ground.git("rev-parse", "HEAD:.env").strip()
    commands = (*PRINTING, f"git show {blob}", f"git cat-file -p {blob}", f"git show --stat {blob}", *BY_RULE)

    options = ("--disallowedTools", "Read(.env)", *(("--allowedTools", *rules) if rules else ()))
    async with started(ground, ground.work, [bash(*commands)] * len(MODES), *options) as conversation:
        for mode in MODES:
            await conversation.mode(mode)
            await conversation.turn()

    assert f"KEY={SECRET}" not in conversation.told


@pytest.mark.parametrize("rules", [(), ("Bash(git:*)",)])
def test_what_prints_no_denied_file_is_not_asked_about(ground: Ground, rules: tuple[str, ...]) -> None:
    keep_secrets(ground)
    (ground.work / "src").mkdir()
    (ground.work / "src" / "b.txt").write_text("x")
    ground.git("add", "src/b.txt")
    book = opened(ground, denied=("Read(.env)",), allowed=rules)
    anchored = opened(ground, denied=("Read(/secrets/**)", "Read(~/.ssh/**)"), allowed=rules)

    for command in (
        "git status", "git log --oneline -5", "git diff --stat", "git log --stat -2", "git show --stat HEAD",
        "git diff --name-only HEAD~1", "git diff -- a.txt", "git diff HEAD a.txt", "git log -p -- a.txt src/b.txt",
        "git show HEAD:a.txt", "git blame a.txt", "git cat-file -t HEAD", "git branch -vv", "git stash list",
        "git grep one -- a.txt", "git show -s HEAD", "git reflog", "git ls-files",
    ):  # fmt: skip
        assert isinstance(decided(book, command, ground.work), Allow), command
    for command in ("git diff src", "git log -p -- src", "git blame a.txt"):
        assert isinstance(decided(anchored, command, ground.work), Allow), command
    assert isinstance(decided(opened(ground, denied=("Read(~/.ssh/**)",)), "git diff", ground.work), Allow)


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ("git show HEAD:conf/key.txt", True),
        ("git show HEAD:./key.txt", False),
        ("git show :conf/key.txt", True),
        ("git show HEAD:../conf/key.txt", True),
        ("git log -p -- ':(top)conf/key.txt'", True),
        ("git log -p -- :/conf/key.txt", True),
        ("git cat-file -p HEAD:conf/key.txt", True),
    ],
)
def test_a_path_after_a_revision_starts_at_the_top(ground: Ground, command: str, denied: bool) -> None:
    sub = ground.work / "sub"
    sub.mkdir()
    book = opened(ground, denied=("Read(/conf/key.txt)",))

    assert isinstance(decided(book, command, sub, "bypassPermissions"), Deny) == denied


class Settled(RealFilesystem):
    """A file system on which every change is old enough to be cached."""

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self.read_paths: list[str] = []

    def signature(self, path: str) -> tuple[int, ...] | None:
        found = super().signature(path)
        return None if found is None else (*found[:-1], found[-1] - 10_000_000_000)

    def read(self, path: str, max_bytes: int) -> bytes | None:
        self.read_paths.append(path)
        return super().read(path, max_bytes)


def test_an_index_is_read_once_until_it_changes(ground: Ground) -> None:
    view, index = Settled(str(ground.home)), ground.work / ".git" / "index"
    rules = RuleSet(cwd=str(ground.work))

    def status() -> Decision:
        request = ToolRequest(tool="Bash", input={"command": "git status"}, cwd=str(ground.work))
        return decide(request, rules, "default", view)

    assert isinstance(status(), Allow)
    assert isinstance(status(), Allow)
    assert view.read_paths.count(str(index)) == 1

    # The size is the same and the mtime is set back; only the ctime, which no program can set, differs.
    before, data = index.stat(), index.read_bytes()
    sub = ground.work / "a.tx"
    sub.mkdir()
    make_repository(sub, ground.home)
    ground.git("config", "core.fsmonitor", str(ground.program), cwd=sub)
    place = data.index(b"\0\0\x81\xa4")
    changed = data[:place] + b"\0\0\xe0\0" + data[place + 4 :].replace(b"a.txt", b"a.tx\0", 1)
    index.write_bytes(changed)
    os.utime(index, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert (index.stat().st_size, index.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert isinstance(status(), Ask)


def test_what_was_found_in_an_index_that_has_just_changed_is_not_kept(ground: Ground) -> None:
    view = Settled(str(ground.home))
    request = ToolRequest(tool="Bash", input={"command": "git status"}, cwd=str(ground.work))
    frozen = (1, 2, 3, 4, time.time_ns())
    view.signature = lambda path: frozen  # type: ignore[method-assign]

    for _ in range(2):
        assert isinstance(decide(request, RuleSet(cwd=str(ground.work)), "default", view), Allow)

    assert view.read_paths.count(str(ground.work / ".git" / "index")) == 2


# Proofs from the index.


@pytest.mark.parametrize(
    "command",
    ["git diff", "git diff -U5", "git diff -- a.txt", "git grep one", "git diff | head -5", "cd . && git diff"],
)
@pytest.mark.parametrize("rule", ["Read(.env)", "Read(.env*)", "Read(secrets/**)", "Read(**/*.pem)"])
def test_a_denied_file_that_is_not_tracked_cannot_be_printed(ground: Ground, command: str, rule: str) -> None:
    assert isinstance(decided(opened(ground, denied=(rule,)), command, ground.work), Allow)


@pytest.mark.parametrize(
    "command",
    [
        "git diff --cached",
        "git diff HEAD",
        "git diff main -- a.txt b",
        "git log -p",
        "git show",
        "git grep --untracked one",
        "git grep --no-index one",
        "git grep one HEAD",
        "git diff --no-index a.txt .env",
        "git add -f .env && git diff",
    ],
)
def test_what_the_index_does_not_prove_is_asked_about(ground: Ground, command: str) -> None:
    book = opened(ground, denied=("Read(.env)",), allowed=("Bash(git:*)",))

    assert not isinstance(decided(book, command, ground.work), Allow)


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("rule", ["Read(.env)", "Read(.e*v)", "Read(.ENV)", "Read(secrets/**)", "Read([s]ecrets/**)"])
def test_a_tracked_denied_file_is_not_printed(ground: Ground, rule: str, version: str) -> None:
    (ground.work / "secrets").mkdir()
    for name in (".env", "secrets/key"):
        (ground.work / name).write_text("x\n")
    ground.git("add", "-f", ".env", "secrets")
    ground.git("update-index", f"--index-version={version}")
    book = opened(ground, denied=(rule,))

    for command in ("git diff", "git grep x", "git diff -- ."):
        assert is_ask(decided(book, command, ground.work))


def test_a_working_tree_within_a_denied_folder_is_not_printed(ground: Ground) -> None:
    tree = ground.work / "secrets"
    make_repository(tree, ground.home)
    book = opened(ground, denied=("Read(secrets/**)",))

    assert not isinstance(decided(book, "git -C secrets diff", ground.work), Allow)
    assert not isinstance(decided(book, "git diff", tree), Allow)


@pytest.mark.parametrize(
    "command", ["git log --full-diff -p -- a.txt", "git diff {blob} a.txt", "git diff {blob} -- a.txt"]
)
def test_a_file_that_is_named_does_not_bring_a_denied_one(ground: Ground, command: str) -> None:
    (ground.work / ".env").write_text("x\n")
    ground.git("add", "-f", ".env")
    ground.git("commit", "-q", "-m", "second")
    blob = ground.git("rev-parse", "HEAD:.env").strip()
    book = opened(ground, denied=("Read(.env)",))

    assert is_ask(decided(book, command.format(blob=blob), ground.work))


# A push to a repository on this machine.


@pytest.mark.parametrize("url", ["../other", "file:///other", "other"])
def test_a_push_to_a_remote_on_this_machine_is_asked_about(ground: Ground, url: str) -> None:
    ground.config("remote.here.url", url)
    ground.config("remote.there.url", "https://example.com/x.git")
    book = opened(ground, allowed=("Bash(git:*)",))

    assert is_ask(decided(book, "git push", ground.work))
    assert is_ask(decided(book, "git push here main", ground.work))
    assert isinstance(decided(book, "git push there main", ground.work), Allow)
    assert isinstance(decided(book, "git fetch here", ground.work), Allow)


@pytest.mark.parametrize("key", ["branch.main.remote", "branch.main.pushRemote", "remote.pushDefault"])
@pytest.mark.parametrize("value", ["./other", "other", ".", "file:///other"])
def test_a_push_without_a_target_to_a_path_is_asked_about(ground: Ground, key: str, value: str) -> None:
    (ground.work / "other").mkdir()
    ground.config("remote.origin.url", "https://example.com/x.git")
    book = opened(ground, allowed=("Bash(git:*)",))

    assert isinstance(decided(book, "git push", ground.work), Allow)
    assert is_ask(decided(book, f"git -c {key}={value} push", ground.work))
    ground.config(key, value)
    assert is_ask(decided(book, "git push", ground.work))


@pytest.mark.parametrize(
    "flags", ["--rep=./other", "--repo=origin ./other", "--push-opt origin ./other", "--signed ./other"]
)
def test_the_target_of_a_push_is_found_after_any_flag(ground: Ground, flags: str) -> None:
    ground.config("remote.origin.url", "https://example.com/x.git")
    book = opened(ground, allowed=("Bash(git:*)",))

    assert is_ask(decided(book, f"git push {flags}", ground.work))
    assert isinstance(decided(book, "git -c branch.main.remote=origin push --signed origin", ground.work), Allow)


def test_a_folder_that_is_not_a_remote_is_a_repository_to_push_to(ground: Ground) -> None:
    (ground.work / "other").mkdir()
    book = opened(ground, allowed=("Bash(git:*)",))

    assert is_ask(decided(book, "git push other main", ground.work))
    assert is_ask(decided(book, "git remote add x ../y && git push x", ground.work))


def test_a_command_that_changes_tracked_files_is_asked_about_if_a_rule_matches_one(ground: Ground) -> None:
    for spec, is_tracked in (("Edit(a.txt)", True), ("Edit(nothing.txt)", False)):
        book = opened(ground, allowed=("Bash(git:*)",), denied=(spec,))
        for command in ("git merge main", "git checkout main", "git stash", "git pull"):
            assert is_ask(decided(book, command, ground.work)) == is_tracked, (spec, command)
        assert is_ask(decided(book, "git clean -fdx", ground.work))


@pytest.mark.parametrize("folder", ["remotes", "branches"])
def test_a_push_to_a_remote_of_an_old_kind_is_asked_about(ground: Ground, folder: str) -> None:
    book = opened(ground, allowed=("Bash(git push:*)",))
    assert isinstance(decided(book, "git push old main", ground.work), Allow)
    place = ground.work / ".git" / folder
    place.mkdir(exist_ok=True)
    (place / "old").write_text("URL: ../other\n")
    assert is_ask(decided(book, "git push old main", ground.work))
