"""Recordings of conversations as the inspector writes and reads them.

`read_conversation` also reads a file of plain JSON lines, such as the output of `claude --output-format stream-json`:
all of it is read as output of an engine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from parley.errors import UsageError
from parley.inspector.conversation import Conversation, SeenLine
from parley.inspector.recording import DIRECTIONS, WireHeader, WireLine, WireRecording, read_wire_recording
from parley.protocol.base import Struct


def choose_path(given: str, suffix: str) -> Path:
    """A file, or a new one in the folder that is given."""
    path = Path(given)
    if given.endswith(os.sep) or path.is_dir():
        return path / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{suffix}"
    return path


class ReadConversation(Struct, frozen=True, kw_only=True):
    """A recording, and where it is cut."""

    recording: WireRecording
    problem: str = ""
    """What is missing at its end, with the line."""


def read_conversation(given: str) -> ReadConversation:
    """A recording, also if its end is missing, or a file of plain JSON lines. Raises UsageError."""
    try:
        data = Path(given).read_bytes()
    except OSError as exc:
        raise UsageError(f"cannot read {given}: {exc.strerror}") from None
    if is_plain(data):
        return ReadConversation(recording=read_plain(given, data))
    found = read_wire_recording(given, allow_cut=True)
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    problem = "" if found.exit_code is not None else f"{given}:{count}: the recording is cut here; its end is missing"
    return ReadConversation(recording=found, problem=problem)


def is_plain(data: bytes) -> bool:
    """Whether the first line is a message, and not the header of a recording."""
    try:
        first = msgspec.json.decode(data.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(first, dict) and ("type" in first or "jsonrpc" in first)


def read_plain(name: str, data: bytes) -> WireRecording:
    lines = [
        WireLine(0.0, "engine", line, number=number) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()
    ]
    return WireRecording(name, WireHeader(command=()), lines, exit_code=None)


def add_lines(recording: WireRecording, conversation: Conversation) -> Iterator[SeenLine]:
    """Add the lines of a recording to a conversation, and yield what is known of each."""
    for line in recording.lines:
        if not line.eof:
            yield conversation.add(line.number, line.at_ms / 1000, DIRECTIONS[line.sender], line.data)
