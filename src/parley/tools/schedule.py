"""Tools that have a prompt come back later: ScheduleWakeup, CronCreate, CronDelete and CronList.

    CronExpression.parse("*/5 9-17 * * 1-5").next_after(now)      # seconds since the epoch, or None

A cron expression has five fields in local time. `*`, lists, ranges, steps and the names of months and days are
understood. As in cron, a day matches if either the day of the month or the day of the week does, where both are
restricted. The current time is an argument.

The engine implements `Schedule`, the scheduled prompts of a session, in engine/tasks/wakeups.py.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import HIDDEN, Context, NoInput, Tool, ToolOutput, open_service
from parley.workspace.base import Scope

FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
NAMES: dict[str, dict[str, int]] = {"month": MONTHS, "day of the week": DAYS}
SEARCHED_DAYS = 366 * 8 + 2
"""February 29 can be eight years away."""
MAX_JOBS = 50
MAX_PROMPT_CHARS = 20_000
EXPIRES_AFTER_SECONDS = 7 * 24 * 3600.0
"""A recurring job ends by itself after this time."""
SHORTEST_SECONDS = 60
LONGEST_SECONDS = 3600


class CronExpression(Struct, frozen=True, kw_only=True):
    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    has_days: bool
    has_weekdays: bool
    """Whether the field restricts anything."""

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Raises ToolError that names the invalid field."""
        parts = text.split()
        if len(parts) != len(FIELDS):
            raise ToolError(
                f"The cron expression {text!r} has {len(parts)} fields, expected 5: minute hour day month weekday."
            )
        minutes, hours, days, months, weekdays = (
            parse_field(part, name, low, high) for part, (name, low, high) in zip(parts, FIELDS, strict=True)
        )
        return cls(
            text=" ".join(parts),
            minutes=minutes,
            hours=hours,
            days=days,
            months=months,
            weekdays=frozenset(day % 7 for day in weekdays),
            has_days=not parts[2].startswith("*"),
            has_weekdays=not parts[4].startswith("*"),
        )

    def next_after(self, seconds: float) -> float | None:
        """The first matching minute after a time; None if there is none within eight years."""
        at = time.localtime(seconds)
        day = datetime.date(at.tm_year, at.tm_mon, at.tm_mday)
        for _ in range(SEARCHED_DAYS):
            if self._matches_day(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        found = time.mktime((day.year, day.month, day.day, hour, minute, 0, 0, 0, -1))
                        if found > seconds:
                            return found
            day += datetime.timedelta(days=1)
        return None

    def _matches_day(self, day: datetime.date) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.has_days and self.has_weekdays else by_date and by_weekday

    def describe(self) -> str:
        """The schedule in words, where it is a simple one."""
        minute, hour, day, month, weekday = self.text.split()
        is_daily = (day, month, weekday) == ("*", "*", "*")
        if is_daily and hour == "*":
            if minute == "*":
                return "every minute"
            if minute.startswith("*/") and minute[2:].isdigit():
                return f"every {int(minute[2:])} minutes"
            if minute.isdigit():
                return f"every hour at minute {int(minute)}"
        if minute.isdigit() and hour.isdigit():
            at = f"{int(hour):02d}:{int(minute):02d}"
            if is_daily:
                return f"every day at {at}"
            if day.isdigit() and month.isdigit() and weekday == "*":
                return f"{int(month):02d}-{int(day):02d} at {at}"
        return f"cron {self.text}"


def parse_field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    """Raises ToolError."""
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = parse_number(step_text, text, name, 1, high) if slash else 1
        if span == "*":
            first, last = low, high
        else:
            start, dash, end = span.partition("-")
            first = parse_number(start, text, name, low, high)
            last = parse_number(end, text, name, low, high) if dash else high if slash else first
        if first > last:
            raise ToolError(f"The {name} {text!r} of the cron expression is invalid: {first} is after {last}.")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def parse_number(text: str, field: str, name: str, low: int, high: int) -> int:
    known = NAMES.get(name, {})
    number = known.get(text.lower(), int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1)
    if not low <= number <= high:
        raise ToolError(f"The {name} {field!r} of the cron expression is invalid: expected numbers {low} to {high}.")
    return number


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


class CronCreateInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cron: Annotated[str, Meta(description="minute hour day month weekday, local time")]
    prompt: Annotated[str, Meta(description="What you are asked then")]
    recurring: Annotated[bool, Meta(description="false: run only once, at the next match")] = True
    durable: Annotated[bool, HIDDEN] = False
    """Accepted, and reported as not supported: jobs live as long as their session."""


class CronCreate(Tool):
    name = "CronCreate"
    reads_only = False
    input = CronCreateInput
    description = "Asks you the prompt at the times of a cron expression while the session runs, for at most 7 days."

    async def run(self, call: CronCreateInput, context: Context, reach: Scope) -> ToolOutput:
        schedule = open_service(context.session.open_schedule, "Scheduled prompts")
        expression = CronExpression.parse(call.cron)
        prompt = check_prompt(call.prompt)
        check_room(schedule)
        now = schedule.now()
        due = expression.next_after(now)
        if due is None:
            raise ToolError(f"The cron expression {call.cron!r} never matches.")
        job = ScheduledJob(
            id=schedule.new_id(), prompt=prompt, due=due, created=now, cron=expression.text, recurring=call.recurring
        )
        schedule.add(job)
        return ToolOutput(content=describe(job, expression, durable=call.durable), detail=job_detail(job, expression))


def job_detail(job: ScheduledJob, expression: CronExpression) -> Json:
    return {
        "id": job.id,
        "humanSchedule": expression.describe(),
        "recurring": job.recurring,
        "durable": False,
        "nextFireAt": job.due_ms,
    }


def describe(job: ScheduledJob, expression: CronExpression, *, durable: bool) -> str:
    days = round(EXPIRES_AFTER_SECONDS / 86_400)
    often = f"until it is removed with CronDelete, at most {days} days" if job.recurring else "once"
    text = f"Scheduled job {job.id} ({expression.describe()}), {often}. Next: {local_time(job.due)}."
    if durable:
        text += " durable is not supported: the job belongs to this session and continues when it is resumed."
    return text


def local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


class CronDeleteInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(description="The job, as CronList names it")]


