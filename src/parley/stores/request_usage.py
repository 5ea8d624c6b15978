"""What each request of a session read from the prompt cache, wrote to it and missed, and why.

    for request in list_requests(store.read(session_id)): ...

The figures are those that the backend reported. What a request missed is what the one before it had read or written and
this one did not read. The log says why: what came between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from parley.protocol.base import Json, Struct
from parley.stores.base import USAGE, Entry

TTL_SECONDS = {False: 300, True: 3_600}
"""How long a prefix lives, by whether an hour was asked for."""
FIRST = "the first request"
RESTARTS = {
    "compact_boundary": "the conversation was compacted",
    "results_removed": "old tool results were removed",
    "conversation_reset": "the conversation was reset",
    "cut": "the conversation was rewound",
    "repair": "what the backend had rejected was left out",
    "prompt": "the system prompt changed",
    "tools": "the list of tools changed",
}
"""The entries of a log after which a request begins with something else."""
UNKNOWN = "the server did not have it"


class RequestUsage(Struct, kw_only=True):
    """One request of a session."""

    id: str
    at: str
    model: str
    read: int = 0
    written: int = 0
    fresh: int = 0
    """Tokens that are neither read nor written."""
    missed: int = 0
    reason: str = ""
    """Why something was missed."""

    @property
    def tokens(self) -> tuple[int, int, int, int]:
        return self.read, self.written, self.fresh, self.missed


def list_requests(entries: Iterable[Entry]) -> Iterator[RequestUsage]:
    """The requests of a log, in order."""
    found: dict[str, tuple[RequestUsage, Json, str]] = {}
    restart = ""
    for entry in entries:
        subtype = str(entry.message.get("subtype"))
        restart = RESTARTS.get(entry.kind) or RESTARTS.get(subtype) or restart
        inner = entry.message if entry.kind == USAGE else entry.message.get("message")
        if entry.kind not in ("assistant", USAGE) or not isinstance(inner, dict) or not inner.get("usage"):
            continue
        if inner.get("model") == "<synthetic>":
            continue
        call = str(inner.get("id"))
        if call not in found:
            found[call] = (RequestUsage(id=call, at=entry.at, model=str(inner.get("model", ""))), {}, restart)
            restart = ""
        request, _, why = found[call]
        found[call] = (request, inner["usage"], why)
    before: RequestUsage | None = None
    lives_seconds = 0
    for request, usage, why in found.values():
        read, written, fresh = (
            int(usage.get(name) or 0)
            for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
        )
        request.read, request.written, request.fresh = read, written, fresh
        if before is None:
            request.reason = FIRST
        elif before.read + before.written > read:
            request.missed = before.read + before.written - read
            request.reason = why or explain_miss(before, request, lives_seconds)
        lives_seconds = TTL_SECONDS[bool((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens"))]
        before = request
        yield request


def explain_miss(before: RequestUsage, request: RequestUsage, lives_seconds: int) -> str:
    """Why a request that begins like the one before it did not read what that had written."""
    if request.model != before.model:
        return f"another model ({before.model} before)"
    seconds = (datetime.fromisoformat(request.at) - datetime.fromisoformat(before.at)).total_seconds()
    if seconds > lives_seconds:
        return f"expired: {seconds / 60:.0f} minutes had passed"
    return UNKNOWN
