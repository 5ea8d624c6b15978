"""The result that is sent when a session cannot be opened."""

from __future__ import annotations

from typing import Any

from parley.engine.accounting.ledger import blank_usage
from parley.engine.clock import Clock
from parley.protocol.base import UNSET, Message, UnsetType
from parley.protocol.messages.result import Result


def no_session_result(
    reason: str, session_id: str, clock: Clock, prompt_ids: list[str] | UnsetType = UNSET, **how: Any
) -> Message:
    """The zeroed result by which clients know that a session cannot be opened."""
    return Result(
        subtype="error_during_execution",
        is_error=True,
        duration_ms=0,
        duration_api_ms=0,
        num_turns=0,
        stop_reason=None,
        session_id=session_id,
        total_cost_usd=0,
        usage=blank_usage(),
        modelUsage={},
        permission_denials=[],
        errors=[reason],
        uuid=clock.new_uuid(),
        result_index=0,
        result=UNSET,
        user_message_uuids=prompt_ids,
        **how,
    )
