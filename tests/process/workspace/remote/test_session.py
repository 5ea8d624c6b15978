"""A session whose files are on another machine.

The server runs in a mount namespace: its project is at /mnt/work, which does not exist for the engine. Whatever the
engine looked up on its own machine would not be found.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from parley.errors import SessionError, UsageError
from tests.helpers.remote_workspace import TOKEN, ServerThread
from tests.helpers.session import SessionHarness

WORK = "/mnt/work"
PROMPT_ID = str(UUID(int=7))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".claude").mkdir(parents=True)
    (folder / "CLAUDE.md").write_text("Answer in rhyme.\n@more.md\n")
    (folder / "more.md").write_text("Use blank verse.\n")
    rules = {"permissions": {"deny": ["Read(.env)", "Bash(touch denied*)"]}}
    (folder / ".claude" / "settings.json").write_text(json.dumps(rules))
    (folder / ".claude" / "skills").mkdir()
    (folder / ".env").write_text("KEY=1\n")
    (folder / "env-link").symlink_to(".env")
    (folder / "out-link").symlink_to("/etc/hostname")
    (folder / "a.txt").write_text("hello\n")
    return folder


@pytest.fixture
def address(tmp_path: Path, project: Path) -> Iterator[str]:
    """Of a server in a mount namespace."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed (apt-get install bubblewrap)")
    token, socket = tmp_path / "token", tmp_path / "s"
    token.write_text(TOKEN)
    token.chmod(0o600)
    namespace = [
        "bwrap",
        "--die-with-parent",
        "--dev-bind",
        "/",
        "/",
        "--tmpfs",
        "/mnt",
        "--bind",
        str(project),
        WORK,
        "--",
    ]
    argv = [sys.executable, "-m", "parley", "workspace", "--listen", f"unix:{socket}", "--root", WORK]
    argv += ["--token-file", str(token), "--state", str(tmp_path / "state")]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "server-home"), "WHERE": "remote"}
    server = subprocess.Popen([*namespace, *argv], stderr=subprocess.PIPE, env=environment)
    assert server.stderr is not None
    if b"listening" not in (line := server.stderr.readline()):
        server.kill()
        server.communicate()
        pytest.skip(f"bubblewrap cannot make a namespace here: {line!r}")
    yield f"unix:{socket}#{WORK}"
    server.terminate()
    server.communicate()


class RemoteHarness(SessionHarness):
    def __init__(self, folder: Path, address: str, calls: list[dict[str, Any]], **options: Any) -> None:
        engine = folder / "engine"
        engine.mkdir(exist_ok=True)
        tools = ", ".join(f"{{ name = '{call['name']}', input = {to_toml(call['input'])} }}" for call in calls)
        super().__init__(
            engine, f"[[turn]]\ntools = [{tools}]\n[[turn]]\ntext = 'Done.'\n" * 2, workspace=address, **options
        )
        self.environment["PARLEY_WORKSPACE_TOKEN"] = TOKEN

    async def __aenter__(self) -> RemoteHarness:
        await super().__aenter__()
        return self

    async def results(self, uuid: str = PROMPT_ID) -> list[str]:
        """The results of the calls so far, in order."""
        self.prompt("go", uuid=uuid)
        await self.receive("result")
        found = [line["message"]["content"][0] for line in self.messages("user") if "tool_use_result" in line]
        return [str(block["content"]) for block in found if block["type"] == "tool_result"]


def to_toml(input: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in input.items()) + " }"


def call(name: str, **input: Any) -> dict[str, Any]:
    return {"name": name, "input": input}


