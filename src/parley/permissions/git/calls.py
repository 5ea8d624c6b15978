"""The git commands of a line: where they run, what the repository there may run, and what they print.

    apply_repository_findings(assessment, command)    # not allowed if the repository may run a program
    explain_denied_output(command)                    # which denied files the commands may print
    find_named_files(command)                         # files like the one in `git show HEAD:.env`

See also: repositories (repository.py), the arguments of git (shell/git_arguments.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from parley.permissions.base import Assessment, word_set
from parley.permissions.filesystem import Filesystem, ResolvedPath
from parley.permissions.git import config
from parley.permissions.git.repository import (
    GITLINK,
    HOOKS,
    LOCAL_REMOTE,
    MAX_INDEX_BYTES,
    READ_HOOKS,
    Repository,
    find_repositories,
    is_session_repository,
    survey,
)
from parley.permissions.patterns import anchor, literal_prefix, relative_parts
from parley.permissions.proven_command import ProvenCommand
from parley.permissions.rule import Rule
from parley.permissions.rules import IN_WORKTREE, RuleSet
from parley.permissions.shell.arguments import git_words, parse_arguments, unwrap
from parley.permissions.shell.git_arguments import (
    PRINTS_NOTHING,
    READERS,
    WILD,
    GitCall,
    PrintedPaths,
    find_named_paths,
    find_printed_paths,
    parse_git_call,
    path_in_revision,
    shows_urls,
)
from parley.permissions.shell.prefix_rules import GIT_CHANGES_TREE, find_push_target
from parley.permissions.shell.readers import files_read
from parley.permissions.shell.strict_parser import CommandLine
from parley.workspace.sensitive_names import normalize_name

MAX_FOLDERS = 16
NEEDS_NO_INDEX = word_set(
    "log show rev-parse branch tag show-ref config remote version blame for-each-ref cat-file ls-tree rev-list "
    "merge-base name-rev reflog shortlog count-objects init clone"
)
ADVICE = "; run `parley trust` to accept the configuration of this repository"
PLAIN = re.compile(r"[\w.*?/~ -]+", re.ASCII)
STARS = re.compile(r"[*?]+")
FULL_PATHS = (b"\0\0\0\x02", b"\0\0\0\x03")
"""The versions of an index that holds complete paths."""
UNUSUAL_INDEX = (b"link\0\0", b"sdir\0\0")
"""The marks of a split index, and of one with folders in place of their files."""
SETS_REMOTES = word_set("remote config init clone")
OLD_REMOTES = ("remotes", "branches")
"""Folders of a repository in which old versions of git keep the addresses of remotes."""
UNTRACKED = re.compile(r"-\w*[ua]\w*|--(?:include-untracked|all)")
"""With these flags, `git stash` also removes files that are not tracked."""
NOT_BY_INDEX = ("cached", "staged", "merge-base", "untracked", "no-index")

ApprovedBy = Literal["reader", "rule"]
CONCERNS: dict[ApprovedBy, frozenset[str]] = {
    "reader": frozenset(["program", "network", "read hook", "elsewhere"]),
    "rule": frozenset(["program", "alias"]),
}
"""The findings that matter for a command that only reads, and for any other that a rule allows."""


def apply_repository_findings(assessment: Assessment, command: ProvenCommand) -> Assessment:
    """The assessment without the allow or category that the repository of its git commands rules out."""
    by_rule = find_git_concern(command, "rule") if assessment.allow else ""
    if assessment.allow and not by_rule:
        return assessment
    by_mode = find_git_concern(command, "reader") if assessment.category != "other" else ""
    if not by_rule and not by_mode:
        return assessment
    return msgspec.structs.replace(
        assessment,
        allow=None if by_rule else assessment.allow,
        category="other" if by_mode else assessment.category,
        reason=by_rule or by_mode,
        reason_type="other",
        suggestions=(),
    )


def find_git_concern(command: ProvenCommand, by: ApprovedBy) -> str:
    """Why the git commands of a line need approval; empty if they do not, or if there are none."""
    calls = [(simple, words) for simple in command.line.commands if (words := git_words(simple))]
    if not calls:
        return ""
    folders = _find_folders(command.line, command.request.cwd)
    if folders is None:
        return "It runs git in an unknown folder"
    created = {name for resolved in command.files.writes for name in resolved.names}
    subcommands = {parse_git_call(words).subcommand for _, words in calls}
    if by == "rule" and "push" in subcommands and subcommands & SETS_REMOTES:
        return "It changes or creates a repository and then pushes, perhaps to one on this machine"
    for simple, words in calls:
        call = parse_git_call(words)
        if by == "rule" and (reason := _explain_unusual_option(call)):
            return reason
        reads = by == "reader" or files_read(simple) is not None
        for folder in folders:
            directory = os.path.join(folder, *call.folders)
            if reason := _find_concern_at(directory, words, created, command, reads=reads, by=by):
                return reason
    return ""


def _find_folders(line: CommandLine, cwd: str) -> list[str] | None:
    """The folders in which commands of a line may run; None if they are not known."""
    folders = [cwd]
    for command in line.commands:
        inner = unwrap(command)
        if inner is None or inner.argv[0] not in ("cd", "pushd", "popd"):
            continue
        destinations = [word for word in inner.argv[1:] if word[:1] != "-"]
        if inner.argv[0] != "cd" or len(destinations) != 1 or len(folders) > MAX_FOLDERS:
            return None
        folders += [
            directory for folder in folders if (directory := os.path.join(folder, destinations[0])) not in folders
        ]
    return folders


def _explain_unusual_option(call: GitCall) -> str:
    """Why an option before the subcommand is not allowed by a rule."""
    if call.unusual_option:
        return f"git {call.unusual_option} may use another repository or other programs"
    for setting in call.settings:
        name, equals, value = setting.partition("=")
        entry = config.make_entry(name, value if equals else None)
        if config.find_local_remote(entry) is not None:
            return f"git -c sets {name} to a repository on this machine, and its hooks would run"
        if config.find_concern(entry) or entry.key in ("core.worktree", "core.hookspath"):
            return f"git -c sets {name}, which may name a program"
    return ""


def _find_concern_at(
    folder: str,
    words: Sequence[str],
    created: Collection[str],
    command: ProvenCommand,
    *,
    reads: bool,
    by: ApprovedBy,
) -> str:
    """Why git needs approval in a folder. `created` are the paths that the line writes."""
    rules, fs = command.rules, command.fs
    real = fs.resolve(folder).real
    if real is None or any(relative_parts(real, name) is not None for name in created):
        return f"git runs in {folder}, which the same command line changes"
    call = parse_git_call(words)
    submodules = call.subcommand not in NEEDS_NO_INDEX
    remote = find_push_target(words[call.begin :]) if call.subcommand == "push" else None
    concerns = CONCERNS["reader" if reads else "rule"]
    hooks, urls = READ_HOOKS if reads else HOOKS, reads and shows_urls(words)
    for found, findings in survey(
        real, fs, rules.working_directories(), created=created, hooks=hooks, submodules=submodules
    ):
        session = rules.repository if is_session_repository(found, rules.repository, fs) else None
        changes = any(
            relative_parts(name, directory) is not None
            for name in created
            for directory in (found.common_dir, found.gitdir)
        )
        if changes or (found.is_bare and (by != "rule" or session is None)):
            return f"{found.top} looks like a repository (HEAD, objects, refs), and git would use its configuration"
        for finding in findings:
            if finding.kind == "secret":
                if urls:
                    return f"{finding.text}, and git would print it"
            elif session is not None and finding in session.accepted:
                continue
            elif finding.kind == LOCAL_REMOTE:
                if remote is not None and (not remote or not finding.value or remote == finding.value):
                    return f"{finding.text}, and its hooks would run{ADVICE}"
            elif finding.kind in concerns or (finding.kind == "hook" and session is None):
                return f"{finding.text}, so git may run a program or access something outside the folder{ADVICE}"
        for name in [] if remote is None else [remote] if remote else _find_default_remotes(call, found, fs):
            is_path = any(fs.exists(os.path.join(folder, f"{name}{end}")) for end in ("", ".git"))
            if is_path and not _has_remote(name, found, fs):
                return f"{name} is a repository on this machine, and its hooks would run"
            if any(fs.exists(os.path.join(found.common_dir, folder, name)) for folder in OLD_REMOTES):
                return f"{name} is a remote that no configuration lists, and it may be on this machine"
    if urls and (file := _find_user_secret(fs)):
        return f"{file} has a password in a URL, and git would print it"
    return ""


def _find_default_remotes(call: GitCall, found: Repository, fs: Filesystem) -> list[str]:
    """The remotes to which git may push without a target."""
    settings = [config.make_entry(name, value) for name, _, value in (each.partition("=") for each in call.settings)]
    entries = (*_read_config(found, fs), *settings)
    return ["origin", *(entry.value for entry in entries if config.is_default_remote(entry) and entry.value)]


def _has_remote(name: str, found: Repository, fs: Filesystem) -> bool:
    return any(entry.section == "remote" and entry.subsection == name for entry in _read_config(found, fs))


def _read_config(found: Repository, fs: Filesystem) -> tuple[config.ConfigEntry, ...]:
    try:
        return config.parse(fs.read(os.path.join(found.common_dir, "config"), config.MAX_BYTES) or b"")
    except config.UnreadableConfig:
        return ()


def _find_user_secret(fs: Filesystem) -> str:
    """The user's git configuration, if it may put a password into URLs (`url.x.insteadOf`)."""
    for name in (".gitconfig", ".config/git/config"):
        path = os.path.join(fs.home, name)
        if config.has_secret(os.fsdecode(fs.read(path, config.MAX_BYTES) or b"")):
            return path
    return ""


