"""Which occasions a hook is for: everything, names, or a pattern."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from parley.protocol.base import Struct

PLAIN = re.compile(r"[\w|, -]+")


class Matcher(Struct, frozen=True):
    """`""` and `*` stand for everything, `Edit|Write` or `Edit, Write` for names; else it is a regular expression.

    A regular expression fits if it is found anywhere in the name. One that cannot be read fits everything: a guard
    that is asked too often is better than one that is never asked.
    """

    text: str = ""

    def matches(self, names: Iterable[str]) -> bool:
        """Whether one of the names of a thing fits. What has no name is fitted by all."""
        if self.text in ("", "*"):
            return True
        known = [name for name in names if name]
        if not known:
            return True
        if PLAIN.fullmatch(self.text):
            wanted = {part.strip() for part in re.split(r"[|,]", self.text)}
            return not wanted.isdisjoint(known)
        pattern = compile_pattern(self.text)
        return pattern is None or any(pattern.search(name) for name in known)

    @property
    def problem(self) -> str | None:
        """What is wrong with it."""
        if self.text in ("", "*") or PLAIN.fullmatch(self.text) or compile_pattern(self.text) is not None:
            return None
        return f"the matcher {self.text!r} is no regular expression; it is taken to fit everything"


@functools.lru_cache(maxsize=256)
def compile_pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return None
