"""`parley mcp` through the real executable, with real servers."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import paths

SERVER = str(paths.MCP_SERVERS / "plain.py")
FOREIGN = """{
    "numStartups": 7,
    "big": 123456789012345678901234567890.50,
    "oauthAccount": {"emailAddress": "me@example.org", "names": ["\\u00e9", "é"]},
    "projects": {
        "/elsewhere": {"mcpServers": {"x": {"command": "y"}}, "history": [1, 2]},
        "%s": {"allowedTools": ["a"], "lastCost": 0.10}
    }
}"""


def user_file(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".claude.json"


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def add_server(run: Any, *options: str, name: str = "shop") -> None:
    done = run("mcp", "add", *options, name, "--", sys.executable, SERVER, "well")
    assert (done.returncode, done.stderr) == (0, "")


def init_servers(run: Any, *options: str, **variables: str) -> dict[str, tuple[str, str]]:
    done = run("-p", "hi", "--model", "offline", "--output-format", "stream-json", "--verbose", *options, **variables)
    init = next(json.loads(line) for line in done.stdout.splitlines() if '"init"' in line)
    return {server["name"]: (server["status"], server["source"]) for server in init["mcp_servers"]}


def test_a_server_is_added_where_claude_code_keeps_it(run: Any, tmp_path: Path) -> None:
    done = run("mcp", "add", "one", "-e", "A=1", "B=two=2", "--", "cmd", "--flag", "-x", "-h")
    assert done.stdout.splitlines() == [
        "Added stdio MCP server one with command: cmd --flag -x -h to local config",
        f"File modified: {user_file(tmp_path)} [project: {tmp_path}]",
    ]
    run("mcp", "add", "-s", "user", "--transport", "http", "two", "https://h/mcp", "-H", "X-Key: abc", "-H", "Y: z:1")
    run("mcp", "add", "--scope=project", "-t", "sse", "three", "https://h/sse")

    assert read(user_file(tmp_path)) == {
        "projects": {
            str(tmp_path): {
                "mcpServers": {
                    "one": {
                        "type": "stdio",
                        "command": "cmd",
                        "args": ["--flag", "-x", "-h"],
                        "env": {"A": "1", "B": "two=2"},
                    }
                }
            }
        },
        "mcpServers": {"two": {"type": "http", "url": "https://h/mcp", "headers": {"X-Key": "abc", "Y": "z:1"}}},
    }
    assert read(tmp_path / ".mcp.json") == {"mcpServers": {"three": {"type": "sse", "url": "https://h/sse"}}}
    assert os.stat(user_file(tmp_path)).st_mode & 0o777 == 0o600


def test_the_project_is_the_root_of_the_repository_and_the_config_directory_moves_the_file(
    run: Any, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    other = tmp_path / "other"

    done = run("mcp", "add-json", "one", '{"command": "x"}', "--json", CLAUDE_CONFIG_DIR=str(other))

    assert json.loads(done.stdout) == {"name": "one", "scope": "local", "file": f"{other}/.claude.json"}
    assert list(read(other / ".claude.json")["projects"]) == [str(tmp_path)]
    assert not user_file(tmp_path).exists()


def test_foreign_keys_keep_their_text(run: Any, tmp_path: Path) -> None:
    user_file(tmp_path).write_text(FOREIGN % tmp_path)

    add_server(run)
    run("mcp", "add", "-s", "user", "other", "cmd")
    run("mcp", "remove", "shop")
    run("mcp", "remove", "other")

    text = user_file(tmp_path).read_text()
    for kept in ('"big": 123456789012345678901234567890.50', '"\\u00e9"', '"é"', '"lastCost": 0.10'):
        assert kept in text
    expected = read_text(FOREIGN % tmp_path)
    expected["mcpServers"] = {}
    expected["projects"][str(tmp_path)]["mcpServers"] = {}
    assert read_text(text) == expected
    assert not text.endswith("\n")


def read_text(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not a JSON object, so the file was left unchanged"),
        ("[1]", "is not a JSON object, so the file was left unchanged"),
        ('{"mcpServers": 5}', "mcpServers is not a JSON object"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'; left unchanged"),
        ('{"projects": {"p": {"x": 1, "x": 2}}}', "duplicate key 'x'; left unchanged"),
    ],
)
def test_a_broken_file_is_refused_and_left_unchanged(run: Any, tmp_path: Path, content: str, reason: str) -> None:
    user_file(tmp_path).write_text(content)

    done = run("mcp", "add", "-s", "user", "one", "cmd")

    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert user_file(tmp_path).read_text() == content


def test_a_link_is_not_followed(run: Any, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("{}")
    user_file(tmp_path).symlink_to(tmp_path / "target")

    done = run("mcp", "add", "-s", "user", "one", "cmd")

    assert done.returncode == 1
    assert "or it is a symbolic link" in done.stderr
    assert (tmp_path / "target").read_text() == "{}"


def test_concurrent_changes_are_not_lost(run: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: run("mcp", "add", "-s", "user", f"s{n}", "cmd").returncode, range(8)))

    added = [n for n, code in enumerate(results) if code == 0]
    assert sorted(read(user_file(tmp_path))["mcpServers"]) == [f"s{n}" for n in added]
    assert added


def test_a_lock_of_claude_code_is_awaited(run: Any, tmp_path: Path) -> None:
    lock = tmp_path / "home" / ".claude.json.lock"
    lock.mkdir()
    timer = threading.Timer(0.5, lock.rmdir)
    timer.start()

    assert run("mcp", "add", "-s", "user", "one", "cmd").returncode == 0
    assert not lock.exists()

    lock.mkdir()
    os.utime(lock, (1, 1))  # its owner died long ago
    assert run("mcp", "add", "-s", "user", "two", "cmd").returncode == 0
    assert not lock.exists()


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("add",), "missing argument NAME PROGRAM|URL"),
        (("add", "x"), "missing argument PROGRAM|URL"),
        (("add", "a b", "x"), "invalid name 'a b'"),
        (("add", "-s", "galaxy", "a", "x"), "invalid scope 'galaxy' (choose from local, user, project)"),
        (("add", "-t", "ws", "a", "x"), "unknown transport 'ws'"),
        (("add", "a", "https://x"), "https://x is a URL: add `--transport http`"),
        (("add", "a", "-e", "1=2", "x"), "invalid environment variable '1'"),
        (("add", "-t", "http", "a", "https://x", "-H", "nonsense"), "invalid header 'nonsense'"),
        (
            ("add", "-t", "http", "a", "https://x", "-e", "A=1"),
            "option '--env' can be used only with servers that are started",
        ),
        (
            ("add", "-t", "http", "a", "https://x", "more"),
            "the argument 'more' can be used only with servers that are started",
        ),
        (("add", "-t", "http", "a", "ftp://x"), "the url must start with http:// or https://"),
        (("add", "-H", "A: b", "a", "x"), "option '--header' can be used only with servers that have a URL"),
        (("add", "a", "x", "--verbos"), "unknown option '--verbos'"),
        (("add", "a", "x", "-s"), "option '-s' needs a value"),
        (("add-json", "a", "{"), "the configuration of 'a' is not valid JSON"),
        (("add-json", "a", "[]"), "must be a JSON object"),
        (("add-json", "a", "{}"), "needs `command` or `url`"),
        (("add-json", "a", '{"type": "ws", "url": "x"}'), "unknown type 'ws'"),
        (("add-json", "a", '{"command": 3}'), "invalid MCP server 'a'"),
        (("get", "a"), 'No MCP server named "a". No servers are configured'),
        (("remove", "a"), 'No MCP server named "a". No servers are configured'),
        (("list", "x"), "unexpected argument 'x'"),
    ],
)
def test_bad_input_is_refused_and_writes_nothing(run: Any, tmp_path: Path, argv: tuple[str, ...], reason: str) -> None:
    done = run("mcp", *argv)

    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert not user_file(tmp_path).exists()
    assert not (tmp_path / ".mcp.json").exists()


def test_a_name_is_added_once_per_scope_and_removed_from_the_one_that_has_it(run: Any) -> None:
    for scope in ("local", "user", "project"):
        assert run("mcp", "add", "-s", scope, "one", "cmd").returncode == 0
    again = run("mcp", "add", "one", "cmd")
    assert (again.returncode, again.stderr) == (1, "Error: MCP server one already exists in local config\n")

    several = run("mcp", "remove", "one")
    assert several.returncode == 1
    assert "parley mcp remove one -s user" in several.stderr

    assert run("mcp", "remove", "one", "-s", "local").returncode == 0
    assert 'named "one" in local scope' in run("mcp", "remove", "-s", "local", "one").stderr
    assert run("mcp", "remove", "one", "-s", "project").returncode == 0
    assert run("mcp", "remove", "one").stdout.startswith('Removed MCP server "one" from user config\n')


def test_list_connects_to_every_server_and_says_how_it_went(run: Any, tmp_path: Path) -> None:
    assert run("mcp", "list").stdout == "No MCP servers configured. Use `parley mcp add` to add a server.\n"
    assert json.loads(run("mcp", "list", "--json").stdout) == []
    add_server(run)
    run("mcp", "add", "-s", "user", "gone", "--", "/nonexistent/server")
    run("mcp", "add", "-t", "http", "far", "http://user:secret@127.0.0.1:9/mcp?token=hidden")
    run("mcp", "add", "-s", "project", "tree", "touch", "ran")

    done = run("mcp", "list")
    lines = done.stdout.splitlines()
    assert lines[0] == "Checking MCP server health…"
    assert f"shop: {sys.executable} {SERVER} well - ✔ Connected" in lines
    assert any(line.startswith("gone: /nonexistent/server - ✘ Failed to connect — ") for line in lines)
    assert any(line.startswith("far: http://127.0.0.1:9/mcp (HTTP) - ✘ Failed to connect") for line in lines)
    assert f"tree: touch ran - ⏸ Pending approval (run `parley trust {tmp_path}` to approve)" in lines
    assert done.returncode == 0
    assert "secret" not in done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()

    states = {row["name"]: row for row in json.loads(run("mcp", "list", "--json").stdout)}
    assert {name: (row["status"], row["scope"]) for name, row in states.items()} == {
        "shop": ("connected", "local"),
        "gone": ("failed", "user"),
        "far": ("failed", "local"),
        "tree": ("pending-approval", "project"),
    }
    assert "echo" in states["shop"]["tools"]


def test_get_shows_a_server_without_its_secrets(run: Any) -> None:
    add_server(run, "-e", "API_KEY=sk-secret")
    done = run("mcp", "get", "shop")

    assert done.stdout.splitlines()[:8] == [
        "shop:",
        "  Scope: Local config (private to you in this project)",
        "  Status: ✔ Connected",
        "  Type: stdio",
        f"  Command: {sys.executable}",
        f"  Args: {SERVER} well",
        "  Environment:",
        "    API_KEY=***",
    ]
    assert "To remove this server, run: parley mcp remove shop -s local" in done.stdout
    shown = json.loads(run("mcp", "get", "shop", "--json").stdout)
    assert (shown["status"], shown["env"]) == ("connected", ["API_KEY"])
    assert "sk-secret" not in done.stdout + json.dumps(shown)

    run("mcp", "add", "-t", "http", "far", "http://127.0.0.1:9/mcp", "-H", "Authorization: Bearer sk-secret")
    text = run("mcp", "get", "far").stdout
    assert "    Authorization: ***" in text
    assert "sk-secret" not in text


def test_a_session_has_the_servers_of_the_file_as_far_as_their_scope_is_selected(run: Any, tmp_path: Path) -> None:
    add_server(run, name="mine")
    add_server(run, "-s", "user", name="all")
    both = {"mine": ("connected", "local"), "all": ("connected", "user")}

    assert init_servers(run) == both
    assert init_servers(run, "--setting-sources", "user") == {"all": ("connected", "user")}
    assert init_servers(run, "--setting-sources", "local") == {"mine": ("connected", "local")}
    for options in (("--setting-sources", ""), ("--bare",), ("--strict-mcp-config",), ("--safe-mode",)):
        assert init_servers(run, *options) == {}
    given = json.dumps({"mcpServers": {"all": {"command": "false"}}})
    assert init_servers(run, "--mcp-config", given)["all"] == ("failed", "dynamic")

    values = read(user_file(tmp_path))
    values["projects"][str(tmp_path)]["disabledMcpServers"] = ["mine"]
    user_file(tmp_path).write_text(json.dumps(values))
    assert init_servers(run) == {"all": ("connected", "user")}

    values["mcpServers"] = ["wrong"]
    user_file(tmp_path).write_text(json.dumps(values))
    done = run("-p", "hi", "--model", "offline")
    assert done.returncode == 0
    assert f"{user_file(tmp_path)}: is invalid" in done.stderr
    assert "its MCP servers are not used" in done.stderr


def test_servers_of_the_project_take_effect_when_trusted_and_the_choice_can_be_reset(run: Any, tmp_path: Path) -> None:
    add_server(run, "-s", "project", name="tree")
    assert init_servers(run) == {}
    run("trust", ".")
    assert init_servers(run) == {"tree": ("connected", "project")}
    user_file(tmp_path).write_text(json.dumps({"projects": {str(tmp_path): {"disabledMcpjsonServers": ["tree"]}}}))
    assert init_servers(run) == {}

    done = run("mcp", "reset-project-choices")
    assert done.stdout == "The servers of .mcp.json are no longer trusted: tree\n"
    assert read(user_file(tmp_path))["projects"][str(tmp_path)] == {"disabledMcpjsonServers": []}
    assert init_servers(run) == {}
    run("trust", ".")
    assert init_servers(run) == {"tree": ("connected", "project")}
