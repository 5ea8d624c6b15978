"""`parley mcp serve --http` against the official suite, one test per scenario and revision.

Most scenarios call tools, prompts and resources of a server that was written for the suite. They say nothing about one
that does not have these.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.compat.harness import RUN_SECONDS, installed
from tests.compat.install import MCP_SUITE
from tests.helpers.environment import base_environment
from tests.helpers.mcp_http import McpServer

OLD, NEW = "2025-11-25", "2026-07-28"
SCENARIOS = {
    "server-initialize": (OLD,),
    "server-session-lifecycle": (OLD,),
    "ping": (OLD,),
    "tools-list": (OLD, NEW),
    "server-sse-multiple-streams": (OLD, NEW),
    "dns-rebinding-protection": (OLD, NEW),
    "server-stateless": (NEW,),
    "caching": (NEW,),
    "http-header-validation": (NEW,),
    "input-required-result-unsupported-methods": (NEW,),
}
"""Every scenario that applies, with the revisions at which it runs."""
NO_TOOL = "it needs a tool of the suite's own server"
NO_LIST = "there are no prompts and resources, and none are announced"
NOT_APPLICABLE_CHECKS = {
    "server-sse-multiple-streams-session": "there are no MCP sessions, which are optional",
    "sep-2575-server-rejects-undeclared-capability": NO_TOOL,
    "sep-2575-missing-capability-http-400": NO_TOOL,
    "sep-2575-http-server-no-independent-requests-on-stream": NO_TOOL,
    "sep-2575-server-no-log-without-loglevel": NO_TOOL,
    "sep-2549-prompts-list-caching-hints": NO_LIST,
    "sep-2549-resources-list-caching-hints": NO_LIST,
    "sep-2549-resources-templates-list-caching-hints": NO_LIST,
}
NOT_APPLICABLE = {
    r"tools-call-.*|json-schema-2020-12|elicitation-.*|server-sse-polling|http-custom-header-.*": NO_TOOL,
    r"input-required-result-(?!unsupported).*": NO_TOOL,
    r"prompts-.*|resources-.*|sep-2164-.*|completion-complete|logging-set-level": NO_LIST,
    r"tasks-.*|sep-2640-.*": "an extension that is not announced",
}


@contextmanager
def add_token(port: int, token: str) -> Iterator[str]:
    """The URL of a proxy that adds the token, which the suite cannot send. All other headers stay as they are."""

    class Forward(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with closing(HTTPConnection("127.0.0.1", port, timeout=RUN_SECONDS)) as server:
                server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    server.putheader(name, value)
                server.putheader("Authorization", f"Bearer {token}")
                server.endheaders(body)
                response = server.getresponse()
                data = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                self.send_header(name, value)
            with suppress(ConnectionError):  # the suite does not read every reply
                self.end_headers()
                self.wfile.write(data)

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        do_GET = do_POST = do_DELETE = forward

        def log_message(self, format: str, *words: object) -> None:
            pass

    class Proxy(ThreadingHTTPServer):
        daemon_threads = False  # they have ended when it has

    with Proxy(("127.0.0.1", 0), Forward) as proxy:
        thread = Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}/mcp"
        finally:
            proxy.shutdown()
            thread.join()


async def run_suite(folder: Path, *words: str) -> str:
    suite = installed(MCP_SUITE)
    program = suite.program()
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        *(program, str(suite.place / "node_modules" / MCP_SUITE.package / "dist" / "index.js"), *words),
        cwd=folder,
        env={**base_environment(), "HOME": str(folder), "LANG": "C.UTF-8", "NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(RUN_SECONDS):
        output, _ = await process.communicate()
    return output.decode()


def read_checks(folder: Path) -> list[dict[str, Any]]:
    [found] = folder.glob("*/checks.json")
    return list(json.loads(found.read_text()))


@pytest.mark.parametrize(
    ("scenario", "version"), [(scenario, version) for scenario, versions in SCENARIOS.items() for version in versions]
)
async def test_the_suite_finds_nothing_wrong(tmp_path: Path, scenario: str, version: str) -> None:
    async with McpServer(tmp_path) as server:
        with add_token(server.port, server.token) as url:
            which = ("--url", url, "--scenario", scenario, "--spec-version", version)
            output = await run_suite(
                tmp_path, "server", *which, "--timeout", str(RUN_SECONDS * 900), "-o", str(tmp_path / "out")
            )

    failed = {check["id"] for check in read_checks(tmp_path / "out") if check["status"] in ("FAILURE", "WARNING")}
    assert failed <= NOT_APPLICABLE_CHECKS.keys(), output


async def test_every_scenario_of_the_suite_is_run_or_named_with_a_reason(tmp_path: Path) -> None:
    listed = re.findall(r"- (\S+) \[([^]]*)\]", await run_suite(tmp_path, "list", "--server"))
    reasons = re.compile("|".join(NOT_APPLICABLE))
    applicable = {name for name, _ in listed if not reasons.fullmatch(name)}
    assert applicable == SCENARIOS.keys()
