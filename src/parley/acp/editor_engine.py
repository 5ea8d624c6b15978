"""An engine in this process whose tools use the editor: its files, and a view of what commands write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from parley.acp.host import Editor
from parley.sdk.launch.in_process import InProcessEngine

if TYPE_CHECKING:
    from parley.engine.session.config import SessionConfig
    from parley.workspace.base import Files

Watcher = Callable[[str, bytes], None]
"""Gets what a command writes, with the id of its call."""


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
        from parley.acp.editor_files import EditorFiles, EditorLink

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
