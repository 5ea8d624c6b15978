"""An engine in this process whose tools use the editor: its files, and a view of what commands write.

Tools see the unsaved changes of the editor, and change files in it, so that it can show and undo them. The files on
disk stay the authority. Every path is first opened on disk, within what the permission of the call allows; the editor
is then asked about the real path. What it returns is checked for its type and size. If it cannot read or write a file,
the disk is used, unless that would lose changes that are not saved.

Only calls of tools go through the editor: their scope has the id of the call, whose permission has been recorded.
"""

from __future__ import annotations

import asyncio
import codecs
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from parley.acp.host import Editor
from parley.errors import ToolError
from parley.jsonrpc import RpcConnection, RpcError
from parley.protocol.base import Json, Struct
from parley.sdk.launch.in_process import InProcessEngine
from parley.workspace.base import Files, FileSnapshot, NotWritten, RewindReport, Scope

if TYPE_CHECKING:
    from parley.engine.session.config import SessionConfig
    from parley.workspace.base import Files


Watcher = Callable[[str, bytes], None]
"""Gets what a command writes, with the id of its call."""
LARGEST_BYTES = 8 << 20
"""Larger files are not asked for."""
WAIT_SECONDS = 15.0


class EditorEngine(InProcessEngine):
    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        warn: Callable[[str], None],
        editor: Editor,
        session_id: str,
    ) -> None:
        super().__init__(argv, cwd, environment, warn)
        self._watch: Watcher = lambda call_id, data: None
        self._editor = editor
        self._session_id = session_id

    def set_watcher(self, watch: Watcher) -> None:
        self._watch = watch

    def _on_output(self, call_id: str, data: bytes) -> None:
        self._watch(call_id, data)

    def adapt(self, config: SessionConfig) -> SessionConfig:
        workspace, given = config.workspace, self._editor.capabilities.fs
        if config.is_remote:
            given = None  # the editor's files are not those of the session
        if given is not None and (given.read_text_file or given.write_text_file):
            link = EditorLink(
                connection=self._editor.connection,
                session_id=self._session_id,
                loop=asyncio.get_running_loop(),
                reads=given.read_text_file,
                writes=given.write_text_file,
                warn=self.warn,
            )
            files: Files = EditorFiles(workspace.files, link)
            workspace = replace(workspace, files=files)
        if self._editor.capabilities.shows_terminals:
            workspace = replace(workspace, watch_output=self._on_output)
        return replace(config, workspace=workspace)


class EditorError(Exception):
    """The editor did not do what it was asked for."""


class EditorLink(Struct, frozen=True, kw_only=True):
    """Asks the editor, from the threads in which tools work."""

    connection: RpcConnection
    session_id: str
    loop: asyncio.AbstractEventLoop
    reads: bool
    writes: bool
    warn: Callable[[str], None]
    wait_seconds: float = WAIT_SECONDS

    def read(self, path: str) -> str | None:
        """What the editor has for a file; None if it cannot say."""
        try:
            response = self._request("fs/read_text_file", {"path": path})
        except EditorError as exc:
            self.warn(f"the editor could not read {path}: {exc}")
            return None
        content = response.get("content") if isinstance(response, dict) else None
        if not isinstance(content, str) or len(content) > LARGEST_BYTES:
            self.warn(f"the editor's answer for {path} is not used: it is not a text of at most {LARGEST_BYTES} bytes")
            return None
        return content

    def write(self, path: str, text: str) -> None:
        """Raises NotWritten."""
        try:
            self._request("fs/write_text_file", {"path": path, "content": text})
        except EditorError as exc:
            raise NotWritten(str(exc)) from None

    def _request(self, method: str, params: Json) -> Any:
        """Raises EditorError."""
        request = self.connection.request(method, {"sessionId": self.session_id, **params})
        try:
            waiting = asyncio.run_coroutine_threadsafe(request, self.loop)
        except RuntimeError as exc:  # the loop is closed
            request.close()
            raise EditorError(str(exc)) from None
        try:
            return waiting.result(self.wait_seconds)
        except TimeoutError:
            waiting.cancel()
            raise EditorError(f"it did not answer within {self.wait_seconds:g} seconds") from None
        except (RpcError, ConnectionError) as exc:
            raise EditorError(str(exc)) from None


