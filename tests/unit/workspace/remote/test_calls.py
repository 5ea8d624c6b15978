"""What a call may access is settled when it is made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.base import Scope
from parley.workspace.remote.calls import SessionPlace, write_file
from parley.workspace.remote.server import ServedSession
from parley.workspace.remote.wire import WIRE_VERSION, Greeting


async def test_a_write_that_waits_does_not_follow_a_folder_that_became_a_symlink(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "root" / "folder", tmp_path / "root" / "elsewhere"
    folder.mkdir(parents=True)
    elsewhere.mkdir()
    place = SessionPlace(
        root=str(tmp_path / "root"),
        own=tmp_path / "own",
        histories=tmp_path / "histories",
        environment={},
        find_fact={},
    )
    greeting = Greeting(version=WIRE_VERSION, build="x", nonce=b"", session="s", engine="e")
    at = ServedSession(greeting, place).workspace
    call = write_file(str(folder / "a"), b"x", Scope(folders=(str(folder),)), None)

    async with at.order:
        writing = asyncio.create_task(call.operation.serve(at, call.message))
        await asyncio.sleep(0)
        folder.rmdir()
        folder.symlink_to(elsewhere)
    with pytest.raises(ToolError, match="outside the paths"):
        await writing

    assert list(elsewhere.iterdir()) == []
