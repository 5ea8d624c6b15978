"""What a session gives to its long-term memory."""

from __future__ import annotations

from collections.abc import Callable

from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.engine.side.query import SideQuery
from parley.models.catalog import ModelRef
from parley.protocol.base import Struct


class MemoryHost(Struct, frozen=True, kw_only=True):
    """The parts of a session that a `parley.memory.base.MemoryWorker` uses."""

    journal: Journal
    outbox: Outbox
    side_query: SideQuery
    get_model: Callable[[], ModelRef]
    get_mode: Callable[[], str]
    small_model: str
    resolve_model: Callable[[str], ModelRef]
    """What the name of a model stands for."""
    warn: Callable[[str], None]
