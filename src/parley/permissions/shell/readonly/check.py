"""Whether a command only reads, proven word by word from the tables.

See also: the tables (tables.py, git.py), programs with a check of their own (special.py).
"""

from __future__ import annotations

from functools import lru_cache

from parley.permissions.shell import assignments
from parley.permissions.shell.arguments import accepts_globs, parse_arguments, read_operands
from parley.permissions.shell.change_directory import CD_COMMANDS
from parley.permissions.shell.readonly.git import check_git
from parley.permissions.shell.readonly.special import CHECKS
from parley.permissions.shell.readonly.tables import READERS, VERSIONS
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand
from parley.permissions.shell.wrappers import UnwrappedCommand, unwrap

TRUSTED_FOLDERS = ("/bin/", "/usr/bin/")


def is_read_only(line: CommandLine, *, cwd: str = "") -> bool:
    """Whether every command of the line only reads, and none runs git in another folder."""
    return all(reads_only(command) for command in line.commands) and not leaves_folder(line, cwd)


def reads_only(command: SimpleCommand) -> bool:
    if any(redirect.writes for redirect in command.redirects) or not assignments.are_safe(command):
        return False
    return files_read(command) is not None


@lru_cache(maxsize=128)
def files_read(command: SimpleCommand) -> tuple[str, ...] | None:
    """The files that a command reads; None if it may do more than read."""
    found = _find_read_files(UnwrappedCommand(command.argv, command.words, command.globs))
    if found is None:
        inner = unwrap(command)
        if inner is None or not inner.wrappers or {"nohup", "xargs"} & set(inner.wrappers):
            return None
        found = _find_read_files(inner)
    return found


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


def leaves_folder(line: CommandLine, cwd: str = "") -> bool:
    """Whether the line changes its folder and then runs git or a program by a relative path."""
    moved = False
    for command in line.commands:
        inner = unwrap(command)
        name = inner.argv[0] if inner else ""
        if moved and (not name or name.rpartition("/")[2] == "git" or ("/" in name and name[0] != "/")):
            return True
        moved = moved or (inner is not None and name in CD_COMMANDS and not _stays_in(inner, cwd))
    return False


def _stays_in(command: UnwrappedCommand, cwd: str) -> bool:
    return command.argv == ("cd", ".") or (cwd != "" and command.argv == ("cd", cwd))
