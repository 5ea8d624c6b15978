"""What is told where there is no session that could tell it."""

from __future__ import annotations

from typing import Any

from parley.engine.accounting.ledger import blank
from parley.engine.clock import Stamp
from parley.protocol.base import UNSET, Message, UnsetType
from parley.protocol.messages.result import Result


def no_session(reason: str, session_id: str, stamp: Stamp, about: list[str] | UnsetType = UNSET, **how: Any) -> Message:
    """The zeroed result that clients take for "this session cannot be opened"; `about` are ids of prompts."""
    return Result(
        subtype="error_during_execution",
        is_error=True,
        duration_ms=0,
        duration_api_ms=0,
        num_turns=0,
        stop_reason=None,
        session_id=session_id,
        total_cost_usd=0,
        usage=blank(),
        modelUsage={},
        permission_denials=[],
        errors=[reason],
        uuid=stamp.new_uuid(),
        result_index=0,
        result=UNSET,
        user_message_uuids=about,
        **how,
    )
