"""Where a line that could be read may still touch other files than it names.

`find_targets` folds paths as text. A link before `..`, a pattern of file names and a search of whole
folders can lead to a file that a rule denies; then a person is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from parley.permissions.base import Filesystem, ToolRequest
from parley.permissions.git.calls import explain_denied_output, git_words
from parley.permissions.paths import patterns
from parley.permissions.paths.filesystem import MAX_ENTRIES
from parley.permissions.rule import Rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell import CommandLine, SimpleCommand, Step
from parley.permissions.shell.denied.mentions import reads_whole_folders
from parley.permissions.shell.readonly.check import program_name
from parley.permissions.shell.wrappers import unwrap
from parley.workspace.globs import WILD, name_test

CLIMBS_PAST_LINK = "A path in it goes up behind a link, so it is not where it seems to be"
MAY_READ_DENIED = "It may read files that a rule denies, without naming them"

MOVES_DENIED_FILES = "It moves a folder with files in it that a rule denies by the path they have now"

PARENT_PART = re.compile(r"(^|[/=])\.\.(/|$)")
MAX_PATHS = 1_000
MAX_MOVES = 16
"""Paths are not followed further than this through the folders of a line."""


def find_path_hazard(
    line: CommandLine, steps: Sequence[Step], request: ToolRequest, rules: RuleSet, fs: Filesystem
) -> str:
    """Why the files of a line are not as sure as they look; nothing if they are."""
    if climbs_past_link(line, steps, fs):
        return CLIMBS_PAST_LINK
    if not read_deny_rules(rules):
        return ""
    if text := explain_denied_output(line, request, rules, fs):
        return text
    if any(searches_folders(command) or may_match_denied(command, rules) for command in line.commands):
        return MAY_READ_DENIED
    if any(compares_folders(command, step, fs) for command, step in zip(line.commands, steps, strict=True)):
        return MAY_READ_DENIED
    return MOVES_DENIED_FILES if moves_denied_files(steps, rules, fs) else ""


def climbs_past_link(line: CommandLine, steps: Sequence[Step], fs: Filesystem) -> bool:
    left, moves = MAX_PATHS, 0
    for command, step in zip(line.commands, steps, strict=True):
        named = (*command.argv, *(redirect.target for redirect in command.redirects))
        climbing = [word for word in named if ".." in word and PARENT_PART.search(word)]
        patterns = [os.path.join(folder, word) for word in climbing for folder in step.folders]
        left, moves = left - len(patterns), moves + (command.argv[:1] == ("cd",))
        if left < 0 or (patterns and moves > MAX_MOVES) or any(leads_elsewhere(path, fs) for path in patterns):
            return True
    return False


def leads_elsewhere(path: str, fs: Filesystem) -> bool:
    """Whether following a path and folding it as text lead to different places."""
    return fs.resolve(path).real != fs.resolve(os.path.normpath(path)).real


def moves_denied_files(steps: Sequence[Step], rules: RuleSet, fs: Filesystem) -> bool:
    """Whether a folder gets another name that is above what a rule denies: the rule would not fit any more."""
    moved = {name for step in steps for old, _ in step.moves for name in fs.resolve(old).names}
    if not moved:
        return False
    denied = [
        patterns.literal_prefix(rule.spec or "", rule.root, rules.cwd, fs.home) for rule in read_deny_rules(rules)
    ]
    return any(patterns.relative_parts(prefix, patterns.normalize_name(name)) for prefix in denied for name in moved)


def read_deny_rules(rules: RuleSet) -> tuple[Rule, ...]:
    return rules.path_rules("deny", "Read", writing=False)


def searches_folders(command: SimpleCommand) -> bool:
    """Git apart: which files that prints is known in more detail."""
    inner = unwrap(command)
    return git_words(command) is None and reads_whole_folders(inner.argv if inner else command.argv)


def compares_folders(command: SimpleCommand, step: Step, fs: Filesystem) -> bool:
    """Whether `diff` is given a folder: it prints what is in the files there."""
    inner = unwrap(command)
    compares = inner is not None and program_name(inner.argv[0]) == "diff"
    return compares and any(fs.entries(name, MAX_ENTRIES) != {} for name in step.names)


def may_match_denied(command: SimpleCommand, rules: RuleSet) -> bool:
    """Whether a pattern of file names may stand for a file that a rule denies."""
    specs = [rule.spec or "" for rule in read_deny_rules(rules)]
    return any(may_expand_to(command.argv[index], spec) for index in command.globs for spec in specs)


MAX_PATTERN_CHARACTERS = 255
"""Of more characters no file's name is."""


def may_expand_to(word: str, spec: str) -> bool:
    name = spec.removesuffix("/**").rstrip("/").rpartition("/")[2]
    if WILD.search(name) or len(word) > MAX_PATTERN_CHARACTERS:
        return True
    return any(name_test(piece)(name) for piece in word.split("/") if piece)
