"""The transcripts of subagents, beside their session's: `<session>/subagents/agent-<id>.jsonl`.

A sidecar, `agent-<id>.meta.json`, says which call an agent belongs to. Whoever holds the
session holds these, too: nobody else knows of an agent while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json
from parley.stores.base import Agent, Entry, plain
from parley.stores.files.entry_codec import Context
from parley.stores.files.lease import Lease
from parley.stores.files.transcript import AGENT_BELOW, Reader, Transcript
from parley.workspace import private_files


class Held(Lease):
    """The session's own lease counts."""

    def __init__(self) -> None:
        pass

    def is_ours(self) -> bool:
        return True

    def release(self) -> None:
        pass


def path_beside(session_path: str, agent_id: str) -> Path:
    return Path(session_path).with_suffix("") / "subagents" / f"agent-{plain(agent_id)}.jsonl"


def beside(session_path: str) -> list[Agent]:
    """The subagents with a transcript, and what is known of them."""
    found = sorted((Path(session_path).with_suffix("") / "subagents").glob("agent-*.jsonl"))
    return [Agent(id=path.stem.removeprefix("agent-"), meta=meta_of(path)) for path in found]


def meta_of(path: Path) -> Json:
    """What the sidecar says; nothing if there is none that can be read."""
    try:
        data = private_files.read(path.with_suffix(".meta.json"), below=AGENT_BELOW)
        return msgspec.json.decode(data, type=Json)
    except (OSError, msgspec.DecodeError):
        return {}


def read(session_path: str, session_id: str, agent_id: str, complain: Callable[[str], None]) -> Iterator[Entry]:
    """Raises SessionError, DamagedSession."""
    return Reader(path_beside(session_path, agent_id), session_id, complain, of_agent=True).entries()


def opened(
    session_path: str,
    session_id: str,
    agent_id: str,
    meta: Json | None,
    context: Context,
    complain: Callable[[str], None],
) -> Transcript:
    """A new one, or without a `meta` the one that there is. Raises SessionError."""
    path = path_beside(session_path, agent_id)
    context = msgspec.structs.replace(context, agent_id=agent_id)
    if meta is None:
        return Transcript(path, session_id, context, Held(), complain)
    try:
        sidecar = path.with_name(f"agent-{agent_id}.meta.json")
        private_files.write(sidecar, msgspec.json.encode(meta), below=AGENT_BELOW)
    except OSError as flaw:
        raise SessionError(f"the transcript of a subagent cannot be made at {path}: {flaw.strerror}") from None
    return Transcript(path, session_id, context, Held(), complain)
