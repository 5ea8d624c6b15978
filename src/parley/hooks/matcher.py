"""Hook matchers: everything, a list of names, or a regular expression."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from parley.protocol.base import Struct

PLAIN = re.compile(r"[\w|, -]+")


class Matcher(Struct, frozen=True):
    """`""` and `*` match everything, `Edit|Write` or `Edit, Write` match names; other texts are regular expressions.

    A regular expression matches anywhere in the name. An invalid one matches everything: a guard that runs too often is
    better than one that never runs.
    """

    text: str = ""

    def matches(self, names: Iterable[str]) -> bool:
        """Whether one of the names matches. An event without a name is matched by all."""
        if self.text in ("", "*"):
            return True
        known = [name for name in names if name]
        if not known:
            return True
        if PLAIN.fullmatch(self.text):
            expected = {part.strip() for part in re.split(r"[|,]", self.text)}
            return not expected.isdisjoint(known)
        pattern = compile_pattern(self.text)
        return pattern is None or any(pattern.search(name) for name in known)

    @property
    def problem(self) -> str | None:
        """The warning for an invalid regular expression; None if it is valid."""
        if self.text in ("", "*") or PLAIN.fullmatch(self.text) or compile_pattern(self.text) is not None:
            return None
        return f"the matcher {self.text!r} is not a valid regular expression; it matches everything"


@functools.lru_cache(maxsize=256)
def compile_pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return None
