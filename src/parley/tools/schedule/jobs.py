"""Scheduled prompts, as the tools see them. The engine implements `Schedule` in engine/schedule/scheduler.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from parley.errors import ToolError
from parley.protocol.base import Struct

MAX_JOBS = 50
MAX_PROMPT_CHARS = 20_000
EXPIRES_AFTER_SECONDS = 7 * 24 * 3600.0
"""A recurring job ends by itself after this time."""


class ScheduledJob(Struct, frozen=True, kw_only=True):
    """A prompt that is queued at its time."""

    id: str
    prompt: str
    due: float
    """When it is queued next, in seconds since the epoch."""
    created: float
    cron: str = ""
    """Empty for a wake-up."""
    recurring: bool = False
    reason: str = ""

    @property
    def is_wakeup(self) -> bool:
        return not self.cron

    @property
    def schedule(self) -> str:
        """The cron expression; for a wake-up, one of its only time."""
        return self.cron or time.strftime("%-M %-H %-d %-m *", time.localtime(self.due))

    @property
    def due_ms(self) -> int:
        return round(self.due * 1000)


class Schedule(Protocol):
    """The scheduled prompts of a session. They are kept with it and continue when it is resumed."""

    now: Callable[[], float]
    """Seconds since the epoch."""

    def list_jobs(self) -> Sequence[ScheduledJob]: ...

    def new_id(self) -> str: ...

    def add(self, job: ScheduledJob) -> None:
        """Raises SessionError if it cannot be recorded."""

    def remove(self, id: str) -> ScheduledJob | None:
        """The job that was removed; None if there is none. Raises SessionError."""


def check_room(schedule: Schedule) -> None:
    """Raises ToolError if there are too many jobs."""
    if len(schedule.list_jobs()) >= MAX_JOBS:
        raise ToolError(f"There are {MAX_JOBS} scheduled prompts, which is the limit. Remove one with CronDelete.")


def check_prompt(prompt: str | None) -> str:
    """Raises ToolError."""
    if not prompt or not prompt.strip():
        raise ToolError("prompt is missing: give the text to send at that time.")
    if len(prompt) > MAX_PROMPT_CHARS:
        raise ToolError(f"prompt has {len(prompt)} characters; at most {MAX_PROMPT_CHARS} are allowed.")
    return prompt
