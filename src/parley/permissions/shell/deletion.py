"""Deletions that need approval in every mode: the root, a home folder, a top-level folder, the working directory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import takewhile

from parley.permissions.base import word_set
from parley.permissions.budget import OverBudget
from parley.permissions.shell.change_directory import find_cd_target
from parley.permissions.shell.denied.search import survey_command
from parley.permissions.shell.targets import DELETERS

MAX_NAME_CHARACTERS = 1_000
MAX_CHECKS = 500
"""Targets times the folders that they may be in."""
# `$X/etc` is one of these if X is empty.
SYSTEM = word_set(
    "/ /proc/self/root /proc/self/cwd "
    "/bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /usr /var /Users /System"
)
NARROWING_TESTS = word_set("-name -iname -path -ipath -regex -iregex -wholename -newer -mtime -mmin -size -empty")
BRACE = re.compile(r"\{([^{}]*)\}")
QUOTES = re.compile(r"[\'\"\\]")
HOME = re.compile(r"^~(?=/|$)|\$HOME\b|\$\{HOME(?:[:?+=-][^}]*)?\}")
HERE = re.compile(r"\$PWD\b|\$\{PWD(?:[:?+=-][^}]*)?\}|\$\(pwd\)|`pwd`")
TOP = re.compile(r"\$\(git rev-parse --show-toplevel\)|`git rev-parse --show-toplevel`")
OTHER_HOME = re.compile(r"^~[A-Za-z0-9_-]+/?$")
EXPANSION = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|`[^`]*`|\$\w+|\$[*@#?!$-]")
ALL_IN_IT = re.compile(r"/(?:\*|\.\*|\.\[!\.\]\*|\{[^}]*\*[^}]*\})$")


def is_critical_delete(command: str, cwd: str, home: str) -> bool:
    """Whether some command in the text deletes a critical folder. Raises OverBudget."""
    parts = [TOP.sub(lambda _: cwd, part).split() for part in survey_command(command).parts]
    targets = dict.fromkeys(found for words in parts for found in _find_deleted(words))
    if not targets:
        return False
    folders = dict.fromkeys([cwd, *(found for words in parts for found in _find_cd_folders(words, cwd, home))])
    if len(targets) * len(folders) > MAX_CHECKS:
        raise OverBudget(
            f"It may delete too many files to check: {len(targets):,} names in {len(folders):,} "
            f"folders (at most {MAX_CHECKS:,})"
        )
    return any(_is_critical(target, folder, home, recursive) for target, recursive in targets for folder in folders)


def _find_cd_folders(words: list[str], cwd: str, home: str) -> Iterator[str]:
    """The folder that a `cd` changes to, as far as it is known."""
    if words[:1] in (["cd"], ["pushd"]):
        plain = [QUOTES.sub("", word) for word in words[1:]]
        destination = HOME.sub(lambda _: home, find_cd_target(("cd", *plain), home) or plain[-1])
        yield posixpath.normpath(posixpath.join(cwd, destination))


def _find_deleted(words: list[str]) -> Iterator[tuple[str, bool]]:
    """What a command deletes, and whether recursively. The words are as written."""
    name = QUOTES.sub("", words[0]).rpartition("/")[2] if words else ""
    if name != "find" and name not in DELETERS:
        return
    plain = [QUOTES.sub("", word) for word in words]
    if name == "find":
        if "-delete" in plain or any(word.rpartition("/")[2] in DELETERS for word in plain):
            narrowed = any(word in NARROWING_TESTS for word in plain)
            starts = takewhile(lambda word: word[:1] != "-", plain[1:])
            yield from ((word, True) for word in starts if not narrowed or word[:1] in "/~$")
        return
    recursive = any(re.fullmatch(r"-[A-Za-z]*[rR][A-Za-z]*|--r(?:ecursive|ecursiv|ecur|ec)?", word) for word in plain)
    for word in plain[1:]:
        if word[:1] != "-":
            yield from ((each, recursive) for each in _expand_braces(word))


def _expand_braces(word: str) -> list[str]:
    """`a{b,c}` is `ab` and `ac`; the word itself stays in the list, as braces may be literal."""
    found = BRACE.search(word)
    if found is None:
        return [word]
    return [word, *(word[: found.start()] + each + word[found.end() :] for each in found[1].split(","))]


def _is_critical(target: str, cwd: str, home: str, recursive: bool) -> bool:
    if OTHER_HOME.match(target) or len(target) > MAX_NAME_CHARACTERS:
        return True
    path = HERE.sub(lambda _: cwd, HOME.sub(lambda _: home, target))
    emptied = EXPANSION.sub("", path)
    if emptied == "":
        return False
    if recursive and emptied in ("*", ".*", "./*"):
        return emptied == path
    whole = ALL_IN_IT.sub("", emptied) if ALL_IN_IT.search(emptied) else emptied
    if whole == "":
        return True
    resolved = "/" + posixpath.normpath(posixpath.join(cwd, whole)).lstrip("/")
    if emptied != path:
        return emptied.startswith("/") and resolved in SYSTEM
    return (
        resolved.count("/") == 1
        or resolved in SYSTEM
        or _is_at_or_above(resolved, cwd)
        or _is_at_or_above(resolved, home)
    )


def _is_at_or_above(folder: str, path: str) -> bool:
    """Whether a folder is the path itself or above it."""
    return posixpath.normpath(path) == folder or path.startswith(folder.rstrip("/") + "/")
