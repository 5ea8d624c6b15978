"""A fence around a child: the kernel lets it read beneath given folders and nowhere else (Landlock, Linux 5.13).

A program that opens files by their names can be led astray by whoever swaps a file for a link at the right moment.
Behind a fence that ends in a refusal, because the kernel judges what is opened.

    process = fenced(lambda: subprocess.Popen(...), [Gap(descriptor, READ)])

The fence is put up in a thread of its own, which starts the child and ends: it holds for that thread and all that
come from it, not for us.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1
NO_NEW_PRIVILEGES = 38
RUN, READ_FILE, READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
READ = READ_FILE | READ_FOLDER
EVERYTHING = (1 << 13) - 1
"""What the first version knows of: reading, writing, running, making and removing."""

T = TypeVar("T")


class Gap(NamedTuple):
    """An opened folder or file that may be used through the fence, and how."""

    descriptor: int
    access: int


@cache
def can_fence() -> bool:
    """Whether this kernel has fences and lets us put one up."""
    if not sys.platform.startswith("linux"):
        return False
    return _call(CREATE_RULESET, None, 0, ASK_VERSION) >= 1


def fenced(start: Callable[[], T], gaps: list[Gap]) -> T:
    """What `start` gives, called behind the fence. Raises what it raises, and OSError if there can be no fence."""
    done: list[T] = []
    flaws: list[BaseException] = []

    def run() -> None:
        try:
            put_up(gaps)
            done.append(start())
        except BaseException as flaw:
            flaws.append(flaw)

    thread = threading.Thread(target=run, name="parley-fence")
    thread.start()
    thread.join()
    if flaws:
        raise flaws[0]
    return done[0]


def put_up(gaps: list[Gap]) -> None:
    """Fence in the calling thread, for good. Raises OSError."""
    import ctypes
    import struct

    rights = struct.pack("=Q", EVERYTHING)
    ruleset = _must(_call(CREATE_RULESET, ctypes.c_char_p(rights), len(rights), 0))
    try:
        for gap in gaps:
            folder = stat.S_ISDIR(os.fstat(gap.descriptor).st_mode)
            access = gap.access if folder else gap.access & ~READ_FOLDER
            rule = struct.pack("=Qi", access, gap.descriptor)
            _must(_call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.c_char_p(rule), 0))
        _must(_libc().prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _must(_call(RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: Any) -> int:
    import ctypes

    plain = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc().syscall(ctypes.c_long(number), *plain)
    return result


def _must(result: int) -> int:
    import ctypes

    if result < 0:
        raise OSError(ctypes.get_errno(), "no fence could be put up")
    return result


@cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
