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
from parley.permissions.assessment import ENDLESS, KEYS, OUTSIDE, PROTECTED, Assessment, Category
from parley.permissions.base import Filesystem, ResolvedPath, ToolRequest
from parley.permissions.git.calls import apply_repository_findings, find_named_files
from parley.permissions.paths.hazards import find_path_hazard
from parley.permissions.paths.links import find_key_files, find_links, make_printable
from parley.permissions.paths.mentioned import Restrictions, find_file_rule, find_mentioned_restrictions
from parley.permissions.paths.moved import MovedPath, find_moved_paths, merges_folders, traverses_moved_symlink
from parley.permissions.paths.operands import find_operand_hazard
from parley.permissions.paths.programs import PLANTED, explain_replacing, explain_shadowing, find_planted
from parley.permissions.paths.protected import holds_keys, is_protected
from parley.permissions.rule import Rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell.change_directory import CD_COMMANDS
from parley.permissions.shell.deletion import deletes
from parley.permissions.shell.readonly.check import files_read, leaves_folder, reads_only
from parley.permissions.shell.rule_patterns import is_exact
from parley.permissions.shell.wrappers import unwrap
from parley.protocol.base import Json, Struct

NEEDS_APPROVAL = "The command is not approved in advance"
CRITICAL = "It would delete a folder that much else depends on"
TOO_MANY_TO_COMPARE = "It reads too many files to compare each with every rule on files"
BY_COMMAND = "subcommandResults"
"""What the wire calls an allow by rules for commands."""
MAX_COMPARED = 4_000
MAX_SUGGESTED = 20
MOVES_LINK = "A link that it moves is on the way to a file in it, so that is not where it seems to be"
UNREADABLE = "It cannot be proven what the command runs, and there are rules that deny commands or want to be asked"


class CommandFiles(Struct, frozen=True, kw_only=True):
    """The files of a line, as far as they are known."""

    reads: tuple[ResolvedPath, ...] = ()
    writes: tuple[ResolvedPath, ...] = ()
    unknown: bool = True
    """There may be others."""
    unknown_reason: str = ""
    """Why there may be others that commands read which are known to only read."""
    steps: tuple[shell.Step, ...] = ()
    moved_paths: tuple[MovedPath, ...] | None = ()
    """What files were called that the line moves and then goes on with; None if there are too many."""
    merges_folders: bool = False
    """A folder is copied over another."""


