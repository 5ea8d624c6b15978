"""What a permission decision is. One decision guards every tool call, and it is recorded."""

from __future__ import annotations

from parley.protocol.base import Json, Struct
from parley.workspace.base import Reach


class Allow(Struct, frozen=True, kw_only=True):
    """The call may run with exactly this input."""

    input: Json
    source: str
    """Who said so: `mode`, `rule` or `host`."""
    reason: str = ""
    reach: Reach = Reach(anywhere=True)
    """How far the call may go with it."""


class Deny(Struct, frozen=True, kw_only=True):
    """The call may not run. The message goes to the model."""

    message: str
    source: str
    interrupt: bool = False
    """The host wants the turn to end as well."""


class Ask(Struct, frozen=True, kw_only=True):
    """Somebody has to be asked."""

    reason: str = ""


Decision = Allow | Deny | Ask