# Output.


def find_named_files(command: ProvenCommand) -> list[ResolvedPath]:
    """Files that git commands name from the top of the working tree, as in `HEAD:path` and `:(top)path`."""
    line, cwd, fs = command.line, command.request.cwd, command.fs
    found: dict[str, None] = {}
    for words in filter(None, map(git_words, line.commands)):
        if parse_git_call(words).subcommand in PRINTS_NOTHING - {"blame"}:
            continue  # `HEAD:x` is a branch for `git push`, and can be any text in a message
        for path in find_named_paths(words):
            for folder in _find_folders(line, cwd) or [cwd]:
                directory = os.path.join(folder, *parse_git_call(words).folders)
                found.update(dict.fromkeys(os.path.join(top, path) for top in _find_tops(directory, fs)))
    return [fs.resolve(path) for path in found]


def _find_tops(folder: str, fs: Filesystem) -> list[str]:
    return [found.top for found in find_repositories(folder, fs)] or [folder]


def explain_denied_output(command: ProvenCommand) -> str:
    """Why git may print files that a rule denies or asks about; empty if it does not."""
    line, rules, fs = command.line, command.rules, command.fs
    denying = rules.restricting_rules(writing=False)
    # If every command only reads, the index does not change.
    is_provable = denying and all(files_read(simple) is not None for simple in line.commands)
    for simple in line.commands if denying else ():
        words = git_words(simple)
        printed = find_printed_paths(words) if words else None
        if not words or printed is None:
            continue
        if (inner := unwrap(simple)) and inner.is_open_ended:
            printed = PrintedPaths(None)  # xargs adds more files
        for folder in _find_folders(line, command.request.cwd) or ["/"]:
            directory = os.path.join(folder, *parse_git_call(words).folders)
            tops = _find_tops(directory, fs)
            areas = [area for top in tops for area in _printed_folders(printed, directory, top, fs)]
            matching = [rule for rule in denying if any(_may_match_inside(rule, area, rules, fs) for area in areas)]
            if matching and not (is_provable and _is_untracked(matching, words, directory, rules, fs)):
                rule = matching[0]
                return f"git {parse_git_call(words).subcommand} may print files that the rule {rule.text} restricts"
    return ""


