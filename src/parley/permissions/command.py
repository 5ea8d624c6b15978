"""What is to be known of a command line before it is decided on.

Only what the strict tokenizer proves can lead to an allow; a line it cannot read is asked
about unless the whole tool is allowed. Denies and asks are searched for in every line.
Files that a line reads or writes obey the same rules as files of other tools.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

import msgspec

from parley.permissions import shell, suggestions
from parley.permissions.assessment import ENDLESS, KEYS, OUTSIDE, PROTECTED, Facts, Standing
from parley.permissions.base import Request, View, Way
from parley.permissions.git.calls import named_files, with_repository
from parley.permissions.paths.hazards import doubts
from parley.permissions.paths.links import keys_below, met, shown
from parley.permissions.paths.mentioned import Against, against_files, glimpsed
from parley.permissions.paths.moved import Former, formers, go_by_a_link, merges
from parley.permissions.paths.operands import hazards
from parley.permissions.paths.programs import PLANTED, planted, replaces, shadows
from parley.permissions.paths.protected import holds_keys, is_protected
from parley.permissions.rule import Rule
from parley.permissions.rules import Rules
from parley.permissions.shell.change_directory import MOVES
from parley.permissions.shell.deletion import deletes
from parley.permissions.shell.readonly.check import files_read, reads_only, strays
from parley.permissions.shell.rule_patterns import is_exact
from parley.permissions.shell.wrappers import unwrapped
from parley.protocol.base import Json, Struct

NEEDS_APPROVAL = "The command is not approved in advance"
CRITICAL = "It would delete a folder that much else depends on"
TOO_MANY_TO_COMPARE = "It reads too many files to compare each with every rule on files"
MOST_COMPARED = 4_000
MOST_SUGGESTED = 20
MOVED_A_LINK = "A link that it moves is on the way to a file in it, so that is not where it seems to be"
UNREADABLE = "It cannot be proven what the command runs, and there are rules that deny commands or want to be asked"


class Touched(Struct, frozen=True, kw_only=True):
    """The files of a line, as far as they are known."""

    reads: tuple[Way, ...] = ()
    writes: tuple[Way, ...] = ()
    unknown: bool = True
    """There may be others."""
    doubt: str = ""
    """Why there may be others that commands read which are known to only read."""
    steps: tuple[shell.Step, ...] = ()
    formers: tuple[Former, ...] | None = ()
    """What files were called that the line moves and then goes on with; None if there are too many."""
    merges: bool = False
    """A folder is copied over another."""


def of_command(request: Request, rules: Rules, mode: str, view: View) -> Facts:
    given = request.input.get("command")
    text = given if isinstance(given, str) else ""
    line = shell.read(text)
    proven = line if isinstance(line, shell.Line) else None
    touched = files_of(proven, request, rules, view)
    # What is known in full needs no second look.
    beside = Against() if proven and not touched.unknown else glimpsed(text, proven, request, rules, view)
    deny, ask = rules.specific("deny", "Bash"), rules.specific("ask", "Bash")
    reads = (*touched.reads, *(named_files(proven, request, view) if proven else ()))
    facts = Facts(
        deny=found(text, deny) or against_files("deny", reads, touched.writes, rules, view) or beside.deny,
        ask=found(text, ask) or against_files("ask", reads, touched.writes, rules, view) or beside.ask,
        grave=gravity(text, proven, touched, request, [rule.spec or "" for rule in deny + ask], view)
        or beside.grave
        or (touched.doubt if rules.on_paths("deny", "Read", writing=False) else ""),
        hazard=hazard(proven, touched, request, rules, view) or beside.hazard,
        reason=NEEDS_APPROVAL,
        reason_type="other",
    )
    if proven is None:
        return facts
    facts = with_proof(facts, proven, touched, request, rules, mode, view)
    return with_repository(facts, proven, request, rules, touched.writes, view)


def with_proof(
    facts: Facts, line: shell.Line, touched: Touched, request: Request, rules: Rules, mode: str, view: View
) -> Facts:
    """What more is known of a line that could be read."""
    outside = [way for way in touched.reads if not rules.is_at_hand(way, view)]
    outside += [way for way in touched.writes if not rules.is_inside(way, view)]
    untrusted = planted(line, request, rules, view)
    standing: Standing = "other" if untrusted else standing_of(line, touched, request, rules, view)
    allow = in_favour(line, touched, request, rules, mode, view, untrusted)
    writes = [way.real for way in touched.writes if way.real is not None]
    reason, kind = why(line, touched, outside, writes) if not untrusted else (told_of(untrusted), "other")
    return msgspec.structs.replace(
        facts,
        hazard=facts.hazard
        or ("" if standing == "harmless" else by_beginning(line, touched, allow, untrusted, request, rules, view)),
        allow=allow,
        allow_type="subcommandResults",
        standing=standing,
        changes=standing != "harmless",
        reason=reason,
        reason_type=kind,
        blocked_path=shown(outside[0].names[0]) if outside else next(iter(writes), None),
        suggestions=()
        if allow or standing == "harmless"
        else suggested(line, touched, outside, request, rules, mode, view, untrusted),
    )


# Rules.


def found(text: str, rules: Sequence[Rule]) -> Rule | None:
    """The rule that speaks of some command within the text."""
    if not rules:
        return None
    hit = shell.finds(text, [rule.spec or "" for rule in rules])
    return next((rule for rule in rules if hit is not None and rule.spec == hit.pattern), None)


def by_beginning(
    line: shell.Line,
    touched: Touched,
    allow: Rule | None,
    untrusted: Collection[str],
    request: Request,
    rules: Rules,
    view: View,
) -> str:
    """Why a line is not approved by rules that say only how its commands begin."""
    if allow is None and rules.bare("allow", "Bash") is None:
        return ""
    patterns = [rule.spec or "" for rule in rules.specific("allow", "Bash")]
    return hazards(line, touched.steps, patterns, untrusted, request, rules, view)


def told_of(untrusted: Mapping[str, str]) -> str:
    name, place = next(iter(untrusted.items()))
    return PLANTED.format(name=name, place=place)


def in_favour(
    line: shell.Line,
    touched: Touched,
    request: Request,
    rules: Rules,
    mode: str,
    view: View,
    untrusted: Collection[str] = (),
) -> Rule | None:
    """The rule that allows the line, with others where it takes several."""
    allow = rules.specific("allow", "Bash")
    patterns = [rule.spec or "" for rule in allow]
    if not patterns or not all(map(rules.count_in, places(line, touched, request, view))):
        return None
    text = line.text.strip()
    exact = next((rule for rule in allow if rule.spec == text and is_exact(text)), None)
    if exact is not None:
        return exact
    if not suffice(patterns, line, touched, request, rules, mode, view, untrusted):
        return None
    fitting = (rule for rule in allow for command in line.commands if shell.matches(rule.spec or "", command.text))
    return next(fitting, allow[0])


def suffice(
    patterns: Sequence[str],
    line: shell.Line,
    touched: Touched,
    request: Request,
    rules: Rules,
    mode: str,
    view: View,
    untrusted: Collection[str] = (),
) -> bool:
    """Whether these allow the line, with all that it reads and writes."""
    # Without a doubt: nothing written is not the same as nothing known.
    written = not touched.doubt and all(may_write(way, rules, mode, view) for way in touched.writes)
    if not shell.allowed_by(line, patterns, cwd=request.cwd, writes=written, untrusted=untrusted):
        return False
    judged = not touched.doubt and all(may_read(way, rules, view) for way in touched.reads)
    return judged or all_named(line, patterns, request, view)


def may_read(way: Way, rules: Rules, view: View) -> bool:
    if rules.in_favour(way, "Read", view, writing=False):
        return True
    return rules.is_at_hand(way, view) and not any(map(holds_keys, way.names))


def may_write(way: Way, rules: Rules, mode: str, view: View) -> bool:
    if rules.in_favour(way, "Edit", view, writing=True):
        return True
    return mode in ("acceptEdits", "auto") and rules.is_inside(way, view)


# Files.


def files_of(line: shell.Line | None, request: Request, rules: Rules, view: View) -> Touched:
    if line is None:
        return Touched()
    targets, steps = shell.tracked(line, request.cwd, view)
    links = met(targets.followed, rules, view)
    known = None if targets.doubt and any(step.moves for step in steps) else formers(steps)
    found = keys_below(line, steps, view)
    reads = dict.fromkeys((*targets.reads, *links.links, *found, *[former.path for former in known or ()]))
    against = len(rules.on_paths("deny", "Read", writing=False)) + len(rules.on_paths("ask", "Read", writing=False))
    if targets.plain and not against:
        # They are where their folder is, which is judged as well.
        reads = dict.fromkeys(path for path in reads if path not in targets.plain or holds_keys(path))
    most = MOST_COMPARED // max(1, against)
    doubt = targets.doubt or links.doubt or (TOO_MANY_TO_COMPARE if len(reads) > most else "")
    return Touched(
        reads=tuple(map(view.way, islice(reads, most))),
        writes=tuple(map(view.way, targets.writes)),
        unknown=targets.unknown or doubt != "",
        doubt=doubt,
        steps=steps,
        formers=None if known is None else tuple(known),
        merges=merges(steps, view),
    )


def places(line: shell.Line, touched: Touched, request: Request, view: View) -> list[Way | None]:
    """The folders that commands of a line run in, or may, and those it goes to; None if there may be others."""
    steps = zip(map(unwrapped, line.commands), touched.steps, strict=True)
    goals = [name for inner, step in steps if inner and inner.argv[0] in MOVES for name in step.names]
    known = dict.fromkeys([request.cwd, *goals, *(folder for step in touched.steps for folder in step.folders)])
    return [*map(view.way, known), *([None] if touched.doubt else [])]


def all_named(line: shell.Line, patterns: Sequence[str], request: Request, view: View) -> bool:
    """Whether every command that reads a file is named by a pattern, not only known to be a reader."""
    unnamed = (c for c in line.commands if not any(shell.matches(pattern, c.text) for pattern in patterns))
    return not any(reads_some(command, request, view) for command in unnamed)


def reads_some(command: shell.Simple, request: Request, view: View) -> bool:
    if files_read(command) is None:
        return any(redirect.reads for redirect in command.redirects)
    found = shell.targets(shell.Line(command.text, (command,)), request.cwd, view)
    return bool(found.reads or found.followed or found.doubt)


def standing_of(line: shell.Line, touched: Touched, request: Request, rules: Rules, view: View) -> Standing:
    at_home = rules.is_inside(view.way(request.cwd), view)
    # What is not known is never harmless. It is known only where every command reads, or is one of the closed list,
    # with all its operands.
    if touched.unknown or not at_home or not all(may_read(way, rules, view) for way in touched.reads):
        return "other"
    if touched.merges or strays(line, request.cwd):
        return "other"
    if not touched.writes and all(map(reads_only, line.commands)):
        return "harmless"
    return "edit" if all(rules.is_inside(way, view) for way in touched.writes) else "other"


# Reasons.


def gravity(
    text: str, line: shell.Line | None, touched: Touched, request: Request, refused: Sequence[str], view: View
) -> str:
    if line is not None and not touched.unknown and not refused and not deletes(line):
        return ""  # There is nothing in it that is not known, so it need not be searched.
    if reason := shell.over_budget(text, refused):
        return reason
    if shell.is_critical_delete(text, request.cwd, view.home):
        return CRITICAL
    return UNREADABLE if refused and (shell.unresolved(text) or shell.may_find(text, refused)) else ""


def hazard(line: shell.Line | None, touched: Touched, request: Request, rules: Rules, view: View) -> str:
    for way in touched.writes:
        if any(map(is_protected, way.names)):
            return PROTECTED
    for way in touched.reads + touched.writes:
        if way.real is None:
            return ENDLESS
    if go_by_a_link(touched.formers, view):
        return touched.doubt or MOVED_A_LINK
    if why := shadows(touched.writes, request, view) or replaces(touched.steps, request, rules, view):
        return why
    return "" if line is None else doubts(line, touched.steps, request, rules, view)


def why(line: shell.Line, touched: Touched, outside: Sequence[Way], writes: Sequence[str]) -> tuple[str, str]:
    """Why a line is asked about, and what the wire calls that."""
    if outside:
        return OUTSIDE, "workingDir"
    if touched.doubt:
        return touched.doubt, "other"
    if any(holds_keys(name) for way in touched.reads for name in way.names):
        return KEYS, "other"
    if writes:
        return "", ""
    return ("", "subcommandResults") if len(line.commands) > 1 else (NEEDS_APPROVAL, "other")


def suggested(
    line: shell.Line,
    touched: Touched,
    outside: Sequence[Way],
    request: Request,
    rules: Rules,
    mode: str,
    view: View,
    untrusted: Collection[str] = (),
) -> tuple[Json, ...]:
    """What would keep the same line from being asked about again."""
    writes, text = [way.names[0] for way in touched.writes], line.text.strip()
    if any(map(is_protected, writes)):
        return ()
    if outside and not writes and shell.is_read_only(line, cwd=request.cwd):
        folders = dict.fromkeys(os.path.dirname(shown(way.names[0])) for way in outside)
        return suggestions.to_read(*folders) or suggestions.to_run(suggestions.exact(text))
    needed = [command for command in line.commands if untrusted or not reads_only(command)]
    known_writes = bool(writes) and not outside and not touched.unknown
    # The beginning of a command says nothing of the other commands of a line that edits.
    too_many = (known_writes and len(line.commands) > 1) or len(needed) > MOST_SUGGESTED
    specs = [] if too_many else suggestions.beginnings([c.argv for c in needed], text)
    patterns = [*(rule.spec or "" for rule in rules.specific("allow", "Bash")), *filter(None, specs)]
    if not specs or not suffice(patterns, line, touched, request, rules, mode, view, untrusted):
        specs = [suggestions.exact(text)]
    return suggestions.to_write(specs, writes[0], mode) if known_writes else suggestions.to_run(*specs)
