"""Where the files of sessions are: on the host that created them, on all hosts, or behind a workspace server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.cluster.base import LogKey
from parley.cluster.shards import move_key
from tests.helpers.forked import PARLEY
from tests.helpers.host_process import LOCAL_TENANT, HostProcess, Rig, cluster_rig
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port

TOKEN = "a-token-of-the-workspaces"
OPTIONS = ("--model", "offline", "--permission-mode", "bypassPermissions")


def write_token(folder: Path) -> str:
    path = folder / "workspace-token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return str(path)


def make_host(rig: Rig, folder: Path, name: str, *options: str) -> HostProcess:
    """A host with its own root: what is in it is not on the other hosts."""
    root = folder / name
    root.mkdir(exist_ok=True)
    token = ("--workspace-token-file", write_token(folder))
    return HostProcess(rig.nats.url, name, root, *OPTIONS, *token, *options)


def call(tool: str, **fields: Any) -> str:
    return f"call {tool} {json.dumps(fields)}\nshow"


async def ask(rig: Rig, session: str, prompt: str) -> str:
    """What the turn of a prompt ends with."""
    return str((await rig.result(session, await rig.prompt(session, prompt)))["result"])


async def wait_owner(rig: Rig, session: str, host: str) -> None:
    shard = LogKey(LOCAL_TENANT, session).shard(rig.cluster.ownership.shards)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            lease = (await rig.cluster.ownership.leases()).get(shard)
            if lease is not None and lease.host == host:
                return
            await asyncio.sleep(0.02)


async def move(rig: Rig, session: str, host: str) -> None:
    shard = LogKey(LOCAL_TENANT, session).shard(rig.cluster.ownership.shards)
    await rig.cluster.registry.put(move_key(shard), host.encode())
    await wait_owner(rig, session, host)


async def describe(rig: Rig, session: str) -> dict[str, Any]:
    status, found = await rig.gateway.request("GET", f"/sessions/{session}")
    assert status == 200, found
    return dict(found)


def is_notice(code: str, part: str = "") -> Any:
    return lambda line: line.get("code") == code and part in line["content"]


async def test_a_local_session_works_on_its_files_from_any_host(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig:
        address = f"127.0.0.1:{free_port()}"
        one = make_host(rig, tmp_path, "one", "--workspace-listen", address)
        async with one:
            session = await rig.gateway.create()
            file = tmp_path / "one" / "notes.txt"
            assert "created" in await ask(rig, session, call("Write", file_path=str(file), content="one\n"))
            assert (await describe(rig, session))["workspace"]["host"] == "one"

            async with make_host(rig, tmp_path, "two", "--workspace-listen", "127.0.0.1:0") as two:
                await move(rig, session, "two")
                await ask(rig, session, call("Bash", command="echo two >> notes.txt; pwd"))
                assert file.read_text() == "one\ntwo\n"
                assert not (tmp_path / "two" / "notes.txt").exists()

                # The host with the files dies: the session says so, and answers.
                await one.kill()
                await rig.wait_line(session, is_notice("workspace_away", "on the host one"))
                assert await ask(rig, session, "say answered") == "answered"
                refused = await ask(rig, session, call("Bash", command="echo three >> notes.txt"))
                assert "on the host one, which is not there" in refused

                # It comes back: no other host was restarted.
                await one.start()
                await rig.wait_line(session, is_notice("workspace_back", "one"))
                await ask(rig, session, call("Bash", command="echo four >> notes.txt"))
                assert file.read_text() == "one\ntwo\nfour\n"
                await check_secrecy(rig, one, two, session)


async def test_prompts_wait_for_the_host_with_the_files_if_the_session_says_so(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig:
        one = make_host(rig, tmp_path, "one", "--workspace-listen", f"127.0.0.1:{free_port()}")
        async with one:
            session = await rig.gateway.create(workspace={"kind": "local", "wait": True})
            await one.kill()
            async with make_host(rig, tmp_path, "two"):
                await wait_owner(rig, session, "two")
                uuid = await rig.prompt(session, call("Bash", command="echo $((6 * 7)) > answer; cat answer"))
                await rig.wait_line(session, is_notice("workspace_away", "prompts wait"))
                await one.start()
                assert "42" in (await rig.result(session, uuid))["result"]
                assert (tmp_path / "one" / "answer").read_text() == "42\n"


async def test_a_shared_session_uses_the_files_of_every_host(tmp_path: Path) -> None:
    shared = ("--workspace-default", "shared", *OPTIONS)
    async with cluster_rig(tmp_path) as rig, rig.host("one", *shared):
        session = await rig.gateway.create()
        await ask(rig, session, call("Bash", command="echo one >> marks"))
        async with rig.host("two", *shared):
            await move(rig, session, "two")
            await ask(rig, session, call("Bash", command="echo two >> marks"))
            assert (await describe(rig, session))["workspace"]["kind"] == "shared"
        assert (rig.root / "marks").read_text() == "one\ntwo\n"


async def test_a_command_in_a_remote_workspace_is_reported_by_the_next_owner_and_not_repeated(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, workspace_server(tmp_path) as address:
        remote = ("--workspace-default", address)
        async with make_host(rig, tmp_path, "one", *remote) as one:
            session = await rig.gateway.create()
            uuid = await rig.prompt(session, call("Bash", command="echo begun; echo mark >> marks; exec sleep 60"))
            marks = tmp_path / "project" / "marks"
            while not (marks.exists() and marks.read_text().endswith("\n")):
                await rig.lines(session)
            await one.kill()
            async with make_host(rig, tmp_path, "two", *remote) as two:
                result = (await rig.result(session, uuid))["result"]
                assert "The workspace ended the command" in result
                assert "begun" in result
                assert marks.read_text() == "mark\n"
                await check_secrecy(rig, one, two, session)


@asynccontextmanager
async def workspace_server(folder: Path) -> AsyncIterator[str]:
    """A `parley workspace` that belongs to no host; its address."""
    (folder / "project").mkdir()
    process = await asyncio.create_subprocess_exec(
        *(PARLEY, "workspace", "--listen", "127.0.0.1:0", "--root", str(folder / "project")),
        *("--token-file", write_token(folder), "--state", str(folder / "workspace-state")),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = (await process.stderr.readline()).decode()
        yield f"tcp://{line.partition('listening on ')[2].partition(',')[0]}"
    finally:
        process.terminate()
        await process.wait()


async def check_secrecy(rig: Rig, one: HostProcess, two: HostProcess, session: str) -> None:
    """The token is in no log, row or list of processes."""
    rows = [row.value.decode() for row in await rig.cluster.registry.rows(">")]
    lines = [json.dumps(line) for line in await rig.lines(session)]
    commands = [
        path.read_bytes().decode(errors="replace")
        for number in os.listdir("/proc")
        if number.isdigit() and (path := Path("/proc", number, "cmdline")).exists()
    ]
    assert rows
    for text in (*rows, *lines, *one.stderr, *two.stderr, *commands, *rig.gateway.stderr):
        assert TOKEN not in text
