"""Which file a program name runs.

The tables know `wc` by its name. A folder of the working tree on PATH (`.venv/bin`, `node_modules/.bin`) may contain
another program of that name, which is not the one in the tables. So names are looked up as the shell does it, and a
program in a working directory is neither a known reader nor a known editor or wrapper.

A program could be created between the decision and the run. That is why writing a file with such a name into a folder
on PATH always needs approval.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from parley.permissions.base import ToolRequest, word_set
from parley.permissions.filesystem import Filesystem, ResolvedPath, normalize_path
from parley.permissions.patterns import relative_parts
from parley.permissions.rules import RuleSet
from parley.permissions.shell import CommandLine, SimpleCommand, Step
from parley.permissions.shell.arguments import WRAPPERS, unwrap
from parley.permissions.shell.readers import READERS, TRUSTED_FOLDERS, VERSIONS
from parley.permissions.shell.special_readers import CHECKS
from parley.permissions.shell.targets import EDITS
from parley.workspace.search_path import (
    find,
    find_local_repositories,
    find_repositories,
    folders,
    interpreter,
    parse_interpreter,
)

BUILTINS = word_set(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo "
    "enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile noglob popd "
    "printf pushd pwd read readarray readonly return set shift shopt source suspend test time times trap true type "
    "typeset ulimit umask unalias unset wait"
)
"""Builtins: the shell does not look them up on PATH."""
STARTERS = word_set("timeout nice nohup stdbuf xargs find")
"""Wrappers that are programs: after them even `echo` is looked up on PATH."""
ALSO_RUN = {"egrep": ("grep",), "fgrep": ("grep",), "git": ("git-lfs",)}
"""Programs that run another program from PATH; the usual filter of git-lfs is harmless if it is the system's."""
KNOWN_PROGRAMS = frozenset({*READERS, *CHECKS, *EDITS, *WRAPPERS, *(name for name, *_ in VERSIONS), "git", "git-lfs"})
"""The programs that the tables trust by name."""
SHADOWED = KNOWN_PROGRAMS - BUILTINS
MAX_SCRIPT_BYTES = 1 << 20
"""Of a script on another machine whose first line is read."""
SearchPathParts = tuple[tuple[str, bool], ...]
"""Parts of a PATH, each with whether its folders are in a working directory."""
VERSION = re.compile(r"[\d.]*$")
OPEN_TO_ALL = ("/tmp/", "/var/tmp/", "/dev/", "/proc/", "/run/")
"""Folders in which other users may create programs."""
PLANTED = "{name} would run {path}, a program of the working directories or their repository, instead of the system's"
SHADOWS = "{path} is in a folder on PATH, so it would run instead of the system's {name}"
REPLACES = "It puts a folder at {path}, which is on PATH or above a folder on PATH: its programs would run as commands"


