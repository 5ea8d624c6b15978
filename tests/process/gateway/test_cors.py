"""Pages of other origins: allowed ones may call the API, others may not read it."""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path

from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS

PAGE = "https://page.example"


async def send(server: Server, method: str, path: str, **headers: str) -> tuple[int, HTTPMessage]:
    def run() -> tuple[int, HTTPMessage]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            response = connection.getresponse()
            response.read()
            return response.status, response.headers
        finally:
            connection.close()

    return await asyncio.to_thread(run)


async def preflight(server: Server, origin: str, header: str) -> tuple[int, HTTPMessage]:
    asks = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": header}
    return await send(server, "OPTIONS", "/sessions", Origin=origin, **asks)


async def test_only_pages_of_an_allowed_origin_may_call_the_api(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--allow-origin", PAGE) as server:
        for header in ("authorization", "content-type", "last-event-id"):
            status, found = await preflight(server, PAGE, header)
            assert (status, found["Access-Control-Allow-Origin"]) == (200, PAGE)
        assert "Access-Control-Allow-Credentials" not in found
        assert (await preflight(server, PAGE, "x-other"))[0] == 400
        status, found = await preflight(server, "https://elsewhere.example", "authorization")
        assert (status, found["Access-Control-Allow-Origin"]) == (400, None)

        token = f"Bearer {server.token}"
        status, found = await send(server, "GET", "/sessions", Origin=PAGE, Authorization=token)
        assert (status, found["Access-Control-Allow-Origin"], found["Vary"]) == (200, PAGE, "Origin")
        status, found = await send(server, "GET", "/sessions", Origin=PAGE)
        assert (status, found["Access-Control-Allow-Origin"]) == (401, PAGE)  # the page can read the reason
        status, found = await send(server, "GET", "/sessions", Origin="https://elsewhere.example", Authorization=token)
        assert (status, found["Access-Control-Allow-Origin"]) == (403, None)
