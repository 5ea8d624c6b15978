"""Keys are taken out of what the kernel shows of this process: its first environment and its command line.

`/proc/PID/environ` and `/proc/PID/cmdline` show the memory that the process was started with, to every command of the
same user. Unsetting a variable does not change that memory, so it is overwritten. Our own lookups and libraries still
find the variables: they are set again first, which moves them to memory that is not shown. Linux only; elsewhere,
and where the kernel refuses, nothing happens.

See also: `Processes.hides_engine`, which keeps commands from tracing the engine and from reading its memory.
"""

from __future__ import annotations

import os
import sys

from parley.settings.secret_variables import is_secret

SECRET_OPTIONS = frozenset(
    {b"--api-key", b"--settings", b"--managed-settings", b"--mcp-config", b"--store", b"--agents"}
)
"""Options whose value is a key or an address with a password, or JSON that may hold one."""


def erase() -> None:
    """Overwrite keys in the first environment, and on the command line."""
    if sys.platform != "linux":
        return
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name in parentheses may hold anything, so look after the last one.
            fields = file.read().rpartition(b")")[2].split()
        words, words_end, variables, variables_end = map(int, fields[45:49])
        shown = read_block("/proc/self/environ", variables_end - variables)
        blots = [(variables + offset, b"\0" * length) for offset, length in secret_variables(shown)]
        shown = read_block("/proc/self/cmdline", words_end - words)
        blots += [(words + offset, b"x" * length) for offset, length in secret_words(shown)]
        if not blots:
            return
        memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            for address, blot in blots:
                os.pwrite(memory, blot, address)
        finally:
            os.close(memory)
    except (OSError, ValueError):
        return


def read_block(path: str, length: int) -> bytes:
    """What the kernel shows; nothing if it is not the memory that we think it is."""
    with open(path, "rb") as file:
        shown = file.read()
    return shown if len(shown) == length else b""


def secret_variables(block: bytes) -> list[tuple[int, int]]:
    """Where in a block of variables the values of secret ones are. Each is set again, so that it can be overwritten."""
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
    """Where on a command line the words are that may hold a key: JSON, keys, addresses with a password."""
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
    """Paths of files stay readable on the process list."""
    if option == b"--store":
        return b"@" in value
    return option == b"--api-key" or value.lstrip().startswith(b"{")
