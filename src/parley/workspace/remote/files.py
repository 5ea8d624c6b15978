"""Files, search and worktrees of a remote workspace: the engine's side.

Each method is one call; the server does the work with the same code as a local workspace (local.py, search/,
worktrees.py), and checks the scope on the object that it opens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from parley.errors import ToolError
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
)
from parley.workspace.remote import calls
from parley.workspace.remote.link import WorkspaceLink

HASHED_BYTES = 4096
"""Of a longer file that is replaced, only the hash is sent."""
MOST_LISTED = 200_000
MOST_LINES = 1_000_000


class RemoteFiles:
    """The files of a workspace server."""

    def __init__(self, link: WorkspaceLink) -> None:
        self._link = link
        self.watches_commands = link.greeting.watches_tree

    def read(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot:
        found: FileSnapshot = self._link.call(calls.ReadFile(path=path, scope=scope, limit_bytes=limit_bytes))
        return found

    def read_cached(self, path: str, scope: Scope, limit_bytes: int) -> FileSnapshot | None:
        return None  # the content is not in the memory of this machine

    def peek(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot | None:
        call = calls.ReadFile(path=path, scope=scope, limit_bytes=limit_bytes, how="peek")
        found: FileSnapshot | None = self._link.call(call)
        return found

    def write(
        self,
        path: str,
        data: bytes,
        scope: Scope,
        *,
        replacing: FileSnapshot | None,
        by: Callable[[str], None] | None = None,
    ) -> FileSnapshot:
        if by is not None:
            raise ToolError(f"{path} cannot be written by another program: it is in {self._link.name}.")
        digest = None
        if replacing is not None and len(replacing.data) == replacing.size > HASHED_BYTES:
            digest = hashlib.sha256(replacing.data).digest()
            replacing = replace(replacing, data=b"")
        written: FileSnapshot = self._link.call(
            calls.WriteFile(path=path, data=data, scope=scope, replacing=replacing, replaced_sha256=digest)
        )
        # The server leaves out what we have sent.
        return replace(written, data=data) if not written.data else written

    def before_command(self) -> None:
        if self.watches_commands:
            self._link.call(calls.TrackCommand(is_over=False))

    def after_command(self) -> None:
        if self.watches_commands:
            try:
                self._link.call(calls.TrackCommand(is_over=True))
            except ToolError as exc:
                self._link.settings.report(str(exc))

    def changed_by(self, call: str) -> list[str] | None:
        try:
            found: list[str] | None = self._link.call(calls.ChangedBy(tool_use_id=call))
        except ToolError:
            return None
        return found

    def inherit_history(self, session: str, before: str) -> None:
        """Record further changes in the history of a session that continues another. Raises OSError, ToolError."""
        self._link.call(calls.UseHistory(session=session, inherits=before))

    def begin_message(self, user_message_id: str) -> None:
        self._link.post(calls.BeginMessage(id=user_message_id))

    def rewind(self, user_message_id: str, *, dry_run: bool, with_diffs: bool = False) -> RewindReport:
        try:
            report: RewindReport = self._link.call(
                calls.Rewind(id=user_message_id, dry_run=dry_run, with_diffs=with_diffs)
            )
        except ToolError as exc:
            return RewindReport(possible=False, reason=str(exc))
        return report

    def close(self) -> None:
        self._link.end()


class RemoteSearch:
    """Finds files of a workspace server.

    Which files are hidden is decided here, with the session's rules, so the server may find more than is shown.
    """

    def __init__(self, link: WorkspaceLink, decide: Callable[[Callable[[], Any]], Any] = lambda run: run()) -> None:
        """`decide` runs a function that needs facts about many files (facts.py)."""
        self._link = link
        self._decide = decide

    def files(
        self, pattern: str, area: SearchArea, *, most: int, ignored: bool, hidden: bool, stop: Callable[[], bool]
    ) -> FileListing:
        wanted = most
        while True:
            found: FileListing = self._list(
                calls.ListFiles(
                    pattern=pattern,
                    path=area.path,
                    cwd=area.cwd,
                    scope=area.scope,
                    most=wanted,
                    ignored=ignored,
                    hidden=hidden,
                    search=self._link.new_number(),
                ),
                stop,
            )
            shown = self._visible(area, found.paths)
            is_whole = len(found.paths) >= found.total or wanted >= MOST_LISTED
            if len(shown) == len(found.paths) or is_whole or stop():
                total = found.total - (len(found.paths) - len(shown))
                return replace(found, paths=shown[:most], total=total, stopped=found.stopped or stop())
            wanted = min(found.total, MOST_LISTED)  # so that the number of hidden files does not show in the total

    def _list(self, call: calls.ListFiles, stop: Callable[[], bool]) -> FileListing:
        """Search, and ask the server to stop when `stop` says so. Raises ToolError."""
        is_stopped = False

        def poll() -> None:
            nonlocal is_stopped
            if not is_stopped and stop():
                is_stopped = True
                self._link.post(calls.StopSearch(search=call.search))

        found: FileListing = self._link.call(call, poll=poll)
        return found

    async def matches(
        self, query: ContentQuery, area: SearchArea, *, timeout_seconds: float, enough_lines: int
    ) -> SearchMatches:
        from parley._threads import run_in_thread

        while True:
            found: SearchMatches = await self._link.request(
                calls.SearchFiles(
                    query=query,
                    path=area.path,
                    cwd=area.cwd,
                    scope=area.scope,
                    seconds=timeout_seconds,
                    enough_lines=enough_lines,
                )
            )
            paths = [path for path, _ in found.files]
            visible = set(await run_in_thread(partial(self._visible, area, paths)))
            if area.path in found_path_of(area, paths) and not visible and paths:
                raise ToolError(f"{area.path} cannot be searched: a permission rule denies it.")
            shown = [one for one in found.files if one[0] in visible]
            if found.complete or len(shown) == len(found.files) or enough_lines >= MOST_LINES:
                return replace(found, files=shown)
            enough_lines = min(enough_lines * 8, MOST_LINES)

    def _visible(self, area: SearchArea, paths: list[str]) -> list[str]:
        from os.path import join

        def is_visible(path: str) -> bool:
            return not area.hides(path) and not area.withholds(path)

        found: list[str] = self._decide(lambda: [path for path in paths if is_visible(join(area.cwd, path))])
        return found


def found_path_of(area: SearchArea, paths: list[str]) -> list[str]:
    """The absolute paths of results, if the search was for a single file."""
    from os.path import join

    return [join(area.cwd, path) for path in paths] if len(paths) == 1 else []


class RemoteWorktrees:
    """The git worktrees of a workspace server."""

    def __init__(self, link: WorkspaceLink) -> None:
        self._link = link

    async def open(self, cwd: str, name: str) -> Worktree:
        return await self._get(calls.WorktreeCall(action="open", cwd=cwd, name=name))

    async def leave(self, worktree: Worktree) -> bool:
        try:
            return (await self._request(calls.WorktreeCall(action="leave", worktree=worktree))).was_kept
        except (ToolError, OSError):
            return True

    async def create(self, cwd: str, name: str) -> Worktree:
        return await self._get(calls.WorktreeCall(action="create", cwd=cwd, name=name))

    async def find(self, cwd: str, path: str) -> Worktree:
        return await self._get(calls.WorktreeCall(action="find", cwd=cwd, name=path))

    async def find_changes(self, worktree: Worktree) -> WorktreeChanges:
        found = await self._request(calls.WorktreeCall(action="find_changes", worktree=worktree))
        return found.changes or WorktreeChanges()

    async def remove(self, worktree: Worktree) -> None:
        await self._request(calls.WorktreeCall(action="remove", worktree=worktree))

    async def sweep(self, cwd: str) -> None:
        try:
            await self._request(calls.WorktreeCall(action="sweep", cwd=cwd))
        except (ToolError, OSError) as exc:
            self._link.settings.report(str(exc))

    async def _get(self, call: calls.WorktreeCall) -> Worktree:
        found = await self._request(call)
        if found.worktree is None:
            raise ToolError(f"{self._link.name} gave no worktree")
        return found.worktree

    async def _request(self, call: calls.WorktreeCall) -> calls.WorktreeResult:
        result: calls.WorktreeResult = await self._link.request(call)
        return result
