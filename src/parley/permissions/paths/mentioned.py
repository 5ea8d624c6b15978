"""Deny and ask rules for paths that a command mentions but is not proven to access.

A line that is not proven, or that runs an unknown program, may still name files: in a `bash -c`, after `sudo`, as an
argument that the program opens. A denied file stays denied there. If it is not certain that a word is a file at all,
the line needs approval.

See also: how mentioned files are found (shell/denied/mentions.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.permissions.base import PROTECTED, RESTRICTING, Filesystem, ResolvedPath, ToolRequest
from parley.permissions.paths.hazards import MAY_READ_DENIED, may_expand_to
from parley.permissions.paths.protected import is_protected
from parley.permissions.rule import Behavior, Rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell import CommandLine, Mentions, find_mentions, has_nested_commands
from parley.protocol.base import Struct

MENTIONS_DENIED = "It names a path that a rule denies"
ANCHORS = ("/", "~/", "../")
"""A pattern that begins with one of these denies a path; any other denies a name in every folder."""
MAX_COMPARISONS = 2_000
BRACES = re.compile(r"\{[^{}]*\}")


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
    may_read = (mentions.reads_whole_folders and specs) or any(
        may_expand_to(word, spec) for word in patterns for spec in specs
    )
    return MAY_READ_DENIED if may_read else ""
