"""Cron expressions: what they match, and what is wrong with an invalid one."""

from __future__ import annotations

import time

import pytest

from parley.errors import ToolError
from parley.tools.schedule import CronExpression


def at(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M"))


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        ("* * * * *", "2027-01-15 12:00", "2027-01-15 12:01"),
        ("*/15 * * * *", "2027-01-15 12:01", "2027-01-15 12:15"),
        ("7 * * * *", "2027-01-15 12:08", "2027-01-15 13:07"),
        ("0 9-17/4 * * *", "2027-01-15 10:00", "2027-01-15 13:00"),
        ("30 14 28 2 *", "2027-03-01 00:00", "2028-02-28 14:30"),
        ("0 0 29 feb *", "2027-01-01 00:00", "2028-02-29 00:00"),
        ("0 9 * * mon-fri", "2027-01-15 10:00", "2027-01-18 09:00"),  # a Friday
        ("0 9 * * 7", "2027-01-15 10:00", "2027-01-17 09:00"),
        ("0 0 20 * sun", "2027-01-15 00:00", "2027-01-17 00:00"),  # either day matches
        ("5,10 8 * * *", "2027-01-15 08:05", "2027-01-15 08:10"),
        ("50/5 * * * *", "2027-01-15 12:51", "2027-01-15 12:55"),
    ],
)
def test_the_next_time_is_the_first_minute_that_matches(cron: str, now: str, expected: str) -> None:
    assert CronExpression.parse(cron).next_after(at(now)) == at(expected)


def test_an_expression_that_never_matches_has_no_next_time() -> None:
    assert CronExpression.parse("0 0 31 2 *").next_after(at("2027-01-01 00:00")) is None


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * *", "has 4 fields, expected 5"),
        ("", "has 0 fields, expected 5"),
        ("60 * * * *", "minute '60'"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day of the month '0'"),
        ("* * * 13 *", "month '13'"),
        ("* * * * 8", "day of the week '8'"),
        ("*/0 * * * *", "minute '*/0'"),
        ("9-5 * * * *", "9 is after 5"),
        ("a * * * *", "minute 'a'"),
        ("-1 * * * *", "minute '-1'"),
        ("1,,2 * * * *", "minute '1,,2'"),
        ("٣ * * * *", "minute '٣'"),
        ("99999999999 * * * *", "minute '99999999999'"),
    ],
)
def test_an_invalid_expression_is_refused_by_the_field_that_is_wrong(cron: str, words: str) -> None:
    with pytest.raises(ToolError) as raised:
        CronExpression.parse(cron)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("7 * * * *", "every hour at minute 7"),
        ("5 9 * * *", "every day at 09:05"),
        ("30 14 28 2 *", "02-28 at 14:30"),
        ("0 9 * * 1-5", "cron 0 9 * * 1-5"),
    ],
)
def test_simple_schedules_are_described_in_words(cron: str, words: str) -> None:
    assert CronExpression.parse(cron).describe() == words
