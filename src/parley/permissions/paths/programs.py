"""Which file the name of a program runs.

The tables know `wc` by its name. A folder of the working tree on PATH (`.venv/bin`, `node_modules/.bin`) may hold
another program of that name: it is not the one in the tables. So a name is looked up as the shell will do it, and a
file in a working directory is neither a reader nor an editor nor a wrapper.

Between the decision and the run a program could be put in front of the system's. That is why nothing but a person's
word is enough to write a file with such a name into a folder of PATH.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from parley.permissions.base import Request, View, Way
from parley.permissions.paths.filesystem import plain
from parley.permissions.paths.patterns import beneath
from parley.permissions.rules import Rules
from parley.permissions.shell import Line, Simple, Step
from parley.permissions.shell.ast import names
from parley.permissions.shell.edits import EDITS
from parley.permissions.shell.readonly.check import TRUSTED_FOLDERS
from parley.permissions.shell.readonly.special import CHECKS
from parley.permissions.shell.readonly.tables import READERS, VERSIONS
from parley.permissions.shell.wrappers import WRAPPERS, unwrapped
from parley.workspace.search_path import find, folders, interpreter

BUILTINS = names(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo "
    "enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile noglob popd "
    "printf pushd pwd read readarray readonly return set shift shopt source suspend test time times trap true type "
    "typeset ulimit umask unalias unset wait"
)
"""The shell runs these itself, whatever is on PATH."""
STARTERS = names("timeout nice nohup stdbuf xargs")
"""Wrappers that are programs: behind them even `echo` is looked up on PATH."""
ALSO_RUN = {"egrep": ("grep",), "fgrep": ("grep",), "git": ("git-lfs",)}
"""What finds another program on PATH; the usual filter of git-lfs is harmless if it is the system's."""
KNOWN = frozenset({*READERS, *CHECKS, *EDITS, *WRAPPERS, *(name for name, *_ in VERSIONS), "git", "git-lfs"})
"""The programs that the tables trust by name."""
SHADOWED = KNOWN - BUILTINS
Parts = tuple[tuple[str, bool], ...]
"""Parts of a PATH, and whether their folders are in a working directory."""
VERSION = re.compile(r"[\d.]*$")
OPEN_TO_ALL = ("/tmp/", "/var/tmp/", "/dev/", "/proc/", "/run/")
"""Where anyone may have put a program."""
PLANTED = "{name} is {place} here, a program in a working directory, and not the one of the system"
SHADOWS = "{path} is in a folder of PATH, so that it would run in place of the system's {name}"
REPLACES = "It puts a folder at {path}, which is a folder of PATH or above one: what is in it would run as a command"


def planted(line: Line, request: Request, rules: Rules, view: View) -> dict[str, str]:
    """The trusted names of a line that would run a file of a working directory, and which file."""
    names = {name for command in line.commands for name in looked_up(command)}
    if request.path is None or not names:
        return {}
    own, found = own_folders(rules, view), {}
    for path in (request.path, *(assigned(line, request.cwd) if "PATH" in line.text else ())):
        parts = split(path, own)
        for name in names:
            place = next((place for place in run_by(name, parts, view) if is_planted(place, rules, view)), None)
            if place is not None:
                found[name] = place
    return found


def run_by(name: str, parts: Parts, view: View) -> Iterator[str]:
    """The files outside of the system's folders that a name runs: the program, and what its script finds on PATH."""
    for each in (name, *ALSO_RUN.get(name, ())):
        place = located(each, parts, view)
        if place is not None and not place.startswith(TRUSTED_FOLDERS):
            yield place
            inner = interpreter(place) if len(parts) > 1 else None
            if inner is not None and (found := located(inner, parts, view)) is not None:
                yield found


