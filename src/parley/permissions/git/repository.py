"""The repository that git finds from a folder, and whether its configuration and hooks may run programs.

A repository in a working tree can name programs: `core.fsmonitor` runs at `git status`, a filter at `git diff`, a hook
when the index is refreshed. And git takes any folder with `HEAD`, `objects` and `refs` for a repository, so a few files
that the model wrote can take the place of the repository that a rule was meant for.

    found = find_repositories("/w/src", fs)             # candidates, up to the first that git certainly uses
    Inspection(fs=fs, is_inside=is_inside).inspect(found[0])    # findings: programs, network, other files

`record_repository` records the session's own repository at its start. Its findings at that time are accepted if the
folder is trusted; later findings are not, and in an untrusted folder none is.

See also: harmless keys (config.py), what follows for a command (calls.py).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial

from parley.permissions.base import Finding, SessionRepository, word_set
from parley.permissions.filesystem import SETTLED_NANOSECONDS, Filesystem, ResolvedPath, memoize
from parley.permissions.git import config
from parley.permissions.patterns import relative_parts
from parley.permissions.rules import is_within
from parley.protocol.base import Struct

DOT_GIT = ".git"
MARKS = ("HEAD", "objects", "refs")
HEAD = re.compile(rb"(?:ref: ?refs/[^\0\n]+|[0-9a-f]{40}|[0-9a-f]{64})\s*")
GITFILE = re.compile(rb"gitdir: ([^\0\n]+)\r?\n*")
MAX_INDEX_BYTES = 1 << 25
MAX_LINE_BYTES = 1 << 13
MAX_SUBMODULES = 64
MAX_ALTERNATES = 5
MAX_CACHED = 16
GITLINK = b"\xe0\0"
"""The mode of a submodule in the index, without the two zero bytes before it, which are slow to search for."""
ENTRIES_BEGIN = 12
SPLIT_INDEX = b"link\0\0\0"
OUTSIDE_TREE = re.compile(rb"(?:^|/)(?:\.{0,2}|\.git)(?:/|$)")
READ_HOOKS = ("post-index-change", "reference-transaction")
"""Hooks that read-only commands may run, because they refresh the index."""
HOOKS = frozenset(READ_HOOKS) | word_set(
    "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg "
    "post-commit pre-rebase post-checkout post-merge pre-push post-rewrite pre-auto-gc sendemail-validate pre-receive "
    "update post-update post-receive proc-receive push-to-checkout fsmonitor-watchman"
)
LOCAL_REMOTE = "local remote"
"""The kind of a finding about a remote on this machine, whose hooks run there when something is pushed to it."""
INSPECTED_KEYS = ("core.worktree", "core.hookspath", "extensions.objectformat")
GITDIR_ENTRIES = (
    *("HEAD", "config", "index", "objects", "objects/pack", "objects/info", "refs", "packed-refs", "logs", "info"),
)
OBJECT_FOLDERS = frozenset(f"{number:02x}" for number in range(256))
"""The folders of single objects, by the start of their names."""


class Repository(Struct, frozen=True):
    """A folder that git takes for a repository."""

    top: str
    """The folder in which it was found: the working tree, or the bare repository itself."""
    gitdir: str
    common_dir: str
    is_bare: bool
    """It is not named `.git`, but has the contents of one."""
    is_certain: bool
    """Git certainly uses it and does not search further up."""
    problem: str = ""
    """How it differs from what git creates."""


Survey = tuple[tuple[Repository, tuple[Finding, ...]], ...]


# Finding it.


def find_repositories(folder: str, fs: Filesystem, created: Collection[str] = ()) -> list[Repository]:
    """The repositories that git may find from a folder, nearest first. `created` are paths that the line creates."""
    found: list[Repository] = []
    current = fs.resolve(folder).real
    while current is not None:
        dot_git = _join(current, DOT_GIT)
        if fs.exists(dot_git) and (
            not (is_folder := fs.is_folder(dot_git)) or _looks_like_gitdir(dot_git, fs, created)
        ):
            real = fs.resolve(dot_git).real or dot_git
            found.append(
                _make_repository(current, real, fs, bare=False) if is_folder else _open_dot_git(current, dot_git, fs)
            )
            if found[-1].is_certain:
                return found
        if _looks_like_gitdir(current, fs, created):
            found.append(_make_repository(current, current, fs, bare=True))
            if found[-1].is_certain:
                return found
        current = os.path.dirname(current) if current != "/" else None
    return found


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder != "/" else f"/{name}"


def _open_dot_git(top: str, dot_git: str, fs: Filesystem) -> Repository:
    """The repository of a `.git` that is not a folder: usually a file with the path of one."""
    data = fs.read(dot_git, MAX_LINE_BYTES)
    if data is None:
        return _make_repository(top, fs.resolve(dot_git).real or dot_git, fs, bare=False)
    gitfile = GITFILE.fullmatch(data)
    if gitfile is None:
        return Repository(top, dot_git, dot_git, is_bare=False, is_certain=False, problem=f"{dot_git} cannot be read")
    return _make_repository(top, fs.resolve(os.path.join(top, os.fsdecode(gitfile[1]))).real or dot_git, fs, bare=False)


def _make_repository(top: str, gitdir: str, fs: Filesystem, *, bare: bool) -> Repository:
    fs.prefetch(gitdir)
    common, problem, file = gitdir, "", _join(gitdir, "commondir")
    if fs.exists(file):
        data = fs.read(file, MAX_LINE_BYTES) or b""
        common = fs.resolve(os.path.join(gitdir, os.fsdecode(data.rstrip(b"\r\n")))).real or gitdir
        if os.path.dirname(gitdir) != os.path.join(common, "worktrees"):
            problem = f"{file} points to {common}"
    head = fs.read(_join(gitdir, "HEAD"), MAX_LINE_BYTES)
    folders = fs.is_folder(_join(common, "objects")) and fs.is_folder(_join(common, "refs"))
    is_certain = folders and head is not None and HEAD.fullmatch(head) is not None
    return Repository(top, gitdir, common, bare, is_certain, problem)


def _looks_like_gitdir(folder: str, fs: Filesystem, created: Collection[str]) -> bool:
    if folder.endswith(f"/{DOT_GIT}"):
        fs.prefetch(folder)

    def has(mark: str) -> bool:
        path = _join(folder, mark)
        return fs.exists(path) or (bool(created) and any(relative_parts(name, path) is not None for name in created))

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


# Inspecting it.


def survey(
    folder: str,
    fs: Filesystem,
    working: tuple[str, ...],
    *,
    created: Collection[str] = (),
    hooks: Collection[str] = HOOKS,
    submodules: bool = True,
) -> Survey:
    """The candidates from a folder with the findings in each, cached until something changes."""

    def compute(fs: Filesystem) -> Survey:
        def inspect(found: Repository) -> tuple[Finding, ...]:
            is_inside = partial(is_within, folders=working, fs=fs)
            inspection = Inspection(fs=fs, is_inside=is_inside, created=created, hooks=hooks, submodules=submodules)
            return tuple(inspection.inspect(found))

        return tuple((found, inspect(found)) for found in find_repositories(folder, fs, created))

    return compute(fs) if created else memoize(("git", folder, working, hooks, submodules), fs, compute)


class Inspection(Struct, kw_only=True):
    """Looks for everything that may run a program, access the network, or lead to files outside."""

    fs: Filesystem
    is_inside: Callable[[ResolvedPath], bool]
    created: Collection[str] = ()
    hooks: Collection[str] = HOOKS
    submodules: bool = True
    submodules_left: int = MAX_SUBMODULES

    def inspect(self, found: Repository) -> Iterator[Finding]:
        if found.problem:
            yield Finding("program", found.gitdir, found.problem)
        self.fs.prefetch(found.common_dir)
        worktree = "config.worktree"
        files = (_join(found.common_dir, "config"), _join(found.gitdir, worktree), _join(found.common_dir, worktree))
        entries: list[config.ConfigEntry] = []
        for path in dict.fromkeys(files):
            reported, read = self._inspect_config(path)
            yield from reported
            entries += read
        yield from self._inspect_layout(found, entries)
        yield from self._inspect_hooks(found, entries)
        if self.submodules:
            yield from self._inspect_submodules(found, entries)

    def _inspect_config(self, path: str) -> tuple[tuple[Finding, ...], tuple[config.ConfigEntry, ...]]:
        if not self.fs.exists(path):
            return (), ()
        data = self.fs.read(path, config.MAX_BYTES)
        if data is None:
            return (Finding("program", path, f"{path} cannot be read, or is too large"),), ()
        return _inspect_config_data(path, data)

    def _inspect_layout(self, found: Repository, entries: Sequence[config.ConfigEntry]) -> Iterator[Finding]:
        """Findings about parts of the repository that are not where git puts them."""
        fs, linked_back = self.fs, False
        for entry in entries:
            if entry.key == "core.worktree":
                tree = fs.resolve(os.path.join(found.gitdir, entry.value or "")).real
                linked_back = tree == found.top
                if not linked_back and not found.is_bare:
                    yield Finding("program", found.gitdir, f"core.worktree of {found.gitdir} is {tree}", tree or "")
        if found.gitdir != _join(found.top, DOT_GIT) and not found.is_bare:
            back = fs.read(os.path.join(found.gitdir, "gitdir"), MAX_LINE_BYTES) or b""
            named = os.path.join(found.gitdir, os.fsdecode(back.rstrip(b"\r\n")))
            linked_back = linked_back or (bool(back) and fs.resolve(named).real == os.path.join(found.top, DOT_GIT))
            if not linked_back and not self.is_inside(fs.resolve(found.gitdir)):
                yield Finding("elsewhere", found.gitdir, f"{found.top}/.git points to {found.gitdir}")
        folders = dict.fromkeys((found.gitdir, found.common_dir))
        for path in [f"{folder}/{name}" for folder in folders for name in GITDIR_ENTRIES]:
            if fs.readlink(path) is not None:  # the folders above are already resolved
                yield Finding("elsewhere", path, f"{path} is a symlink")
        objects = _join(found.common_dir, "objects")
        fs.prefetch(objects)
        for path in [f"{objects}/{name}" for name in fs.possible_names(objects, OBJECT_FOLDERS)]:
            if fs.readlink(path) is not None:
                yield Finding("elsewhere", path, f"{path} is a symlink")
                break
        yield from self._inspect_alternates(objects)

    def _inspect_alternates(self, objects: str, depth: int = 0) -> Iterator[Finding]:
        file = _join(objects, "info/alternates")
        self.fs.watch_folder(os.path.dirname(file))
        if not self.fs.exists(file):
            return
        data = self.fs.read(file, MAX_LINE_BYTES)
        for line in (data or b"/").split(b"\n"):
            resolved = self.fs.resolve(os.path.join(objects, os.fsdecode(line)))
            if not line or line.startswith(b"#"):
                continue
            if resolved.real is None or depth >= MAX_ALTERNATES or not self.is_inside(resolved):
                yield Finding("elsewhere", file, f"{file} points to {resolved.real}")
            else:
                yield from self._inspect_alternates(resolved.real, depth + 1)

    def _inspect_hooks(self, found: Repository, entries: Sequence[config.ConfigEntry]) -> Iterator[Finding]:
        home = f"{self.fs.home.rstrip('/')}/"
        values = [entry.value or "" for entry in entries if entry.key == "core.hookspath"]
        paths = [home + path[2:] if path.startswith("~/") else path for path in values]
        folders = [_join(found.common_dir, "hooks"), _join(found.gitdir, "hooks")]
        for path in paths:
            if path.startswith(("~", "%")):
                yield Finding("read hook", path, f"core.hooksPath of {found.gitdir} is {path}")
            folders += [os.path.join(base, path) for base in (found.top, found.gitdir)]
        for folder in dict.fromkeys(folders):
            if self.hooks == READ_HOOKS:
                self.fs.watch_folder(folder)
            else:
                self.fs.prefetch(folder)
            existing = self.fs.possible_names(folder, self.hooks)
            for name in self.hooks if self.created else existing:
                path = f"{folder}/{name}"
                if path in self.created or (name in existing and self.fs.exists(path)):
                    yield Finding("read hook" if name in READ_HOOKS else "hook", path, f"{path} is a hook")

    # Submodules.

    def _inspect_submodules(self, found: Repository, entries: Sequence[config.ConfigEntry]) -> Iterator[Finding]:
        """`git status` also runs in each submodule, with the configuration there."""
        index = _join(found.gitdir, "index")
        hash_bytes = 32 if any(entry.key == "extensions.objectformat" for entry in entries) else 20
        for path in self._read_gitlinks(index, hash_bytes):
            if path is None:
                yield Finding("program", index, f"the paths in {index} cannot be read, or lead out of the working tree")
                return
            top = os.path.join(found.top, path)
            dot_git = os.path.join(top, DOT_GIT)
            if not self.fs.exists(dot_git):
                continue
            self.submodules_left -= 1
            if self.submodules_left < 0:
                yield Finding("program", index, f"{index} has more than {MAX_SUBMODULES} submodules")
                return
            yield from self.inspect(_open_dot_git(self.fs.resolve(top).real or top, dot_git, self.fs))

    def _read_gitlinks(self, index: str, hash_bytes: int) -> Iterator[str | None]:
        """The paths of submodules; None if the index cannot be read."""
        if not self.fs.exists(index):
            return
        before = self.fs.signature(index)
        if before is not None and (known := _GITLINK_CACHE.get((before, hash_bytes))) is not None:
            yield from known
            return
        data = self.fs.read(index, MAX_INDEX_BYTES)
        if data is None:
            yield None
            return
        links = list(_read_submodules(data, hash_bytes))
        yield from links
        offset = data.find(SPLIT_INDEX)
        if offset < 0 and before == self.fs.signature(index):
            _cache_gitlinks(before, hash_bytes, links)
        while offset >= 0:  # the other part of a split index
            shared = os.path.join(os.path.dirname(index), f"sharedindex.{data[offset + 8 :][:hash_bytes].hex()}")
            if self.fs.exists(shared):
                rest = self.fs.read(shared, MAX_INDEX_BYTES)
                yield from [None] if rest is None else _read_submodules(rest, hash_bytes)
            offset = data.find(SPLIT_INDEX, offset + 1)


@lru_cache(maxsize=MAX_CACHED)
def _inspect_config_data(path: str, data: bytes) -> tuple[tuple[Finding, ...], tuple[config.ConfigEntry, ...]]:
    """The findings in a configuration file, and the entries that are inspected further."""
    try:
        entries = config.parse(data)
    except config.UnreadableConfig as exc:
        return (Finding("program", path, f"{path} cannot be read: {exc}"),), ()
    reported: list[Finding] = []
    for entry in entries:
        text, value = f"{path} sets {entry.key}", entry.value or ""
        if kind := config.find_concern(entry):
            reported.append(Finding(kind, path, text, value))
        if (remote := config.find_local_remote(entry)) is not None:
            reported.append(Finding(LOCAL_REMOTE, path, f"{text}, a repository on this machine", remote))
        if config.has_secret(entry.key) or config.has_secret(value):
            reported.append(Finding("secret", path, f"{path} has a password in {entry.section}.{entry.name}"))
    return tuple(reported), tuple(entry for entry in entries if entry.key in INSPECTED_KEYS)


_GITLINK_CACHE: dict[tuple[tuple[int, ...], int], list[str | None]] = {}
"""The submodules in an index, by its signature: reading a large one takes long."""


def _cache_gitlinks(signature: tuple[int, ...] | None, hash_bytes: int, links: list[str | None]) -> None:
    if signature is None or len(links) > MAX_SUBMODULES or time.time_ns() - signature[-1] < SETTLED_NANOSECONDS:
        return
    if len(_GITLINK_CACHE) >= MAX_CACHED:
        _GITLINK_CACHE.clear()
    _GITLINK_CACHE[signature, hash_bytes] = links


def read_index_names(data: bytes, hash_bytes: int = 20) -> list[str] | None:
    """The paths in an index; None if it is not understood, or if git would follow one of them out of the tree."""
    if data[:4] != b"DIRC" or len(data) < ENTRIES_BEGIN:
        return None
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:ENTRIES_BEGIN], "big")
    found, offset, name, is_split = list[str](), ENTRIES_BEGIN, b"", SPLIT_INDEX in data
    for _ in range(count):
        flags = data[offset + 40 + hash_bytes : offset + 42 + hash_bytes]
        begin = offset + 42 + hash_bytes + (2 if flags[:1] >= b"@" and flags[0] & 0x40 else 0)
        shared = len(name) if version == 4 else 0
        if version == 4:  # a path begins like the one before it, without some of its last bytes
            removed, begin = _read_number(data, begin)
            shared -= removed
        end = data.find(b"\0", begin)
        if end < 0 or shared < 0 or version not in (2, 3, 4):
            return None
        name = name[:shared] + data[begin:end]
        if not name and is_split:
            offset += (end - offset + 8) // 8 * 8 if version < 4 else end + 1 - offset
            continue  # it replaces an entry of the shared index
        if min(len(name), 0xFFF) != int.from_bytes(flags, "big") & 0xFFF or OUTSIDE_TREE.search(name):
            return None
        found.append(os.fsdecode(name))
        offset = end + 1 if version == 4 else offset + (end - offset + 8) // 8 * 8
    return found


def _read_number(data: bytes, offset: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = -1
    while offset < len(data):
        byte = data[offset]
        value, offset = (value + 1) << 7 | byte & 0x7F, offset + 1
        if byte < 0x80:
            break
    return value, offset


def _read_submodules(data: bytes, hash_bytes: int) -> Iterator[str | None]:
    if read_index_names(data, hash_bytes) is None:
        yield None
    else:
        yield from _parse_gitlinks(data, hash_bytes)


def _parse_gitlinks(data: bytes, hash_bytes: int) -> Iterator[str | None]:
    """The paths of entries that look like submodules; a wrong path is harmless because nothing is there."""
    offset = data.find(GITLINK)
    while offset >= 0:
        if data[offset - 2 : offset] == b"\0\0":
            if data[4:8] not in (b"\0\0\0\x02", b"\0\0\0\x03"):
                yield None  # paths are compressed
                return
            flags = offset + 2 + 12 + hash_bytes
            begin = flags + (4 if data[flags : flags + 1] and data[flags] & 0x40 else 2)
            end = data.find(b"\0", begin)
            if begin < end:
                yield os.fsdecode(data[begin:end])
        offset = data.find(GITLINK, offset + 1)


# The session's repository.


def record_repository(
    cwd: str, fs: Filesystem, is_inside: Callable[[ResolvedPath], bool], *, trusted: bool
) -> SessionRepository | None:
    """The repository in which a session starts."""
    found = find_repositories(cwd, fs)
    if not found:
        return None
    first = found[0]
    findings = Inspection(fs=fs, is_inside=is_inside).inspect(first) if trusted and not first.is_bare else ()
    return SessionRepository(
        common_dir=first.common_dir, identity=fs.identity(first.common_dir), accepted=frozenset(findings)
    )


def is_session_repository(found: Repository, known: SessionRepository | None, fs: Filesystem) -> bool:
    return known is not None and (found.common_dir, fs.identity(found.common_dir)) == (known.common_dir, known.identity)
