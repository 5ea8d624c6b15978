"""Connect the tools of a session to its parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from parley.engine.approval.session_mode import SessionMode
from parley.engine.context.conversation import Conversation
from parley.engine.side.query import SideQuery
from parley.engine.tasks.manager import TaskManager
from parley.models.catalog import model_info
from parley.tools.base import ToolOutput


def connect_tools(
    conversation: Conversation,
    tasks: TaskManager,
    side_query: SideQuery,
    permission_mode: SessionMode,
    delegate: Callable[[Any, str], Awaitable[ToolOutput]],
    send: Callable[[str, str, str], Awaitable[ToolOutput]],
) -> None:
    """Set what the tools' context offers of a session.

    Skills and MCP resources change during a session: `commands/commands.py` and `mcp/manager.py` set them.
    """
    context, history = conversation.config.tool_context, conversation.journal.history
    session_id = conversation.config.session_id
    context.tasks = tasks
    context.ask_small_model = context.ask_small_model or side_query.ask_small
    context.consult = side_query.consult
    context.set_mode = permission_mode.change
    context.hides = conversation.config.permissions.policy.is_hidden
    context.strict_reads = model_info(conversation.model.name).must_read_first
    context.in_view = lambda: frozenset((session_id, entry.seq) for entry in history.list_entries())
    context.delegate = delegate
    context.send = send
