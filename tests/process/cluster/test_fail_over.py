"""Real hosts on a real NATS server: one is killed, another continues its sessions."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from tests.helpers.gateway import open_question
from tests.helpers.host_process import Rig, cluster_rig

ALLOWS = ("--model", "offline", "--permission-mode", "bypassPermissions")


def is_init(line: dict[str, Any]) -> bool:
    return line.get("subtype") == "init"


async def results(rig: Rig, session: str) -> list[str]:
    return [str(line["result"]) for line in await rig.lines(session) if line["type"] == "result"]


async def test_a_turn_that_was_in_the_model_continues_on_another_host(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one") as one, rig.host("two"):
        session = await rig.gateway.create(cwd=".")
        first = await rig.prompt(session, "wait 1\nsay first")
        second = await rig.prompt(session, "say second")
        await rig.wait_line(session, is_init)
        await one.kill()

        await rig.result(session, first)
        await rig.result(session, second)
        assert await results(rig, session) == ["first", "second"]


async def test_a_tool_that_had_started_is_reported_and_not_run_again(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one", *ALLOWS) as one:
        session = await rig.gateway.create(cwd=".")
        marks = rig.root / "marks"
        command = f"echo mark >> {marks}; sleep 60"
        uuid = await rig.prompt(session, f'call Bash {{"command": "{command}"}}\nshow')
        while not (marks.exists() and marks.read_text().endswith("\n")):
            await rig.lines(session)
        await one.kill()
        async with rig.host("two", *ALLOWS):
            result = await rig.result(session, uuid)

        assert "outcome is unknown" in result["result"]
        assert marks.read_text() == "mark\n"


async def test_an_open_question_is_asked_again_under_the_same_id(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one") as one:
        session = await rig.gateway.create(cwd=".")
        uuid = await rig.prompt(session, 'call Bash {"command": "echo mark >> marks"}\nshow')
        asked = await open_question(rig.gateway, session)
        await one.kill()
        async with rig.host("two"):
            again = await open_question(rig.gateway, session)
            path = f"/questions/{session}/{asked['request_id']}/answer"
            status, _ = await rig.gateway.request("POST", path, {"behavior": "allow"})
            result = await rig.result(session, uuid)

        assert again["request_id"] == asked["request_id"]
        assert status == 200
        assert not result["is_error"]
        assert (rig.root / "marks").read_text() == "mark\n"


async def test_a_decision_that_was_acknowledged_is_not_asked_for_again(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one") as one:
        session = await rig.gateway.create(cwd=".")
        uuid = await rig.prompt(session, 'call Bash {"command": "echo mark >> marks"}\nshow')
        asked = await open_question(rig.gateway, session)
        path = f"/questions/{session}/{asked['request_id']}/answer"
        status, _ = await rig.gateway.request("POST", path, {"behavior": "allow"})
        await one.kill()
        async with rig.host("two"):
            await rig.result(session, uuid)

        assert status == 200
        asked_ids = [line["request_id"] for line in await rig.lines(session) if line["type"] == "control_request"]
        assert set(asked_ids) == {asked["request_id"]}
        marks = rig.root / "marks"
        assert not marks.exists() or marks.read_text() == "mark\n"


async def test_a_host_that_was_frozen_past_its_lease_changes_nothing(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as rig, rig.host("one", *ALLOWS) as one:
        session = await rig.gateway.create(cwd=".")
        uuid = await rig.prompt(session, 'wait 1\ncall Bash {"command": "echo mark >> marks"}\nshow')
        await rig.wait_line(session, is_init)
        one.signal(signal.SIGSTOP)
        async with rig.host("two", *ALLOWS):
            await rig.result(session, uuid)
            before = await rig.lines(session)
            one.signal(signal.SIGCONT)
            # It has given up all its shards, and takes its share of them again.
            await rig.wait_owned(one=4, two=4)
            after = await rig.gateway.ask(session, "say alive")

        assert (rig.root / "marks").read_text() == "mark\n"
        assert after["result"] == "alive"
        assert (await rig.lines(session))[: len(before)] == before
        assert any("lost shard" in line for line in one.stderr)