def explain_restricted_changes(command: ProvenCommand) -> str:
    """Why git may change files that a rule restricts, without naming them; empty if it does not."""
    rules, fs = command.rules, command.fs
    restricting = rules.restricting_rules(writing=True)
    for simple in command.line.commands:
        words = git_words(simple) or ()
        call = parse_git_call(words)
        rest = words[call.begin :]
        creates_branch = call.subcommand in ("checkout", "switch") and len(rest) == 2 and rest[0] in ("-b", "-c")
        if call.subcommand not in GIT_CHANGES_TREE or creates_branch or files_read(simple) is not None:
            continue
        any_file = call.subcommand in ("apply", "am", "clean") or any(map(UNTRACKED.fullmatch, rest))
        for folder in _find_folders(command.line, command.request.cwd) or ["/"]:
            directory = os.path.join(folder, *call.folders)
            for found in find_repositories(directory, fs):
                matching = [rule for rule in restricting if _may_match_inside(rule, found.top, rules, fs)]
                paths = (directory, *rules.working_directories(), fs.home)
                if matching and (any_file or not _tracks_none(matching, found, paths, fs)):
                    return f"git {call.subcommand} may change files that the rule {matching[0].text} restricts"
    return ""


def _printed_folders(found: PrintedPaths, folder: str, top: str, fs: Filesystem) -> list[str]:
    """The folders whose files a command may print. A file that is named in full is checked by its name."""
    areas, files = [], 0
    for word in found.paths or ():
        path = os.path.join(folder, word)
        if WILD.search(word) or word.startswith(":"):
            return [top]
        if fs.is_folder(path):
            areas.append(path)
        elif fs.exists(path):
            files += 1
        elif found.explicit or path_in_revision(word) is not None:
            return [top]
    return areas if areas or files else [top]


