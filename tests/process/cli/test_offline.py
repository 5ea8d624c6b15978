"""`--offline`: sockets only to the configured backend and to this machine, observed by an audit hook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parley.models.script import read_script
from parley.testing.model_server import running

# Reports every name lookup and connection of the process. Nothing can bypass an audit hook.
AUDITED = """
import sys
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind"):
        where = args[1] if event in ("socket.connect", "socket.sendto", "socket.bind") else args[:2]
        sys.stderr.write(f"AUDIT {event} {where}\\n")
sys.addaudithook(hook)
from parley.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
FETCH = '{ name = "WebFetch", input = { url = "http://127.0.0.9:9/", prompt = "read it" } }'
SEARCH = '{ name = "WebSearch", input = { query = "weather" } }'
OPEN = {"PARLEY_WEBFETCH_ALLOW_PRIVATE": "1"}
SCRIPT = f"at_end = 'repeat'\n\n[[turn]]\ntools = [{FETCH}, {SEARCH}]\n\n[[turn]]\ntext = 'Done.'\n"


def audited(environment: dict[str, str], folder: Path, *argv: str) -> tuple[list[str], list[dict[str, object]]]:
    """The sockets and the lines of a run."""
    flags = ["-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"]
    done = subprocess.run(
        [sys.executable, "-c", AUDITED, *flags, *argv, "go"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environment, "IS_SANDBOX": "1"},
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    seen = [line.removeprefix("AUDIT ") for line in done.stderr.splitlines() if line.startswith("AUDIT ")]
    return seen, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_session_over_http_reaches_its_backend_and_nothing_else(environment: dict[str, str], tmp_path: Path) -> None:
    with running(read_script(SCRIPT, "test")) as server:
        host, port = server.url.removeprefix("http://").split(":")
        backend = {"ANTHROPIC_BASE_URL": server.url, **OPEN}
        seen, lines = audited({**environment, **backend}, tmp_path, "--offline")

    assert {line for line in seen if "socket.connect" in line} == {f"socket.connect ('{host}', {port})"}
    assert "127.0.0.9" not in " ".join(seen)
    assert lines[-1]["result"] == "Done."
    assert not {"WebFetch", "WebSearch"} & set(lines[0]["tools"])  # type: ignore[call-overload]


@pytest.mark.parametrize("flags", [[], ["--offline"]])
def test_a_session_on_the_built_in_model_opens_no_socket_at_all(
    environment: dict[str, str], tmp_path: Path, flags: list[str]
) -> None:
    assert audited(environment, tmp_path, "--model", "offline", *flags)[0] == []


def test_the_hook_sees_what_the_option_prevents(environment: dict[str, str], tmp_path: Path) -> None:
    with running(read_script(SCRIPT, "test")) as server:
        backend = {"ANTHROPIC_BASE_URL": server.url, **OPEN}
        seen, _ = audited({**environment, **backend}, tmp_path)

    assert "socket.connect ('127.0.0.9', 9)" in seen


def test_a_server_elsewhere_is_not_connected(environment: dict[str, str], tmp_path: Path) -> None:
    servers = json.dumps({"mcpServers": {"far": {"type": "http", "url": "http://192.0.2.7/mcp"}}})
    seen, lines = audited(environment, tmp_path, "--model", "offline", "--offline", f"--mcp-config={servers}")

    assert seen == []
    assert [(each["name"], each["status"]) for each in lines[0]["mcp_servers"]] == [("far", "failed")]  # type: ignore[attr-defined]
