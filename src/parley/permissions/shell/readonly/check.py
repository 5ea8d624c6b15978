"""Which commands only read, and which files they read, proven word by word from the tables.

Assignments before a command are accepted if they only change how it prints. Any other variable could choose the program
that runs (PATH), its code (LD_PRELOAD, NODE_OPTIONS) or its servers (GIT_SSH_COMMAND, HTTP_PROXY).

A reader may open more files than it names. With the flags of FOLLOWING, or when it compares folders, it also opens the
targets of symlinks below its operands. `md5sum -c` opens the files that a list names. A recursive search opens
all files of a folder.

See also: the tables (tables.py, git.py), programs with a check of their own (special.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from parley.permissions.base import word_set
from parley.permissions.shell.arguments import (
    UnwrappedCommand,
    accepts_globs,
    inner_argv,
    parse_arguments,
    read_operands,
    unwrap,
)
from parley.permissions.shell.change_directory import CD_COMMANDS
from parley.permissions.shell.readonly.git import check_git, find_printed_paths
from parley.permissions.shell.readonly.special import CHECKS
from parley.permissions.shell.readonly.tables import READERS, VERSIONS
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand

TRUSTED_FOLDERS = ("/bin/", "/usr/bin/")
WORD = re.compile(r"[A-Za-z0-9_.@-]*")
ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
SWITCH = re.compile(r"[01]?|true|false|yes|no")
NUMBER = re.compile(r"\d{0,6}")
PLAIN_PAGER = re.compile(r"cat|")

SAFE_ASSIGNMENTS = {
    "LANG": WORD, "LC_ALL": WORD, "LC_CTYPE": WORD, "LC_COLLATE": WORD, "LC_MESSAGES": WORD, "LC_NUMERIC": WORD,
    "LC_TIME": WORD, "TERM": WORD, "NODE_ENV": WORD, "RAILS_ENV": WORD, "GOOS": WORD, "GOARCH": WORD,
    "TZ": ZONE,
    "CI": SWITCH, "NO_COLOR": SWITCH, "FORCE_COLOR": NUMBER, "CLICOLOR": SWITCH, "CLICOLOR_FORCE": SWITCH,
    "PYTHONUNBUFFERED": SWITCH, "PYTHONDONTWRITEBYTECODE": SWITCH, "PYTHONUTF8": SWITCH, "RUST_BACKTRACE": WORD,
    "COLUMNS": NUMBER, "LINES": NUMBER, "GIT_OPTIONAL_LOCKS": SWITCH, "GIT_TERMINAL_PROMPT": SWITCH,
    "PAGER": PLAIN_PAGER, "GIT_PAGER": PLAIN_PAGER, "MANPAGER": PLAIN_PAGER,
}  # fmt: skip
# The flags with which symlinks are followed, and those with which subfolders are entered too; `*` means always.
FOLLOWING = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("R dereference-recursive", "*")),
    "rg": ("L follow", "*"),
    "ls": ("L dereference", "R recursive"),
    "du": ("L dereference", "*"),
    "tree": ("l", "*"),
    "diff": ("*", "r recursive"),
}
CHECKERS = word_set("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum")
CHECKSUM_LINES = (
    re.compile(r"\s*\S+[ \t](.+)"),
    re.compile(r"\s*\S+[ \t][ *?^U](.+)"),
    re.compile(r".*?\((.+)\)[ \t]*=.*"),
)
"""The forms of a line in a list of checksums: the name is at the end, after a mark, or in parentheses."""
FIND_FLAGS = frozenset({"-L", "-follow"})
SEARCHERS = frozenset({"rg", "ag", "ack", "ugrep", "rgrep"})
RECURSIVE = re.compile(r"-[A-Za-z]*[rRa].*|--(?:dereference-)?rec.*|--dir.*|recurse|--archive")
SEARCHERS_IF_RECURSIVE = frozenset({"grep", "egrep", "fgrep", "zgrep", "diff", "cp"})
GIT_KEEPS_FILES = word_set("add commit push fetch tag branch")
FILE_LISTS = ("--files0-from", "--files-from")


def is_read_only(line: CommandLine, *, cwd: str = "") -> bool:
    """Whether every command of the line only reads, and none runs git in another folder."""
    return all(reads_only(command) for command in line.commands) and not leaves_folder(line, cwd)


def reads_only(command: SimpleCommand) -> bool:
    if any(redirect.writes for redirect in command.redirects) or not has_safe_assignments(command):
        return False
    return files_read(command) is not None


def has_safe_assignments(command: SimpleCommand) -> bool:
    """Whether every assignment before a command is in the table, with a value that fits."""
    return all(
        name in SAFE_ASSIGNMENTS and SAFE_ASSIGNMENTS[name].fullmatch(value) is not None
        for name, value in command.assignments
    )


@lru_cache(maxsize=128)
def files_read(command: SimpleCommand) -> tuple[str, ...] | None:
    """The files that a command reads; None if it may do more than read."""
    if command.globs and command.argv[0] in ("test", "[") and not is_one_word_each(command):
        return None
    found = _find_read_files(UnwrappedCommand(command.argv, command.words, command.globs))
    if found is None and not command.opaque:
        inner = unwrap(command)
        if inner is None or not inner.wrappers or {"nohup", "xargs"} & set(inner.wrappers):
            return None
        found = _find_read_files(inner)
    return found


def is_one_word_each(command: SimpleCommand) -> bool:
    """Whether every word of a command becomes exactly one argument."""
    return all(index in command.opaque and index not in command.split for index in command.globs)


def _find_read_files(command: UnwrappedCommand) -> tuple[str, ...] | None:
    if not command.argv:
        return None
    name = program_name(command.argv[0])
    if (name, *command.argv[1:]) in VERSIONS:
        return ()
    if name == "git":
        return check_git(command.argv, command.globs)
    if check := CHECKS.get(name):
        return check(command.argv, command.globs)
    program = READERS.get(name)
    if program is None:
        return None
    found = parse_arguments(program, command.argv)
    if found is None or not accepts_globs(program, command.argv, command.globs, found):
        return None
    return read_operands(program, command.argv, found)


def program_name(word: str) -> str:
    """The name of a program, without the folder if that is one of the system's."""
    folder, slash, name = word.rpartition("/")
    return name if slash and f"{folder}/" in TRUSTED_FOLDERS else word


