"""What a decision may cost. A call that would cost more is asked about, in every mode.

Costs are counted in steps and sizes, not in time: the same call is always decided alike.
"""

from __future__ import annotations


class OverBudget(Exception):
    """The call cannot be judged within the budget; the text is the reason that a person reads."""


def describe_excess(problem: str, found: int, limit: int, unit: str) -> str:
    """`The command is too long to judge (20,001 characters, at most 20,000)`."""
    return f"{problem} to judge ({found:,} {unit}, at most {limit:,})"
