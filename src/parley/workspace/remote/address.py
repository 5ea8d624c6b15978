"""Where a workspace server listens: `HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`, with an optional folder."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl

from parley.errors import UsageError
from parley.protocol.base import Struct


class WorkspaceAddress(Struct, frozen=True, kw_only=True):
    host: str = ""
    port: int = 0
    path: str = ""
    """Of a Unix socket."""
    is_encrypted: bool = False
    folder: str = ""
    """The working directory; empty for the root of the server."""

    @classmethod
    def parse(cls, text: str) -> WorkspaceAddress:
        """Raises UsageError. `unix:/run/ws.sock#/folder` names a folder of a Unix socket."""
        if text.startswith("unix:"):
            path, _, folder = text.removeprefix("unix:").partition("#")
            if not path.startswith("/"):
                raise UsageError(f"the workspace address {text!r} needs an absolute path: unix:/PATH")
            return cls(path=path, folder=folder)
        scheme, marker, rest = text.partition("://")
        if marker and scheme not in ("tcp", "tls"):
            raise UsageError(f"the workspace address {text!r} starts with {scheme}://; use tcp://, tls:// or unix:")
        place, slash, folder = (rest if marker else text).partition("/")
        host, colon, port = place.rpartition(":")
        host = host.strip("[]")
        if not colon or not host or not port.isdecimal() or int(port) > 65_535:
            raise UsageError(
                f"the workspace address must be tcp://HOST:PORT, tls://HOST:PORT or unix:PATH, not {text!r}"
            )
        return cls(host=host, port=int(port), is_encrypted=scheme == "tls", folder=slash + folder)

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether no one on a network can read along, even without TLS."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


async def dial(
    address: WorkspaceAddress, ca_file: str | None, timeout_seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError."""
    try:
        async with asyncio.timeout(timeout_seconds):
            if address.path:
                return await asyncio.open_unix_connection(address.path)
            context = ssl.create_default_context(cafile=ca_file) if address.is_encrypted else None
            return await asyncio.open_connection(address.host, address.port, ssl=context)
    except TimeoutError:
        raise OSError(f"no connection within {timeout_seconds:.0f} s") from None


def describe(exc: BaseException) -> str:
    if isinstance(exc, OSError):
        return exc.strerror or (os.strerror(exc.errno) if exc.errno else "") or str(exc)
    return str(exc)
