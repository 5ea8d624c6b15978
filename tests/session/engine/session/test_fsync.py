"""When the device is waited for (PARLEY_FSYNC), and where."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley._threads import run_in_thread
from parley.engine.session.config import SessionConfig
from parley.errors import SessionError, UsageError
from parley.protocol.options import CliOptions
from parley.settings.env_vars import OptionValues
from tests.helpers.session import SessionHarness

SCRIPT = """
[[turn]]
tools = [
  { name = 'Bash', id = 't1', input = { command = 'touch made' } },
  { name = 'Glob', id = 't2', input = { pattern = 'm*' } },
]
[[turn]]
text = 'Done.'
"""


class SharedLoop(SessionHarness):
    def furnish(self, setup: SessionConfig) -> SessionConfig:
        return setup.with_shared_loop()


Kind = type[SessionHarness]
every_kind = pytest.mark.parametrize("kind", [SessionHarness, SharedLoop])


def harness(folder: Path, policy: str, kind: Kind = SessionHarness) -> SessionHarness:
    made = kind(folder, SCRIPT, permission_mode="bypassPermissions")
    made.environment["PARLEY_FSYNC"] = policy
    return made


def replace_sync(log: Any, work: Callable[[], object]) -> None:
    """Do something else where the device is waited for. `restore_sync` undoes it."""
    log.sync, log.wait_synced = work, lambda: run_in_thread(work)


def restore_sync(log: Any) -> None:
    del log.sync, log.wait_synced


async def kinds_at_syncs(folder: Path, policy: str, kind: Kind) -> list[str]:
    """What stood last in the log each time the device was waited for."""

    async with harness(folder, policy, kind) as live:
        log = live.session.config.storage.log
        synced: list[str] = []
        replace_sync(log, lambda: synced.append(list(log.entries())[-1].kind))
        live.prompt("go")
        await live.receive("result")
        return synced


@every_kind
async def test_turn_waits_before_an_effect_and_before_the_result(tmp_path: Path, kind: Kind) -> None:
    assert await kinds_at_syncs(tmp_path, "turn", kind) == ["permission", "result"]


@every_kind
async def test_always_waits_at_every_record(tmp_path: Path, kind: Kind) -> None:
    synced = await kinds_at_syncs(tmp_path, "always", kind)

    assert synced.count("permission") == 2
    assert synced.count("assistant") == 3
    assert synced[-1] == "result"


@every_kind
async def test_off_never_waits(tmp_path: Path, kind: Kind) -> None:
    assert await kinds_at_syncs(tmp_path, "off", kind) == []


async def test_on_a_shared_loop_others_continue_while_the_device_is_waited_for(tmp_path: Path) -> None:
    """Nothing that depends on the record happens meanwhile: no effect, no result."""
    async with harness(tmp_path, "turn", SharedLoop) as live:
        log = live.session.config.storage.log
        sync, waiting, ready = log.sync, asyncio.Semaphore(0), threading.Semaphore(0)
        loop = asyncio.get_running_loop()

        def slow() -> None:
            loop.call_soon_threadsafe(waiting.release)
            ready.acquire()
            sync()

        replace_sync(log, slow)
        live.prompt("go")
        await waiting.acquire()
        await live.request("mcp_status")
        had_effect = (tmp_path / "made").exists()
        ready.release()
        await waiting.acquire()
        await live.request("mcp_status")
        had_result = any(live.messages("result"))
        ready.release()
        await live.receive("result")

    assert (had_effect, had_result) == (False, False)
    assert (tmp_path / "made").exists()


async def test_an_interrupt_while_the_result_is_made_durable_does_not_stop_the_next_turn(tmp_path: Path) -> None:
    script = "[[turn]]\ntext = 'One.'\n[[turn]]\ntext = 'Two.'"
    live = SharedLoop(tmp_path, script)
    live.environment["PARLEY_FSYNC"] = "turn"
    async with live:
        log = live.session.config.storage.log
        waiting, ready, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

        def slow() -> None:
            loop.call_soon_threadsafe(waiting.set)
            ready.wait()

        replace_sync(log, slow)
        live.prompt("first")
        await waiting.wait()
        live.prompt("second")
        await live.request("interrupt")
        ready.set()
        results = [(await live.receive("result"))["result"] for _ in range(2)]

    assert results == ["One.", "Two."]


@every_kind
async def test_what_cannot_be_made_durable_does_not_run(tmp_path: Path, kind: Kind) -> None:
    async with harness(tmp_path, "turn", kind) as live:
        log = live.session.config.storage.log

        def broken() -> None:
            raise SessionError("the device is gone")

        replace_sync(log, broken)
        live.prompt("go")
        first = await live.receive("result")
        restore_sync(log)
        live.prompt("go on")
        result = first["is_error"], (await live.receive("result"))["result"]

    assert result == (True, "Done.")
    assert not (tmp_path / "made").exists()


def sync_policy(flag: str | None, environment: dict[str, str], setting: str | None) -> str:
    found = OptionValues(CliOptions(fsync=flag), environment, {"fsync": setting}.get).resolve()
    return found.fsync


def test_turn_is_the_default_and_other_words_are_refused() -> None:
    assert sync_policy(None, {}, None) == "turn"
    with pytest.raises(UsageError, match="PARLEY_FSYNC"):
        sync_policy(None, {"PARLEY_FSYNC": "sometimes"}, None)


@pytest.mark.parametrize(
    ("flag", "variable", "setting", "policy"),
    [
        ("always", "off", "off", "always"),
        (None, "off", "always", "off"),
        (None, "", "always", "always"),
        (None, "", None, "turn"),
    ],
)
def test_a_flag_comes_before_the_variable_and_that_before_the_setting(
    flag: str | None, variable: str, setting: str | None, policy: str
) -> None:
    assert sync_policy(flag, {"PARLEY_FSYNC": variable}, setting) == policy
