"""Which commands only read. The corpora contain many more cases (everyday.jsonl, hostile.jsonl)."""

from __future__ import annotations

import pytest

from parley.permissions.shell.readers import is_read_only, reads_whole_folders
from parley.permissions.shell.strict_parser import CommandLine, parse_strict


def reads_only(text: str, cwd: str = "") -> bool:
    line = parse_strict(text)
    assert isinstance(line, CommandLine), line
    return is_read_only(line, cwd=cwd)


@pytest.mark.parametrize(
    "text",
    [
        "head -5 a", "head -n -5 a", "tail -n +5 a", "head -n5 a", "head -n 5 a", "head --lines=5 a",
        "head --lines 5 a", "ls --color", "ls --color=never", "ls -- -x", "cat -", "grep -nA3 x a", "grep -e x *",
        "grep x src/*", "sort src/*.txt", "git log src/*.py", "find src/* -name x", "jq . src/*.json", "/bin/ls",
        "/usr/bin/git status", "nice -n 5 ls", "time -p ls", "command ls", "stdbuf -oL grep x a",
        "timeout -k 5 -s KILL 10s ls", "timeout --foreground 5 ls", "nice -5 ls", "nice ls", "nice -- ls",
        "builtin echo a", "LC_ALL=C ls", "TZ=Europe/Berlin date", "GIT_PAGER=cat git log",
        "find -L . -newermt 2024-01-01 -print", "find", "sed -n -e '1p;$p' a", "sed --quiet 1,+3p a", "date", "xxd",
        "xxd -p a", "xxd -s 0x10 -l 16 a", "ps -eo pid,cmd --sort=-rss", "ps -p 1", "sleep 0.5", "command -v ls",
        "git remote", "git remote get-url origin", "git stash show -p", "git worktree list", "git reflog",
        "git branch --list 'a*'", "git tag -n3 -l", "git config --get user.name",
        "git --no-pager --no-optional-locks status", "git version", "od -w16 a",
        "printf '%5.2f%%\\n' 1", "printf '%s' *", "printenv HOME PATH", "[ ! -f a ]", "[ a = b ]",
        '[ -n "$(git status -s)" ]', "awk -F: '{print $1}' src/*.txt", "sed -E 's/a/b/' a", "echo -e *", "cd",
        "true && false",
        "git branch --contains abc", "du -d1 .", "sed -n 5p", "cat a | sed -n 5p",
        "stdbuf --input=0 --output=L --error=0 ls", "stdbuf -i0 -e0 ls", "nice --adjustment=5 ls",
        "timeout --kill-after=5 --signal=KILL --preserve-status --verbose 10 ls", "timeout -v 5 ls",
    ],
)  # fmt: skip
def test_a_command_only_reads(text: str) -> None:
    assert reads_only(text)


@pytest.mark.parametrize(
    "text",
    [
        "head -n", "git log --author --output=x", "grep -e -x a", "head --lines", "ls --color-x", "ls --all=x",
        "ls -j", "head -n *", "grep * a", "cd a b", "cd a*", "sort *", "jq . *", "jq *", "jq", "sed -n 1p *",
        "sed -n", "sed -n -e", "date *", "xxd *", "xxd -z", "ps *", "sleep", "sleep x", "sleep 5 *", "find . -name",
        "command -v *", "printf", "printf *", "A=1", "A=1 ls", "LC_ALL=C", "nohup ls", "ls | xargs cat",
        "nice -x ls", "nice", "nice - ls", "nice * ls", "timeout ls", "timeout x ls", "timeout 5", "timeout -k",
        "timeout --foreground", "timeout 5 'l's", "timeout 5 if", "timeout 5 A=1 ls", "git", "git --no-pager",
        "git unknown", "git *", "git log *", "git diff -X", "git remote get-url", "git config x", "ls > a", "date x",
        "find src/* *", "TERM=/x ls", "xxd -l x a", "printenv", "printenv TOKEN", '[ -f "$(pwd)" ]', "[ -n $(pwd) ]",
        "[ -n * ]", "awk -f x a", "awk", "awk *", "awk 1 *", "awk -W exec a", "awk -i inplace 1 a", "sed -i p a",
        "sed *",
        "sed -f x a", "sed p -i a", "sed --in-place p a", 'printf "$(pwd)"', "git config -l user.name",
        "git config user.name x", "git --help status",
    ],
)  # fmt: skip
def test_a_command_may_do_more_than_read(text: str) -> None:
    assert not reads_only(text)


def test_git_in_another_folder_does_not_only_read() -> None:
    assert not reads_only("cd /w && git status")
    assert reads_only("cd /w && git status", cwd="/w")
    assert reads_only("cd . && git status")
    assert not reads_only("cd /w && cd sub && git status", cwd="/w")
    assert reads_only("cd /w && ls")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rg x", True),
        ("/usr/bin/rg x", True),
        ("grep -r x .", True),
        ("grep -rn x .", True),
        ("grep --recursive x", True),
        ("grep -d recurse x", True),
        ("grep --directories=recurse x", True),
        ("grep x a", False),
        ("diff -r a b", True),
        ("diff a b", False),
        ("cp -r a b", True),
        ("cp -a a b", True),
        ("cat -r a", False),
        ("git grep x", True),
        ("git -P grep x", True),
        ("git -C sub grep x", True),
        ("git -C grep log", False),
        ("git -C", False),
        ("git log --grep x", False),
        ("", False),
    ],
)
def test_what_reads_whole_folders_is_known(words: str, expected: bool) -> None:
    assert reads_whole_folders(words.split()) is expected
