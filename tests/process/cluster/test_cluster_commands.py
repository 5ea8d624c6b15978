"""`parley cluster` on a real cluster, the metrics of a host, and the demo."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.helpers.cluster_processes import SHARDS, RunningCluster
from tests.helpers.environment import base_environment
from tests.helpers.forked import PARLEY, run_parley
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port


async def run_command(cluster: RunningCluster, *words: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of `parley cluster`."""
    environment = {**base_environment(), "HOME": os.environ["HOME"], "PARLEY_NATS": cluster.url}
    done = await asyncio.to_thread(run_parley, ["cluster", *words], cwd=".", env=environment)
    return done.returncode, done.stdout, done.stderr


async def read_status(cluster: RunningCluster) -> dict[str, Any]:
    _, out, err = await run_command(cluster, "status", "--json")
    assert out, err
    return dict(json.loads(out))


async def test_an_operator_sees_drains_and_moves(tmp_path: Path) -> None:
    async with RunningCluster(tmp_path, hosts=2, lease_seconds=3) as cluster:
        await cluster.wait_until_balanced()
        one, two = (host.name for host in cluster.hosts)
        session = await cluster.gateways[0].create()
        await cluster.gateways[0].ask(session, "say hello")

        status = await read_status(cluster)
        assert [(host["name"], host["state"], host["shards"]) for host in status["hosts"]] == [
            (one, "live", SHARDS // 2),
            (two, "live", SHARDS // 2),
        ]
        assert (status["shards"], status["unowned_shards"], status["problems"]) == (SHARDS, [], [])

        code, out, _ = await run_command(cluster, "drain", one)
        assert (code, out) == (0, f"{one} gave {SHARDS // 2} shards to other hosts\n")
        assert {lease["host"] for lease in (await read_status(cluster))["leases"]} == {two}
        code, out, _ = await run_command(cluster, "drain", one, "--cancel")
        assert code == 0
        await cluster.wait_until_balanced()

        target = two if (await cluster.owner_of(session)).name == one else one
        code, out, _ = await run_command(cluster, "move", session, target)
        assert (code, out) == (0, f"shard {cluster.shard(session)} is on {target}\n")
        assert (await cluster.gateways[0].ask(session, "say moved"))["result"] == "moved"

        code, out, _ = await run_command(cluster, "move", session, "--cancel")
        assert (code, out) == (0, f"any host may have shard {cluster.shard(session)}\n")
        for words in ((session,), (session, target, "--cancel")):
            code, _, err = await run_command(cluster, "move", *words)
            assert code != 0
            assert "give the host that is to have the shard, or --cancel" in err

        code, out, err = await run_command(cluster, "drain", "host-9")
        assert code == 1
        assert f"the cluster has no live host 'host-9' (it has: {one}, {two})" in err

        async with asyncio.timeout(PATIENCE_SECONDS):
            while (shown := await run_command(cluster, "status"))[0]:
                pass  # until the hosts have balanced their shards after the move
        assert re.search(rf"^{two} +live ", shown[1], flags=re.MULTILINE)
        for host in cluster.hosts:
            await host.kill()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "attention: no host is live" not in (await run_command(cluster, "status"))[1]:
                pass  # until their rows have ended
        assert (await run_command(cluster, "status"))[0] == 1


async def test_a_host_shows_its_metrics_to_probes(tmp_path: Path) -> None:
    port = free_port()

    def fetch(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()

    async with RunningCluster(tmp_path, hosts=0, gateways=0) as cluster:
        await cluster.add_host("host", "--metrics", f"127.0.0.1:{port}")
        await cluster.wait_until_owned()

        assert await asyncio.to_thread(fetch, "/healthz") == (200, "ok\n")
        assert await asyncio.to_thread(fetch, "/readyz") == (200, "ready\n")
        status, page = await asyncio.to_thread(fetch, "/metrics")
        assert status == 200
        assert f"\nparley_host_shards {SHARDS}\n" in page
        assert (await asyncio.to_thread(fetch, "/sessions"))[0] == 404


async def start_demo(folder: Path) -> tuple[asyncio.subprocess.Process, str]:
    """The demo, and what it has written when it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(PARLEY, "cluster", "demo", "--no-browser"),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stderr is not None
    text = ""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "Ctrl-C ends everything" not in text:
            line = (await process.stderr.readline()).decode()
            assert line, text
            text += line
    return process, text


def read_pids(text: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"process (\d+)", text)]


async def test_the_demo_shows_a_console_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process, text = await start_demo(tmp_path)
    pids = read_pids(text)
    async with asyncio.timeout(PATIENCE_SECONDS):
        url = re.search(r"console on (http://[^/]+)/console/#token=(\S+)", text)
        assert url is not None
        request = urllib.request.Request(f"{url[1]}/sessions", headers={"Authorization": f"Bearer {url[2]}"})
        sessions = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(request).read()))["sessions"]
        process.send_signal(signal.SIGINT)
        await process.communicate()

    assert len(pids) == 4
    assert len(sessions) == 3
    assert process.returncode == 0
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
    assert list(tmp_path.iterdir()) == []


async def test_the_processes_of_a_killed_demo_end(tmp_path: Path) -> None:
    process, text = await start_demo(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    await process.communicate()  # stderr is not inherited
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(os.path.exists(f"/proc/{pid}") for pid in read_pids(text)):  # noqa: ASYNC110  # not our children
            await asyncio.sleep(0.05)
