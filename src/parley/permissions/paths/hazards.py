"""Where a line that could be read may still touch other files than it names.

`targets` folds paths as text. A link before `..`, a pattern of file names and a search of whole
folders can lead to a file that a rule denies; then a person is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from parley.permissions.base import Request, View
from parley.permissions.git.calls import git_words, prints_denied
from parley.permissions.paths import patterns
from parley.permissions.paths.filesystem import MOST_ENTRIES
from parley.permissions.rule import Rule
from parley.permissions.rules import Rules
from parley.permissions.shell import Line, Simple, Step
from parley.permissions.shell.denied.mentions import searches
from parley.permissions.shell.readonly.check import program_name
from parley.permissions.shell.wrappers import unwrapped
from parley.workspace.globs import WILD, name_test

CLIMBS_A_LINK = "A path in it goes up behind a link, so it is not where it seems to be"
MAY_MEET_DENIED = "It may read files that a rule denies, without naming them"

TAKES_DENIED_ALONG = "It moves a folder with files in it that a rule denies by the path they have now"

UP = re.compile(r"(^|[/=])\.\.(/|$)")
MOST_PATHS = 1_000
MOST_MOVES = 16
"""Paths are not followed further than this through the folders of a line."""


def doubts(line: Line, steps: Sequence[Step], request: Request, rules: Rules, view: View) -> str:
    """Why the files of a line are not as sure as they look; nothing if they are."""
    if climbs_a_link(line, steps, view):
        return CLIMBS_A_LINK
    if not denying(rules):
        return ""
    if text := prints_denied(line, request, rules, view):
        return text
    if any(searches_folders(command) or may_meet(command, rules) for command in line.commands):
        return MAY_MEET_DENIED
    if any(compares_folders(command, step, view) for command, step in zip(line.commands, steps, strict=True)):
        return MAY_MEET_DENIED
    return TAKES_DENIED_ALONG if takes_denied_along(steps, rules, view) else ""


def climbs_a_link(line: Line, steps: Sequence[Step], view: View) -> bool:
    left, moves = MOST_PATHS, 0
    for command, step in zip(line.commands, steps, strict=True):
        named = (*command.argv, *(redirect.target for redirect in command.redirects))
        climbing = [word for word in named if ".." in word and UP.search(word)]
        patterns = [os.path.join(folder, word) for word in climbing for folder in step.folders]
        left, moves = left - len(patterns), moves + (command.argv[:1] == ("cd",))
        if left < 0 or (patterns and moves > MOST_MOVES) or any(leads_elsewhere(path, view) for path in patterns):
            return True
    return False


def leads_elsewhere(path: str, view: View) -> bool:
    """Whether following a path and folding it as text lead to different places."""
    return view.way(path).real != view.way(os.path.normpath(path)).real


def takes_denied_along(steps: Sequence[Step], rules: Rules, view: View) -> bool:
    """Whether a folder gets another name that is above what a rule denies: the rule would not fit any more."""
    moved = {name for step in steps for old, _ in step.moves for name in view.way(old).names}
    if not moved:
        return False
    denied = [patterns.fixed(rule.spec or "", rule.root, rules.cwd, view.home) for rule in denying(rules)]
    return any(patterns.beneath(place, patterns.folded(name)) for place in denied for name in moved)


def denying(rules: Rules) -> tuple[Rule, ...]:
    return rules.on_paths("deny", "Read", writing=False)


def searches_folders(command: Simple) -> bool:
    """Git apart: which files that prints is known in more detail."""
    inner = unwrapped(command)
    return git_words(command) is None and searches(inner.argv if inner else command.argv)


def compares_folders(command: Simple, step: Step, view: View) -> bool:
    """Whether `diff` is given a folder: it prints what is in the files there."""
    inner = unwrapped(command)
    compares = inner is not None and program_name(inner.argv[0]) == "diff"
    return compares and any(view.entries(name, MOST_ENTRIES) != {} for name in step.names)


def may_meet(command: Simple, rules: Rules) -> bool:
    """Whether a pattern of file names may stand for a file that a rule denies."""
    specs = [rule.spec or "" for rule in denying(rules)]
    return any(may_stand_for(command.argv[place], spec) for place in command.globs for spec in specs)


LONGEST_PATTERN = 255
"""Of more characters no file's name is."""


def may_stand_for(word: str, spec: str) -> bool:
    name = spec.removesuffix("/**").rstrip("/").rpartition("/")[2]
    if WILD.search(name) or len(word) > LONGEST_PATTERN:
        return True
    return any(name_test(piece)(name) for piece in word.split("/") if piece)
