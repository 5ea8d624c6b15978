"""What is to be known of the git commands of a line: where they run, what that repository says, what they print.

    with_repository(facts, line, request, rules, made, view)     # not allowed where the repository may run something
    prints_denied(line, request, rules, view)                    # which denied files they may print
    named_files(line, request, view)                             # files like the one in `git show HEAD:.env`

See also: repositories (repository.py), the words of git (shell/git.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from parley.permissions.assessment import Facts
from parley.permissions.base import Request, View, Way
from parley.permissions.git import config
from parley.permissions.git.repository import HOOKS, READ_HOOKS, candidates, findings, is_recorded
from parley.permissions.paths import patterns
from parley.permissions.paths.patterns import beneath
from parley.permissions.rule import Rule
from parley.permissions.rules import IN_WORKTREE, Rules
from parley.permissions.shell import Line, Simple
from parley.permissions.shell.readonly.check import files_read
from parley.permissions.shell.readonly.git import (
    PRINTS_NOTHING,
    WILD,
    Call,
    Printed,
    call_of,
    named,
    path_of,
    printed,
    shows_urls,
)
from parley.permissions.shell.wrappers import unwrapped

MOST_FOLDERS = 16
NEEDS_NO_INDEX = config.names(
    "log show rev-parse branch tag show-ref config remote version blame for-each-ref cat-file ls-tree rev-list "
    "merge-base name-rev reflog shortlog count-objects init clone"
)
ADVICE = "; `parley trust` accepts what the repository of a folder says"

By = Literal["reader", "rule"]
AGAINST: dict[By, frozenset[str]] = {
    "reader": frozenset(["program", "network", "read hook", "elsewhere"]),
    "rule": frozenset(["program", "alias"]),
}
"""Which findings speak against a command that only reads, and which against any other that a rule allows."""


def git_words(command: Simple) -> Sequence[str] | None:
    """The words of a command that runs git, or of one that may."""
    inner = unwrapped(command)
    if inner is None:
        return ("git",)
    return inner.argv if os.path.basename(inner.argv[0]) == "git" else None


def with_repository(facts: Facts, line: Line, request: Request, rules: Rules, made: Sequence[Way], view: View) -> Facts:
    """The facts of a line, less what the repository that its git commands find speaks against."""
    by_rule = git_concern(line, request, rules, made, view, "rule") if facts.allow else ""
    if facts.allow and not by_rule:
        return facts
    by_mode = git_concern(line, request, rules, made, view, "reader") if facts.standing != "other" else ""
    if not by_rule and not by_mode:
        return facts
    return msgspec.structs.replace(
        facts,
        allow=None if by_rule else facts.allow,
        standing="other" if by_mode else facts.standing,
        reason=by_rule or by_mode,
        reason_type="other",
        suggestions=(),
    )


def git_concern(line: Line, request: Request, rules: Rules, made: Sequence[Way], view: View, by: By) -> str:
    """Why the git commands of a line may not run unasked; empty if they may, or if there are none."""
    calls = [(command, words) for command in line.commands if (words := git_words(command))]
    if not calls:
        return ""
    folders = _folders(line, request.cwd)
    if folders is None:
        return "It runs git in a folder that is not known"
    names = {name for way in made for name in way.names}
    for command, words in calls:
        call = call_of(words)
        if by == "rule" and (text := _unusual(call)):
            return text
        reads = by == "reader" or files_read(command) is not None
        for folder in folders:
            place = os.path.join(folder, *call.folders)
            if text := _concern_at(place, words, names, rules, view, reads=reads, ruled=by == "rule"):
                return text
    return ""


def _folders(line: Line, cwd: str) -> list[str] | None:
    """Where the commands of a line may run; None if that is not known."""
    folders = [cwd]
    for command in line.commands:
        inner = unwrapped(command)
        if inner is None or inner.argv[0] not in ("cd", "pushd", "popd"):
            continue
        goals = [word for word in inner.argv[1:] if word[:1] != "-"]
        if inner.argv[0] != "cd" or len(goals) != 1 or len(folders) > MOST_FOLDERS:
            return None
        folders += [place for folder in folders if (place := os.path.join(folder, goals[0])) not in folders]
    return folders


def _unusual(call: Call) -> str:
    """An option before the subcommand that takes git to other programs or another repository."""
    if call.unusual:
        return f"git {call.unusual} may lead to another repository or to other programs"
    for setting in call.settings:
        name, equals, value = setting.partition("=")
        entry = config.entry_of(name, value if equals else None)
        if config.concern(entry) or entry.key in ("core.worktree", "core.hookspath"):
            return f"git -c sets {name}, which may name a program"
    return ""


def _concern_at(
    folder: str, words: Sequence[str], made: Collection[str], rules: Rules, view: View, *, reads: bool, ruled: bool
) -> str:
    real = view.way(folder).real
    if real is None or any(beneath(real, name) is not None for name in made):
        return f"git runs in {folder}, which the line itself changes"
    submodules = call_of(words).subcommand not in NEEDS_NO_INDEX
    against = AGAINST["reader" if reads else "rule"]
    hooks, urls = READ_HOOKS if reads else HOOKS, reads and shows_urls(words)
    for found in candidates(real, view, made):
        known = rules.repository if is_recorded(found, rules.repository, view) else None
        changes = any(beneath(name, place) is not None for name in made for place in (found.common, found.gitdir))
        if changes or (found.bare and (not ruled or known is None)):
            return f"{found.top} looks like a repository (HEAD, objects, refs), and git would obey what is in it"
        for finding in findings(
            found, view, lambda way: rules.is_inside(way, view), made=made, hooks=hooks, submodules=submodules
        ):
            if finding.kind == "secret":
                if urls:
                    return f"{finding.text}, and git would print it"
            elif known is not None and finding in known.accepted:
                continue
            elif finding.kind in against or (finding.kind == "hook" and known is None):
                return f"{finding.text}, so that git may run a program or reach out of the folder{ADVICE}"
    if urls and (file := _secret_of_person(view)):
        return f"{file} has a password in a URL, and git would print it"
    return ""


def _secret_of_person(view: View) -> str:
    """The person's own configuration may put a password into every URL (`url.x.insteadOf`)."""
    for name in (".gitconfig", ".config/git/config"):
        path = os.path.join(view.home, name)
        if config.has_secret(os.fsdecode(view.read(path, config.MOST_BYTES) or b"")):
            return path
    return ""


