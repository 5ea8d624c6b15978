"""What the system call filter decides, by running its program."""

from __future__ import annotations

import errno
import os
import stat
import struct

import pytest

from parley.workspace.sandbox import seccomp
from parley.workspace.sandbox.seccomp import ALLOW, ERRNO, FilterRules

REFUSED = ERRNO | errno.EPERM
COLUMNS = {machine: column for machine, (column, _) in seccomp.MACHINES.items()}
BUBBLEWRAP, LANDLOCK = FilterRules(), FilterRules((), shares_host=True)
SETUID = stat.S_ISUID | 0o755
CREATE = os.O_WRONLY | os.O_CREAT


def decide(rules: FilterRules, machine: str, number: int, *arguments: int) -> int:
    """Run the program as the kernel does."""
    program = seccomp.build_filter(rules, machine)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    words = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", number, seccomp.MACHINES[machine][1], 0, *words)
    at = value = 0
    while True:
        operation, if_true, if_false, operand = code[at]
        at += 1
        if operation == seccomp.RETURN:
            return int(operand)
        if operation == seccomp.LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
        elif operation == seccomp.AND:
            value &= operand
        else:
            is_true = {
                seccomp.JUMP_EQUAL: value == operand,
                seccomp.JUMP_GREATER_EQUAL: value >= operand,
                seccomp.JUMP_ANY_BIT: bool(value & operand),
            }[operation]
            at += if_true if is_true else if_false


@pytest.mark.parametrize("machine", COLUMNS)
@pytest.mark.parametrize("rules", [BUBBLEWRAP, LANDLOCK])
def test_no_file_that_runs_as_its_owner_can_be_created(rules: FilterRules, machine: str) -> None:
    column = COLUMNS[machine]
    for numbers, position in seccomp.OPEN_CALLS:
        if (number := numbers[column]) is not None:
            before = (0,) * position
            assert decide(rules, machine, number, *before, CREATE, SETUID) == REFUSED
            assert decide(rules, machine, number, *before, os.O_TMPFILE, stat.S_ISGID) == REFUSED
            assert decide(rules, machine, number, *before, CREATE, 0o755) == ALLOW
            assert decide(rules, machine, number, *before, os.O_RDONLY, SETUID) == ALLOW  # the mode is not read
    for numbers, position in seccomp.NEW_FILE_CALLS:
        if (number := numbers[column]) is not None:
            assert decide(rules, machine, number, *(0,) * position, SETUID) == REFUSED
            assert decide(rules, machine, number, *(0,) * position, 0o644) == ALLOW
    for numbers, position in seccomp.MODE_CALLS:
        if (number := numbers[column]) is not None:
            # Under Landlock the supervisor decides, which knows whether it is a folder.
            expected = ALLOW if rules.shares_host else REFUSED
            assert decide(rules, machine, number, *(0,) * position, SETUID) == expected
    assert decide(rules, machine, 437) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("machine", COLUMNS)
def test_other_processes_of_the_user_cannot_be_slowed_down_or_talked_to(machine: str) -> None:
    column = COLUMNS[machine]
    for numbers, user in seccomp.PRIORITIES:
        assert decide(LANDLOCK, machine, numbers[column], user, 0) == REFUSED
        assert decide(LANDLOCK, machine, numbers[column], user - 2, 0) == ALLOW
        assert decide(LANDLOCK, machine, numbers[column], user - 2, 4711) == REFUSED
        assert decide(LANDLOCK, machine, numbers[column], user - 1, 4711) == REFUSED
    for both in seccomp.SHARED_MEMORY.values():
        number = both[column]
        assert number is not None
        assert decide(LANDLOCK, machine, number) == REFUSED
        assert decide(BUBBLEWRAP, machine, number) == ALLOW  # it has objects of its own
    for rules in (LANDLOCK, BUBBLEWRAP):
        assert decide(rules, machine, seccomp.FCNTL[column], 3, seccomp.SET_LEASE) == REFUSED
        assert decide(rules, machine, seccomp.FCNTL[column], 3, 2) == ALLOW
