"""What files speak against a line that names them without being known to touch them.

A line that could not be read, and one that runs a program nobody knows, may still name files: in a `bash -c`,
behind `sudo`, as a word that the program will open. What a rule denies stays denied there; where it is not sure
that a word is a file at all, a person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.permissions.assessment import AGAINST, PROTECTED
from parley.permissions.base import Request, View, Way
from parley.permissions.paths.hazards import MAY_MEET_DENIED, may_stand_for
from parley.permissions.paths.protected import is_protected
from parley.permissions.rule import Behavior, Rule
from parley.permissions.rules import Rules
from parley.permissions.shell import Glimpse, Line, glimpse, runs_more
from parley.protocol.base import Struct

NAMES_DENIED = "It names a path that a rule denies"
ANCHORS = ("/", "~/", "../")
"""What begins so denies a place; everything else denies a name wherever it is."""
MOST_COMPARISONS = 2_000
BRACES = re.compile(r"\{[^{}]*\}")


class Against(Struct, frozen=True, kw_only=True):
    deny: Rule | None = None
    ask: Rule | None = None
    grave: str = ""
    hazard: str = ""


def glimpsed(text: str, line: Line | None, request: Request, rules: Rules, view: View) -> Against:
    if line is not None and not runs_more(line) and not any(rules.on_paths(kind, "", writing=True) for kind in AGAINST):
        return Against()
    seen = glimpse(text, request.cwd, view.home, line)
    reads, writes = list(map(view.way, seen.reads)), list(map(view.way, seen.writes))
    return Against(
        deny=against_files("deny", reads, writes, rules, view),
        ask=against_files("ask", reads, writes, rules, view),
        grave=NAMES_DENIED if names_denied(seen, rules, view) else "",
        hazard=hazard_of(seen, writes, rules),
    )


def against_files(
    behavior: Behavior, reads: Sequence[Way], writes: Sequence[Way], rules: Rules, view: View
) -> Rule | None:
    """The rule against some file that is read or written."""
    for tool, ways, writing in (("Read", reads, False), ("Edit", writes, True)):
        for way in ways:
            if (rule := rules.against(behavior, way, tool, view, writing=writing)) is not None:
                return rule
    return None


def names_denied(seen: Glimpse, rules: Rules, view: View) -> bool:
    """Whether a word of a command that we do not know is a path nobody may read."""
    denying = rules.on_paths("deny", "Read", writing=False)
    if not denying:
        return False
    if seen.strays and any((rule.spec or "").startswith(ANCHORS) for rule in denying):
        return True
    return seen.too_many or any(rules.hides(path, view) for path in seen.words)


def hazard_of(seen: Glimpse, writes: Sequence[Way], rules: Rules) -> str:
    if any(is_protected(name) for way in writes for name in way.names):
        return PROTECTED
    specs = [rule.spec or "" for rule in rules.on_paths("deny", "Read", writing=False)]
    patterns = [BRACES.sub("*", word) for word in seen.patterns]
    if specs and len(patterns) * len(specs) > MOST_COMPARISONS:
        return MAY_MEET_DENIED
    may_meet = (seen.searches and specs) or any(may_stand_for(word, spec) for word in patterns for spec in specs)
    return MAY_MEET_DENIED if may_meet else ""