class EditorFiles:
    """`Files` that an editor may have open."""

    def __init__(self, disk: Files, editor: EditorLink) -> None:
        self.watches_commands = disk.watches_commands
        self._disk = disk
        self._editor = editor

    def read(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot:
        return self._show(self._disk.read(path, scope, limit_bytes), scope)

    def read_cached(self, path: str, scope: Scope, limit_bytes: int) -> FileSnapshot | None:
        # The editor must not be waited for on the loop.
        return None if self._asks(scope) else self._disk.read_cached(path, scope, limit_bytes)

    def peek(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot | None:
        found = self._disk.peek(path, scope, limit_bytes)
        return None if found is None else self._show(found, scope)

    def _asks(self, scope: Scope) -> bool:
        """Whether the editor is asked what it has for a file."""
        return self._editor.reads and bool(scope.call)

    def _show(self, found: FileSnapshot, scope: Scope) -> FileSnapshot:
        """A file with the changes that are not saved."""
        text = read_text(found.data) if len(found.data) == found.size <= LARGEST_BYTES else None
        if text is None or not self._asks(scope):
            return found
        shown = self._editor.read(found.path)
        if shown is None or shown in (text, text.replace("\r\n", "\n")):
            return found
        if "\r\n" in text and "\r" not in shown:  # editors show all line ends as one
            shown = shown.replace("\n", "\r\n")
        data = shown.encode(errors="replace")
        # The text has no time of its own; this number changes when it does.
        return msgspec.structs.replace(found, data=data, size=len(data), mtime_ns=-1 - zlib.crc32(data))

    def write(
        self,
        path: str,
        data: bytes,
        scope: Scope,
        *,
        replacing: FileSnapshot | None,
        by: Callable[[str], None] | None = None,
    ) -> FileSnapshot:
        text = read_text(data) if len(data) <= LARGEST_BYTES else None
        is_whole = replacing is None or len(replacing.data) == replacing.size
        if by is not None or text is None or not is_whole or not self._editor.writes or not scope.call:
            return self._disk.write(path, data, scope, replacing=replacing, by=by)
        saved = None if replacing is None else self._find_saved(path, scope, replacing)
        try:
            return self._disk.write(
                path, data, scope, replacing=saved, by=lambda real_path: self._editor.write(real_path, text)
            )
        except NotWritten as exc:
            if replacing is not None and saved is not None and saved.data != replacing.data:
                raise ToolError(
                    f"{path} has unsaved changes in the editor, and the editor could not write it: {exc}. "
                    "Ask the user to save it, then try again."
                ) from None
            self._editor.warn(f"the editor could not write {path} ({exc}), so Parley wrote the file itself")
        return self._disk.write(path, data, scope, replacing=saved)

    def _find_saved(self, path: str, scope: Scope, replacing: FileSnapshot) -> FileSnapshot:
        """The file on disk, if what the editor shows is what is to be replaced. Raises ToolError."""
        saved = self._disk.read(path, scope)
        if saved.data != replacing.data and self._show(saved, scope).data != replacing.data:
            raise ToolError(f"{saved.path} has changed since it was read. Read it again before you write it.")
        return saved

    def before_command(self) -> None:
        self._disk.before_command()

    def after_command(self) -> None:
        self._disk.after_command()

    def changed_by(self, call: str) -> list[str] | None:
        return self._disk.changed_by(call)

    def begin_message(self, user_message_id: str) -> None:
        self._disk.begin_message(user_message_id)

    def rewind(self, user_message_id: str, *, dry_run: bool, with_diffs: bool = False) -> RewindReport:
        return self._disk.rewind(user_message_id, dry_run=dry_run, with_diffs=with_diffs)

    def close(self) -> None:
        self._disk.close()


def read_text(data: bytes) -> str | None:
    """The text of a file; None if an editor may show it otherwise: it is not UTF-8, or has a byte order mark."""
    if data.startswith(codecs.BOM_UTF8) or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
