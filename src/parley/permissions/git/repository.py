"""The repository that git finds from a folder, and whether its configuration and hooks could run something.

A repository that comes with a working tree names programs at will: `core.fsmonitor` runs at `git status`, a filter at
`git diff`, a hook when the index is refreshed. And any folder with `HEAD`, `objects` and `refs` is one to git, so that
a few files that the model wrote can take the place of the repository that a rule was meant for.

    found = candidates("/w/src", view)       # what git may find, up to the first it surely takes
    findings(found[0], view, inside)         # what in it may run a program, reach out, or lead elsewhere

The session's own repository is put on record at its start (`record`). What it said then is accepted if the person
trusts the tree; what is added later is not, and neither is any of it in an untrusted tree.

See also: harmless keys (config.py), what follows for a command (calls.py).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache

from parley.permissions.base import Finding, Recorded, View, Way
from parley.permissions.git import config
from parley.permissions.paths.filesystem import list_ahead, may_be_in, signature
from parley.permissions.paths.patterns import beneath
from parley.protocol.base import Struct

OWN = ".git"
MARKS = ("HEAD", "objects", "refs")
HEAD = re.compile(rb"(?:ref: ?refs/[^\0\n]+|[0-9a-f]{40}|[0-9a-f]{64})\s*")
GITFILE = re.compile(rb"gitdir: ([^\0\n]+)\r?\n*")
MOST_INDEX_BYTES = 1 << 25
MOST_LINE_BYTES = 1 << 13
MOST_SUBMODULES = 64
MOST_ALTERNATES = 5
MOST_KEPT = 16
SETTLED_NANOSECONDS = 2_000_000_000
"""A file that changed this long ago would show another change; two in quick succession may have the same time."""
GITLINK = b"\xe0\0"
"""The mode of a submodule in the index, after two zeros: those are in every entry, and slow to search for."""
READ_HOOKS = ("post-index-change", "reference-transaction")
"""Those that a command which only reads may run: it refreshes the index."""
HOOKS = frozenset(READ_HOOKS) | config.names(
    "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg "
    "post-commit pre-rebase post-checkout post-merge pre-push post-rewrite pre-auto-gc sendemail-validate pre-receive "
    "update post-update post-receive proc-receive push-to-checkout fsmonitor-watchman"
)
LOOKED_AT = ("core.worktree", "core.hookspath", "extensions.objectformat")
KEPT_INSIDE = (
    "HEAD",
    "config",
    "index",
    "objects",
    "objects/pack",
    "objects/info",
    "refs",
    "packed-refs",
    "logs",
    "info",
)


class Repository(Struct, frozen=True):
    """What git takes for a repository."""

    top: str
    """The folder that it was found in: the working tree, or the bare repository itself."""
    gitdir: str
    common: str
    bare: bool
    """It is no `.git`, but a folder that looks like one."""
    sure: bool
    """Git surely takes it, and looks no further."""
    doubt: str = ""
    """Why it is not as git makes it."""


# Where it is.


def candidates(folder: str, view: View, made: Collection[str] = ()) -> list[Repository]:
    """What git may find from a folder, the nearest first. `made` are paths that the line itself makes."""
    found: list[Repository] = []
    here = view.way(folder).real
    while here is not None:
        own = _in(here, OWN)
        if view.has(own) and (not (is_folder := view.is_folder(own)) or _has_marks(own, view, made)):
            real = view.way(own).real or own
            found.append(_repository(here, real, view, bare=False) if is_folder else _behind(here, own, view))
            if found[-1].sure:
                return found
        if _has_marks(here, view, made):
            found.append(_repository(here, here, view, bare=True))
            if found[-1].sure:
                return found
        here = os.path.dirname(here) if here != "/" else None
    return found


def _in(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder != "/" else f"/{name}"


def _behind(top: str, own: str, view: View) -> Repository:
    """What a `.git` stands for: a folder, or a file that says where it is."""
    data = view.read(own, MOST_LINE_BYTES)
    if data is None:
        return _repository(top, view.way(own).real or own, view, bare=False)
    said = GITFILE.fullmatch(data)
    if said is None:
        return Repository(top, own, own, bare=False, sure=False, doubt=f"{own} cannot be read")
    return _repository(top, view.way(os.path.join(top, os.fsdecode(said[1]))).real or own, view, bare=False)


def _repository(top: str, gitdir: str, view: View, *, bare: bool) -> Repository:
    list_ahead(view, gitdir)
    common, doubt, file = gitdir, "", _in(gitdir, "commondir")
    if view.has(file):
        data = view.read(file, MOST_LINE_BYTES) or b""
        common = view.way(os.path.join(gitdir, os.fsdecode(data.rstrip(b"\r\n")))).real or gitdir
        if os.path.dirname(gitdir) != os.path.join(common, "worktrees"):
            doubt = f"{file} leads to {common}"
    head = view.read(_in(gitdir, "HEAD"), MOST_LINE_BYTES)
    folders = view.is_folder(_in(common, "objects")) and view.is_folder(_in(common, "refs"))
    sure = folders and head is not None and HEAD.fullmatch(head) is not None
    return Repository(top, gitdir, common, bare, sure, doubt)


def _has_marks(folder: str, view: View, made: Collection[str]) -> bool:
    if folder.endswith(f"/{OWN}"):
        list_ahead(view, folder)

    def has(mark: str) -> bool:
        path = _in(folder, mark)
        return view.has(path) or (bool(made) and any(beneath(name, path) is not None for name in made))

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


# What is in it.


def findings(
    found: Repository,
    view: View,
    inside: Callable[[Way], bool],
    *,
    made: Collection[str] = (),
    hooks: Collection[str] = HOOKS,
    submodules: bool = True,
) -> list[Finding]:
    """All that may run a program, reach out, or lead elsewhere. `inside` knows the working directories."""
    return list(_Search(view, inside, made, hooks, submodules).of(found))


class _Search:
    def __init__(
        self,
        view: View,
        inside: Callable[[Way], bool],
        made: Collection[str],
        hooks: Collection[str],
        submodules: bool,
    ) -> None:
        self._view = view
        self._inside = inside
        self._made = made
        self._hook_names = hooks
        self._submodules = submodules
        self._left = MOST_SUBMODULES

    def of(self, found: Repository) -> Iterator[Finding]:
        if found.doubt:
            yield Finding("program", found.gitdir, found.doubt)
        list_ahead(self._view, found.common)
        worktree = "config.worktree"
        files = (_in(found.common, "config"), _in(found.gitdir, worktree), _in(found.common, worktree))
        entries: list[config.Entry] = []
        for path in dict.fromkeys(files):
            told, read = self._config(path)
            yield from told
            entries += read
        yield from self._places(found, entries)
        yield from self._hooks(found, entries)
        if self._submodules:
            yield from self._linked(found, entries)

    def _config(self, path: str) -> tuple[tuple[Finding, ...], tuple[config.Entry, ...]]:
        if not self._view.has(path):
            return (), ()
        data = self._view.read(path, config.MOST_BYTES)
        if data is None:
            return (Finding("program", path, f"{path} cannot be read, or is too large"),), ()
        return _judged(path, data)

    def _places(self, found: Repository, entries: Sequence[config.Entry]) -> Iterator[Finding]:
        """Whether the parts of a repository are where git puts them."""
        view, linked_back = self._view, False
        for entry in entries:
            if entry.key == "core.worktree":
                tree = view.way(os.path.join(found.gitdir, entry.value or "")).real
                linked_back = tree == found.top
                if not linked_back and not found.bare:
                    yield Finding("program", found.gitdir, f"core.worktree of {found.gitdir} is {tree}", tree or "")
        if found.gitdir != _in(found.top, OWN) and not found.bare:
            back = view.read(os.path.join(found.gitdir, "gitdir"), MOST_LINE_BYTES) or b""
            named = os.path.join(found.gitdir, os.fsdecode(back.rstrip(b"\r\n")))
            linked_back = linked_back or (bool(back) and view.way(named).real == os.path.join(found.top, OWN))
            if not linked_back and not self._inside(view.way(found.gitdir)):
                yield Finding("elsewhere", found.gitdir, f"{found.top}/.git leads to {found.gitdir}")
        folders = dict.fromkeys((found.gitdir, found.common))
        for path in [f"{folder}/{name}" for folder in folders for name in KEPT_INSIDE]:
            if view.link(path) is not None:  # the folders above are real
                yield Finding("elsewhere", path, f"{path} is a link")
        yield from self._alternates(_in(found.common, "objects"))

    def _alternates(self, objects: str, depth: int = 0) -> Iterator[Finding]:
        file = _in(objects, "info/alternates")
        if not self._view.has(file):
            return
        data = self._view.read(file, MOST_LINE_BYTES)
        for line in (data or b"/").split(b"\n"):
            way = self._view.way(os.path.join(objects, os.fsdecode(line)))
            if not line or line.startswith(b"#"):
                continue
            if way.real is None or depth >= MOST_ALTERNATES or not self._inside(way):
                yield Finding("elsewhere", file, f"{file} leads to {way.real}")
            else:
                yield from self._alternates(way.real, depth + 1)

    def _hooks(self, found: Repository, entries: Sequence[config.Entry]) -> Iterator[Finding]:
        home = f"{self._view.home.rstrip('/')}/"
        given = [entry.value or "" for entry in entries if entry.key == "core.hookspath"]
        paths = [home + path[2:] if path.startswith("~/") else path for path in given]
        folders = [_in(found.common, "hooks"), _in(found.gitdir, "hooks")]
        for path in paths:
            if path.startswith(("~", "%")):
                yield Finding("read hook", path, f"core.hooksPath of {found.gitdir} is {path}")
            folders += [os.path.join(base, path) for base in (found.top, found.gitdir)]
        for folder in dict.fromkeys(folders):
            if self._hook_names != READ_HOOKS:
                list_ahead(self._view, folder)
            there = may_be_in(self._view, folder, self._hook_names)
            for name in self._hook_names if self._made else there:
                path = f"{folder}/{name}"
                if path in self._made or (name in there and self._view.has(path)):
                    yield Finding("read hook" if name in READ_HOOKS else "hook", path, f"{path} is a hook")

    # Submodules.

    def _linked(self, found: Repository, entries: Sequence[config.Entry]) -> Iterator[Finding]:
        """`git status` runs in each submodule as well, with the configuration that it finds there."""
        index = _in(found.gitdir, "index")
        hash_bytes = 32 if any(entry.key == "extensions.objectformat" for entry in entries) else 20
        for path in self._gitlinks(index, hash_bytes):
            if path is None:
                yield Finding("program", index, f"the submodules in {index} cannot be read")
                return
            top = os.path.join(found.top, path)
            own = os.path.join(top, OWN)
            if not self._view.has(own):
                continue
            self._left -= 1
            if self._left < 0:
                yield Finding("program", index, f"{index} has more than {MOST_SUBMODULES} submodules")
                return
            yield from self.of(_behind(self._view.way(top).real or top, own, self._view))

    def _gitlinks(self, index: str, hash_bytes: int) -> Iterator[str | None]:
        """The paths of submodules; None for what cannot be read."""
        if not self._view.has(index):
            return
        before = signature(self._view, index)
        if before is not None and (known := _KNOWN.get((before, hash_bytes))) is not None:
            yield from known
            return
        data = self._view.read(index, MOST_INDEX_BYTES)
        if data is None:
            yield None
            return
        links = list(_gitlinks(data, hash_bytes))
        yield from links
        place = data.find(b"link\0\0\0")
        if place < 0 and before == signature(self._view, index):
            _keep(before, hash_bytes, links)
        while place >= 0:  # the rest of an index that is split
            shared = os.path.join(os.path.dirname(index), f"sharedindex.{data[place + 8 :][:hash_bytes].hex()}")
            if self._view.has(shared):
                rest = self._view.read(shared, MOST_INDEX_BYTES)
                yield from [None] if rest is None else _gitlinks(rest, hash_bytes)
            place = data.find(b"link\0\0\0", place + 1)


@lru_cache(maxsize=MOST_KEPT)
def _judged(path: str, data: bytes) -> tuple[tuple[Finding, ...], tuple[config.Entry, ...]]:
    """What the contents of a configuration file give cause for, and the entries that are looked at further."""
    try:
        entries = config.parse(data)
    except config.Unreadable as exc:
        return (Finding("program", path, f"{path} cannot be read: {exc}"),), ()
    told: list[Finding] = []
    for entry in entries:
        text, value = f"{path} sets {entry.key}", entry.value or ""
        if kind := config.concern(entry):
            told.append(Finding(kind, path, text, value))
        if config.has_secret(entry.key) or config.has_secret(value):
            told.append(Finding("secret", path, f"{path} has a password in {entry.section}.{entry.name}"))
    return tuple(told), tuple(entry for entry in entries if entry.key in LOOKED_AT)


_KNOWN: dict[tuple[tuple[int, ...], int], list[str | None]] = {}
"""The submodules in an index, by its signature: a large one takes long to read."""


def _keep(signature: tuple[int, ...] | None, hash_bytes: int, links: list[str | None]) -> None:
    if signature is None or len(links) > MOST_SUBMODULES or time.time_ns() - signature[-1] < SETTLED_NANOSECONDS:
        return
    if len(_KNOWN) >= MOST_KEPT:
        _KNOWN.clear()
    _KNOWN[signature, hash_bytes] = links


def _gitlinks(data: bytes, hash_bytes: int) -> Iterator[str | None]:
    """What looks like the entry of a submodule; a path that is none is harmless, for nothing is there."""
    place = data.find(GITLINK)
    while place >= 0:
        if data[place - 2 : place] == b"\0\0":
            if data[4:8] not in (b"\0\0\0\x02", b"\0\0\0\x03"):
                yield None  # paths are compressed
                return
            flags = place + 2 + 12 + hash_bytes
            begin = flags + (4 if data[flags : flags + 1] and data[flags] & 0x40 else 2)
            end = data.find(b"\0", begin)
            if begin < end:
                yield os.fsdecode(data[begin:end])
        place = data.find(GITLINK, place + 1)


# On record.


def record(cwd: str, view: View, inside: Callable[[Way], bool], *, trusted: bool) -> Recorded | None:
    """The repository that a session is started in."""
    found = candidates(cwd, view)
    if not found:
        return None
    first = found[0]
    accepted = frozenset(findings(first, view, inside)) if trusted and not first.bare else frozenset[Finding]()
    return Recorded(common=first.common, identity=view.identity(first.common), accepted=accepted)


def is_recorded(found: Repository, known: Recorded | None, view: View) -> bool:
    return known is not None and (found.common, view.identity(found.common)) == (known.common, known.identity)
