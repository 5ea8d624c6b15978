"""Files through an editor: a real connection in memory, real files in a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from parley.acp.editor_engine import EditorFiles, EditorLink
from parley.errors import ToolError
from parley.jsonrpc import Method, RpcConnection, RpcError
from parley.protocol.base import Json
from parley.workspace.base import FileSnapshot, Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles


class Editor:
    """The other end of the connection."""

    def __init__(self, folder: Path) -> None:
        self.buffers: dict[str, Any] = {}
        """What it returns for a file instead of its content."""
        self.asked: list[str] = []
        self.save: Callable[[str, str], object] = lambda path, content: Path(path).write_bytes(content.encode())
        self.warnings: list[str] = []
        numbers = count()
        self.ours = RpcConnection(self._receive)
        self._theirs = RpcConnection(self.ours.receive)
        self._theirs.methods = {
            "fs/read_text_file": Method(dict, self._read),
            "fs/write_text_file": Method(dict, self._write),
        }
        link = EditorLink(
            connection=self.ours,
            session_id="s1",
            loop=asyncio.get_running_loop(),
            reads=True,
            writes=True,
            warn=self.warnings.append,
            wait_seconds=0.2,
        )
        self.disk = LocalFiles(
            cwd=str(folder), checkpoints=CheckpointStore(folder.parent / "history"), new_id=lambda: str(next(numbers))
        )
        self.files = EditorFiles(self.disk, link)
        self.scope = Scope(folders=(str(folder),), call="toolu_1")

    def _receive(self, line: bytes) -> None:
        self._theirs.receive(line)

    async def _read(self, params: Json) -> Json:
        self.asked.append(params["path"])
        found = self.buffers.get(params["path"], Path(params["path"]).read_bytes().decode().replace("\r\n", "\n"))
        if isinstance(found, Exception):
            raise found
        if found is ...:
            await asyncio.Event().wait()
        return {"content": found}

    async def _write(self, params: Json) -> Json:
        self.save(params["path"], params["content"])
        return {}

    async def read(self, path: Path, scope: Scope | None = None) -> FileSnapshot:
        return await asyncio.to_thread(self.files.read, str(path), scope or self.scope)

    async def write(self, path: Path, text: str, replacing: FileSnapshot | None) -> FileSnapshot:
        return await asyncio.to_thread(
            lambda: self.files.write(str(path), text.encode(), self.scope, replacing=replacing)
        )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    file = folder / "notes.txt"
    file.write_bytes(b"one\r\ntwo\r\n")
    return file


async def test_line_ends_that_the_editor_hides_are_kept(file: Path) -> None:
    editor = Editor(file.parent)
    saved = await editor.read(file)
    editor.buffers[str(file)] = "one\ntwo\nthree\n"
    shown = await editor.read(file)

    assert saved.data == b"one\r\ntwo\r\n"
    assert shown.data == b"one\r\ntwo\r\nthree\r\n"
    assert shown.size == len(shown.data)
    assert shown.mtime_ns != saved.mtime_ns


@pytest.mark.parametrize("answer", [None, 7, ["one"], "x" * (9 << 20), RpcError(-32603, "no"), ...])
async def test_an_answer_that_cannot_be_used_leaves_the_disk(file: Path, answer: Any) -> None:
    editor = Editor(file.parent)
    editor.buffers[str(file)] = answer

    assert (await editor.read(file)).data == b"one\r\ntwo\r\n"
    assert len(editor.warnings) == 1


async def test_only_calls_of_tools_ask_the_editor(file: Path) -> None:
    editor = Editor(file.parent)
    await editor.read(file, Scope(folders=(str(file.parent),)))

    assert editor.asked == []


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfone\n", "één".encode("latin-1"), b"a\0b", b"x" * (9 << 20)])
async def test_other_files_than_short_utf8_are_read_on_disk(file: Path, data: bytes) -> None:
    editor = Editor(file.parent)
    file.write_bytes(data)

    assert (await editor.read(file)).data == data
    assert editor.asked == []


async def test_a_link_out_of_the_scope_is_refused_before_the_editor_is_asked(file: Path) -> None:
    editor = Editor(file.parent)
    secret = file.parent.parent / "secret.txt"
    secret.write_text("secret\n")
    link = file.parent / "link.txt"
    link.symlink_to(secret)

    with pytest.raises(ToolError):
        await editor.read(link)
    with pytest.raises(ToolError):
        await editor.write(link, "changed", None)
    assert editor.asked == []
    assert secret.read_text() == "secret\n"


async def test_the_editor_is_asked_about_the_real_path(file: Path) -> None:
    editor = Editor(file.parent)
    link = file.parent / "link.txt"
    link.symlink_to(file)
    await editor.read(link)

    assert editor.asked == [str(file)]


async def test_what_a_formatter_made_of_a_change_can_be_rewound(file: Path) -> None:
    editor = Editor(file.parent)
    editor.files.begin_message("m1")
    editor.save = lambda path, content: Path(path).write_text(content.upper())
    after = await editor.write(file, "new\n", await editor.read(file))
    rewound = editor.files.rewind("m1", dry_run=False)

    assert after.data == b"NEW\n"
    assert rewound.files == (str(file),)
    assert file.read_bytes() == b"one\r\ntwo\r\n"


async def test_a_new_file_is_created_by_the_editor(file: Path) -> None:
    editor = Editor(file.parent)
    new = file.parent / "a" / "b.txt"
    made = await editor.write(new, "new\n", None)

    assert made.data == b"new\n"
    assert editor.files.changed_by("toolu_1") == [str(new)]


async def test_a_file_that_changed_in_the_editor_is_not_overwritten(file: Path) -> None:
    editor = Editor(file.parent)
    editor.buffers[str(file)] = "first\n"
    seen = await editor.read(file)
    editor.buffers[str(file)] = "second\n"

    with pytest.raises(ToolError, match="has changed since it was read"):
        await editor.write(file, "third\n", seen)
    assert file.read_bytes() == b"one\r\ntwo\r\n"


async def test_an_editor_that_does_not_save_leaves_the_change_to_us(file: Path) -> None:
    editor = Editor(file.parent)
    editor.save = lambda path, content: None
    await editor.write(file, "new\n", await editor.read(file))
    new = file.parent / "new.txt"
    await editor.write(new, "new\n", None)

    assert file.read_text() == new.read_text() == "new\n"
    assert ["was not saved" in editor.warnings[0], "was not created" in editor.warnings[1]] == [True, True]


async def test_unsaved_changes_are_not_overwritten_on_disk(file: Path) -> None:
    editor = Editor(file.parent)
    editor.save = lambda path, content: None
    editor.buffers[str(file)] = "unsaved\n"

    with pytest.raises(ToolError, match="has unsaved changes in the editor"):
        await editor.write(file, "new\n", await editor.read(file))
    assert file.read_bytes() == b"one\r\ntwo\r\n"


async def test_the_editor_is_never_waited_for_on_the_loop(file: Path) -> None:
    editor = Editor(file.parent)
    editor.buffers[str(file)] = "unsaved\n"

    assert editor.files.read_cached(str(file), editor.scope, 1 << 16) is None
    assert editor.files.read_cached(str(file), Scope(folders=(str(file.parent),)), 1 << 16) is not None
    assert editor.asked == []
