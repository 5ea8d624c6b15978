"""Rules about an address hold for all its spellings, and for the names that lead to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.helpers.policies import Json, Machine, calls

SPELLINGS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7F.1",
    "0177.0.0.1",
    "127.0.0.1.",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:FFFF:7F00:0001]",
    "１２７.0.0.1",
    "127。0。0。1",
    "localhost",
    "LOCALHOST.",
]


ALLOWED = ["WebFetch(domain:localhost)", "WebFetch(domain:127.0.0.1)"]


@contextmanager
def page_server() -> Iterator[tuple[int, list[str]]]:
    """The port of a server on this machine, and the paths that it is asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, paths
        server.shutdown()
        thread.join()


def fetch(machine: Machine, host: str, permissions: Json) -> list[str]:
    """The paths that reached a server on this machine."""
    with page_server() as (port, paths):
        script = calls(("WebFetch", {"url": f"http://{host}:{port}/", "prompt": "p"}))
        done = machine.run(
            *("--permission-mode", "bypassPermissions"),
            user={"permissions": {"allow": ALLOWED, **permissions}},
            script=script,
            PARLEY_WEBFETCH_ALLOW_PRIVATE="1",
        )
        assert len(done.outputs) == 1
        return paths


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_denied_address_is_denied_in_every_spelling(tmp_path: Path, host: str) -> None:
    assert fetch(Machine(tmp_path), host, {"deny": ["WebFetch(domain:127.0.0.1)"]}) == []


@pytest.mark.parametrize("rule", ["127.1", "2130706433", "[::ffff:7f00:1]"])
@pytest.mark.parametrize("behavior", ["deny", "ask"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_rule_may_spell_an_address_in_any_way(tmp_path: Path, rule: str, behavior: str, host: str) -> None:
    assert fetch(Machine(tmp_path), host, {behavior: [f"WebFetch(domain:{rule})"]}) == []


@pytest.mark.parametrize("host", ["127.1", "localhost"])
def test_an_allowed_address_is_fetched(tmp_path: Path, host: str) -> None:
    assert fetch(Machine(tmp_path), host, {}) == ["/"]
