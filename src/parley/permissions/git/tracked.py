"""Whether the index of a repository proves that git does not print a denied file.

`git diff` without a revision and `git grep` print lines of files in the index only. A file that a rule fits has every
literal part of the rule's last name somewhere in its path; so what is neither in the index nor in the path of the
working tree cannot be printed.

    tracks_none(rules, found, paths, fs)      # False where that is not proven

See also: what git prints (calls.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from parley.permissions.base import Filesystem
from parley.permissions.git.repository import GITLINK, MAX_INDEX_BYTES, Repository
from parley.permissions.paths.patterns import normalize_name
from parley.permissions.rule import Rule
from parley.permissions.shell.arguments import parse_arguments
from parley.permissions.shell.readonly.git import READERS, parse_git_call

PLAIN = re.compile(r"[\w.*?/~ -]+", re.ASCII)
STARS = re.compile(r"[*?]+")
FULL_PATHS = (b"\0\0\0\x02", b"\0\0\0\x03")
UNUSUAL_INDEX = (b"link\0\0", b"sdir\0\0")
"""An index that is split, and one that has folders in place of their files."""
NOT_BY_INDEX = ("cached", "staged", "merge-base", "untracked", "no-index")


def prints_index_only(words: Sequence[str]) -> bool:
    """Whether a command prints lines of files in the index, as they are in the working tree, and of no other."""
    call = parse_git_call(words)
    if call.subcommand not in ("diff", "grep") or call.unusual_option or call.settings:
        return False
    found = parse_arguments(READERS[call.subcommand], words, call.begin)
    if found is None or found.has_flag(*NOT_BY_INDEX):
        return False
    operands = found.operands[1:] if call.subcommand == "grep" and not found.has_flag("e", "f") else found.operands
    dashes = words.index("--") if "--" in words else len(words)
    return all(position > dashes for position in operands)  # any other may be a revision


def tracks_none(rules: Iterable[Rule], found: Repository, paths: Iterable[str], fs: Filesystem) -> bool:
    """Whether no file of the index fits a rule, wherever the working tree is."""
    data = fs.read(os.path.join(found.gitdir, "index"), MAX_INDEX_BYTES)
    if data is None or data[:4] != b"DIRC" or data[4:8] not in FULL_PATHS or found.problem:
        return False
    if any(mark in data for mark in UNUSUAL_INDEX) or b"\0\0" + GITLINK in data:
        return False
    parts = {_longest_part(rule.spec or "") for rule in rules}
    above = "\n".join(map(normalize_name, (found.top, *paths)))
    names = data.lower()
    return not any(part is None or part in above or part.encode() in names for part in parts)


def _longest_part(spec: str) -> str | None:
    """The longest text in the last name of a pattern; None if there is none that every match has."""
    name = spec.removesuffix("/**").rstrip("/").rpartition("/")[2]
    part = max(STARS.split(name), key=len) if PLAIN.fullmatch(spec) else ""
    return normalize_name(part) if len(part) > 1 and part not in ("..", "~") else None
