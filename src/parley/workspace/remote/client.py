"""A session in a remote workspace, as an engine opens it.

    remote = connect_workspace(settings, session="…")     # raises WorkspaceUnavailable
    remote.files, remote.processes, remote.worktrees, remote.open_search()
    remote.facts                                          # for decisions
    remote.welcome.cwd                                    # where it works

Files, search and worktrees. Each method is one call; the server does the work with the same code as a local workspace
(local.py, search/, worktrees.py), and checks the scope on the object that it opens.

Facts. A decision needs facts that are known only while it is made: which symlinks lead where, what a repository
configures. To ask for each would take a round trip each. So the decision is first made on guesses ("no symlink", "does
not exist"), which collects its questions. All of them are asked in one call, and the decision is made again with the
answers, until it asks nothing new: two or three round trips for a usual command. No decision is used that was based on
a guess.

    reader.run(decide)                  # in a thread
    await reader.prepare(decide)        # on a loop; afterwards the same task decides without waiting

See also: who asks for facts: permissions/filesystem.py, settings/safe_read.py; who answers:
compose/remote.py; commands: processes.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from os.path import join
from typing import Any, TypeVar
from uuid import uuid4

from msgspec.structs import replace

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.version import __version__
from parley.workspace.base import (
    ContentQuery,
    FileListing,
    FileSnapshot,
    RewindReport,
    Scope,
    SearchArea,
    SearchMatches,
    Worktree,
    WorktreeChanges,
    Writer,
)
from parley.workspace.remote import calls
from parley.workspace.remote.calls import MAX_FACTS, Fact, find_facts
from parley.workspace.remote.link import LinkSettings, WorkspaceLink, WorkspaceUnavailable
from parley.workspace.remote.processes import RemoteProcesses
from parley.workspace.remote.wire import WIRE_VERSION, Greeting, new_nonce

T = TypeVar("T")
MAX_PASSES = 12
"""After so many, each further question is asked at once."""
ASK_SECONDS = 5.0
VALID_SECONDS = 2.0
"""How long prepared facts are used. The server checks the opened file in any case."""
HASHED_BYTES = 4096
"""Of a longer file that is replaced, only the hash is sent."""
MOST_LISTED = 200_000
MOST_LINES = 1_000_000


class RemoteWorkspace:
    def __init__(self, link: WorkspaceLink) -> None:
        """`link` is open."""
        assert link.welcome is not None
        self.link = link
        self.welcome = link.welcome
        self.facts = FactReader(link)
        self.files = RemoteFiles(link)
        self.worktrees = RemoteWorktrees(link)
        self.processes = RemoteProcesses(link)
        self.environment = {name: os.fsdecode(value) for name, value in self.welcome.environment.items()}
        self._search = RemoteSearch(link, self.facts.run)

    def open_search(self) -> RemoteSearch:
        return self._search

    def close(self) -> None:
        self.link.close()


def connect_workspace(
    settings: LinkSettings,
    session: str,
    *,
    epoch: int = 0,
    keeps_history: bool = True,
    watches_tree: bool = False,
) -> RemoteWorkspace:
    """Open a session. The folder is the one of the address. Raises WorkspaceUnavailable."""
    greeting = Greeting(
        version=WIRE_VERSION,
        build=__version__,
        nonce=new_nonce(),
        session=session,
        engine=uuid4().hex,
        epoch=epoch,
        folder=settings.address.folder,
        keeps_history=keeps_history,
        watches_tree=watches_tree,
    )
    link = WorkspaceLink(settings, greeting)
    try:
        link.open()
    except BaseException:
        link.close()
        raise
    return RemoteWorkspace(link)


class FactView:
    """The answers for one decision, and what it still has to ask."""

    def __init__(self) -> None:
        self.known: dict[Fact, Any] = {}
        self.missing: dict[Fact, None] = {}
        self.asks_at_once = False

    def take_missing(self) -> list[Fact]:
        asked = list(self.missing)[:MAX_FACTS]
        self.missing.clear()
        return asked


class FactReader:
    """Reads facts of one workspace."""

    def __init__(self, link: WorkspaceLink) -> None:
        self._link = link
        self._view: ContextVar[FactView | None] = ContextVar("workspace_facts", default=None)
        self._prepared: ContextVar[tuple[dict[Fact, Any], float]] = ContextVar("prepared_facts", default=({}, 0.0))
        """Facts that the task has collected, and until when they are used."""

    def get(self, kind: str, path: str, limit: int, guess: Any) -> Any:
        """A fact; the guess while a decision collects its questions. Raises WorkspaceUnavailable."""
        fact, view = (kind, path, limit), self._view.get()
        if view is None:
            return self._ask([fact])[0]
        if fact in view.known:
            return view.known[fact]
        if view.asks_at_once:
            view.known[fact] = self._ask([fact])[0]
            return view.known[fact]
        view.missing[fact] = None
        return guess

    def run(self, work: Callable[[], T]) -> T:
        """Do the work with facts: those that are prepared, and others. Raises what it raises, WorkspaceUnavailable."""
        view, (prepared, valid_until) = FactView(), self._prepared.get()
        if time.monotonic() < valid_until:
            view.known.update(prepared)
        for _ in range(MAX_PASSES):
            with self._using(view):
                try:
                    result = work()
                except Exception:
                    if not view.missing:
                        raise
            if not view.missing:
                return result
            asked = view.take_missing()
            view.known.update(zip(asked, self._ask(asked), strict=True))
        view.asks_at_once = True
        with self._using(view):
            return work()

    async def prepare(self, work: Callable[[], object]) -> None:
        """Collect the facts for the work, so that the calling task can do it without waiting.

        Raises WorkspaceUnavailable."""
        view = FactView()
        for _ in range(MAX_PASSES):
            with self._using(view), contextlib.suppress(Exception):
                work()
            if not (asked := view.take_missing()):
                break
            answers = await self._link.request(find_facts(asked))
            view.known.update(zip(asked, answers, strict=True))
        self._prepared.set((view.known, time.monotonic() + VALID_SECONDS))

    @contextlib.contextmanager
    def _using(self, view: FactView) -> Iterator[None]:
        before = self._view.set(view)
        try:
            yield
        finally:
            self._view.reset(before)

    def _ask(self, facts: list[Fact]) -> list[Any]:
        if not self._link.is_connected:  # the engine's loop may be waiting
            raise WorkspaceUnavailable(f"{self._link.name} is not connected")
        return self._link.call(find_facts(facts), ASK_SECONDS)


class RemoteFiles:
    """The files of a workspace server."""

    def __init__(self, link: WorkspaceLink) -> None:
        self._link = link
        self.watches_commands = link.greeting.watches_tree

    def read(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot:
        found = self._link.call(calls.read_file(path, scope, limit_bytes))
        assert found is not None
        return found

    def read_cached(self, path: str, scope: Scope, limit_bytes: int) -> FileSnapshot | None:
        return None  # the content is not in the memory of this machine

    def peek(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot | None:
        return self._link.call(calls.read_file(path, scope, limit_bytes, must_exist=False))

    def write(
        self, path: str, data: bytes, scope: Scope, *, replacing: FileSnapshot | None, by: Writer | None = None
    ) -> FileSnapshot:
        if by is not None:
            raise ToolError(f"{path} cannot be written by another program: it is in {self._link.name}.")
        digest = None
        if replacing is not None and len(replacing.data) == replacing.size > HASHED_BYTES:
            digest = hashlib.sha256(replacing.data).digest()
            replacing = replace(replacing, data=b"")
        written = self._link.call(calls.write_file(path, data, scope, replacing, digest))
        # The server leaves out what we have sent.
        return replace(written, data=data) if not written.data else written

    def before_command(self) -> None:
        if self.watches_commands:
            self._link.call(calls.track_command(is_over=False))

    def after_command(self) -> None:
        if self.watches_commands:
            try:
                self._link.call(calls.track_command(is_over=True))
            except ToolError as exc:
                self._link.settings.report(str(exc))

    def changed_by(self, call: str) -> list[str] | None:
        try:
            return self._link.call(calls.changed_by(call))
        except ToolError:
            return None

    def inherit_history(self, session: str, before: str) -> None:
        """Record further changes in the history of a session that continues another. Raises OSError, ToolError."""
        self._link.call(calls.use_history(session, before))

    def begin_message(self, user_message_id: str) -> None:
        self._link.post(calls.begin_message(user_message_id))

    def rewind(self, user_message_id: str, *, dry_run: bool, with_diffs: bool = False) -> RewindReport:
        try:
            return self._link.call(calls.rewind(user_message_id, dry_run, with_diffs))
        except ToolError as exc:
            return RewindReport(possible=False, reason=str(exc))

    def close(self) -> None:
        self._link.end()


class RemoteSearch:
    """Finds files of a workspace server.

    Which files are hidden is decided here, with the session's rules, so the server may find more than is shown.
    """

    def __init__(self, link: WorkspaceLink, decide: Callable[[Callable[[], Any]], Any] = lambda run: run()) -> None:
        """`decide` runs a function that needs facts about many files."""
        self._link = link
        self._decide = decide

    def files(
        self, pattern: str, area: SearchArea, *, most: int, ignored: bool, hidden: bool, stop: Callable[[], bool]
    ) -> FileListing:
        wanted = most
        while True:
            number, is_stopped = self._link.new_number(), False

            def poll() -> None:
                nonlocal is_stopped
                if not is_stopped and stop():
                    is_stopped = True
                    self._link.post(calls.stop_search(number))  # noqa: B023  # it is called in this pass only

            call = calls.list_files(pattern, area.path, area.cwd, area.scope, wanted, ignored, hidden, number)
            found = self._link.call(call, poll=poll)
            shown = self._visible(area, found.paths)
            is_whole = len(found.paths) >= found.total or wanted >= MOST_LISTED
            if len(shown) == len(found.paths) or is_whole or stop():
                total = found.total - (len(found.paths) - len(shown))
                return replace(found, paths=shown[:most], total=total, stopped=found.stopped or stop())
            wanted = min(found.total, MOST_LISTED)  # so that the number of hidden files does not show in the total

    async def matches(
        self, query: ContentQuery, area: SearchArea, *, timeout_seconds: float, enough_lines: int
    ) -> SearchMatches:
        while True:
            found = await self._link.request(
                calls.search_files(query, area.path, area.cwd, area.scope, timeout_seconds, enough_lines)
            )
            paths = [path for path, _ in found.files]
            visible = set(await run_in_thread(partial(self._visible, area, paths)))
            if [join(area.cwd, path) for path in paths] == [area.path] and not visible:
                raise ToolError(f"{area.path} cannot be searched: a permission rule denies it.")
            shown = [one for one in found.files if one[0] in visible]
            if found.complete or len(shown) == len(found.files) or enough_lines >= MOST_LINES:
                return replace(found, files=shown)
            enough_lines = min(enough_lines * 8, MOST_LINES)

    def _visible(self, area: SearchArea, paths: list[str]) -> list[str]:
        def is_visible(path: str) -> bool:
            return not area.hides(path) and not area.withholds(path)

        found: list[str] = self._decide(lambda: [path for path in paths if is_visible(join(area.cwd, path))])
        return found


class RemoteWorktrees:
    """The git worktrees of a workspace server."""

    def __init__(self, link: WorkspaceLink) -> None:
        self._link = link

    async def open(self, cwd: str, name: str) -> Worktree:
        return await self._link.request(calls.open_worktree("open", cwd, name))

    async def leave(self, worktree: Worktree) -> bool:
        try:
            return await self._link.request(calls.leave_worktree(worktree))
        except (ToolError, OSError):
            return True

    async def create(self, cwd: str, name: str) -> Worktree:
        return await self._link.request(calls.open_worktree("create", cwd, name))

    async def find(self, cwd: str, path: str) -> Worktree:
        return await self._link.request(calls.open_worktree("find", cwd, path))

    async def find_changes(self, worktree: Worktree) -> WorktreeChanges:
        return await self._link.request(calls.find_worktree_changes(worktree))

    async def remove(self, worktree: Worktree) -> None:
        await self._link.request(calls.remove_worktree(worktree))

    async def sweep(self, cwd: str) -> None:
        try:
            await self._link.request(calls.sweep_worktrees(cwd))
        except (ToolError, OSError) as exc:
            self._link.settings.report(str(exc))
