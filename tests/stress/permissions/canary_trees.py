"""Run every command that a session would allow in a hostile tree in a real bash: nothing may leak, run or change.

    python -m tests.stress.permissions.canary_trees --count 30000 --seed 1

The trees have symlinks to the outside, repositories whose configuration and hooks name a program, programs of the tree
on PATH, and denied files. Commands consist of `cd` forms, readers with globs and flags, git commands and edits. Each is
decided as by `parley permissions check`, in the default mode or in acceptEdits. Allowed commands run with real
programs, without root rights and network. Then:

- the output contains no file contents or names from outside the working directory, and nothing of a denied file;
- the program that the tree names did not run;
- nothing changed outside the working directory and, in the default mode, nothing inside it.

The exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from parley.compose.setup.permission_check import PermissionChecker
from parley.protocol.options import CliOptions
from tests.stress.permissions import canary

DENY = ("Read(.env)", "Read(docs/secret.md)")
DENIED = b"SECRET-DENIED"
LEAKS = (b"SECRET-OUT", b"SECRET-HOME", DENIED, b"SECRETNAME")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
MODES = ("default", "acceptEdits")
LIMIT_SECONDS = 20.0

CDS = (
    "cd", "cd --", "cd -", "cd -P", "cd -L --", "cd src", "cd ..", "cd linkdir", "cd inner", "cd ~", "cd /", "cd ''",
    "cd ../out", "cd inner/..", "cd linkdir/..", 'cd "$HOME"', "command cd", "builtin cd", "cd .", "cd src/..",
    "cd src extra", "pushd src", "pushd ..", "popd", "cd -P linkdir", "cd docs", "cd sub", "cd ./src", "cd nosuch",
    "cd >/dev/null", "cd 2>&1", "cd +1", "cd ~/../out", "cd ~/.ssh", "cd ~-", "HOME=../out; cd ~",
)  # fmt: skip
READERS = (
    "cat", "head", "head -c 200", "tail", "tail -n +1", "wc", "wc -l", "grep -n .", "grep -r .", "grep -R .",
    "grep -rn .", "grep -rR .", "grep -h .", "grep --dereference-recursive .", "grep -d recurse .", "rg .", "rg -L .",
    "rg --follow .", "rg -uu .", "rg -uuuL .", "rg --files", "rg --files -L", "find", "find -L", "find -H", "ls",
    "ls -la", "ls -L", "ls -lL", "ls -R", "ls -RL", "ls -d", "ls -H", "du -a", "du -aL", "du -aD", "diff", "diff -r",
    "diff -rN", "diff -N", "stat -L", "sort", "uniq", "cut -c1-80", "nl", "tac", "strings", "od -c", "xxd", "md5sum",
    "file", "tree", "tree -l", "tree -a", "readlink", "readlink -f", "realpath", "echo", "printf '%s\\n'", "test -f",
    "jq .", "paste", "cat -n --", "sed -n 1,9p", "tr a-z A-Z <", "cat <", "head <", "basename", "rev", "comm", "cmp",
    "column", "fold", "expand", "base64", "hexdump -C", "sed 's/x/y/'", "sed -e p -e '/S/d'", "awk '{print $1}'",
    "awk 1", "sed -n '/./p' --", "printenv",
)  # fmt: skip
OPERANDS = (
    "README.md", "src/main.py", "src/*", "*", "*/*", "*/*/*", "l*", ".*", "link.txt", "linkdir", "linkdir/",
    "linkdir/*", "linkdir/secret.txt", "inner", "inner/", "inner/*", "inner/leak.py", "../out", "../out/*", ".", "..",
    "../*", "/", "~/notes.txt", "$HOME/notes.txt", ".env", ".e*", ".[a-z]*", "docs/*", "docs", "src", "src/leak.py",
    "'src'/l*", "[a-z]*", "[!x]*", "?ink.txt", "[[:alpha:]]*", "proc/environ", "proc/cwd/../out/secret.txt",
    "p*/environ", "src/..", "linkdir/../out/secret.txt", "inner/../../out/secret.txt", "--", "-L", "-r", "-R",
    "--follow", "-H", "./*", "s*/l*", "{README.md,link.txt}", "src/{main,leak}.py", "README.*", "docs/guide.md",
    "docs/sec*", "docs/[s]*", "notes.txt", ".ssh/id_rsa", ".ssh", "secret.txt", "*.txt", "out/secret.txt",
    "../README.md", "../link.txt", "../../home/notes.txt", "main.py", "guide.md", "leak.py", "deep/*/*",
    "deep/a/b/out/secret.txt", "deep", "-name '*'", "-type f", "-follow", "-newer link.txt", "-maxdepth 3",
    "-exec cat {} +", "--files0-from=link.txt", "-f link.txt", "--from-file=link.txt", "loop", "loop/*", "'l'ink.txt",
    '"link.txt"', "lin\\k.txt", "l\\*", "src//leak.py", "./src/./leak.py", "sub", "sub/*",
    "~", "~/", "~/.ssh/id_rsa", "~/../out/secret.txt", "~/*", '"~/notes.txt"', "~/'notes.txt'", "a=~/notes.txt", "-",
)  # fmt: skip
FEEDS = (
    "find .", "find . -type f", "find src", "find . -name '*.py'", "find . -name '*.txt'", "find .  -name '*.md'",
    "find . -not -path './deep/*' -name '*.txt'", "find . -path ./linkdir -prune -o -type f -print", "find -L .",
    "find . -maxdepth 1", "find .. -type f", "find src docs -type f", "git ls-files", "git ls-files '*.py'",
    "git ls-files src", "git ls-files -m", "git ls-files -o", "grep -rl x .", "grep -rl x src", "rg -l x", "rg --files",
    "rg -l x src", "ls", "git -C src ls-files", "find . -type f -name 'a*'", "find linkdir", "find inner/ -type f",
)  # fmt: skip
FEED_FILTERS = ("", "", "", " | sort", " | head -3", " | grep -v link", " | grep link", " | sort | uniq", " | tr a b")
FED = (
    "cat", "head -5", "wc -l", "grep -n .", "ls -la", "ls -L", "sed -n 1,3p", "awk 1", "stat", "file", "md5sum", "echo",
    "tail -n +1", "sort", "grep -r .", "cat --", "diff", "jq .", "basename", "touch", "rm", "git log", "du -aL", "sed",
    "xxd", "cut -c1-80", "od -c", "md5sum -c",
)  # fmt: skip
LOOP_WORDS = (
    "a b", "src/*", "*", "l*", "*.txt", "link.txt", "linkdir/*", "../out/*", ".e*", "docs/*", "README.md", ".", "~/*",
    "src/*.py docs/*.md", "{1..3}", "$(seq 2)", "$(ls)", '"src"/*', "$HOME", "inner/*",
)  # fmt: skip
BODIES = (
    "echo $f", 'cat "$f"', "cat $f", 'echo "== $f"; head -3 "$f"', 'wc -l "$f"', 'cat "src/$f"', "cat src/$f", "ls $f",
    '[ -f "$f" ] && cat "$f"', 'basename "$f"', 'echo "$(basename "$f")"', 'cat "$(echo $f)"', 'cd "$f"; cat *',
    'for g in "$f"/*; do cat "$g"; done', 'if [ -f "$f" ]; then cat "$f"; fi', "rm $f", 'grep . "$f"', "awk 1 $f",
    'sed p "$f"', 'echo "$f"/*', "git log $f", 'printf "%s\\n" "$f"',
)  # fmt: skip
SUBSTITUTIONS = (
    "echo $(pwd)", 'echo "$(cat README.md)"', 'echo "$(cat link.txt)"', 'basename "$(pwd)"', 'cat "$(echo link.txt)"',
    'echo "$(ls ../out)"', "echo $(cat README.md)", 'echo "$HOME $PWD"', "cat $HOME/notes.txt", 'ls "$HOME"',
    'echo "$(git log -p)"', 'echo "$(git rev-parse HEAD)"', 'test -n "$(git status -s)"', "cat $PWD/README.md",
    '[ "$(cat a.txt)" = x ] && cat a.txt', 'echo "$(find . | xargs cat)"', 'printf "%s" "$(cat .env)"',
)  # fmt: skip
GIT = (
    "status", "status -s", "status --ignored", "diff", "diff --stat", "diff HEAD~1", "diff HEAD~1 --name-only", "log",
    "log -p", "log --oneline", "log --stat", "log -p -1", "log -u", "log -c", "log --cc -p", "log --format=%H",
    "log --format=%+G?", "log --format=%G?", "log --pretty='%h %-GS'", "log --show-signature", "show", "show HEAD",
    "show --stat", "show -s", "show HEAD:.env", "show HEAD:./.env", "show :.env", "show HEAD:README.md",
    "show HEAD:docs/secret.md", "blame README.md", "blame .env", "blame docs/secret.md", "cat-file -p HEAD:.env",
    "cat-file -p HEAD", "ls-files", "ls-files -s", "ls-tree HEAD", "grep .", "grep SECRET", "branch", "branch -a",
    "branch -vv", "tag", "stash list", "stash show -p", "describe --always", "rev-parse HEAD", "rev-list HEAD",
    "shortlog -s HEAD", "reflog", "remote -v", "config --get user.name", "config --list", "config -l",
    "diff --no-index README.md link.txt", "diff --no-index src linkdir", "diff --ext-diff", "diff --textconv",
    "log --textconv -p", "for-each-ref", "worktree list", "submodule status", "diff --submodule=diff", "diff -- .env",
    "log -L1,3:.env", "diff --check", "diff --word-diff", "diff --numstat", "check-attr -a README.md",
    "check-ignore x", "count-objects", "diff-tree -p HEAD", "diff-index -p HEAD~1", "diff-files -p", "show-ref",
    "name-rev HEAD", "var -l", "merge-base HEAD HEAD~1", "archive HEAD", "format-patch --stdout HEAD~1",
    "whatchanged -p", "log -S SECRET -p", "bisect log", "notes list", "cherry HEAD~1", "range-diff HEAD~1 HEAD HEAD",
    "fsck", "help status", "log --follow -p README.md",
)  # fmt: skip
GIT_FRONT = (
    "git", "git", "git", "git --no-pager", "git -P", "git -C src", "git -C sub", "git -C ..", "git --git-dir=.git",
    "git -C .",
)  # fmt: skip
EDITS = (
    "cp README.md x", "mv src lib", "cp -r linkdir copy", "mv linkdir other", "cp link.txt copy.txt", "mkdir -p new/a",
    "touch x", "rm a.txt", "ln -s ../out more", "sed -i s/a/b/ README.md", "cp evil .venv/bin/head",
    "mv evil .venv/bin/ls", "touch HEAD", "mkdir objects refs", "cp evil.cfg config", "cp -r bare/. .",
    "mv bare/HEAD bare/config bare/objects bare/refs .", "cp evil.cfg .git/config", "cp -P link.txt kept",
    "cp -a linkdir kept", "mv link.txt inner/", "mv inner x && mv x inner", "echo x > new.txt", "echo x > link.txt",
    "echo x > linkdir/new", "echo x >> ../out/secret.txt", "cp README.md linkdir/", "mv README.md ../out/",
    "touch linkdir/x", "rm link.txt", "rm -r linkdir/", "mkdir linkdir/x", "cp README.md ~/x", "cp .env x",
    "cat > new.txt <<'EOF'\n$(cat ../out/secret.txt)\nEOF", "cat > link.txt <<'EOF'\nx\nEOF", "tee ~/x <<'EOF'\nx\nEOF",
    "cat > sums <<'EOF'\n00000000000000000000000000000000  ../out/SECRETNAME\nEOF\nmd5sum -c sums", "touch ~/x",
    "cat >> ~/.bashrc <<'EOF'\nx\nEOF", "cp docs/secret.md x", "mv docs papers", "cp -r docs papers",
    "mv .env env", "cp -r . ../out/all",
)  # fmt: skip
JOINTS = (
    " && ", "; ", " || ", " | ", " & ", "\n", " && ", "; ",
)  # fmt: skip
TAILS = (
    "", "", "", " 2>/dev/null", " | head -50", " | sort", " < link.txt", " < l*", " 2>&1", " > out.txt", " | cat",
    " | xargs cat", " <<'EOF'\nlink.txt\n../out/secret.txt\nEOF", " <<'EOF' | xargs cat\nlink.txt\nEOF\n",
    " <<'EOF' | sh\ncat ../out/secret.txt\nEOF", " <<EOF\n$(cat ../out/secret.txt)\nEOF", " < ~/notes.txt",
)  # fmt: skip
FRONTS = (
    "", "", "", "", "LC_ALL=C ", "timeout 5 ", "nice ", "command ", "time ", "/usr/bin/", "stdbuf -oL ",
    "GIT_PAGER=cat ",
)  # fmt: skip


def commands(random: Random) -> Iterator[str]:
    """An endless stream of one to four commands, most of which must not be allowed."""
    makers: tuple[Callable[[], str], ...] = (
        lambda: random.choice(CDS),
        lambda: reader(random),
        lambda: reader(random),
        lambda: f"{random.choice(GIT_FRONT)} {random.choice(GIT)}",
        lambda: random.choice(EDITS),
        lambda: feed(random),
        lambda: f"for f in {random.choice(LOOP_WORDS)}; do {random.choice(BODIES)}; done",
        lambda: random.choice(SUBSTITUTIONS),
    )
    while True:
        count = random.choice((1, 1, 2, 2, 3, 4))
        text = random.choice(makers)()
        for _ in range(count - 1):
            text += random.choice(JOINTS) + random.choice(makers)()
        yield text


def reader(random: Random) -> str:
    words = [random.choice(OPERANDS) for _ in range(random.choice((0, 1, 1, 1, 2)))]
    return " ".join([random.choice(FRONTS) + random.choice(READERS), *words]) + random.choice(TAILS)


def feed(random: Random) -> str:
    """A reader that gets the names of its files from another command."""
    reader = random.choice(FED)
    if random.random() < 0.3:
        return f"{random.choice(FEEDS)} -exec {reader} {{}} {random.choice(('+', chr(92) + ';'))}"
    if random.random() < 0.2:
        return f"{random.choice(FEEDS)} -print0 | xargs -0 {reader}"
    flags = random.choice(("", "", "", "-r ", "-n1 ", "-I{} ", "-P 2 ", "-t "))
    return f"{random.choice(FEEDS)}{random.choice(FEED_FILTERS)} | xargs {flags}{reader}"


def write(root: Path, text: str, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


class Ground:
    """One hostile tree, and everything around it."""

    def __init__(self, root: Path, hostile: str) -> None:
        self.root, self.inside, self.home = root, root / "in", root / "home"
        self.mark = root / "notes" / "ran"
        self.deny = () if hostile in WITHOUT_DENY else DENY
        self.path = f"{SYSTEM_PATH}:{self._ripgrep(root / 'tools')}"
        write(root, "SECRET-OUT", "out/secret.txt", "out/SECRETNAME.txt", "out/README.md", "SECRETNAME.txt")
        write(root, "SECRET-HOME", "home/notes.txt", "home/.ssh/id_rsa", "home/SECRETNAME")
        write(self.inside, "x = 1", "README.md", "src/main.py", "docs/guide.md", "a.txt")
        write(self.inside, "SECRET-DENIED", ".env", "docs/secret.md")
        write(root, "", "notes/none")
        canary_file = self.program(root / "notes" / "canary")
        self._link()
        self._repository(self.inside, hostile, canary_file)
        self._repository(self.inside / "sub", "config", canary_file)
        git(self.inside, "clone", "-q", "--bare", ".", "bare")
        write(
            self.inside,
            f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {canary_file}",
            "evil.cfg",
            "bare/config",
        )
        shutil.copy(canary_file, self.inside / "evil")
        if hostile == "path":
            for name in ("wc", "cat", "git", "ls", "touch", "nice"):
                self.program(self.inside / ".venv" / "bin" / name)
            self.path = f"{self.inside}/.venv/bin:{self.path}"
        (self.inside / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            # Git refuses to work in a repository of another user.
            subprocess.run(["chown", "-R", canary.NOBODY, str(self.inside), str(self.mark.parent)], check=True)
        subprocess.run(["chmod", "-R", "a+rwX", str(root)], check=True)
        self.template = root.parent / f"{root.name}-template"
        subprocess.run(["cp", "-a", str(self.inside), str(self.template)], check=True)
        self.before, self.around = self.state(self.inside), self.state_around()
        self.shell = [*canary.isolation(), shutil.which("bash") or "/bin/bash", "--norc", "--noprofile", "-c"]
        self.environment = {"PATH": self.path, "HOME": str(self.home), "LC_ALL": "C.UTF-8"}

    def _ripgrep(self, tools: Path) -> Path:
        """A folder with the ripgrep that Parley installs."""
        tools.mkdir()
        found = shutil.which("rg", path=str(Path(sys.executable).parent)) or shutil.which("rg")
        if found:
            shutil.copy(os.path.realpath(found), tools / "rg")
        return tools

    def program(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n: > {self.mark}\n")
        path.chmod(0o755)
        return path

    def _link(self) -> None:
        links = {
            "link.txt": "../out/secret.txt", "linkdir": "../out", "src/leak.py": "../../out/secret.txt", "inner": "src",
            "proc": "/proc/self", "deep/a/b": "../../..", "loop": "loop",
        }  # fmt: skip
        for name, target in links.items():
            (self.inside / name).parent.mkdir(parents=True, exist_ok=True)
            (self.inside / name).symlink_to(target)

    def _repository(self, folder: Path, hostile: str, program: Path) -> None:
        write(folder, "x = 1", "README.md")
        git(folder, "init", "-q", "-b", "main")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "one")
        write(folder, "x = 2", "README.md")
        git(folder, "commit", "-q", "-a", "-m", "two")
        write(folder, "x = 3", "README.md")
        HOSTILE[hostile](folder, program)

    def state(self, folder: Path) -> list[tuple[str, int, int]]:
        # Git refreshes its index when it reads; the entries stay the same.
        found = [Path(at, name) for at, folders, names in os.walk(folder) for name in (*names, *folders)]
        kept = [path for path in found if ".git" not in path.parts]
        return sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in kept)

    def state_around(self) -> list[tuple[str, int, int]]:
        return self.state(self.root / "out") + self.state(self.home)

    def run(self, command: str) -> bytes:
        self.mark.unlink(missing_ok=True)
        process = subprocess.run(
            ["timeout", "-k", "1", str(LIMIT_SECONDS), *self.shell, command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.inside,
            env=self.environment,
            start_new_session=True,
            check=False,
        )
        return process.stdout

    def restore(self) -> None:
        shutil.rmtree(self.inside)
        subprocess.run(["cp", "-a", str(self.template), str(self.inside)], check=True)
        self.before = self.state(self.inside)


def git(cwd: Path, *words: str) -> None:
    identity = ("-c", "user.name=Me", "-c", "user.email=me@example.com", "-c", "safe.directory=*")
    subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def configure(folder: Path, program: Path) -> None:
    append(folder / ".git" / "config", f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n")
    append(folder / ".git" / "config", f"[diff]\n\texternal = {program}\n[alias]\n\tst = !{program}\n")


def select_driver(folder: Path, program: Path) -> None:
    append(folder / ".git" / "config", f'[diff "d"]\n\ttextconv = {program}\n[filter "f"]\n\tclean = {program}\n')
    append(folder / ".git" / "info" / "attributes", "* diff=d filter=f\n")


def hook(folder: Path, program: Path) -> None:
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-commit"):
        shutil.copy(program, folder / ".git" / "hooks" / name)


def include(folder: Path, program: Path) -> None:
    (folder / "more.cfg").write_text(f"[core]\n\tfsmonitor = {program}\n")
    append(folder / ".git" / "config", "[include]\n\tpath = ../more.cfg\n")


def move_away(folder: Path, program: Path) -> None:
    configure(folder, program)
    (folder / ".git").rename(folder / "store")
    (folder / ".git").write_text("gitdir: store\n")


def name_oddly(folder: Path, program: Path) -> None:
    """File names that a pipe splits, or that a program takes for flags."""
    clean(folder)
    write(
        folder, "x", "src/a ../out/secret.txt", "src/a/x.py", "-n", "--files0-from=a.txt", "docs/it's.md", "docs/-i.md"
    )


def forge_index(folder: Path, program: Path) -> None:
    """An index with a path that leads out of the tree."""
    clean(folder)
    path, outside = "--aaaaaaaaaaaaaaa", "../out/secret.txt"
    write(folder, "x", path)
    git(folder, "add", "-A")
    index = folder / ".git" / "index"
    data = index.read_bytes()[:-20].replace(path.encode(), outside.encode())
    index.write_bytes(data + hashlib.sha1(data).digest())
    (folder / path).unlink()


def clean(folder: Path) -> None:
    """Remove what would make every search ask: links to the outside and secrets."""
    for path in (*folder.glob("**/*"), *folder.glob("**/.*")):
        if path.is_symlink():
            path.unlink()
    for name in (".env", "docs/secret.md"):
        (folder / name).unlink(missing_ok=True)


HOSTILE: dict[str, Callable[[Path, Path], None]] = {
    "none": lambda folder, program: None,
    "path": lambda folder, program: None,
    "config": configure,
    "driver": select_driver,
    "hooks": hook,
    "include": include,
    "gitdir": move_away,
    "names": name_oddly,
    "index": forge_index,
}
WITHOUT_DENY = ("names", "index")
"""Trees without denied files."""


@dataclass
class Summary:
    generated: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


def broken_promises(ground: Ground, mode: str, output: bytes) -> Iterator[str]:
    leaks = LEAKS if ground.deny else [leak for leak in LEAKS if leak != DENIED]
    leaked = [leak.decode() for leak in leaks if leak in output]
    if leaked:
        yield f"the output has {leaked[0]}"
    if ground.mark.exists():
        yield "a program of the tree ran"
    if ground.state_around() != ground.around:
        yield "something changed outside the working directory"
    if mode == "default" and ground.state(ground.inside) != ground.before:
        yield "something changed in the working directory"


def run(count: int, seed: int) -> Summary:
    """Decide `count` commands, spread over the trees and modes, and run those that are allowed."""
    summary = Summary()
    was = dict(os.environ)
    try:
        for number, hostile in enumerate(HOSTILE):
            with tempfile.TemporaryDirectory(prefix="trees-") as root:
                Path(root).chmod(0o755)
                run_tree(Path(root), hostile, count // len(HOSTILE), Random(seed * 100 + number), summary)
    finally:
        os.environ.clear()
        os.environ.update(was)
    return summary


def run_tree(root: Path, hostile: str, count: int, random: Random, summary: Summary) -> None:
    (root / "ground").mkdir()
    ground = Ground(root / "ground", hostile)
    os.environ.update(ground.environment)
    judges = {mode: judge_of(ground, mode) for mode in MODES}
    for number, command in zip(range(count), commands(random), strict=False):
        mode = MODES[number % len(MODES)]
        summary.generated += 1
        if judges[mode].check("Bash", {"command": command}).decision != "allow":
            continue
        summary.allowed[f"{hostile}, {mode}"] += 1
        output = ground.run(command)
        summary.broken += [
            f"{promise} ({hostile}, {mode}): {command!r}" for promise in broken_promises(ground, mode, output)
        ]
        if ground.state(ground.inside) != ground.before or ground.state_around() != ground.around:
            ground.restore()
            judges = {mode: judge_of(ground, mode) for mode in MODES}
            ground.around = ground.state_around()


def judge_of(ground: Ground, mode: str) -> PermissionChecker:
    options = CliOptions(permission_mode=mode, disallowed_tools=ground.deny, setting_sources=())
    judge = PermissionChecker(options, str(ground.inside), lambda text: None)
    judge.check("Bash", {"command": "true"})
    return judge


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.monotonic()
    summary = run(arguments.count, arguments.seed)
    seconds = time.monotonic() - started
    sys.stdout.write(
        f"{summary.generated:,} commands judged, {sum(summary.allowed.values()):,} allowed and run, "
        f"{len(summary.broken)} broken promises, {seconds:.0f} s\n"
    )
    for name, allowed in summary.allowed.items():
        sys.stdout.write(f"  {name}: {allowed:,}\n")
    for broken in summary.broken[:40]:
        sys.stdout.write(f"{broken}\n")
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
