"""Restricted files that a command may touch although it is not proven to.

A proven line may touch other files than it names: `find_targets` normalizes paths as text, and a symlink before `..`, a
glob or a search of whole folders can lead to a file that a rule denies. Then the line needs approval.

A line that is not proven, or that runs an unknown program, may still mention files: in a `bash -c`, after `sudo`, as an
argument that the program opens. A denied file stays denied there. If it is not certain that a word is a file at all,
the line needs approval.

See also: arguments of unknown programs (operands.py), files that a line moves (../proven_command.py), how mentioned
files are found (../shell/denied/mentions.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from parley.permissions import patterns
from parley.permissions.base import PROTECTED, RESTRICTING, Filesystem, ResolvedPath, ToolRequest
from parley.permissions.git.calls import explain_denied_output
from parley.permissions.paths.filesystem import MAX_ENTRIES
from parley.permissions.proven_command import ProvenCommand
from parley.permissions.rule import Behavior, Rule
from parley.permissions.rules import RuleSet, is_protected
from parley.permissions.shell import CommandLine, Mentions, SimpleCommand, Step, find_mentions, has_nested_commands
from parley.permissions.shell.arguments import git_words, inner_argv, unwrap
from parley.permissions.shell.readonly.check import program_name, reads_whole_folders
from parley.protocol.base import Struct
from parley.workspace.globs import WILD, name_test

CLIMBS_PAST_LINK = "A path in it has `..` after a symlink, so it does not lead where it seems to"
MAY_READ_DENIED = "It may read files that a rule denies, without naming them"
MOVES_DENIED_FILES = "It moves a folder with files that a rule denies, and the rule would not match their new paths"
MENTIONS_DENIED = "It names a path that a rule denies"

PARENT_PART = re.compile(r"(^|[/=])\.\.(/|$)")
MAX_PATHS = 1_000
MAX_MOVES = 16
"""A line that changes its folder more often is not followed."""
MAX_PATTERN_CHARACTERS = 255
"""No file name is longer."""
ANCHORS = ("/", "~/", "../")
"""A pattern that begins with one of these denies a path; any other denies a name in every folder."""
MAX_COMPARISONS = 2_000
BRACES = re.compile(r"\{[^{}]*\}")


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


def may_expand_to(word: str, spec: str) -> bool:
    name = spec.removesuffix("/**").rstrip("/").rpartition("/")[2]
    if WILD.search(name) or len(word) > MAX_PATTERN_CHARACTERS:
        return True
    return any(name_test(piece)(name) for piece in word.split("/") if piece)


# Mentioned files.


class Restrictions(Struct, frozen=True, kw_only=True):
    """What denies a command or requires approval, with the fields of `Assessment`."""

    deny: Rule | None = None
    ask: Rule | None = None
    critical: str = ""
    hazard: str = ""


NO_RESTRICTIONS = Restrictions()


def find_mentioned_restrictions(
    text: str, line: CommandLine | None, request: ToolRequest, rules: RuleSet, fs: Filesystem
) -> Restrictions:
    if (
        line is not None
        and not has_nested_commands(line)
        and not any(rules.path_rules(kind, "", writing=True) for kind in RESTRICTING)
    ):
        return NO_RESTRICTIONS
    mentions = find_mentions(text, request.cwd, request.home or fs.home, line)
    reads, writes = list(map(fs.resolve, mentions.reads)), list(map(fs.resolve, mentions.writes))
    return Restrictions(
        deny=find_file_rule("deny", reads, writes, rules, fs),
        ask=find_file_rule("ask", reads, writes, rules, fs),
        critical=MENTIONS_DENIED if mentions_denied(mentions, rules, fs) else "",
        hazard=find_mention_hazard(mentions, writes, rules),
    )


def find_file_rule(
    behavior: Behavior, reads: Sequence[ResolvedPath], writes: Sequence[ResolvedPath], rules: RuleSet, fs: Filesystem
) -> Rule | None:
    """The first rule of this behavior that matches a file that is read or written."""
    for tool, resolved_paths, writing in (("Read", reads, False), ("Edit", writes, True)):
        for resolved in resolved_paths:
            if (rule := rules.find_restriction(behavior, resolved, tool, fs, writing=writing)) is not None:
                return rule
    return None


def mentions_denied(mentions: Mentions, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether an argument of an unknown command is a denied path."""
    denying = read_deny_rules(rules)
    if not denying:
        return False
    if mentions.has_unknown_folder and any((rule.spec or "").startswith(ANCHORS) for rule in denying):
        return True
    return mentions.too_many or any(rules.is_hidden(path, fs) for path in mentions.words)


def find_mention_hazard(mentions: Mentions, writes: Sequence[ResolvedPath], rules: RuleSet) -> str:
    if any(is_protected(name) for resolved in writes for name in resolved.names):
        return PROTECTED
    specs = [rule.spec or "" for rule in read_deny_rules(rules)]
    globs = [BRACES.sub("*", word) for word in mentions.patterns]
    if specs and len(globs) * len(specs) > MAX_COMPARISONS:
        return MAY_READ_DENIED
    may_read = (mentions.reads_whole_folders and specs) or any(
        may_expand_to(word, spec) for word in globs for spec in specs
    )
    return MAY_READ_DENIED if may_read else ""
