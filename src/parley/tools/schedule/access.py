"""How the tools find the scheduled prompts of their session."""

from __future__ import annotations

from parley.errors import ToolError
from parley.tools.base import Context
from parley.tools.schedule.jobs import Schedule


def open_schedule(context: Context) -> Schedule:
    """Raises ToolError if the session has none."""
    if context.session.open_schedule is None:
        raise ToolError("Scheduled prompts are not available in this session.")
    return context.session.open_schedule()
