"""What every implementation of `Log` checks, and the words in which it refuses."""

from __future__ import annotations

from parley.cluster.base import ClusterError, Fenced, LogDamaged, SessionKey


class SequenceGuard:
    """Notices a store that was restored from an older copy: it gives out sequences that were seen before."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.highest = 0
        """The highest sequence that was seen."""
        self._damage: LogDamaged | None = None

    def check(self) -> None:
        """Raises LogDamaged again if it was once: what is missing is not known, so nothing may be added to it."""
        if self._damage is not None:
            raise self._damage

    def see(self, sequence: int) -> None:
        self.highest = max(self.highest, sequence)

    def require_newer(self, sequence: int, highest: int) -> None:
        """`highest`: what was seen before the request that returned `sequence`. Raises LogDamaged."""
        if sequence <= highest:
            self._damage = LogDamaged(
                f"{self._where} has lost messages: it is at {sequence}, but {highest} was stored before. "
                "Was it restored from an older copy? Stop all hosts, check what is missing, and start them again"
            )
            raise self._damage
        self.see(sequence)


def make_refusal(where: str, key: SessionKey, head: int, expected: int) -> ClusterError:
    """Why a message that should follow `expected` was not stored. `where` names the component."""
    if head < expected:
        return make_truncated(where, key, head, expected)
    return Fenced(f"{where}: the log of session {key.session} has another writer: it ends at {head}, not at {expected}")


def make_reused_id(where: str, key: SessionKey, message_id: str) -> Fenced:
    return Fenced(f"{where}: the log of session {key.session} has another message with the id {message_id}")


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
