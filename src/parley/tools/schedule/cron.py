"""Cron expressions: five fields in local time.

    CronExpression.parse("*/5 9-17 * * 1-5").next_after(now)      # seconds since the epoch, or None

`*`, lists, ranges, steps and the names of months and days are understood. As in cron, a day matches if either the day
of the month or the day of the week does, where both are restricted. Pure: the current time is an argument.
"""

from __future__ import annotations

import datetime
import time

from parley.errors import ToolError
from parley.protocol.base import Struct

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
