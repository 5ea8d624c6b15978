"""Why a log refuses a message or cannot be read: the same words for every implementation."""

from __future__ import annotations

from parley.cluster.base import ClusterError, Fenced, LogDamaged, SessionKey


def make_refusal(where: str, key: SessionKey, head: int, expected: int) -> ClusterError:
    """Why a message that should follow `expected` was not stored. `where` names the component."""
    if head < expected:
        return make_truncated(where, key, head, expected)
    return Fenced(f"{where}: the log of session {key.session} has another writer: it ends at {head}, not at {expected}")


def make_truncated(where: str, key: SessionKey, head: int, known: int) -> LogDamaged:
    return LogDamaged(
        f"{where} has lost messages of session {key.session}: the log ends at {head}, but {known} was stored before. "
        "Was it restored from an older copy?"
    )


def make_gap(where: str, key: SessionKey, after: int, sequence: int) -> LogDamaged:
    return LogDamaged(
        f"{where} has lost messages of session {key.session}: some are missing between {after} and {sequence}. "
        "If there is a snapshot, read from it."
    )


def make_too_long(where: str, size_bytes: int, max_bytes: int) -> ClusterError:
    return ClusterError(f"{where} takes messages of up to {max_bytes} bytes; this one has {size_bytes}")
