"""Assess a Bash command.

Only a command line that the strict parser proves can be allowed by rules for some commands or by a mode; for any other
line, only a rule for exactly this text or for the whole tool counts. Deny and ask rules are searched for in every
line. The files of a command obey the same rules as the files of other tools.

A proven line may touch other files than it names: `find_targets` normalizes paths as text, and a symlink before `..`, a
glob or a search of whole folders can lead to a file that a rule denies. Then the line needs approval.

A line that is not proven, or that runs an unknown program, may still mention files: in a `bash -c`, after `sudo`, as an
argument that the program opens. A denied file stays denied there. If it is not certain that a word is a file at all,
the line needs approval. With rules that restrict files, so does a line whose files are not all known, in every mode.

See also: the line and its files (proven_command.py), arguments of unknown programs (operands.py), git
(git/calls.py), the shell itself (shell/).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from parley.permissions.base import ENDLESS, KEYS, OUTSIDE, PROTECTED, RESTRICTING, Assessment, Category, ToolRequest
from parley.permissions.filesystem import MAX_ENTRIES, Filesystem, ResolvedPath, has_protected_target
from parley.permissions.git.calls import (
    apply_repository_findings,
    explain_denied_output,
    explain_restricted_changes,
    find_named_files,
)
from parley.permissions.operands import COPIES_PROTECTED, TOO_MANY, find_operand_hazard
from parley.permissions.patterns import literal_prefix, relative_parts
from parley.permissions.proven_command import (
    MAX_FOLDER_MOVES,
    PLANTED,
    ProvenCommand,
    build_proven_command,
    explain_replacing,
    explain_shadowing,
    find_copied_protection,
    make_printable,
    traverses_moved_symlink,
)
from parley.permissions.rule import Behavior, Rule
from parley.permissions.rules import (
    RuleSet,
    exact_rule,
    prefix_rules,
    suggest_commands,
    suggest_read,
    suggest_write,
)
from parley.permissions.shell.arguments import CD_COMMANDS, git_words, inner_argv, unwrap
from parley.permissions.shell.command_rules import compile_patterns, is_allowed_by, is_exact, matches
from parley.permissions.shell.deny_search import explain_over_budget, find_denied, is_unresolved, may_find_denied
from parley.permissions.shell.file_names import GlobLookup, expand
from parley.permissions.shell.mentions import Mentions, find_mentions, has_nested_commands, is_critical_delete
from parley.permissions.shell.prefix_rules import shorten
from parley.permissions.shell.readers import (
    files_read,
    is_read_only,
    leaves_folder,
    program_name,
    reads_only,
    reads_whole_folders,
)
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand, parse_strict
from parley.permissions.shell.targets import TargetStep, deletes, find_file_operands, find_targets
from parley.protocol.base import Json
from parley.workspace.globs import WILD, name_test
from parley.workspace.sensitive_names import holds_keys, is_git_internal, is_protected, normalize_name

NEEDS_APPROVAL = "No rule allows the command, and it is not known to be read-only"
CRITICAL = "It would delete a critical folder"
BY_COMMAND = "subcommandResults"
"""The name on the wire of an allow by rules for commands."""
MAX_SUGGESTED = 20
MOVES_LINK = "It moves a symlink that is part of a path it uses, so the path may lead elsewhere"
UNREADABLE = "It cannot be proven what the command runs, and there are deny or ask rules for commands"
CLIMBS_PAST_LINK = "A path in it has `..` after a symlink, so it does not lead where it seems to"
MAY_READ_DENIED = "It may read files that a rule denies, without naming them"
UNKNOWN_READ = "It is not known which files it reads ({word}), and a rule restricts reading some"
UNKNOWN_WRITE = "It is not known which files it writes ({word}), and a rule restricts editing some"
UNKNOWN_TARGET = "It is not known which file it writes ({word}), and it may be a protected one"
HOLDS_RESTRICTED = "{path} is, contains or may contain a file that the rule {rule} ({source}) restricts"
UNKNOWN_EDITS = "It is not known which files it edits"
UNKNOWN_FOLDER = "It is not known in which folder it runs, and a rule restricts some files"
MOVES_DENIED_FILES = "It moves a folder with files that a rule denies, and the rule would not match their new paths"
MENTIONS_DENIED = "It names a path that a rule denies"
RACED = (
    "It edits files without approval only while no other command runs, which could change what a path leads to: "
    "this machine has no sandbox that prevents it"
)

MAX_PATTERN_CHARACTERS = 255
"""No file name is longer."""
MATCHES_HIDDEN = ("dotglob", "GLOBIGNORE", "shopt", "BASHOPTS")
"""What may change that globs match no name that begins with a dot."""
MAX_COMPARISONS = 2_000
MAX_BENEATH = 4_000
"""Comparisons of the files below a folder with the rules."""
BRACES = re.compile(r"\{[^{}]*\}")


def assess_command(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    value = request.input.get("command")
    text = value if isinstance(value, str) else ""
    line = parse_strict(text, find_shell_home(request, fs))
    if isinstance(line, CommandLine):
        return assess_proven(build_proven_command(line, request, rules, mode, fs))
    mentioned = find_mentioned_restrictions(text, None, request, rules, fs)
    deny, ask = rules.specific_rules("deny", "Bash"), rules.specific_rules("ask", "Bash")
    exact = find_exact_rule(text, request, rules, fs)
    return Assessment(
        deny=find_rule(text, deny) or mentioned.deny,
        ask=find_rule(text, ask) or mentioned.ask,
        critical=find_critical_reason(text, [*deny, *ask], request, fs) or mentioned.critical,
        hazard=mentioned.hazard or ("" if exact else mentioned.unapproved),
        allow=exact,
        allow_type=BY_COMMAND,
        reason=NEEDS_APPROVAL,
        reason_type="other",
    )


def assess_proven(command: ProvenCommand) -> Assessment:
    files, rules, fs = command.files, command.rules, command.fs
    restrictions = find_restrictions(command)
    outside = [resolved for resolved in files.reads if not rules.is_readable(resolved, fs)]
    outside += [resolved for resolved in files.writes if not rules.is_inside(resolved, fs)]
    category = categorize(command)
    allow = find_allow_rule(command)
    reason, reason_type = explain_ask(command, outside)
    written = next((resolved.real for resolved in files.writes if resolved.real is not None), None)
    is_harmless = category == "harmless"
    confined = choose_confinement(command, category, allow)
    hazard = restrictions.hazard or ("" if is_harmless else find_prefix_hazard(command, allow, restrictions.unapproved))
    if confined == "editor" and command.request.others_run and rules.confinement() != "bubblewrap":
        hazard = hazard or RACED
    assessment = msgspec.structs.replace(
        restrictions,
        hazard=hazard,
        allow=allow,
        allow_type=BY_COMMAND,
        category=category,
        can_change=not is_harmless,
        confined=confined,
        reason=reason,
        reason_type=reason_type,
        blocked_path=make_printable(outside[0].names[0]) if outside else written,
        suggestions=() if allow or is_harmless else build_suggestions(command, outside, category),
    )
    return apply_repository_findings(assessment, command) if command.runs_git else assessment


def choose_confinement(
    command: ProvenCommand, category: Category, allow: Rule | None
) -> Literal["", "reader", "editor"]:
    """What the line needs at most, if it is the mode or rules on files that allow it, not rules on its commands."""
    if allow is None:
        edits = category == "edit" and command.mode in ("acceptEdits", "auto")
        return "reader" if category == "harmless" else "editor" if edits else ""
    specs = [rule.spec or "" for rule in command.rules.specific_rules("allow", "Bash")]
    # A reader that is redirected to a file does not only read.
    editing = [simple for simple in command.line.commands if not reads_only(simple)]
    is_named = any(matches(spec, simple.text) for simple in editing for spec in specs)
    return "editor" if editing and not command.files.unknown and not is_named else ""


def find_restrictions(command: ProvenCommand) -> Assessment:
    """Everything that denies a line, or asks about it."""
    line, files, request, rules, fs = command.line, command.files, command.request, command.rules, command.fs
    # If all files are known, the text does not have to be searched for others.
    mentioned = find_mentioned_restrictions(line.text, line, request, rules, fs) if files.unknown else Assessment()
    deny, ask = rules.specific_rules("deny", "Bash"), rules.specific_rules("ask", "Bash")
    reads = (*files.reads, *find_named_files(command)) if command.runs_git else files.reads
    # With nothing unknown, nothing restricted and nothing deleted, the text is not searched either.
    is_searched = files.unknown or deny or ask or deletes(line)
    critical = find_critical_reason(line.text, [*deny, *ask], request, fs) if is_searched else ""
    return Assessment(
        deny=find_rule(line.text, deny) or find_file_rule("deny", reads, files.writes, rules, fs) or mentioned.deny,
        ask=find_rule(line.text, ask) or find_file_rule("ask", reads, files.writes, rules, fs) or mentioned.ask,
        critical=critical or mentioned.critical or find_unseen_files(command),
        hazard=find_hazard(command) or mentioned.hazard,
        unapproved=mentioned.unapproved,
    )


# Rules.


def find_rule(text: str, rules: Sequence[Rule]) -> Rule | None:
    """The rule that matches some command in the text."""
    if not rules:
        return None
    match = find_denied(text, [rule.spec or "" for rule in rules])
    return next((rule for rule in rules if match is not None and rule.spec == match.pattern), None)


def find_prefix_hazard(command: ProvenCommand, allow: Rule | None, unapproved: str) -> str:
    """Why rules that match only the beginning of a command do not approve the line."""
    rules = command.rules
    if allow is None and rules.find_tool_rule("allow", "Bash") is None:
        return ""
    patterns = [rule.spec or "" for rule in rules.specific_rules("allow", "Bash")]
    if unapproved and not compile_patterns(tuple(patterns)).has_exact(command.line.text):
        return unapproved
    return find_operand_hazard(command, patterns)


def find_allow_rule(command: ProvenCommand) -> Rule | None:
    """The rule that allows the line; the first one if several are needed."""
    line, rules = command.line, command.rules
    allow = rules.specific_rules("allow", "Bash")
    patterns = [rule.spec or "" for rule in allow]
    if not patterns or not all(map(rules.allows_commands_in, find_working_folders(command))):
        return None
    text = line.text.strip()
    exact = next((rule for rule in allow if rule.spec == text and is_exact(text)), None)
    if exact is not None:
        return exact
    if not rules_suffice(patterns, command):
        return None
    matching = (rule for rule in allow for simple in line.commands if matches(rule.spec or "", simple.text))
    return next(matching, allow[0])


def find_exact_rule(text: str, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> Rule | None:
    """The rule for exactly the text of an unproven line.

    The line may change to any folder, and it is not known which repository git would use.
    """
    if "git" in text or text != text.strip():
        return None
    if not rules.allows_commands_in(fs.resolve(request.cwd)) or not rules.allows_commands_in(None):
        return None
    allow = rules.specific_rules("allow", "Bash")
    return next((rule for rule in allow if is_exact(rule.spec or "") and matches(rule.spec or "", text)), None)


def rules_suffice(patterns: Sequence[str], command: ProvenCommand) -> bool:
    """Whether these patterns allow the line, with everything that it reads and writes."""
    files, cwd = command.files, command.request.cwd
    # An empty list of writes proves nothing if the files are not all known.
    can_write = not files.unknown_reason and all(may_write(resolved, command) for resolved in files.writes)
    is_allowed = is_allowed_by(
        command.line,
        patterns,
        cwd=cwd,
        writes=can_write,
        untrusted=command.untrusted,
        fed=() if command.untrusted else {simple for simple, step in command.pair_steps() if step.fed},
        inspects_git=True,
    )
    if not is_allowed:
        return False
    can_read = not files.unknown_reason and all(may_read(resolved, command) for resolved in files.reads)
    can_read = can_read and not files.searched_keys
    return can_read or names_every_reader(patterns, command)


def may_read(resolved: ResolvedPath, command: ProvenCommand) -> bool:
    rules, fs = command.rules, command.fs
    if rules.find_allow(resolved, "Read", fs, writing=False):
        return True
    return rules.is_readable(resolved, fs) and not any(map(holds_keys, resolved.names))


def may_write(resolved: ResolvedPath, command: ProvenCommand) -> bool:
    rules, fs = command.rules, command.fs
    if rules.find_allow(resolved, "Edit", fs, writing=True):
        return True
    return command.mode in ("acceptEdits", "auto") and rules.is_inside(resolved, fs)


# Folders and files.


def find_shell_home(request: ToolRequest, fs: Filesystem) -> str:
    """The folder that `~` means in a command; empty if it is not known."""
    return fs.home if request.home is None else request.home


def find_working_folders(command: ProvenCommand) -> list[ResolvedPath | None]:
    """The folders in which commands may run, and those that the line changes to; None if there may be others."""
    files, fs = command.files, command.fs
    steps = zip(map(unwrap, command.line.commands), files.steps, strict=True)
    destinations = [name for inner, step in steps if inner and inner.argv[0] in CD_COMMANDS for name in step.names]
    folders = (folder for step in files.steps for folder in step.folders)
    known = dict.fromkeys([command.request.cwd, *destinations, *folders])
    return [*map(fs.resolve, known), *([None] if files.unknown_reason else [])]


def names_every_reader(patterns: Sequence[str], command: ProvenCommand) -> bool:
    """Whether a pattern names every command that reads a file; being a known reader is not enough."""
    commands = command.line.commands
    unnamed = (simple for simple in commands if not any(matches(pattern, simple.text) for pattern in patterns))
    return not any(reads_any_file(simple, command) for simple in unnamed)


def reads_any_file(simple: SimpleCommand, command: ProvenCommand) -> bool:
    if files_read(simple) is None:
        return any(redirect.reads for redirect in simple.redirects)
    found = find_targets(CommandLine(simple.text, (simple,)), command.request.cwd, command.fs)
    return bool(found.reads or found.followed or found.unknown_reason)


def categorize(command: ProvenCommand) -> Category:
    if command.untrusted:
        return "other"
    line, files, rules, fs = command.line, command.files, command.rules, command.fs
    is_inside = rules.is_inside(fs.resolve(command.request.cwd), fs)
    # A line is harmless only if all its files are known: every command is a known reader or editor, with all operands.
    if files.unknown or not is_inside or not all(may_read(resolved, command) for resolved in files.reads):
        return "other"
    if files.searched_keys or files.merges_folders or leaves_folder(line, command.request.cwd, inspects_git=True):
        return "other"
    if not files.writes and all(step.fed or reads_only(simple) for simple, step in command.pair_steps()):
        return "harmless"
    return "edit" if all(rules.is_inside(resolved, fs) for resolved in files.writes) else "other"


# Reasons.


def find_critical_reason(text: str, restricting: Sequence[Rule], request: ToolRequest, fs: Filesystem) -> str:
    """Why a command needs approval in every mode. `restricting` are the deny and ask rules for some commands."""
    patterns = [rule.spec or "" for rule in restricting]
    if reason := explain_over_budget(text, patterns):
        return reason
    if any(is_critical_delete(text, request.cwd, home) for home in {fs.home, find_shell_home(request, fs)}):
        return CRITICAL
    return UNREADABLE if patterns and (is_unresolved(text) or may_find_denied(text, patterns)) else ""


def find_hazard(command: ProvenCommand) -> str:
    files, request, fs = command.files, command.request, command.fs
    if has_protected_target(files.writes, fs):
        return PROTECTED
    moves = [move for step in files.steps for move in step.moves if fs.is_folder(move[0])]
    moves = [move for move in moves if fs.entries(move[0], MAX_ENTRIES) != {}]
    if len(moves) > MAX_FOLDER_MOVES:
        return TOO_MANY
    for old, new in moves:
        if name := find_copied_protection(old, new, fs):
            return COPIES_PROTECTED.format(word=shorten(old), name=name)
    for resolved in files.reads + files.writes:
        if resolved.real is None:
            return ENDLESS
    if traverses_moved_symlink(files.moved_paths, fs):
        return files.unknown_reason or MOVES_LINK
    if reason := explain_shadowing(files.writes, request, fs):
        return reason
    return explain_replacing(files.steps, request, command.rules, fs) or find_path_hazard(command)


def explain_ask(command: ProvenCommand, outside: Sequence[ResolvedPath]) -> tuple[str, str]:
    """Why a line needs approval, and the name of that on the wire."""
    files = command.files
    if command.untrusted:
        name, path = next(iter(command.untrusted.items()))
        return PLANTED.format(name=name, path=path), "other"
    if outside:
        return OUTSIDE, "workingDir"
    if files.unknown_reason:
        return files.unknown_reason, "other"
    if files.searched_keys or any(holds_keys(name) for resolved in files.reads for name in resolved.names):
        return KEYS, "other"
    if any(resolved.real is not None for resolved in files.writes):
        return (UNKNOWN_EDITS, "other") if files.unknown and command.mode in ("acceptEdits", "auto") else ("", "")
    return ("", BY_COMMAND) if len(command.line.commands) > 1 else (NEEDS_APPROVAL, "other")


def build_suggestions(command: ProvenCommand, outside: Sequence[ResolvedPath], category: Category) -> tuple[Json, ...]:
    """Updates with which the same line would not need approval again."""
    line, files = command.line, command.files
    writes, text = [resolved.names[0] for resolved in files.writes], line.text.strip()
    if any(map(is_protected, writes)):
        return ()
    if outside and not writes and is_read_only(line, cwd=command.request.cwd):
        folders = dict.fromkeys(os.path.dirname(make_printable(resolved.names[0])) for resolved in outside)
        return suggest_read(*folders) or suggest_commands(exact_rule(text))
    needed = [simple for simple in line.commands if command.untrusted or not reads_only(simple)]
    is_edit = bool(writes) and category == "edit"
    # In a line that edits, a rule for the beginning of one command does not cover the others.
    too_many = (is_edit and len(line.commands) > 1) or len(needed) > MAX_SUGGESTED
    specs = [] if too_many else prefix_rules([simple.argv for simple in needed], text)
    allow = command.rules.specific_rules("allow", "Bash")
    if not specs or not rules_suffice([*(rule.spec or "" for rule in allow), *filter(None, specs)], command):
        specs = [exact_rule(text)]
    if is_edit:
        return suggest_write(specs, writes[0], command.mode)
    return suggest_commands(*specs)


def find_unseen_files(command: ProvenCommand) -> str:
    """Why a line may touch restricted files that it does not name; empty if it does not, or if there are none."""
    rules, fs, files = command.rules, command.fs, command.files
    writing = rules.restricting_rules(writing=True)
    if not writing:
        return ""
    if files.unknown_reason or command.climbs_past_link:
        return files.unknown_reason or CLIMBS_PAST_LINK
    if any(resolved.real is None for resolved in files.reads + files.writes):
        return ENDLESS
    used = [*(resolved.names[0] for resolved in files.writes), *find_globbed_folders(command)]
    if reason := find_restricted_folder(used, writing, rules, fs):
        return reason
    if files.unknown and (reason := find_operand_hazard(command, (), only_rules=True)):
        return reason
    if command.runs_git and (reason := explain_restricted_changes(command)):
        return reason
    reading = rules.restricting_rules(writing=False)
    if not reading:
        return ""
    if command.runs_git and (reason := explain_denied_output(command)):
        return reason
    for simple, step in command.pair_steps():
        if searches_folders(simple) or compares_folders(simple, step, fs):
            reason = find_restricted_folder(step.names, reading, rules, fs)
            if reason or not step.names:
                return reason or MAY_READ_DENIED
        if (step.fed or matches_hidden(command.line.text)) and may_match_denied(simple, step, command):
            return MAY_READ_DENIED
    return MOVES_DENIED_FILES if moves_denied_files(files.steps, rules, fs) else ""


def find_path_hazard(command: ProvenCommand) -> str:
    """Why a line may touch other files than those it names, now or a moment later; empty if it does not."""
    if command.climbs_past_link:
        return CLIMBS_PAST_LINK
    if not command.rules.restricting_rules(writing=False):
        return ""
    for simple, step in command.pair_steps():
        if searches_folders(simple) or compares_folders(simple, step, command.fs):
            return MAY_READ_DENIED
        if may_match_denied(simple, step, command):
            return MAY_READ_DENIED
    return ""


def find_globbed_folders(command: ProvenCommand) -> Iterator[str]:
    """What the globs among the arguments of unknown programs match now."""
    fs = command.fs
    lookup = GlobLookup(lambda path: fs.entries(path, MAX_ENTRIES), fs.exists)
    for simple, step in command.pair_steps():
        for index in simple.globs if find_file_operands(simple) is None else ():
            for folder in step.folders:
                found = expand(simple.words[index], folder, lookup)
                yield from (os.path.join(folder, name) for name in (found.words if found else ("",)))


def find_restricted_folder(paths: Iterable[str], restricting: Sequence[Rule], rules: RuleSet, fs: Filesystem) -> str:
    """Why using these paths, and everything in those that are folders, uses a restricted file; empty if it does not."""
    for path in paths:
        names = fs.resolve(path).names
        rule = next((rule for rule in restricting for name in names if rules.restricts(rule, name, fs)), None)
        if rule is None and fs.is_folder(path):
            rule = find_rule_beneath(path, restricting, rules, fs)
        if rule is not None:
            return HOLDS_RESTRICTED.format(path=make_printable(path), rule=rule.text, source=rule.source)
    return ""


def find_rule_beneath(folder: str, restricting: Sequence[Rule], rules: RuleSet, fs: Filesystem) -> Rule | None:
    """The rule that restricts a file below a folder: one that is there now, or whose pattern is for a path there."""
    top = fs.resolve(folder).real or folder
    for rule in restricting:
        prefix = literal_prefix(rule.spec or "", rule.root, rules.cwd, fs.home)
        if "/" in (rule.spec or "").removesuffix("/**").rstrip("/") and relative_parts(prefix, normalize_name(top)):
            return rule
    pending, left = [top], MAX_BENEATH // len(restricting)
    while pending:
        current = pending.pop()
        names = fs.entries(current, left)
        if names is None:
            return restricting[0]
        left -= len(names)
        for name, kind in names.items():
            path = f"{current.rstrip('/')}/{name}"
            found = next((rule for rule in restricting if rules.restricts(rule, path, fs)), None)
            if found is not None:
                return found
            if kind == "folder":
                pending.append(path)
    return None


def moves_denied_files(steps: Sequence[TargetStep], rules: RuleSet, fs: Filesystem) -> bool:
    """Whether a folder above denied files gets another name: the rule would no longer match them."""
    moved = {name for step in steps for old, _ in step.moves for name in fs.resolve(old).names}
    if not moved:
        return False
    restricting = rules.restricting_rules(writing=False)
    denied = [literal_prefix(rule.spec or "", rule.root, rules.cwd, fs.home) for rule in restricting]
    return any(relative_parts(prefix, normalize_name(name)) for prefix in denied for name in moved)


def searches_folders(command: SimpleCommand) -> bool:
    """Not for git: what it prints is known in more detail (`explain_denied_output`)."""
    return git_words(command) is None and reads_whole_folders(inner_argv(command))


def compares_folders(command: SimpleCommand, step: TargetStep, fs: Filesystem) -> bool:
    """Whether `diff` gets a folder: it prints the contents of the files there."""
    inner = unwrap(command)
    compares = inner is not None and program_name(inner.argv[0]) == "diff"
    return compares and any(fs.entries(name, MAX_ENTRIES) != {} for name in step.names)


def may_match_denied(simple: SimpleCommand, step: TargetStep, command: ProvenCommand) -> bool:
    """Whether a glob, or the name filter of a `find`, may match a file that a rule denies or asks about."""
    if not simple.globs and not step.fed:
        return False
    hidden = matches_hidden(command.line.text)
    words = [*((simple.argv[index], hidden) for index in simple.globs), *((glob, True) for glob in step.fed)]
    specs = [rule.spec or "" for rule in command.rules.restricting_rules(writing=False)]
    return any(may_expand_to(word, spec, hidden=matches) for word, matches in words for spec in specs)


def matches_hidden(text: str) -> bool:
    """Whether globs may match names that begin with a dot."""
    return any(option in text for option in MATCHES_HIDDEN)


def may_expand_to(word: str, spec: str, *, hidden: bool = True) -> bool:
    """Whether a glob may become the last name of a pattern; without `hidden`, `*` matches no name with a dot first."""
    name = spec.removesuffix("/**").rstrip("/").rpartition("/")[2]
    if WILD.search(name) or len(word) > MAX_PATTERN_CHARACTERS:
        return True
    pieces = [piece for piece in word.split("/") if piece and (hidden or name[:1] != "." or piece[0] not in "*?[")]
    return any(name_test(piece)(name) for piece in pieces)


# Mentioned files.


def find_mentioned_restrictions(
    text: str, line: CommandLine | None, request: ToolRequest, rules: RuleSet, fs: Filesystem
) -> Assessment:
    if (
        line is not None
        and not has_nested_commands(line)
        and not any(rules.path_rules(kind, "", writing=True) for kind in RESTRICTING)
    ):
        return Assessment()
    mentions = find_mentions(text, request.cwd, request.home or fs.home, line)
    reads, writes = list(map(fs.resolve, mentions.reads)), list(map(fs.resolve, mentions.writes))
    # A line that is not proven is allowed only by a rule for all commands, or for exactly its text.
    is_allowed = rules.rules_for_tool("allow", "Bash") if line else rules.find_tool_rule("allow", "Bash")
    return Assessment(
        deny=find_file_rule("deny", reads, writes, rules, fs),
        ask=find_file_rule("ask", reads, writes, rules, fs),
        critical=find_mentioned_reason(mentions, rules, fs),
        hazard=PROTECTED if has_protected_target(writes, fs) else "",
        unapproved=find_unapproved_target(mentions, rules, fs) if is_allowed else "",
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


def find_mentioned_reason(mentions: Mentions, rules: RuleSet, fs: Filesystem) -> str:
    """Why a text may use restricted files: it names one, or it is not known which files it uses."""
    reading, writing = rules.restricting_rules(writing=False), rules.restricting_rules(writing=True)
    if not writing:
        return ""
    if reading and any(rules.is_hidden(path, fs) for path in mentions.words):
        return MENTIONS_DENIED
    if any(fs.resolve(path).real is None for path in (*mentions.reads, *mentions.writes, *mentions.words)):
        return ENDLESS
    targets = list(map(fs.resolve, mentions.targets))
    if mentions.too_many or any(find_file_rule(each, (), targets, rules, fs) for each in RESTRICTING):
        return MENTIONS_DENIED
    if mentions.has_unknown_folder:
        return UNKNOWN_FOLDER
    if reading and mentions.unknown_read:
        return UNKNOWN_READ.format(word=shorten(mentions.unknown_read))
    if mentions.unknown_write:
        return UNKNOWN_WRITE.format(word=shorten(mentions.unknown_write))
    if reading and (mentions.reads_whole_folders or matches_any(mentions.patterns, reading)):
        return MAY_READ_DENIED
    return find_restricted_folder([*mentions.folders, *mentions.writes], writing, rules, fs)


def matches_any(words: Iterable[str], restricting: Sequence[Rule]) -> bool:
    """Whether a glob or brace may become the name of a restricted file, or there are too many to compare."""
    globs = [BRACES.sub("*", word) for word in words]
    if len(globs) * len(restricting) > MAX_COMPARISONS:
        return True
    return any(may_expand_to(word, rule.spec or "") for word in globs for rule in restricting)


def find_unapproved_target(mentions: Mentions, rules: RuleSet, fs: Filesystem) -> str:
    """Why a text may write a protected file behind a program that a rule allows."""
    if mentions.unknown_target:
        return UNKNOWN_TARGET.format(word=shorten(mentions.unknown_target))
    for name in (name for path in mentions.targets for name in fs.resolve(path).names):
        inner = relative_parts(name, rules.cwd)  # a session that started in a protected folder may work there
        if is_protected(name if inner is None else "/".join(inner)) or is_git_internal(name, fs.exists):
            return PROTECTED
    return ""
