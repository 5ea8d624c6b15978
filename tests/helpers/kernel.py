"""Run a program as on a machine that lacks namespaces or Landlock: `python kernel.py landlock,namespaces PROGRAM ...`.

The system calls fail in the kernel, as they do in a container or on an old kernel. Nothing of the program is replaced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

from parley.workspace.sandbox import seccomp

LANDLOCK = (444, 444)


def wrap(*missing: str) -> list[str]:
    """The beginning of a command line that runs a program without these."""
    return [sys.executable, __file__, ",".join(missing)]


def build(missing: list[str]) -> bytes:
    column, _ = seccomp.MACHINES[os.uname().machine]
    code: seccomp.Code = [(seccomp.LOAD, 0, 0, seccomp.NUMBER_OFFSET)]
    if "landlock" in missing:
        code += seccomp.refuse([LANDLOCK], column, errno.ENOSYS)
    if "namespaces" in missing:
        code += seccomp.refuse(seccomp.NAMESPACES.values(), column, errno.EPERM)
        code += seccomp.refuse([seccomp.CLONE3], column, errno.ENOSYS)
        code += seccomp.on_call(seccomp.CLONE[column], seccomp.refuse_bits(0, seccomp.NAMESPACE_FLAGS))
        code += seccomp.on_call(seccomp.UNSHARE[column], seccomp.refuse_bits(0, seccomp.NAMESPACE_FLAGS))
    code.append((seccomp.RETURN, 0, 0, seccomp.ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def main() -> None:
    program = build(sys.argv[1].split(","))
    buffer = ctypes.create_string_buffer(program, len(program))
    filter = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(filter), 0, 0) == 0
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