# What is printed.


def named_files(line: Line, request: Request, view: View) -> list[Way]:
    """Files that git commands name from the top of the working tree, as in `HEAD:path` and `:(top)path`."""
    found: dict[str, None] = {}
    for words in filter(None, map(git_words, line.commands)):
        if call_of(words).subcommand in PRINTS_NOTHING - {"blame"}:
            continue  # `HEAD:x` is a branch to `git push`, and any text in a message
        for path in named(words):
            for folder in _folders(line, request.cwd) or [request.cwd]:
                place = os.path.join(folder, *call_of(words).folders)
                found.update(dict.fromkeys(os.path.join(top, path) for top in _tops(place, view)))
    return [view.way(path) for path in found]


def _tops(folder: str, view: View) -> list[str]:
    return [found.top for found in candidates(folder, view)] or [folder]


def prints_denied(line: Line, request: Request, rules: Rules, view: View) -> str:
    """Why git may print files that a rule denies; empty if it does not."""
    denying = rules.on_paths("deny", "Read", writing=False)
    provable = denying and all(files_read(command) is not None for command in line.commands)  # the index stays as it is
    for command in line.commands if denying else ():
        words = git_words(command)
        found = printed(words) if words else None
        if not words or found is None:
            continue
        if (inner := unwrapped(command)) and inner.open:
            found = Printed(None)  # more files will be named
        for folder in _folders(line, request.cwd) or ["/"]:
            place = os.path.join(folder, *call_of(words).folders)
            tops = _tops(place, view)
            areas = [area for top in tops for area in _areas(found, place, top, view)]
            met = [rule for rule in denying if any(_may_meet(rule, area, rules, view) for area in areas)]
            if met and not (provable and _untracked(met, words, place, rules, view)):
                rule = met[0]
                return f"git {call_of(words).subcommand} may print files that the rule {rule.text} denies"
    return ""


def _untracked(denying: Sequence[Rule], words: Sequence[str], folder: str, rules: Rules, view: View) -> bool:
    """Whether a command prints files of the index only, and surely none of them is denied."""
    from parley.permissions.git.tracked import prints_index_only, tracks_none  # only where a rule denies files

    if not prints_index_only(words):
        return False
    found = candidates(folder, view)
    sure = len(found) == 1 and found[0].sure and not found[0].bare
    return sure and tracks_none(denying, found[0], (folder, *rules.working(), view.home), view)


def _areas(found: Printed, folder: str, top: str, view: View) -> list[str]:
    """The folders that a command may print files of. A file that is named in full is judged by its name."""
    areas, files = [], 0
    for word in found.paths or ():
        path = os.path.join(folder, word)
        if WILD.search(word) or word.startswith(":"):
            return [top]
        if view.is_folder(path):
            areas.append(path)
        elif view.has(path):
            files += 1
        elif found.explicit or path_of(word) is not None:
            return [top]
    return areas if areas or files else [top]


def _may_meet(rule: Rule, area: str, rules: Rules, view: View) -> bool:
    """Whether a rule may fit a file in a folder."""
    spec, places = rule.spec or "", dict.fromkeys((area, view.way(area).real or area, IN_WORKTREE.sub("/", area)))
    for cwd in dict.fromkeys(each for folder in rules.working() for each in (folder, view.way(folder).real or folder)):
        base, pattern, floats = patterns.anchored(spec, rule.root, cwd, view.home)
        anywhere = floats and "/" not in pattern.removesuffix("/**").rstrip("/")
        start = patterns.folded(base) if anywhere else patterns.fixed(spec, rule.root, cwd, view.home)
        if any(_overlap(start, patterns.folded(os.path.normpath(place))) for place in places):
            return True
    return False


def _overlap(first: str, second: str) -> bool:
    return beneath(first, second) is not None or beneath(second, first) is not None
