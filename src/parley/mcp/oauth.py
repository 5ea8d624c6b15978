"""OAuth for remote servers without user interaction: the client credentials grant of the `mcp` package.

    {"type": "http", "url": "...", "oauth": {"clientId": "...", "clientSecret": "${SECRET}", "issuer": "..."}}

A server that requires a login has the status `needs-auth`. An existing token can be configured as a header.
"""

from __future__ import annotations

from typing import Any

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from parley.mcp.base import ConnectionLost, ServerSpec

REQUIRED = ("clientId", "clientSecret", "issuer")


class InMemoryTokenStorage:
    """Keeps tokens for one connection. The next connection requests new ones."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


def create_provider(spec: ServerSpec) -> httpx2.Auth | None:
    """The authorization of requests; None if not configured. Raises ConnectionLost if the configuration is invalid."""
    if spec.oauth is None:
        return None
    config: dict[str, Any] = spec.oauth
    missing = [key for key in REQUIRED if not isinstance(config.get(key), str) or not config[key]]
    if missing:
        raise ConnectionLost(f"the oauth configuration lacks {', '.join(missing)}")
    scope = config.get("scope")
    return ClientCredentialsOAuthProvider(
        server_url=spec.url,
        storage=InMemoryTokenStorage(),
        client_id=config["clientId"],
        client_secret=config["clientSecret"],
        scope=scope if isinstance(scope, str) else None,
        issuer=config["issuer"],
    )