def leaves_folder(line: CommandLine, cwd: str = "", *, inspects_git: bool = False) -> bool:
    """Whether the line changes its folder and then runs git or a program by a relative path.

    If the caller inspects the repositories in all folders of the line, git may run there as long as no command before
    it changes files, which may be those of another repository.
    """
    has_moved = has_changed = False
    for command in line.commands:
        inner = unwrap(command)
        name = inner.argv[0] if inner else ""
        is_git = name.rpartition("/")[2] == "git"
        if has_moved and (
            not name or ("/" in name and name[0] != "/") or (is_git and (has_changed or not inspects_git))
        ):
            return True
        has_moved = has_moved or (inner is not None and name in CD_COMMANDS and not _stays_in(inner, cwd))
        has_changed = has_changed or not (reads_only(command) or (is_git and keeps_files(inner)))
    return False


def keeps_files(command: UnwrappedCommand | None) -> bool:
    """Whether a git command leaves the files of the working tree as they are."""
    return command is not None and len(command.argv) > 1 and command.argv[1] in GIT_KEEPS_FILES


def _stays_in(command: UnwrappedCommand, cwd: str) -> bool:
    return command.argv == ("cd", ".") or (cwd != "" and command.argv == ("cd", cwd))


def find_followed_folders(command: SimpleCommand) -> tuple[tuple[str, bool], ...]:
    """The operands below which a reader follows symlinks, and whether at any depth."""
    argv = inner_argv(command)
    name = program_name(argv[0]) if argv else ""
    if name == "find":
        return tuple((start, True) for start in _find_start_folders(argv)) if FIND_FLAGS.intersection(argv) else ()
    if name not in FOLLOWING:
        return ()
    follows, deep = FOLLOWING[name]
    if follows != "*" and not any(flag in word for flag in follows.split() for word in argv):
        return ()
    found = parse_arguments(READERS[name], argv)
    if found is None or found.has_flag("no-dereference") or (follows != "*" and not found.has_flag(*follows.split())):
        return ()
    is_deep = deep == "*" or found.has_flag(*deep.split())
    return tuple((file, is_deep) for file in read_operands(READERS[name], argv, found) or (".",))


def find_checksum_lists(command: SimpleCommand) -> tuple[str, ...]:
    """The files that name other files to read; `-` is the input."""
    argv = inner_argv(command)
    name = program_name(argv[0]) if argv else ""
    found = parse_arguments(READERS[name], argv) if name in CHECKERS else None
    if found is None or not found.has_flag("c", "check"):
        return ()
    return tuple(argv[index] for index in found.operands) or ("-",)


def parse_checksum_list(data: bytes) -> list[str] | None:
    """The names in a list of checksums; None if one is escaped."""
    lines = [line.rstrip("\r") for line in data.decode(errors="surrogateescape").split("\n")]
    if any(line.lstrip().startswith("\\") for line in lines):
        return None
    return [found[1] for line in lines for form in CHECKSUM_LINES if (found := form.fullmatch(line))]


def _find_start_folders(argv: Sequence[str]) -> Sequence[str]:
    """The folders at which `find` may start: every argument that is not a flag."""
    return [word for word in argv[1:] if word[:1] not in ("-", "(", ")", "!", ",")] or ["."]


def reads_whole_folders(words: Sequence[str]) -> bool:
    """Whether a command reads every file in a folder, or the files named in a list."""
    name = words[0].rpartition("/")[2] if words else ""
    if name == "git":
        return find_printed_paths(words) is not None
    if name in SEARCHERS or any(word.startswith(FILE_LISTS) for word in words[1:]):
        return True
    return name in SEARCHERS_IF_RECURSIVE and any(RECURSIVE.fullmatch(word) for word in words[1:])