def assigned(line: Line, cwd: str) -> list[str]:
    """What the line itself makes of PATH; only a rule for exactly that command allows it."""
    words = (word.partition("=") for command in line.commands for word in command.argv[1:] if word.startswith("PATH="))
    pairs = (pair for command in line.commands for pair in command.assignments)
    values = [*(value for _, _, value in words), *(value for name, value in pairs if name == "PATH")]
    return [":".join(f"{cwd}/{entry}" if entry[:1] != "/" else entry for entry in value.split(":")) for value in values]


def looked_up(command: Simple) -> Iterable[str]:
    """The names of programs that the tables know, and that the shell searches for on PATH."""
    inner = unwrapped(command)
    chain = (*inner.wrappers, inner.argv[0]) if inner else command.argv[:1]
    return [name for place, name in enumerate(chain) if name in SHADOWED or (name in KNOWN and started(chain[:place]))]


def started(wrappers: Sequence[str]) -> bool:
    """Whether what comes after these wrappers is a program in any case."""
    return any(name in STARTERS for name in wrappers)


def located(name: str, parts: Parts, view: View) -> str | None:
    """The file that a name runs; one that is nowhere runs nothing."""
    for part, is_inside in parts:
        if is_inside:
            place = next((place for folder in part.split(":") if view.has(place := f"{folder}/{name}")), None)
        else:
            place = find(part, name)
        if place is not None:
            return place
    return None


@lru_cache(maxsize=64)
def split(path: str, own: tuple[str, ...]) -> Parts:
    """A PATH in parts that lie in folders of the session and parts that do not. Only the second ones may be kept."""
    marked = ((folder, any(beneath(folder, each) is not None for each in own)) for folder in folders(path))
    return tuple((":".join(each[0] for each in part), inside) for inside, part in groupby(marked, lambda each: each[1]))


def own_folders(rules: Rules, view: View) -> tuple[str, ...]:
    """By every name. A session that works in `/` has no other programs than those in it."""
    places = (rules.cwd, *rules.folders, *rules.readable)
    return tuple([name for place in places for name in view.way(place).names if name != "/"])


def is_own(way: Way, rules: Rules, view: View) -> bool:
    """Whether any name of a file lies in a folder of the session."""
    own = own_folders(rules, view)
    return way.real is None or any(beneath(name, folder) is not None for name in way.names for folder in own)


def is_planted(place: str, rules: Rules, view: View) -> bool:
    """Whether a file of the session would run. A link to an installed program of the same name, as virtual
    environments have one to Python, is that program."""
    way = view.way(place)
    if not is_own(way, rules, view):
        return False
    if way.real is None or way.real.startswith(OPEN_TO_ALL) or is_own(Way((way.real,), way.real), rules, view):
        return True
    names = (VERSION.sub("", path.rpartition("/")[2]) for path in (place, way.real))
    return len(set(names)) > 1


def shadows(ways: Iterable[Way], request: Request, view: View) -> str:
    """Why one of these files may not be written unasked: it would be run under the name of a known program."""
    if request.path is None:
        return ""
    for way in ways:
        for path in way.names:
            folder, _, name = path.rpartition("/")
            if name in SHADOWED and (folder in folders(request.path) or view.way(folder).real in reals(request, view)):
                return SHADOWS.format(path=way.names[0], name=name)
    return ""


def replaces(steps: Iterable[Step], request: Request, rules: Rules, view: View) -> str:
    """Why a folder may not be moved or copied unasked: it would become a folder of PATH, or one above it."""
    moved = dict.fromkeys(new for step in steps for _, new in step.moves)
    if request.path is None or not moved:
        return ""
    inside = [name for folder in folders(request.path) for name in view.way(folder).names]
    around = [name for folder in rules.working() for name in view.way(folder).names]
    for new in map(plain, moved):
        if any(is_above(new, name) for name in inside) and not any(is_above(new, name) for name in around):
            return REPLACES.format(path=new)
    return ""


def is_above(folder: str, path: str) -> bool:
    return beneath(path, folder) is not None


def reals(request: Request, view: View) -> set[str | None]:
    return {view.way(folder).real for folder in folders(request.path)}
