"""Read the file that a fake model plays."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_model_file(path: Path) -> bytes:
    """Raises OSError. Only regular files are read: a pipe or a device could stop all sessions of the process."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()
