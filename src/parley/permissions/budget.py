"""The budget of a decision. A call that would exceed it needs approval, in every mode.

Costs are counted in steps and sizes, not in time, so equal calls get equal decisions.
"""

from __future__ import annotations


class OverBudget(Exception):
    """The call cannot be checked within the budget; the text is the reason shown to people."""


def describe_excess(problem: str, found: int, limit: int, unit: str) -> str:
    """`The command is too long to check (20,001 characters, at most 20,000)`."""
    return f"{problem} to check ({found:,} {unit}, at most {limit:,})"
