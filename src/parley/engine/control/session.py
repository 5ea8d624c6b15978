"""Requests about tasks and the session itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley._threads import run_in_thread
from parley.errors import NotPossible, SessionError
from parley.models.catalog import list_known_models
from parley.protocol.base import UNSET, Json, sanitize
from parley.protocol.messages import panel_requests, requests
from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.engine.session.session import Session


TASK_TAIL_BYTES = 8 * 1024
"""The longest part of a task's output in one reply."""
MAX_TITLE_CHARS = 1000
RENAMED_BY = ("remote", "host")
"""Who chose a title. Either way it is the user's: no other title replaces it."""


def stop_task(session: Session, request: panel_requests.StopTask) -> Json:
    session.tasks.stop(require_task(session, request.task_id))
    return {}


def background_tasks(session: Session, request: panel_requests.BackgroundTasks) -> Json:
    session.tasks.move_to_background(request.tool_use_id if isinstance(request.tool_use_id, str) else None)
    return {}


def get_task_output(session: Session, request: panel_requests.GetTaskOutput) -> Json:
    tail = session.tasks.tail(require_task(session, request.task_id), TASK_TAIL_BYTES)
    return {"output": tail.text, "total_bytes": tail.total_bytes, "truncated": tail.is_cut}


def require_task(session: Session, task_id: str) -> str:
    if session.tasks.find(task_id) is None:
        raise NotPossible(f"No task found with ID: {task_id}")
    return task_id


async def list_models(session: Session, request: panel_requests.ListModels) -> Json:
    config = session.config.model
    served = await run_in_thread(config.list_served)
    return {"models": [*list_known_models(config.aliases, config.is_allowed), *served]}


def get_binary_version(session: Session, request: panel_requests.GetBinaryVersion) -> Json:
    return {"version": PROTOCOL_LEVEL, "parley_version": __version__}


def rename_session(session: Session, request: panel_requests.RenameSession) -> Json:
    if isinstance(request.session_id, str) and request.session_id != session.id:
        raise NotPossible(f"session_id {request.session_id} is not the id of this session ({session.id})")
    if request.source not in (UNSET, None, *RENAMED_BY):
        raise NotPossible(f"source {request.source!r:.100} is unknown (choose from {', '.join(RENAMED_BY)})")
    store_title(session, request.title)
    return {}


def store_title(session: Session, title: str) -> None:
    """Raises NotPossible."""
    title = sanitize(" ".join(title.split()))
    if not 0 < len(title) <= MAX_TITLE_CHARS:
        raise NotPossible(f"a title must have 1 to {MAX_TITLE_CHARS} characters")
    try:
        session.journal.append_event("title", {"title": title})
    except SessionError as exc:
        raise NotPossible(str(exc)) from None


def claim_session(session: Session, request: panel_requests.ClaimSession) -> Json:
    """A spare answers it before it has a session (cli/spare.py)."""
    raise NotPossible(
        "not_a_spare: claim_session is only accepted by a process that was started with --await-claim "
        "and has not been claimed",
        "not_a_spare",
    )


def set_color(session: Session, request: panel_requests.SetColor | panel_requests.SetHasSubscribers) -> Json:
    """A hint for clients that draw or batch. It has no effect on the engine."""
    return {}


set_has_subscribers = set_color


def end_session(session: Session, request: requests.EndSession) -> None:
    """The answer goes out first; see control/dispatcher.py."""


def interrupt(session: Session, request: requests.Interrupt) -> requests.InterruptAnswer:
    queued = session.prompts.list_queued()
    uuids = [prompt.uuid for prompt in queued if prompt.has_client_uuid]
    if request.cancel_queued is not True:
        return requests.InterruptAnswer(still_queued=uuids)
    for prompt in queued:
        if not prompt.is_notification:  # the end of a task is reported nevertheless
            session.prompts.cancel(prompt)
    return requests.InterruptAnswer(still_queued=[], cancelled=uuids)


def cancel_async_message(session: Session, request: panel_requests.CancelAsyncMessage) -> Json:
    waiting = next(
        (prompt for prompt in session.prompts.list_cancellable() if prompt.uuid == request.message_uuid), None
    )
    if waiting is not None:
        session.prompts.cancel(waiting)
    return {"cancelled": waiting is not None}
