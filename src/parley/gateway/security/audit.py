"""Who did what: one line of JSON per act, in a file that is only appended to.

    {"at": 1794893109.1, "who": "ann", "tenant": "acme", "act": "answer", "session": "…", "decision": "allow"}

The text of prompts is not in it; the transcript of the session has that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import SessionError
from parley.gateway.security.access import Principal

MAX_CHARS = 1000
"""How much of a value that a client has chosen is recorded."""


class AuditLog:
    def __init__(self, path: Path) -> None:
        """Raises SessionError."""
        self._path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise SessionError(f"cannot open {path}: {exc.strerror}") from None

    def write(self, act: str, principal: Principal, **details: Any) -> None:
        """Record an act before it has an effect. Raises SessionError."""
        details = {key: value[:MAX_CHARS] if isinstance(value, str) else value for key, value in details.items()}
        line = {"at": time.time(), "who": principal.name, "tenant": principal.tenant, "act": act, **details}
        data = msgspec.json.encode(line) + b"\n"
        try:
            if os.write(self._file, data) != len(data):
                raise OSError(None, "the device is full")
        except OSError as exc:
            raise SessionError(f"cannot write {self._path}: {exc.strerror}") from None

    def close(self) -> None:
        os.close(self._file)