async def test_tools_work_on_the_files_of_the_server(tmp_path: Path, project: Path, address: str) -> None:
    calls = [
        call("Read", file_path="a.txt"),
        call("Write", file_path=f"{WORK}/new/b.txt", content="one\n"),
        call("Edit", file_path="new/b.txt", old_string="one", new_string="two"),
        call("Grep", pattern="two"),
        call("Glob", pattern="*.txt"),
        call("Bash", command="cat new/b.txt; pwd; echo $WHERE $PARLEY_WORKSPACE_TOKEN"),
    ]
    options = {"permission_mode": "acceptEdits", "allowed_tools": ("Bash",), "file_checkpointing": True}
    assert not os.path.exists(WORK)
    async with RemoteHarness(tmp_path, address, calls, **options) as harness:
        read, _, _, grep, glob, bash = await harness.results()
        assert "hello" in read
        assert (project / "new" / "b.txt").read_text() == "two\n"
        assert (grep, glob) == ("Found 1 file\nnew/b.txt", "new/b.txt\na.txt")
        assert bash.split() == ["two", WORK, "remote"]
        rewound = await harness.request("rewind_files", user_message_id=PROMPT_ID)
        assert rewound["response"]["response"]["canRewind"] is True
    assert not (project / "new" / "b.txt").exists()
    assert {path.suffix for path in (tmp_path / "engine" / "home").rglob("*") if path.is_file()} == {".jsonl"}


async def test_permissions_are_decided_on_the_servers_facts(tmp_path: Path, project: Path, address: str) -> None:
    calls = [
        call("Read", file_path=".env"),
        call("Read", file_path="env-link"),
        call("Read", file_path="out-link"),
        call("Bash", command="touch denied"),
        call("Bash", command="cat env-link"),
        call("Grep", pattern="KEY|hello", output_mode="content"),
        call("Glob", pattern="{.env,env-link,a.txt}"),
        call("Read", file_path="/etc/hostname"),
    ]
    async with RemoteHarness(tmp_path, address, calls, allowed_tools=("Bash", "Read(//etc/**)")) as harness:
        env, link, out, bash, cat, grep, glob, outside = await harness.results()
    assert "the rule Read(.env) (project) forbids it" in env
    assert "the rule Read(.env) (project) forbids it" in link
    assert "no one to ask" in out or "outside" in out
    assert "forbids it" in bash
    assert "forbids it" in cat
    assert grep == "a.txt:1:hello"
    assert glob == "a.txt"
    # A rule may allow what the root of the server does not have: the server refuses it.
    assert "outside the paths that this call may access" in outside
    assert not (project / "denied").exists()


async def test_the_projects_instructions_come_from_the_server_and_what_is_left_out_is_reported(
    tmp_path: Path, address: str
) -> None:
    harness = RemoteHarness(tmp_path, address, [])
    config = await asyncio.to_thread(harness.composed)
    memory = await asyncio.to_thread(config.instructions.memory)
    config.workspace.files.close()
    assert "Answer in rhyme." in memory
    assert "Use blank verse." in memory
    assert [text for text in config.notices if ".claude/skills of the project is not read" in text]
    assert config.workspace.environment["WHERE"] == "remote"


async def test_a_session_without_its_workspace_says_which_one_is_missing(tmp_path: Path) -> None:
    harness = RemoteHarness(tmp_path, f"unix:{tmp_path}/nothing", [], workspace_wait=0)
    with pytest.raises(SessionError, match=rf"the workspace at unix:{tmp_path}/nothing does not answer"):
        await asyncio.to_thread(harness.composed)


def test_what_cannot_be_combined_with_a_remote_workspace_is_refused(tmp_path: Path) -> None:
    for option in ({"worktree": "w"}, {"restricted": True}):
        with pytest.raises(UsageError, match="cannot be combined with --workspace"):
            RemoteHarness(tmp_path, "unix:/nothing", [], **option).composed()


async def test_a_call_while_the_server_is_away_is_refused_and_the_client_is_told(
    tmp_path: Path, server: ServerThread, root: Path
) -> None:
    (root / "a.txt").write_text("hello\n")
    calls, address = [call("Read", file_path="a.txt")], f"unix:{server.socket}#{root}"
    async with RemoteHarness(tmp_path, address, calls, workspace_wait=1) as harness:
        assert "hello" in (await harness.results())[0]
        await asyncio.to_thread(server.stop)
        lost = await harness.receive("system", "informational")
        assert f"the workspace at unix:{server.socket} does not answer" in lost["content"]
        refused = (await harness.results(str(UUID(int=8))))[-1]
        assert f"the workspace at unix:{server.socket}" in refused
        await asyncio.to_thread(server.start)
        back = await harness.receive("system", "informational")
        assert "is connected again" in back["content"]
