"""Erase keys from `/proc/PID/environ` and `/proc/PID/cmdline`.

These files show the memory that the process was started with, to every process of the same user. Unsetting a variable
does not change that memory, so `erase()` overwrites it. The variables are set again first, which moves them to other
memory, so that this process and its libraries still find them. Linux only; elsewhere, or if the kernel refuses,
`erase()` has no effect.

See also: `Processes.hides_engine`, which keeps commands from tracing the engine and from reading its memory.
"""

from __future__ import annotations

import os
import sys

from parley._launched import is_forked
from parley.settings.secret_variables import is_secret

ADDRESS_OPTIONS = frozenset({b"--store", b"--nats", b"--log"})
"""Options whose value is an address, which may contain a password."""
SECRET_OPTIONS = (
    frozenset({b"--api-key", b"--settings", b"--managed-settings", b"--mcp-config", b"--agents", b"--sdk-url"})
    | ADDRESS_OPTIONS
)
"""Options whose value is a key, a URL with a password, or JSON that may contain a secret."""


def erase() -> None:
    """Overwrite keys in the initial environment and on the command line.

    Those of a session of a resident engine are the server's, which has no keys.
    """
    if sys.platform != "linux" or is_forked():
        return
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name in parentheses may contain anything, so start after the last parenthesis.
            fields = file.read().rpartition(b")")[2].split()
        words, words_end, variables, variables_end = map(int, fields[45:49])
        shown = read_block("/proc/self/environ", variables_end - variables)
        patches = [(variables + offset, b"\0" * length) for offset, length in secret_variables(shown)]
        shown = read_block("/proc/self/cmdline", words_end - words)
        patches += [(words + offset, b"x" * length) for offset, length in secret_words(shown)]
        if not patches:
            return
        memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            for address, patch in patches:
                os.pwrite(memory, patch, address)
        finally:
            os.close(memory)
    except (OSError, ValueError):
        return


def read_block(path: str, length: int) -> bytes:
    """Read a file of /proc; empty if its length is not the expected one."""
    with open(path, "rb") as file:
        shown = file.read()
    return shown if len(shown) == length else b""


def secret_variables(block: bytes) -> list[tuple[int, int]]:
    """Return the offset and length of each secret value. Each variable is set again, so it can be overwritten."""
    found, offset = [], 0
    for entry in block.split(b"\0"):
        name, mark, value = entry.partition(b"=")
        if mark and is_secret(os.fsdecode(name), os.fsdecode(value)):
            if (known := os.environb.get(name)) is not None:
                os.putenv(name, known)
            found.append((offset + len(name) + 1, len(value)))
        offset += len(entry) + 1
    return found


def secret_words(block: bytes) -> list[tuple[int, int]]:
    """Return the offset and length of each argument that may contain a secret: keys, JSON, URLs with a password."""
    found, offset, option = [], 0, b""
    for word in block.split(b"\0"):
        name, mark, value = word.partition(b"=")
        if mark and name in SECRET_OPTIONS:
            if may_hold_key(name, value):
                found.append((offset + len(name) + 1, len(value)))
        elif word.startswith(b"-"):
            option = word
        elif option in SECRET_OPTIONS and may_hold_key(option, word):
            found.append((offset, len(word)))
        offset += len(word) + 1
    return found


def may_hold_key(option: bytes, value: bytes) -> bool:
    """Whether a value may contain a secret. File paths do not, and stay visible."""
    if option in ADDRESS_OPTIONS:
        return b"@" in value
    return option == b"--api-key" or value.lstrip().startswith(b"{")