class CronDelete(Tool):
    name = "CronDelete"
    reads_only = False
    input = CronDeleteInput
    description = "Removes a scheduled job."

    async def run(self, call: CronDeleteInput, context: Context, reach: Scope) -> ToolOutput:
        schedule = open_service(context.session.open_schedule, "Scheduled prompts")
        job = schedule.remove(call.id)
        if job is None:
            known = ", ".join(job.id for job in schedule.list_jobs()) or "none"
            raise ToolError(f"There is no scheduled job {call.id!r}. The jobs are: {known}.")
        detail: Json = {"id": job.id, **({"endedLoopWakeup": True} if job.is_wakeup else {})}
        return ToolOutput(content=f"Removed the scheduled job {job.id}.", detail=detail)


class CronList(Tool):
    name = "CronList"
    reads_only = True
    input = NoInput
    description = "Lists the scheduled jobs."

    async def run(self, call: NoInput, context: Context, reach: Scope) -> ToolOutput:
        schedule = open_service(context.session.open_schedule, "Scheduled prompts")
        jobs = sorted(schedule.list_jobs(), key=lambda job: job.due)
        rows: list[Json] = [
            {**job_detail(job, CronExpression.parse(job.cron)), "cron": job.cron, "prompt": job.prompt}
            for job in jobs
            if not job.is_wakeup
        ]
        return ToolOutput(
            content="\n".join(map(line_of, jobs)) or "There are no scheduled jobs.", detail={"jobs": rows}
        )


def line_of(job: ScheduledJob) -> str:
    kind = "wake-up" if job.is_wakeup else CronExpression.parse(job.cron).describe()
    once = "" if job.recurring or job.is_wakeup else ", once"
    return f"{job.id} ({kind}{once}), next {local_time(job.due)}: {job.prompt}"


class ScheduleWakeupInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    delaySeconds: Annotated[float | None, Meta(description=f"{SHORTEST_SECONDS} to {LONGEST_SECONDS}")] = None
    prompt: Annotated[str | None, Meta(description="What you are asked then")] = None
    reason: Annotated[str | None, Meta(description="Why, in a few words for the user")] = None
    stop: Annotated[bool | None, Meta(description="Only cancel the pending wake-up")] = None
    noop: Annotated[bool | None, HIDDEN] = None
    """For clients that collapse turns in which nothing happened; they see it in the call."""


class ScheduleWakeup(Tool):
    name = "ScheduleWakeup"
    reads_only = False
    input = ScheduleWakeupInput
    description = "Asks you the prompt after a delay; end your turn then. A new wake-up replaces the pending one."

    async def run(self, call: ScheduleWakeupInput, context: Context, reach: Scope) -> ToolOutput:
        schedule = open_service(context.session.open_schedule, "Scheduled prompts")
        if call.stop:
            return stop(schedule)
        if not call.delaySeconds:
            raise ToolError("delaySeconds is missing: give the number of seconds until the wake-up.")
        prompt = check_prompt(call.prompt)
        cancel_wakeups(schedule)
        check_room(schedule)
        delay = min(max(call.delaySeconds, SHORTEST_SECONDS), LONGEST_SECONDS)
        now = schedule.now()
        job = ScheduledJob(id=schedule.new_id(), prompt=prompt, due=now + delay, created=now, reason=call.reason or "")
        schedule.add(job)
        was_clamped = delay != call.delaySeconds
        detail: Json = {"scheduledFor": job.due_ms, "clampedDelaySeconds": delay, "wasClamped": was_clamped}
        limit = f" The delay was changed to {delay:g} s." if was_clamped else ""
        return ToolOutput(
            content=f"You are woken up at {local_time(job.due)} (job {job.id}).{limit} End your turn now.",
            detail=detail,
        )


def stop(schedule: Schedule) -> ToolOutput:
    cancelled = cancel_wakeups(schedule)
    text = "The pending wake-up is cancelled." if cancelled else "No wake-up was pending."
    detail: Json = {
        "scheduledFor": 0,
        "clampedDelaySeconds": 0,
        "wasClamped": False,
        "stopped": True,
        "cancelledWakeups": cancelled,
    }
    return ToolOutput(content=text, detail=detail)


def cancel_wakeups(schedule: Schedule) -> int:
    pending = [job for job in schedule.list_jobs() if job.is_wakeup]
    for job in pending:
        schedule.remove(job.id)
    return len(pending)