def find_planted(line: CommandLine, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> dict[str, str]:
    """The known program names of a line that would run a file of a working directory, and that file."""
    names = dict.fromkeys(name for command in line.commands for name in searched_names(command))
    if request.search_path is None or not names:
        return {}
    own, found = session_folders(rules, fs), {}
    for path in (request.search_path, *(assigned_search_paths(line, request.cwd) if "PATH" in line.text else ())):
        parts = split_search_path(path, own)
        for name in names:
            file = next((file for file in find_run_files(name, parts, fs) if is_planted(file, rules, fs)), None)
            if file is not None:
                found[name] = file
    return found


def find_run_files(name: str, parts: SearchPathParts, fs: Filesystem) -> Iterator[str]:
    """The files outside the system's folders that a name runs: the program, and the interpreter of a script."""
    for each in (name, *ALSO_RUN.get(name, ())):
        file = locate(each, parts, fs)
        if file is not None and not file.startswith(TRUSTED_FOLDERS):
            yield file
            inner = find_interpreter(file, fs) if len(parts) > 1 else None
            if inner is not None and (found := locate(inner, parts, fs)) is not None:
                yield found


def assigned_search_paths(line: CommandLine, cwd: str) -> list[str]:
    """Values that the line assigns to PATH; only a rule for exactly that command allows this."""
    words = (word.partition("=") for command in line.commands for word in command.argv[1:] if word.startswith("PATH="))
    pairs = (pair for command in line.commands for pair in command.assignments)
    values = [*(value for _, _, value in words), *(value for name, value in pairs if name == "PATH")]
    return [":".join(f"{cwd}/{entry}" if entry[:1] != "/" else entry for entry in value.split(":")) for value in values]


def searched_names(command: SimpleCommand) -> Iterable[str]:
    """The known program names that the shell looks up on PATH."""
    inner = unwrap(command)
    chain = (*inner.wrappers, inner.argv[0]) if inner else command.argv[:1]
    if "-exec" in command.argv[:-1]:
        chain = (*chain, *command.argv[command.argv.index("-exec") + 1 :][:1])
    return [
        name
        for index, name in enumerate(chain)
        if name in SHADOWED or (name in KNOWN_PROGRAMS and has_starter(chain[:index]))
    ]


def has_starter(wrappers: Sequence[str]) -> bool:
    """Whether the word after these wrappers is always a program, never a builtin."""
    return any(name in STARTERS for name in wrappers)


def locate(name: str, parts: SearchPathParts, fs: Filesystem) -> str | None:
    """The file that a name runs; None if it is not on PATH."""
    for part, is_inside in parts:
        if is_inside or is_remote(fs):
            file = next((file for folder in part.split(":") if fs.exists(file := f"{folder}/{name}")), None)
        else:
            file = find(part, name)
        if file is not None:
            return file
    return None


def is_remote(fs: Filesystem) -> bool:
    """Whether programs run on another machine."""
    return getattr(fs, "is_remote", False)


def find_interpreter(file: str, fs: Filesystem) -> str | None:
    """The NAME of a script's `#!/usr/bin/env NAME` line, or None."""
    if not is_remote(fs):
        return interpreter(file)
    return parse_interpreter((fs.read(file, MAX_SCRIPT_BYTES) or b"").split(b"\n")[0])


@lru_cache(maxsize=64)
def split_search_path(path: str, own: tuple[str, ...]) -> SearchPathParts:
    """Split a PATH into parts inside and outside the session's folders. Only the outside is cached."""
    marked = ((folder, any(relative_parts(folder, each) is not None for each in own)) for folder in folders(path))
    return tuple((":".join(each[0] for each in part), inside) for inside, part in groupby(marked, lambda each: each[1]))


def session_folders(rules: RuleSet, fs: Filesystem) -> tuple[str, ...]:
    """The folders of the session and the repositories around them, under all their names.

    `/` is left out: every program would be in it.
    """
    roots = (rules.cwd, *rules.folders, *rules.readable)
    names = [name for root_folder in roots for name in fs.resolve(root_folder).names if name != "/"]
    for name in names.copy():
        names += (
            find_repositories(name, fs.home, fs.exists) if is_remote(fs) else find_local_repositories(name, fs.home)
        )
    return tuple(dict.fromkeys(names))


def is_in_session_folder(resolved: ResolvedPath, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether any name of a file is in a folder of the session."""
    own = session_folders(rules, fs)
    return resolved.real is None or any(
        relative_parts(name, folder) is not None for name in resolved.names for folder in own
    )


def is_planted(file: str, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether the file belongs to the session.

    A symlink to an installed program of the same name, as in virtual environments, is that program.
    """
    resolved = fs.resolve(file)
    if not is_in_session_folder(resolved, rules, fs):
        return False
    if (
        resolved.real is None
        or resolved.real.startswith(OPEN_TO_ALL)
        or is_in_session_folder(ResolvedPath((resolved.real,), resolved.real), rules, fs)
    ):
        return True
    names = (VERSION.sub("", path.rpartition("/")[2]) for path in (file, resolved.real))
    return len(set(names)) > 1


def explain_shadowing(resolved_paths: Iterable[ResolvedPath], request: ToolRequest, fs: Filesystem) -> str:
    """Why writing one of these files needs approval: it would run under the name of a known program."""
    if request.search_path is None:
        return ""
    for resolved in resolved_paths:
        for path in resolved.names:
            folder, _, name = path.rpartition("/")
            if name in SHADOWED and (
                folder in folders(request.search_path) or fs.resolve(folder).real in real_search_folders(request, fs)
            ):
                return SHADOWS.format(path=resolved.names[0], name=name)
    return ""


def explain_replacing(steps: Iterable[Step], request: ToolRequest, rules: RuleSet, fs: Filesystem) -> str:
    """Why moving or copying a folder needs approval: it would become a folder on PATH, or one above it."""
    moved = dict.fromkeys(new for step in steps for _, new in step.moves)
    if request.search_path is None or not moved:
        return ""
    search_folders = [name for folder in folders(request.search_path) for name in fs.resolve(folder).names]
    working = [name for folder in rules.working_directories() for name in fs.resolve(folder).names]
    for new in map(normalize_path, moved):
        if any(is_above(new, name) for name in search_folders) and not any(is_above(new, name) for name in working):
            return REPLACES.format(path=new)
    return ""


def is_above(folder: str, path: str) -> bool:
    return relative_parts(path, folder) is not None


def real_search_folders(request: ToolRequest, fs: Filesystem) -> set[str | None]:
    return {fs.resolve(folder).real for folder in folders(request.search_path)}
