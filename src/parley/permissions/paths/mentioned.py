"""What files speak against a line that names them without being known to touch them.

A line that could not be read, and one that runs a program nobody knows, may still name files: in a `bash -c`,
behind `sudo`, as a word that the program will open. What a rule denies stays denied there; where it is not sure
that a word is a file at all, a person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.permissions.assessment import PROTECTED, RESTRICTING
from parley.permissions.base import Filesystem, ResolvedPath, ToolRequest
from parley.permissions.paths.hazards import MAY_READ_DENIED, may_expand_to
from parley.permissions.paths.protected import is_protected
from parley.permissions.rule import Behavior, Rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell import CommandLine, Mentions, find_mentions, has_nested_commands
from parley.protocol.base import Struct

MENTIONS_DENIED = "It names a path that a rule denies"
ANCHORS = ("/", "~/", "../")
"""What begins so denies a place; everything else denies a name wherever it is."""
MAX_COMPARISONS = 2_000
BRACES = re.compile(r"\{[^{}]*\}")


class Restrictions(Struct, frozen=True, kw_only=True):
    deny: Rule | None = None
    ask: Rule | None = None
    critical: str = ""
    hazard: str = ""


def find_mentioned_restrictions(
    text: str, line: CommandLine | None, request: ToolRequest, rules: RuleSet, fs: Filesystem
) -> Restrictions:
    if (
        line is not None
        and not has_nested_commands(line)
        and not any(rules.path_rules(kind, "", writing=True) for kind in RESTRICTING)
    ):
        return Restrictions()
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
    """The rule against some file that is read or written."""
    for tool, resolved_paths, writing in (("Read", reads, False), ("Edit", writes, True)):
        for resolved in resolved_paths:
            if (rule := rules.find_restriction(behavior, resolved, tool, fs, writing=writing)) is not None:
                return rule
    return None


def mentions_denied(mentions: Mentions, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether a word of a command that we do not know is a path nobody may read."""
    denying = rules.path_rules("deny", "Read", writing=False)
    if not denying:
        return False
    if mentions.has_unknown_folder and any((rule.spec or "").startswith(ANCHORS) for rule in denying):
        return True
    return mentions.too_many or any(rules.is_hidden(path, fs) for path in mentions.words)


def find_mention_hazard(mentions: Mentions, writes: Sequence[ResolvedPath], rules: RuleSet) -> str:
    if any(is_protected(name) for resolved in writes for name in resolved.names):
        return PROTECTED
    specs = [rule.spec or "" for rule in rules.path_rules("deny", "Read", writing=False)]
    patterns = [BRACES.sub("*", word) for word in mentions.patterns]
    if specs and len(patterns) * len(specs) > MAX_COMPARISONS:
        return MAY_READ_DENIED
    may_meet = (mentions.reads_whole_folders and specs) or any(
        may_expand_to(word, spec) for word in patterns for spec in specs
    )
    return MAY_READ_DENIED if may_meet else ""
