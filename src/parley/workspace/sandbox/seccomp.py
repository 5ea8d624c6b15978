"""The system call filter of sandboxed commands, as a program for the kernel (classic BPF).

    program = build_filter(FilterRules(families=(AF_INET, AF_INET6)), machine="x86_64")

What the filter refuses has no use in a build or a test, and a history of escapes: namespaces and mounts, tracing,
keys, BPF, io_uring, typing into a terminal, files that run as their owner. It also closes what namespaces leave open:
Unix sockets. A refused call fails with EPERM; one that programs probe for fails with ENOSYS, so that they do without
it.

Runs in the supervisor processes, too, and uses only the standard library.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from typing import NamedTuple

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
SOCK_STREAM, SOCK_SEQPACKET = 1, 5
SOCK_TYPE_MASK = 0xF
NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
NEW_TIME_NAMESPACE = 0x80
"""Only for unshare: in clone, this bit belongs to the exit signal."""
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
ATTRIBUTE_REQUESTS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602, 0x800C6613)
"""To set the flags, the project, the version and the encryption of a file. An owner needs no right to write for it."""
PERSONALITIES = (0, 8, 0xFFFFFFFF)
"""Linux, Linux with 32 bits, and the question for the current one."""

LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_OFFSET, MACHINE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
X32_BIT = 0x40000000

# Numbers of system calls on x86_64 and aarch64; None where there is no such call.
Numbers = dict[str, tuple[int | None, int | None]]
NAMESPACES: Numbers = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
REFUSED: Numbers = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "vhangup": (153, 58),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
}
SHARED_MEMORY: Numbers = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
"""Objects that commands would share with all processes of the user, if they have no IPC namespace of their own."""
ABSENT: Numbers = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "openat2": (437, 437),
}
"""The mode in openat2 is not an argument, so that it cannot be filtered."""
SPECIAL_MODES = 0o6000
"""Set-user-id and set-group-id: such a file in the workspace would run outside as its owner."""
CREATE_FLAGS = 0o100 | 0o20000000
"""O_CREAT, and what O_TMPFILE adds to O_DIRECTORY. Without them, the mode is not read."""
OPEN_CALLS = (((2, None), 1), ((257, 56), 2))
"""open and openat, each with the position of the flags; the mode follows."""
NEW_FILE_CALLS = (((85, None), 1), ((133, None), 1), ((259, 33), 2))
"""creat, mknod and mknodat, each with the position of the mode."""
MODE_CALLS = (((90, None), 1), ((91, 52), 1), ((268, 53), 2), ((452, 452), 2))
"""chmod, fchmod, fchmodat and fchmodat2, each with the position of the mode."""
SCHEDULING = ((203, 122), (142, 118), (144, 119), (314, 274))
"""sched_setaffinity, sched_setparam, sched_setscheduler and sched_setattr. The first argument is the process; 0 is the
caller."""
PRIORITIES = (((141, 140), 2), ((251, 30), 3))
"""setpriority and ioprio_set, each with the first argument that means all processes of a user. The second one tells
which; 0 is the caller's."""
FCNTL, SET_LEASE = (72, 25), 1024
"""Others would wait when they open the file for writing."""
CLONE, CLONE3, UNSHARE = (56, 220), (435, 435), (272, 97)
SOCKET, SOCKETPAIR, IOCTL, PERSONALITY, PRLIMIT = (41, 198), (53, 199), (16, 29), (135, 92), (302, 261)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""For each machine, its column in the tables and its number in the kernel."""


Code = list[tuple[int, int, int, int]]


class FilterRules(NamedTuple):
    """What differs between the kinds of sandbox."""

    families: tuple[int, ...] = (AF_INET, AF_INET6)
    """The families of sockets that commands may create."""
    namespaces: bool = False
    """Whether commands may create namespaces."""
    shares_host: bool = False
    """Whether commands see the other processes of this machine, because they have no namespaces of their own."""


def build_filter(rules: FilterRules, machine: str, more: Code | None = None) -> bytes:
    """The program as the kernel reads it. `more`: rules about other calls. Raises KeyError for an unknown machine."""
    column, kernel_name = MACHINES[machine]
    code: Code = [
        (LOAD, 0, 0, MACHINE_OFFSET),
        (JUMP_EQUAL, 1, 0, kernel_name),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_OFFSET),
    ]
    if machine == "x86_64":  # the second set of call numbers would be a way around
        code += [(JUMP_GREATER_EQUAL, 0, 1, X32_BIT), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    code += refuse(REFUSED.values(), column, errno.EPERM) + refuse(ABSENT.values(), column, errno.ENOSYS)
    if not rules.namespaces:
        code += refuse(NAMESPACES.values(), column, errno.EPERM) + refuse([CLONE3], column, errno.ENOSYS)
        code += on_call(CLONE[column], refuse_bits(0, NAMESPACE_FLAGS))
        code += on_call(UNSHARE[column], refuse_bits(0, NAMESPACE_FLAGS | NEW_TIME_NAMESPACE))
    if rules.shares_host:
        code += refuse(SHARED_MEMORY.values(), column, errno.EPERM)
        for numbers in (PRLIMIT, *SCHEDULING):
            code += on_call(numbers[column], allow_values(0, (0,)))
        for numbers, user in PRIORITIES:
            all_of_user = [*load_argument(0), *return_for((user,), ERRNO | errno.EPERM)]
            code += on_call(numbers[column], [*all_of_user, *allow_values(1, (0,))])
    code += refuse_special_modes(column, is_changed_elsewhere=rules.shares_host)
    code += on_call(SOCKET[column], socket_rule(rules.families))
    code += on_call(SOCKETPAIR[column], socketpair_rule(all_types=AF_UNIX in rules.families))
    code += on_call(FCNTL[column], refuse_values(1, (SET_LEASE,)))
    requests = (TIOCSTI, TIOCLINUX, *(ATTRIBUTE_REQUESTS if rules.shares_host else ()))
    code += on_call(IOCTL[column], refuse_values(1, requests))
    code += on_call(PERSONALITY[column], allow_values(0, PERSONALITIES))
    code += [*(more or ()), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def refuse(calls: Iterable[tuple[int | None, int | None]], column: int, error: int) -> Code:
    numbers = [call[column] for call in calls]
    return [
        instruction
        for number in numbers
        if number is not None
        for instruction in ((JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | error))
    ]


def on_call(number: int, rule: Code) -> Code:
    """A rule that decides about one call. It must end with a return, because it loads an argument."""
    return [(JUMP_EQUAL, 0, len(rule), number), *rule]


def load_argument(index: int) -> Code:
    """Load the lower half of an argument. The kernel reads the arguments that we look at as 32 bits, too."""
    return [(LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * index)]


def refuse_bits(index: int, bits: int) -> Code:
    return [
        *load_argument(index),
        (JUMP_ANY_BIT, 0, 1, bits),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def refuse_special_modes(column: int, *, is_changed_elsewhere: bool) -> Code:
    """`is_changed_elsewhere`: the calls that change a mode are handed to the supervisor (`metadata_guard.py`)."""
    code: Code = []
    for numbers, position in (*NEW_FILE_CALLS, *(() if is_changed_elsewhere else MODE_CALLS)):
        if (number := numbers[column]) is not None:
            code += on_call(number, refuse_bits(position, SPECIAL_MODES))
    for numbers, position in OPEN_CALLS:
        if (number := numbers[column]) is not None:
            creates = [*load_argument(position), (JUMP_ANY_BIT, 1, 0, CREATE_FLAGS), (RETURN, 0, 0, ALLOW)]
            code += on_call(number, [*creates, *refuse_bits(position + 1, SPECIAL_MODES)])
    return code


def refuse_values(index: int, values: tuple[int, ...]) -> Code:
    return [*load_argument(index), *return_for(values, ERRNO | errno.EPERM), (RETURN, 0, 0, ALLOW)]


def allow_values(index: int, values: tuple[int, ...]) -> Code:
    return [*load_argument(index), *return_for(values, ALLOW), (RETURN, 0, 0, ERRNO | errno.EPERM)]


def return_for(values: tuple[int, ...], action: int) -> Code:
    return [item for value in values for item in ((JUMP_EQUAL, 0, 1, value), (RETURN, 0, 0, action))]


def socket_rule(families: tuple[int, ...]) -> Code:
    """Netlink is allowed for the list of interfaces only, which programs read before they connect."""
    netlink = allow_values(2, (NETLINK_ROUTE,)) if AF_INET in families else []
    return [
        *load_argument(0),
        *return_for(families, ALLOW),
        *([(JUMP_EQUAL, 0, len(netlink), AF_NETLINK), *netlink] if netlink else []),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
    ]


def socketpair_rule(*, all_types: bool) -> Code:
    """Connected pairs are harmless. A pair of datagram sockets could send to any Unix socket that has a path."""
    if all_types:
        return [(RETURN, 0, 0, ALLOW)]
    refused = (RETURN, 0, 0, ERRNO | errno.EPERM)
    return [
        *load_argument(0),
        (JUMP_EQUAL, 1, 0, AF_UNIX),
        refused,
        *load_argument(1),
        (AND, 0, 0, SOCK_TYPE_MASK),
        *return_for((SOCK_STREAM, SOCK_SEQPACKET), ALLOW),
        refused,
    ]
