"""Which tool a model means by a name that no tool has, and which parameter by a key that none has. Pure.

    find_name("functions.read_file", names)    -> "Read"
    find_name("create_issue", names)           -> "mcp__github__create_issue", if only one server has it

If two tools come into question, none is found: the model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

TOKENS = re.compile(r"<[|｜]?[^<>]*[|｜]?>.*", re.S)
"""Special tokens of a chat template, and what follows them."""
PREFIX = re.compile(r"^(?:functions?|tools?|default_api|api|assistant)(?:[.:/]|__)(?=\w)", re.I)
SUFFIX = re.compile(r"(?::\d+|\(\s*\))$")
QUOTING = " \t\r\n\"'`*"
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
SHELL = frozenset({"command", "cmd", "shell", "terminal", "console"})
"""Words that mean Bash if a name has no others."""
FILLERS = SHELL | {"file", "tool", "run", "execute", "exec", "function", "call"}
"""Words that say nothing about which tool is meant."""
SERVER_MARK = "__"
MIN_TYPO_CHARS = 4
PARAMETERS = {
    "cmd": "command",
    "script": "command",
    "code": "command",
    "path": "file_path",
    "file": "file_path",
    "filename": "file_path",
    "text": "content",
    "data": "content",
    "body": "content",
    "regex": "pattern",
    "glob": "pattern",
    "uri": "url",
    "link": "url",
}
"""Other words for parameters."""


def find_name(called: str, names: Mapping[str, str]) -> str | None:
    """The tool that a name stands for, by all names that tools have; None if there is none, or more than one."""
    clean = SUFFIX.sub("", TOKENS.sub("", called).strip(QUOTING)).strip(QUOTING)
    while clean not in names and (shorter := PREFIX.sub("", clean)) != clean:
        clean = shorter
    if clean in names:
        return names[clean]
    if not squeeze(clean):
        return None
    near = (is_without_server, is_same_but_for_fillers, is_typo)
    for steps in ((is_same,), near):
        if found := {tool for name, tool in names.items() if any(means(clean, name) for means in steps)}:
            return found.pop() if len(found) == 1 else None
    return None


def find_parameter(given: str, missing: Iterable[str], required: Iterable[str]) -> str | None:
    """The parameter that a key stands for, among those without a value; None if there is none, or several."""
    known, needed = list(missing), list(required)
    steps: tuple[tuple[Callable[[str, str], bool], list[str]], ...] = (
        (is_same, known),
        (lambda key, name: PARAMETERS.get(squeeze(key)) == name, needed),
        (lambda key, name: squeeze(name).startswith(squeeze(key)) or squeeze(key).startswith(squeeze(name)), needed),
        (is_typo, needed),
        (lambda key, name: bool(split_words(key) & split_words(name)), needed),
    )
    for means, names in steps:
        if squeeze(given) and (found := [name for name in names if means(given, name)]):
            return found[0] if len(found) == 1 else None
    return None


def squeeze(name: str) -> str:
    """A name without what differs between spellings."""
    return re.sub(r"[\W_]", "", name).lower()


def split_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in WORDS.findall(name))


def is_same(called: str, name: str) -> bool:
    return squeeze(called) == squeeze(name)


def is_without_server(called: str, name: str) -> bool:
    """Whether only the prefix of an MCP server is missing, or part of it."""
    parts = name.split(SERVER_MARK)
    return len(parts) > 2 and squeeze(called) in (squeeze("".join(parts[2:])), squeeze("".join(parts[1:])))


def is_same_but_for_fillers(called: str, name: str) -> bool:
    words, given = split_words(name) - FILLERS, split_words(called)
    if name == "Bash" and given & SHELL and not given - FILLERS:
        return True
    return bool(words) and SERVER_MARK not in name and given - FILLERS == words


def is_typo(called: str, name: str) -> bool:
    """Whether one letter is missing, doubled or too many, or two are swapped.

    A letter in place of another is no typo: `get` is not `set`.
    """
    given, meant = squeeze(called), squeeze(name)
    if min(len(given), len(meant)) < MIN_TYPO_CHARS:
        return False
    if len(given) == len(meant):
        different = [at for at, (a, b) in enumerate(zip(given, meant, strict=True)) if a != b]
        return (
            len(different) == 2
            and different[1] == different[0] + 1
            and given[different[0]] == meant[different[1]]
            and given[different[1]] == meant[different[0]]
        )
    longer, shorter = max(given, meant, key=len), min(given, meant, key=len)
    is_one_more = len(longer) == len(shorter) + 1
    return is_one_more and any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))