def _may_match_inside(rule: Rule, area: str, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether a rule may match a file in a folder."""
    spec, directories = (
        rule.spec or "",
        dict.fromkeys((area, fs.resolve(area).real or area, IN_WORKTREE.sub("/", area))),
    )
    for cwd in dict.fromkeys(
        each for folder in rules.working_directories() for each in (folder, fs.resolve(folder).real or folder)
    ):
        base, pattern, floats = anchor(spec, rule.root, cwd, fs.home)
        anywhere = floats and "/" not in pattern.removesuffix("/**").rstrip("/")
        start = normalize_name(base) if anywhere else literal_prefix(spec, rule.root, cwd, fs.home)
        if any(_overlap(start, normalize_name(os.path.normpath(directory))) for directory in directories):
            return True
    return False


def _overlap(first: str, second: str) -> bool:
    return relative_parts(first, second) is not None or relative_parts(second, first) is not None


# Tracked files.


def _is_untracked(denying: Sequence[Rule], words: Sequence[str], folder: str, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether a command prints only files of the index, and certainly none that is denied."""
    if not _prints_index_only(words):
        return False
    found = find_repositories(folder, fs)
    is_certain = len(found) == 1 and found[0].is_certain and not found[0].is_bare
    return is_certain and _tracks_none(denying, found[0], (folder, *rules.working_directories(), fs.home), fs)


def _prints_index_only(words: Sequence[str]) -> bool:
    """Whether a command prints only files of the index: `git diff` without a revision, `git grep`."""
    call = parse_git_call(words)
    if call.subcommand not in ("diff", "grep") or call.unusual_option or call.settings:
        return False
    found = parse_arguments(READERS[call.subcommand], words, call.begin)
    if found is None or found.has_flag(*NOT_BY_INDEX):
        return False
    operands = found.operands[1:] if call.subcommand == "grep" and not found.has_flag("e", "f") else found.operands
    dashes = words.index("--") if "--" in words else len(words)
    return all(position > dashes for position in operands)  # any other may be a revision


def _tracks_none(rules: Iterable[Rule], found: Repository, paths: Iterable[str], fs: Filesystem) -> bool:
    """Whether no file of the index matches a rule, wherever the working tree is.

    Every file that a rule matches has each literal part of the pattern's last name in its path. A part that is
    neither in the index nor in the path of the working tree cannot be printed.
    """
    data = fs.read(os.path.join(found.gitdir, "index"), MAX_INDEX_BYTES)
    if data is None or data[:4] != b"DIRC" or data[4:8] not in FULL_PATHS or found.problem:
        return False
    if any(mark in data for mark in UNUSUAL_INDEX) or b"\0\0" + GITLINK in data:
        return False
    parts = {_longest_part(rule.spec or "") for rule in rules}
    above = "\n".join(map(normalize_name, (found.top, *paths)))
    names = data.lower()
    return not any(part is None or part in above or part.encode() in names for part in parts)


def _longest_part(spec: str) -> str | None:
    """The longest text in the last name of a pattern that every match contains; None if there is none."""
    name = spec.removesuffix("/**").rstrip("/").rpartition("/")[2]
    part = max(STARS.split(name), key=len) if PLAIN.fullmatch(spec) else ""
    return normalize_name(part) if len(part) > 1 and part not in ("..", "~") else None
