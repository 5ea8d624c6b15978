"""What is to be known of the git commands of a line: where they run, what that repository says, what they print.

    apply_repository_findings(assessment, line, request, rules, created, fs)
        # not allowed where the repository may run something
    explain_denied_output(line, request, rules, fs)                    # which denied files they may print
    find_named_files(line, request, fs)                             # files like the one in `git show HEAD:.env`

See also: repositories (repository.py), the words of git (shell/git.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from parley.permissions.assessment import Assessment
from parley.permissions.base import Filesystem, ResolvedPath, ToolRequest
from parley.permissions.git import config
from parley.permissions.git.repository import HOOKS, READ_HOOKS, find_repositories, is_session_repository, survey
from parley.permissions.paths import patterns
from parley.permissions.paths.patterns import relative_parts
from parley.permissions.rule import Rule
from parley.permissions.rules import IN_WORKTREE, RuleSet
from parley.permissions.shell import CommandLine, SimpleCommand
from parley.permissions.shell.readonly.check import files_read
from parley.permissions.shell.readonly.git import (
    PRINTS_NOTHING,
    WILD,
    GitCall,
    PrintedPaths,
    find_named_paths,
    find_printed_paths,
    parse_git_call,
    path_in_revision,
    shows_urls,
)
from parley.permissions.shell.wrappers import unwrap

MAX_FOLDERS = 16
NEEDS_NO_INDEX = config.word_set(
    "log show rev-parse branch tag show-ref config remote version blame for-each-ref cat-file ls-tree rev-list "
    "merge-base name-rev reflog shortlog count-objects init clone"
)
ADVICE = "; `parley trust` accepts what the repository of a folder says"

ApprovedBy = Literal["reader", "rule"]
CONCERNS: dict[ApprovedBy, frozenset[str]] = {
    "reader": frozenset(["program", "network", "read hook", "elsewhere"]),
    "rule": frozenset(["program", "alias"]),
}
"""Which findings speak against a command that only reads, and which against any other that a rule allows."""


def git_words(command: SimpleCommand) -> Sequence[str] | None:
    """The words of a command that runs git, or of one that may."""
    inner = unwrap(command)
    if inner is None:
        return ("git",)
    return inner.argv if inner.argv[0].rpartition("/")[2] == "git" else None


def apply_repository_findings(
    assessment: Assessment,
    line: CommandLine,
    request: ToolRequest,
    rules: RuleSet,
    created: Sequence[ResolvedPath],
    fs: Filesystem,
) -> Assessment:
    """The facts of a line, less what the repository that its git commands find speaks against."""
    by_rule = find_git_concern(line, request, rules, created, fs, "rule") if assessment.allow else ""
    if assessment.allow and not by_rule:
        return assessment
    by_mode = find_git_concern(line, request, rules, created, fs, "reader") if assessment.category != "other" else ""
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


def find_git_concern(
    line: CommandLine,
    request: ToolRequest,
    rules: RuleSet,
    created: Sequence[ResolvedPath],
    fs: Filesystem,
    by: ApprovedBy,
) -> str:
    """Why the git commands of a line may not run unasked; empty if they may, or if there are none."""
    calls = [(command, words) for command in line.commands if (words := git_words(command))]
    if not calls:
        return ""
    folders = _find_folders(line, request.cwd)
    if folders is None:
        return "It runs git in a folder that is not known"
    names = {name for resolved in created for name in resolved.names}
    for command, words in calls:
        call = parse_git_call(words)
        if by == "rule" and (text := _explain_unusual_option(call)):
            return text
        reads = by == "reader" or files_read(command) is not None
        for folder in folders:
            directory = os.path.join(folder, *call.folders)
            if text := _find_concern_at(directory, words, names, rules, fs, reads=reads, ruled=by == "rule"):
                return text
    return ""


def _find_folders(line: CommandLine, cwd: str) -> list[str] | None:
    """Where the commands of a line may run; None if that is not known."""
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
    """An option before the subcommand that takes git to other programs or another repository."""
    if call.unusual_option:
        return f"git {call.unusual_option} may lead to another repository or to other programs"
    for setting in call.settings:
        name, equals, value = setting.partition("=")
        entry = config.make_entry(name, value if equals else None)
        if config.find_concern(entry) or entry.key in ("core.worktree", "core.hookspath"):
            return f"git -c sets {name}, which may name a program"
    return ""


def _find_concern_at(
    folder: str,
    words: Sequence[str],
    created: Collection[str],
    rules: RuleSet,
    fs: Filesystem,
    *,
    reads: bool,
    ruled: bool,
) -> str:
    real = fs.resolve(folder).real
    if real is None or any(relative_parts(real, name) is not None for name in created):
        return f"git runs in {folder}, which the line itself changes"
    submodules = parse_git_call(words).subcommand not in NEEDS_NO_INDEX
    against = CONCERNS["reader" if reads else "rule"]
    hooks, urls = READ_HOOKS if reads else HOOKS, reads and shows_urls(words)
    for found, told in survey(
        real, fs, rules.working_directories(), created=created, hooks=hooks, submodules=submodules
    ):
        known = rules.repository if is_session_repository(found, rules.repository, fs) else None
        changes = any(
            relative_parts(name, directory) is not None
            for name in created
            for directory in (found.common_dir, found.gitdir)
        )
        if changes or (found.is_bare and (not ruled or known is None)):
            return f"{found.top} looks like a repository (HEAD, objects, refs), and git would obey what is in it"
        for finding in told:
            if finding.kind == "secret":
                if urls:
                    return f"{finding.text}, and git would print it"
            elif known is not None and finding in known.accepted:
                continue
            elif finding.kind in against or (finding.kind == "hook" and known is None):
                return f"{finding.text}, so that git may run a program or reach out of the folder{ADVICE}"
    if urls and (file := _find_user_secret(fs)):
        return f"{file} has a password in a URL, and git would print it"
    return ""


def _find_user_secret(fs: Filesystem) -> str:
    """The person's own configuration may put a password into every URL (`url.x.insteadOf`)."""
    for name in (".gitconfig", ".config/git/config"):
        path = os.path.join(fs.home, name)
        if config.has_secret(os.fsdecode(fs.read(path, config.MAX_BYTES) or b"")):
            return path
    return ""


