"""OAuth for servers behind a URL, as far as no person has to be there: the package's client credentials grant.

    {"type": "http", "url": "...", "oauth": {"clientId": "...", "clientSecret": "${SECRET}", "issuer": "..."}}

A server that wants a person to log in is in the state `needs-auth`; a token that somebody
has can be given as a header.
"""

from __future__ import annotations

from typing import Any

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from parley.mcp.base import ConnectionLost, ServerSpec

NEEDED = ("clientId", "clientSecret", "issuer")


class InMemoryTokenStorage:
    """Tokens for as long as the connection lives; the next one asks for others."""

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
    """Who authorizes our requests to a server; None if nobody has to. Raises Lost if the configuration is wrong."""
    if spec.oauth is None:
        return None
    given: dict[str, Any] = spec.oauth
    missing = [key for key in NEEDED if not isinstance(given.get(key), str) or not given[key]]
    if missing:
        raise ConnectionLost(f"its oauth lacks {', '.join(missing)}")
    scope = given.get("scope")
    return ClientCredentialsOAuthProvider(
        server_url=spec.url,
        storage=InMemoryTokenStorage(),
        client_id=given["clientId"],
        client_secret=given["clientSecret"],
        scope=scope if isinstance(scope, str) else None,
        issuer=given["issuer"],
    )
