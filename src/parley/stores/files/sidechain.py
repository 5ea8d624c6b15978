"""The transcripts of subagents: `<session>/subagents/agent-<id>.jsonl`, alongside the session's file.

A sidecar file, `agent-<id>.meta.json`, names the tool call that started the agent. The session's lease also covers
its subagents' transcripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json
from parley.stores.base import AgentInfo, Entry, check_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.lease import Lease
from parley.stores.files.transcript import AGENT_BELOW, Transcript, TranscriptReader
from parley.workspace import private_files


class BorrowedLease(Lease):
    """A lease for logs that the session's own lease covers."""

    def __init__(self) -> None:
        pass

    def is_ours(self) -> bool:
        return True

    def release(self) -> None:
        pass


def agent_path(session_path: str, agent_id: str) -> Path:
    return Path(session_path).with_suffix("") / "subagents" / f"agent-{check_id(agent_id)}.jsonl"


def list_agents(session_path: str) -> list[AgentInfo]:
    """The subagents that have a transcript, with their metadata."""
    found = sorted((Path(session_path).with_suffix("") / "subagents").glob("agent-*.jsonl"))
    return [AgentInfo(id=path.stem.removeprefix("agent-"), meta=read_meta(path)) for path in found]


def read_meta(path: Path) -> Json:
    """The content of the sidecar file; {} if it cannot be read."""
    try:
        data = private_files.read(path.with_suffix(".meta.json"), below=AGENT_BELOW)
        return msgspec.json.decode(data, type=Json)
    except (OSError, msgspec.DecodeError):
        return {}


def read_agent_log(session_path: str, session_id: str, agent_id: str, warn: Callable[[str], None]) -> Iterator[Entry]:
    """Raises SessionError, DamagedSession."""
    return TranscriptReader(agent_path(session_path, agent_id), session_id, warn, of_agent=True).entries()


def open_agent_log(
    session_path: str,
    session_id: str,
    agent_id: str,
    meta: Json | None,
    context: EntryContext,
    warn: Callable[[str], None],
) -> Transcript:
    """Create a subagent's log; if `meta` is None, open the existing one. Raises SessionError."""
    path = agent_path(session_path, agent_id)
    context = msgspec.structs.replace(context, agent_id=agent_id)
    if meta is None:
        return Transcript(path, session_id, context, BorrowedLease(), warn)
    try:
        sidecar = path.with_name(f"agent-{agent_id}.meta.json")
        private_files.write(sidecar, msgspec.json.encode(meta), below=AGENT_BELOW)
    except OSError as exc:
        raise SessionError(f"cannot create the subagent transcript {path}: {exc.strerror}") from None
    return Transcript(path, session_id, context, BorrowedLease(), warn)
