"""Reasons why a proven line may touch other files than it names.

`find_targets` normalizes paths as text. A symlink before `..`, a glob and a search of whole folders can lead to a file
that a rule denies; then the line needs approval.

See also: arguments of unknown programs (operands.py), files that a line moves (../proven_command.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from parley.permissions.base import Filesystem
from parley.permissions.git.calls import explain_denied_output, git_words
from parley.permissions.paths import patterns
from parley.permissions.paths.filesystem import MAX_ENTRIES
from parley.permissions.proven_command import ProvenCommand
from parley.permissions.rule import Rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell import SimpleCommand, Step
from parley.permissions.shell.readonly.check import program_name, reads_whole_folders
from parley.permissions.shell.wrappers import inner_argv, unwrap
from parley.workspace.globs import WILD, name_test

CLIMBS_PAST_LINK = "A path in it has `..` after a symlink, so it does not lead where it seems to"
MAY_READ_DENIED = "It may read files that a rule denies, without naming them"
MOVES_DENIED_FILES = "It moves a folder with files that a rule denies, and the rule would not match their new paths"

PARENT_PART = re.compile(r"(^|[/=])\.\.(/|$)")
MAX_PATHS = 1_000
MAX_MOVES = 16
"""A line that changes its folder more often is not followed."""


def find_path_hazard(command: ProvenCommand) -> str:
    """Why a line may touch other files than those it names; empty if it does not."""
    rules, fs, steps = command.rules, command.fs, command.files.steps
    if climbs_past_link(command):
        return CLIMBS_PAST_LINK
    if not read_deny_rules(rules):
        return ""
    if reason := explain_denied_output(command):
        return reason
    if any(searches_folders(simple) or may_match_denied(simple, rules) for simple in command.line.commands):
        return MAY_READ_DENIED
    if any(compares_folders(simple, step, fs) for simple, step in command.pair_steps()):
        return MAY_READ_DENIED
    return MOVES_DENIED_FILES if moves_denied_files(steps, rules, fs) else ""


def climbs_past_link(command: ProvenCommand) -> bool:
    """Whether a path has `..` after a symlink, or there are too many paths to check."""
    paths_left, moves = MAX_PATHS, 0
    for simple, step in command.pair_steps():
        names = (*simple.argv, *(redirect.target for redirect in simple.redirects))
        climbing = [word for word in names if ".." in word and PARENT_PART.search(word)]
        paths = [os.path.join(folder, word) for word in climbing for folder in step.folders]
        paths_left, moves = paths_left - len(paths), moves + (simple.argv[:1] == ("cd",))
        if paths_left < 0 or (paths and moves > MAX_MOVES) or any(leads_elsewhere(path, command.fs) for path in paths):
            return True
    return False


def leads_elsewhere(path: str, fs: Filesystem) -> bool:
    """Whether following a path and normalizing it as text give different results."""
    return fs.resolve(path).real != fs.resolve(os.path.normpath(path)).real


def moves_denied_files(steps: Sequence[Step], rules: RuleSet, fs: Filesystem) -> bool:
    """Whether a folder above denied files gets another name: the rule would no longer match them."""
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
    """Not for git: what it prints is known in more detail (`explain_denied_output`)."""
    return git_words(command) is None and reads_whole_folders(inner_argv(command))


def compares_folders(command: SimpleCommand, step: Step, fs: Filesystem) -> bool:
    """Whether `diff` gets a folder: it prints the contents of the files there."""
    inner = unwrap(command)
    compares = inner is not None and program_name(inner.argv[0]) == "diff"
    return compares and any(fs.entries(name, MAX_ENTRIES) != {} for name in step.names)


def may_match_denied(command: SimpleCommand, rules: RuleSet) -> bool:
    """Whether a glob may match a file that a rule denies."""
    specs = [rule.spec or "" for rule in read_deny_rules(rules)]
    return any(may_expand_to(command.argv[index], spec) for index in command.globs for spec in specs)


MAX_PATTERN_CHARACTERS = 255
"""No file name is longer."""


def may_expand_to(word: str, spec: str) -> bool:
    name = spec.removesuffix("/**").rstrip("/").rpartition("/")[2]
    if WILD.search(name) or len(word) > MAX_PATTERN_CHARACTERS:
        return True
    return any(name_test(piece)(name) for piece in word.split("/") if piece)
