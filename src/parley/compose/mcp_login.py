"""Logins to MCP servers: where tokens are stored, and how the servers are reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.mcp.base import Challenge, ConnectionLost, LoginRefused, ServerLogin, ServerSpec
from parley.protocol.base import Json
from parley.workspace import private_files

if TYPE_CHECKING:
    import httpx2

    from parley.compose.certificates import Trust
    from parley.compose.launch_context import LaunchContext

FILE = "mcp-logins.json"


class LoginFile:
    """The tokens of all servers, in a file that only its owner can read."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn

    def read(self) -> Json:
        try:
            found = msgspec.json.decode(private_files.read(self._path))
        except FileNotFoundError:
            return {}
        except (OSError, private_files.UnsafeFile, msgspec.DecodeError) as exc:
            self._warn(f"cannot read the MCP logins in {self._path}: {exc}")
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, tokens: Json) -> None:
        """Raises LoginRefused."""
        try:
            private_files.replace(self._path, msgspec.json.encode(tokens))
        except (OSError, private_files.UnsafeFile) as exc:
            raise LoginRefused(f"the tokens cannot be stored in {self._path}: {exc}") from None


def open_login_file(launch: LaunchContext) -> LoginFile:
    return LoginFile(launch.config / FILE, launch.warn)


async def start_login(
    spec: ServerSpec,
    redirect_uri: str | None,
    challenge: Challenge | None,
    proxy: str | None,
    trust: Trust,
    file: LoginFile,
) -> ServerLogin:
    """Raises LoginRefused or ConnectionLost."""
    login_class, make_client = await asyncio.to_thread(load)
    try:
        context = await asyncio.to_thread(trust)
    except OSError as exc:
        raise ConnectionLost(f"cannot read the certificates in SSL_CERT_FILE or SSL_CERT_DIR: {exc}") from None

    def connect(auth: httpx2.Auth) -> httpx2.AsyncClient:
        return make_client(spec, proxy, context, auth)

    login: ServerLogin = await login_class.start(spec, connect, file, redirect_uri, challenge)
    return login


async def forget_login(spec: ServerSpec, file: LoginFile) -> None:
    """Raises LoginRefused."""
    tokens = file.read()
    # The key is that of mcp/oauth.py, which need not be loaded to delete an entry.
    if tokens.pop(f"{spec.name} {spec.url}", None) is not None:
        file.write(tokens)


def load() -> tuple[Any, Callable[..., httpx2.AsyncClient]]:
    """Import the package, which takes most of a second. Raises ConnectionLost if it is not installed."""
    from parley.compose.mcp import load_transport

    load_transport("http")
    from parley.mcp.oauth import Login
    from parley.mcp.remote import make_login_client

    return Login, make_login_client