# What is printed.


def find_named_files(line: CommandLine, request: ToolRequest, fs: Filesystem) -> list[ResolvedPath]:
    """Files that git commands name from the top of the working tree, as in `HEAD:path` and `:(top)path`."""
    found: dict[str, None] = {}
    for words in filter(None, map(git_words, line.commands)):
        if parse_git_call(words).subcommand in PRINTS_NOTHING - {"blame"}:
            continue  # `HEAD:x` is a branch to `git push`, and any text in a message
        for path in find_named_paths(words):
            for folder in _find_folders(line, request.cwd) or [request.cwd]:
                directory = os.path.join(folder, *parse_git_call(words).folders)
                found.update(dict.fromkeys(os.path.join(top, path) for top in _find_tops(directory, fs)))
    return [fs.resolve(path) for path in found]


def _find_tops(folder: str, fs: Filesystem) -> list[str]:
    return [found.top for found in find_repositories(folder, fs)] or [folder]


def explain_denied_output(line: CommandLine, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> str:
    """Why git may print files that a rule denies; empty if it does not."""
    denying = rules.path_rules("deny", "Read", writing=False)
    provable = denying and all(files_read(command) is not None for command in line.commands)  # the index stays as it is
    for command in line.commands if denying else ():
        words = git_words(command)
        found = find_printed_paths(words) if words else None
        if not words or found is None:
            continue
        if (inner := unwrap(command)) and inner.is_open_ended:
            found = PrintedPaths(None)  # more files will be named
        for folder in _find_folders(line, request.cwd) or ["/"]:
            directory = os.path.join(folder, *parse_git_call(words).folders)
            tops = _find_tops(directory, fs)
            areas = [area for top in tops for area in _printed_folders(found, directory, top, fs)]
            matching = [rule for rule in denying if any(_may_match_inside(rule, area, rules, fs) for area in areas)]
            if matching and not (provable and _is_untracked(matching, words, directory, rules, fs)):
                rule = matching[0]
                return f"git {parse_git_call(words).subcommand} may print files that the rule {rule.text} denies"
    return ""


def _is_untracked(denying: Sequence[Rule], words: Sequence[str], folder: str, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether a command prints files of the index only, and surely none of them is denied."""
    from parley.permissions.git.tracked import prints_index_only, tracks_none  # only where a rule denies files

    if not prints_index_only(words):
        return False
    found = find_repositories(folder, fs)
    sure = len(found) == 1 and found[0].is_certain and not found[0].is_bare
    return sure and tracks_none(denying, found[0], (folder, *rules.working_directories(), fs.home), fs)


def _printed_folders(found: PrintedPaths, folder: str, top: str, fs: Filesystem) -> list[str]:
    """The folders that a command may print files of. A file that is named in full is judged by its name."""
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
    """Whether a rule may fit a file in a folder."""
    spec, directories = (
        rule.spec or "",
        dict.fromkeys((area, fs.resolve(area).real or area, IN_WORKTREE.sub("/", area))),
    )
    for cwd in dict.fromkeys(
        each for folder in rules.working_directories() for each in (folder, fs.resolve(folder).real or folder)
    ):
        base, pattern, floats = patterns.anchor(spec, rule.root, cwd, fs.home)
        anywhere = floats and "/" not in pattern.removesuffix("/**").rstrip("/")
        start = patterns.normalize_name(base) if anywhere else patterns.literal_prefix(spec, rule.root, cwd, fs.home)
        if any(_overlap(start, patterns.normalize_name(os.path.normpath(directory))) for directory in directories):
            return True
    return False


def _overlap(first: str, second: str) -> bool:
    return relative_parts(first, second) is not None or relative_parts(second, first) is not None
