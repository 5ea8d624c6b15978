"""Interrupts, and what becomes of the prompts that wait in the queue.

See also: `engine/turn/runner.py` ends the running turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.protocol.base import Json
from parley.protocol.messages import panel_requests, requests

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def interrupt(session: Session, request: requests.Interrupt) -> requests.InterruptAnswer:
    queued = session.prompts.list_queued()
    uuids = [prompt.uuid for prompt in queued if prompt.has_client_uuid]
    if request.cancel_queued is not True:
        return requests.InterruptAnswer(still_queued=uuids)
    for prompt in queued:
        if not prompt.is_notification:  # the end of a task is reported nevertheless
            session.prompts.cancel(prompt)
    return requests.InterruptAnswer(still_queued=[], cancelled=uuids)


def cancel_message(session: Session, request: panel_requests.CancelAsyncMessage) -> Json:
    waiting = next(
        (prompt for prompt in session.prompts.list_cancellable() if prompt.uuid == request.message_uuid), None
    )
    if waiting is not None:
        session.prompts.cancel(waiting)
    return {"cancelled": waiting is not None}