def assess_command(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    given = request.input.get("command")
    text = given if isinstance(given, str) else ""
    line = shell.parse_strict(text, find_shell_home(request, fs))
    proven = line if isinstance(line, shell.CommandLine) else None
    files = find_files(proven, request, rules, fs)
    # What is known in full needs no second look.
    beside = (
        Restrictions()
        if proven and not files.unknown
        else find_mentioned_restrictions(text, proven, request, rules, fs)
    )
    deny, ask = rules.specific_rules("deny", "Bash"), rules.specific_rules("ask", "Bash")
    reads = (*files.reads, *(find_named_files(proven, request, fs) if proven else ()))
    assessment = Assessment(
        deny=find_rule(text, deny) or find_file_rule("deny", reads, files.writes, rules, fs) or beside.deny,
        ask=find_rule(text, ask) or find_file_rule("ask", reads, files.writes, rules, fs) or beside.ask,
        critical=find_critical_reason(text, proven, files, request, [rule.spec or "" for rule in deny + ask], fs)
        or beside.critical
        or (files.unknown_reason if rules.path_rules("deny", "Read", writing=False) else ""),
        hazard=find_hazard(proven, files, request, rules, fs) or beside.hazard,
        reason=NEEDS_APPROVAL,
        reason_type="other",
    )
    if proven is None:
        return msgspec.structs.replace(
            assessment, allow=find_exact_rule(text, request, rules, fs), allow_type=BY_COMMAND
        )
    assessment = add_proof(assessment, proven, files, request, rules, mode, fs)
    return apply_repository_findings(assessment, proven, request, rules, files.writes, fs)


def add_proof(
    assessment: Assessment,
    line: shell.CommandLine,
    files: CommandFiles,
    request: ToolRequest,
    rules: RuleSet,
    mode: str,
    fs: Filesystem,
) -> Assessment:
    """What more is known of a line that could be read."""
    outside = [resolved for resolved in files.reads if not rules.is_readable(resolved, fs)]
    outside += [resolved for resolved in files.writes if not rules.is_inside(resolved, fs)]
    untrusted = find_planted(line, request, rules, fs)
    category: Category = "other" if untrusted else categorize(line, files, request, rules, fs)
    allow = find_allow_rule(line, files, request, rules, mode, fs, untrusted)
    writes = [resolved.real for resolved in files.writes if resolved.real is not None]
    reason, kind = (
        explain_ask(line, files, outside, writes) if not untrusted else (describe_untrusted(untrusted), "other")
    )
    return msgspec.structs.replace(
        assessment,
        hazard=assessment.hazard
        or ("" if category == "harmless" else find_prefix_hazard(line, files, allow, untrusted, request, rules, fs)),
        allow=allow,
        allow_type=BY_COMMAND,
        category=category,
        can_change=category != "harmless",
        reason=reason,
        reason_type=kind,
        blocked_path=make_printable(outside[0].names[0]) if outside else next(iter(writes), None),
        suggestions=()
        if allow or category == "harmless"
        else build_suggestions(line, files, outside, request, rules, mode, fs, untrusted),
    )


# Rules.


def find_rule(text: str, rules: Sequence[Rule]) -> Rule | None:
    """The rule that speaks of some command within the text."""
    if not rules:
        return None
    hit = shell.find_denied(text, [rule.spec or "" for rule in rules])
    return next((rule for rule in rules if hit is not None and rule.spec == hit.pattern), None)


def find_prefix_hazard(
    line: shell.CommandLine,
    files: CommandFiles,
    allow: Rule | None,
    untrusted: Collection[str],
    request: ToolRequest,
    rules: RuleSet,
    fs: Filesystem,
) -> str:
    """Why a line is not approved by rules that say only how its commands begin."""
    if allow is None and rules.find_tool_rule("allow", "Bash") is None:
        return ""
    patterns = [rule.spec or "" for rule in rules.specific_rules("allow", "Bash")]
    return find_operand_hazard(line, files.steps, patterns, untrusted, request, rules, fs)


def describe_untrusted(untrusted: Mapping[str, str]) -> str:
    name, path = next(iter(untrusted.items()))
    return PLANTED.format(name=name, path=path)


def find_allow_rule(
    line: shell.CommandLine,
    files: CommandFiles,
    request: ToolRequest,
    rules: RuleSet,
    mode: str,
    fs: Filesystem,
    untrusted: Collection[str] = (),
) -> Rule | None:
    """The rule that allows the line, with others where it takes several."""
    allow = rules.specific_rules("allow", "Bash")
    patterns = [rule.spec or "" for rule in allow]
    if not patterns or not all(map(rules.allows_commands_in, find_working_folders(line, files, request, fs))):
        return None
    text = line.text.strip()
    exact = next((rule for rule in allow if rule.spec == text and is_exact(text)), None)
    if exact is not None:
        return exact
    if not rules_suffice(patterns, line, files, request, rules, mode, fs, untrusted):
        return None
    fitting = (rule for rule in allow for command in line.commands if shell.matches(rule.spec or "", command.text))
    return next(fitting, allow[0])


def find_exact_rule(text: str, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> Rule | None:
    """The rule that is the very text of a line that cannot be proven.

    It may go to any folder, and which repository git would obey is not known.
    """
    if "git" in text or text != text.strip():
        return None
    if not rules.allows_commands_in(fs.resolve(request.cwd)) or not rules.allows_commands_in(None):
        return None
    allow = rules.specific_rules("allow", "Bash")
    return next((rule for rule in allow if is_exact(rule.spec or "") and shell.matches(rule.spec or "", text)), None)


def rules_suffice(
    patterns: Sequence[str],
    line: shell.CommandLine,
    files: CommandFiles,
    request: ToolRequest,
    rules: RuleSet,
    mode: str,
    fs: Filesystem,
    untrusted: Collection[str] = (),
) -> bool:
    """Whether these allow the line, with all that it reads and writes."""
    # Without a doubt: nothing written is not the same as nothing known.
    written = not files.unknown_reason and all(may_write(resolved, rules, mode, fs) for resolved in files.writes)
    if not shell.is_allowed_by(line, patterns, cwd=request.cwd, writes=written, untrusted=untrusted):
        return False
    judged = not files.unknown_reason and all(may_read(resolved, rules, fs) for resolved in files.reads)
    return judged or names_every_reader(line, patterns, request, fs)


def may_read(resolved: ResolvedPath, rules: RuleSet, fs: Filesystem) -> bool:
    if rules.find_allow(resolved, "Read", fs, writing=False):
        return True
    return rules.is_readable(resolved, fs) and not any(map(holds_keys, resolved.names))


def may_write(resolved: ResolvedPath, rules: RuleSet, mode: str, fs: Filesystem) -> bool:
    if rules.find_allow(resolved, "Edit", fs, writing=True):
        return True
    return mode in ("acceptEdits", "auto") and rules.is_inside(resolved, fs)


# Files.


def find_files(line: shell.CommandLine | None, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> CommandFiles:
    if line is None:
        return CommandFiles()
    targets, steps = shell.track_files(line, request.cwd, fs, request.home)
    links = find_links(targets.followed, rules, fs)
    known = None if targets.unknown_reason and any(step.moves for step in steps) else find_moved_paths(steps)
    found = find_key_files(line, steps, fs)
    reads = dict.fromkeys((*targets.reads, *links.links, *found, *[moved_path.path for moved_path in known or ()]))
    against = len(rules.path_rules("deny", "Read", writing=False)) + len(rules.path_rules("ask", "Read", writing=False))
    if targets.non_links and not against:
        # They are where their folder is, which is judged as well.
        reads = dict.fromkeys(path for path in reads if path not in targets.non_links or holds_keys(path))
    most = MAX_COMPARED // max(1, against)
    unknown_reason = (
        targets.unknown_reason or links.unknown_reason or (TOO_MANY_TO_COMPARE if len(reads) > most else "")
    )
    return CommandFiles(
        reads=tuple(map(fs.resolve, islice(reads, most))),
        writes=tuple(map(fs.resolve, targets.writes)),
        unknown=targets.unknown or unknown_reason != "",
        unknown_reason=unknown_reason,
        steps=steps,
        moved_paths=None if known is None else tuple(known),
        merges_folders=merges_folders(steps, fs),
    )


def find_shell_home(request: ToolRequest, fs: Filesystem) -> str:
    """Where `~` leads in a command; nothing if that is not known."""
    return fs.home if request.home is None else request.home


def find_working_folders(
    line: shell.CommandLine, files: CommandFiles, request: ToolRequest, fs: Filesystem
) -> list[ResolvedPath | None]:
    """The folders that commands of a line run in, or may, and those it goes to; None if there may be others."""
    steps = zip(map(unwrap, line.commands), files.steps, strict=True)
    destinations = [name for inner, step in steps if inner and inner.argv[0] in CD_COMMANDS for name in step.names]
    known = dict.fromkeys([request.cwd, *destinations, *(folder for step in files.steps for folder in step.folders)])
    return [*map(fs.resolve, known), *([None] if files.unknown_reason else [])]


def names_every_reader(line: shell.CommandLine, patterns: Sequence[str], request: ToolRequest, fs: Filesystem) -> bool:
    """Whether every command that reads a file is named by a pattern, not only known to be a reader."""
    unnamed = (c for c in line.commands if not any(shell.matches(pattern, c.text) for pattern in patterns))
    return not any(reads_any_file(command, request, fs) for command in unnamed)


def reads_any_file(command: shell.SimpleCommand, request: ToolRequest, fs: Filesystem) -> bool:
    if files_read(command) is None:
        return any(redirect.reads for redirect in command.redirects)
    found = shell.find_targets(shell.CommandLine(command.text, (command,)), request.cwd, fs)
    return bool(found.reads or found.followed or found.unknown_reason)


def categorize(
    line: shell.CommandLine, files: CommandFiles, request: ToolRequest, rules: RuleSet, fs: Filesystem
) -> Category:
    at_home = rules.is_inside(fs.resolve(request.cwd), fs)
    # What is not known is never harmless. It is known only where every command reads, or is one of the closed list,
    # with all its operands.
    if files.unknown or not at_home or not all(may_read(resolved, rules, fs) for resolved in files.reads):
        return "other"
    if files.merges_folders or leaves_folder(line, request.cwd):
        return "other"
    if not files.writes and all(map(reads_only, line.commands)):
        return "harmless"
    return "edit" if all(rules.is_inside(resolved, fs) for resolved in files.writes) else "other"


# Reasons.


def find_critical_reason(
    text: str,
    line: shell.CommandLine | None,
    files: CommandFiles,
    request: ToolRequest,
    refused: Sequence[str],
    fs: Filesystem,
) -> str:
    if line is not None and not files.unknown and not refused and not deletes(line):
        return ""  # There is nothing in it that is not known, so it need not be searched.
    if reason := shell.explain_over_budget(text, refused):
        return reason
    if any(shell.is_critical_delete(text, request.cwd, home) for home in {fs.home, find_shell_home(request, fs)}):
        return CRITICAL
    return UNREADABLE if refused and (shell.is_unresolved(text) or shell.may_find_denied(text, refused)) else ""


def find_hazard(
    line: shell.CommandLine | None, files: CommandFiles, request: ToolRequest, rules: RuleSet, fs: Filesystem
) -> str:
    for resolved in files.writes:
        if any(map(is_protected, resolved.names)):
            return PROTECTED
    for resolved in files.reads + files.writes:
        if resolved.real is None:
            return ENDLESS
    if traverses_moved_symlink(files.moved_paths, fs):
        return files.unknown_reason or MOVES_LINK
    if why := explain_shadowing(files.writes, request, fs) or explain_replacing(files.steps, request, rules, fs):
        return why
    return "" if line is None else find_path_hazard(line, files.steps, request, rules, fs)


def explain_ask(
    line: shell.CommandLine, files: CommandFiles, outside: Sequence[ResolvedPath], writes: Sequence[str]
) -> tuple[str, str]:
    """Why a line is asked about, and what the wire calls that."""
    if outside:
        return OUTSIDE, "workingDir"
    if files.unknown_reason:
        return files.unknown_reason, "other"
    if any(holds_keys(name) for resolved in files.reads for name in resolved.names):
        return KEYS, "other"
    if writes:
        return "", ""
    return ("", "subcommandResults") if len(line.commands) > 1 else (NEEDS_APPROVAL, "other")


def build_suggestions(
    line: shell.CommandLine,
    files: CommandFiles,
    outside: Sequence[ResolvedPath],
    request: ToolRequest,
    rules: RuleSet,
    mode: str,
    fs: Filesystem,
    untrusted: Collection[str] = (),
) -> tuple[Json, ...]:
    """What would keep the same line from being asked about again."""
    writes, text = [resolved.names[0] for resolved in files.writes], line.text.strip()
    if any(map(is_protected, writes)):
        return ()
    if outside and not writes and shell.is_read_only(line, cwd=request.cwd):
        folders = dict.fromkeys(os.path.dirname(make_printable(resolved.names[0])) for resolved in outside)
        return suggestions.suggest_read(*folders) or suggestions.suggest_commands(suggestions.exact_rule(text))
    needed = [command for command in line.commands if untrusted or not reads_only(command)]
    known_writes = bool(writes) and not outside and not files.unknown
    # The beginning of a command says nothing of the other commands of a line that edits.
    too_many = (known_writes and len(line.commands) > 1) or len(needed) > MAX_SUGGESTED
    specs = [] if too_many else suggestions.prefix_rules([c.argv for c in needed], text)
    patterns = [*(rule.spec or "" for rule in rules.specific_rules("allow", "Bash")), *filter(None, specs)]
    if not specs or not rules_suffice(patterns, line, files, request, rules, mode, fs, untrusted):
        specs = [suggestions.exact_rule(text)]
    return suggestions.suggest_write(specs, writes[0], mode) if known_writes else suggestions.suggest_commands(*specs)
