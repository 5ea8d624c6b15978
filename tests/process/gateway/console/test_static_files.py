"""The files of the console: headers, compression, and nothing else of the disk."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from parley.protocol.schema import build_schema
from tests.helpers import paths
from tests.helpers.gateway import Server

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self' ws://127.0.0.1:PORT wss://127.0.0.1:PORT; "
    "img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
OUTSIDE = (
    "../gateway/hub.py",
    "..%2fgateway/hub.py",
    "%2e%2e/version.py",
    "/etc/passwd",
    "..",
    ".",
    "vendor",
    "index.html/",
    "index.html%00.js",
    "__init__.py",
    "no-such-file.js",
    ".hidden.js",
    "x" * 5000 + ".js",
)


async def test_the_page_needs_no_token_and_may_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        for path in ("/", "/console"):
            status, headers, _ = await server.fetch("GET", path)
            assert (status, headers["location"]) == (307, "/console/")
        status, headers, body = await server.fetch("GET", "/console/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert body == (paths.SOURCE / "parley" / "console" / "index.html").read_bytes()
        assert headers["content-security-policy"] == POLICY.replace("PORT", str(server.port))
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        status, again, compressed = await server.fetch("GET", "/console/index.html", None, {"Accept-Encoding": "gzip"})
        assert (status, again["content-encoding"], gzip.decompress(compressed)) == (200, "gzip", body)
        known = {"If-None-Match": headers["etag"]}
        status, unchanged, empty = await server.fetch("GET", "/console/", None, known)
        assert (status, empty, unchanged["etag"]) == (304, b"", headers["etag"])
        status, _, empty = await server.fetch("HEAD", "/console/")
        assert (status, empty) == (200, b"")


async def test_nothing_else_is_served(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        for path in OUTSIDE:
            status, _, body = await server.fetch("GET", f"/console/{path}")
            assert (status, json.loads(body)["error"]["code"]) == (404, "not_found"), path
        status, _, body = await server.fetch("POST", "/console/index.html")
        assert (status, json.loads(body)["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", ""])
async def test_another_host_name_is_refused(tmp_path: Path, host: str) -> None:
    async with Server(tmp_path) as server:
        status, _, body = await server.fetch("GET", "/console/", None, {"Host": host})
        assert (status, json.loads(body)["error"]["code"]) == (421, "forbidden_host")


async def test_a_token_says_what_it_may_do(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        body = {"name": "ann", "tenant": "acme", "scopes": ["approve"]}
        token = (await server.request("POST", "/tokens", body))[1]["token"]
        assert await server.get("/me", token) == {"name": "ann", "tenant": "acme", "scopes": ["approve", "view"]}
        assert (await server.get("/me"))["name"] == "admin"
        assert await server.get("/schema.json") == json.loads(json.dumps(build_schema()))
