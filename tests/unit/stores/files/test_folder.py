"""A folder per session, with three files in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from parley.errors import DamagedSession
from parley.protocol.base import Json
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.folder import FolderStore
from tests.helpers.store_conformance import CONVERSATION, FIRST, Place, assistant, every_claim, kept, note, user, write


def store(root: Path) -> FolderStore:
    return FolderStore(root, EntryContext(cwd="/nowhere/project", version="2.1.0", git_branch="main"))


def age(root: Path) -> None:
    """Make every log a minute older."""
    for path in root.glob("sessions/*/messages.jsonl"):
        seconds = path.stat().st_mtime - 60
        os.utime(path, (seconds, seconds))


def read(path: Path) -> Json:
    found: Json = msgspec.json.decode(path.read_bytes())
    return found


@every_claim
def test_a_folder_keeps_the_promises_of_a_store(claim: Callable[[Place], None], tmp_path: Path) -> None:
    claim(Place(lambda: store(tmp_path), lambda: age(tmp_path)))


def test_a_session_is_a_folder_of_three_files(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *CONVERSATION)
    store(tmp_path).rename(FIRST, "Title")
    folder = tmp_path / "sessions" / FIRST

    assert sorted(path.name for path in folder.iterdir()) == ["messages.jsonl", "session.json", "state.json"]
    about = read(folder / "session.json")
    assert (about["id"], about["cwd"], about["title"]) == (FIRST, "/nowhere/project", "Title")
    assert (about["protocol_version"], about["created"]) == ("2024-11-05", "2026-01-02T03:04:00.000Z")
    assert store(tmp_path).path(FIRST) == str(folder / "messages.jsonl")


def test_the_state_is_that_of_the_last_turn_also_of_a_session_that_was_resumed(tmp_path: Path) -> None:
    todos = [{"content": "Test", "status": "pending", "activeForm": "Testing"}]
    call = {"type": "tool_use", "id": "t1", "name": "TodoWrite", "input": {"todos": todos}}
    write(store(tmp_path), FIRST, user(0, "Hi", permissionMode="plan"), assistant(1, call))
    log = store(tmp_path).open(FIRST)
    list(log.entries())
    log.append(note(2, "result", {"usage": {"input_tokens": 3}, "total_cost_usd": 0.5, "num_turns": 1}))
    log.close()

    assert read(tmp_path / "sessions" / FIRST / "state.json") == {
        "mode": "plan",
        "todos": todos,
        "usage": {"input_tokens": 3},
        "cost_usd": 0.5,
        "turns": 1,
    }


def test_damage_in_the_middle_is_found(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *CONVERSATION)
    path = tmp_path / "sessions" / FIRST / "messages.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Be brief", b"Be cruel"))

    with pytest.raises(DamagedSession, match="parley sessions repair"):
        kept(store(tmp_path))


def test_files_beside_the_log_that_are_lost_come_back(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *CONVERSATION)
    for name in ("session.json", "state.json"):
        (tmp_path / "sessions" / FIRST / name).unlink()
    write(store(tmp_path), FIRST, user(11, "again"))

    assert kept(store(tmp_path)) == [*CONVERSATION, user(11, "again")]
    assert read(tmp_path / "sessions" / FIRST / "session.json")["first_prompt"] == "Hello there"
