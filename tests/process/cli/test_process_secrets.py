"""No key is visible to a command, a hook or an MCP server: neither in its environment nor in /proc."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.cli.process_secrets import secret_words
from parley.models.catalog import BACKENDS
from parley.settings.secret_variables import KEYS, NAMES, is_secret
from tests.helpers.environment import base_environment

LOOK = """
p=$$
while [ "$p" -gt 1 ]; do
    cat "/proc/$p/environ" "/proc/$p/cmdline"
    p=$(sed -n 's/^PPid:\t//p' "/proc/$p/status")
done > seen-by-$1
env >> seen-by-$1
"""
SERVER = "import os, subprocess; subprocess.run(['sh', 'look.sh', 'server'])"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "look.sh").write_text(LOOK)
    keys = {name: f"secret-{number}-of-ours" for number, name in enumerate(sorted(NAMES), 1)}
    return {
        **keys,
        "PARLEY_STORE": "folder:secret-store",
        "PARLEY_SEARCH_URL": "https://s.example/?key=secret-search&q={query}",
        "HTTPS_PROXY": "http://me:secret-proxy@127.0.0.1:9/",
        "ANTHROPIC_FOUNDRY_API_KEY": "secret-of-a-later-version",
    }


def seen(folder: Path, who: str) -> str:
    return (folder / f"seen-by-{who}").read_bytes().decode()


def test_a_command_a_hook_and_a_server_see_no_key(run: Any, tmp_path: Path, keys: dict[str, str]) -> None:
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "sh look.sh hook"}]}
    settings = {"hooks": {"PreToolUse": [hook]}, "env": {"ANTHROPIC_AUTH_TOKEN": "secret-in-settings"}}
    server = {"command": sys.executable, "args": ["-c", SERVER], "env": {"OPENAI_API_KEY": "given-to-the-server"}}
    done = run(
        *("-p", "--model", "offline", "--allowedTools", "Bash", "--settings", json.dumps(settings)),
        *("--mcp-config", json.dumps({"mcpServers": {"s": {**server, "headers": {"x": "secret-in-servers"}}}})),
        *("--api-key", "secret-on-the-command-line", "--", 'call Bash {"command": "sh look.sh command"}\nsay done'),
        **keys,
    )
    assert done.stdout == "done\n"
    for who in ("command", "hook", "server"):
        assert f"HOME={tmp_path / 'home'}" in seen(tmp_path, who)
        assert "parley" in seen(tmp_path, who)
        assert "secret-" not in seen(tmp_path, who), who
    assert "OPENAI_API_KEY=given-to-the-server" in seen(tmp_path, "server")
    assert "given-to-the-server" not in seen(tmp_path, "command")


def test_a_person_may_let_commands_have_a_variable(run: Any, tmp_path: Path, keys: dict[str, str]) -> None:
    passed = "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
    call = 'call Bash {"command": "sh look.sh command"}\nsay done'
    run("-p", "--model", "offline", "--allowedTools", "Bash", "--", call, **keys, PARLEY_PASS_VARIABLES=passed)
    told = seen(tmp_path, "command")
    for name, value in keys.items():
        assert (f"{name}={value}" in told) is (name in passed), name


def test_the_reading_tool_finds_no_key_in_our_own_environment(run: Any, keys: dict[str, str]) -> None:
    call = 'call Read {"file_path": "/proc/self/environ"}\nshow'
    done = run("-p", "--model", "offline", "--permission-mode", "bypassPermissions", call, **keys, IS_SANDBOX="1")
    assert "secret-" not in done.stdout + done.stderr


def test_the_key_still_reaches_the_model(tmp_path: Path, run: Any, keys: dict[str, str]) -> None:
    """Overwritten variables are still found by our own lookups and by child processes that read them."""
    code = (
        "import os; from parley.cli.process_secrets import erase; erase(); import ctypes; "
        "get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p; "
        "print(os.environ['OPENAI_API_KEY'], get(b'OPENAI_API_KEY').decode(), open('/proc/self/environ').read())"
    )
    argv = [sys.executable, "-c", code]
    env = {"OPENAI_API_KEY": "secret-key", **base_environment()}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("secret-key secret-key ")
    assert done.stdout.count("secret-key") == 2


def test_other_processes_of_the_user_cannot_read_our_memory() -> None:
    code = (
        "import ctypes; from parley.workspace.process.tree import hide_memory; hide_memory(); "
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_every_key_that_a_backend_takes_is_on_the_list() -> None:
    options = ("aws_secret_key", "aws_session_token", "api_key")
    taken = {name for row in BACKENDS.values() for option in options for name in row.client_options.get(option, ())}
    assert taken <= NAMES
    assert all(is_secret(name, "x") for names in KEYS.values() for name in names)


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("parley --api-key k1 -p hello", "parley --api-key xx -p hello"),
        ("parley --api-key=k1 hello", "parley --api-key=xx hello"),
        ("parley --settings file.json p", "parley --settings file.json p"),
        ("parley --mcp-config a.json {} p", "parley --mcp-config a.json xx p"),
        ("parley --store folder:x --store postgres://u:p@h/d", f"parley --store folder:x --store {'x' * 18}"),
    ],
)
def test_on_the_command_line_only_what_may_hold_a_key_is_overwritten(line: str, left: str) -> None:
    block = bytearray(line.encode().replace(b" ", b"\0"))
    for offset, length in secret_words(bytes(block)):
        block[offset : offset + length] = b"x" * length
    assert block.replace(b"\0", b" ").decode() == left
