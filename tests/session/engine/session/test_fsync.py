"""When the device is waited for (PARLEY_FSYNC)."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.errors import SessionError, UsageError
from parley.protocol.options import CliOptions
from parley.settings.option_values import OptionValues
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


def harness(folder: Path, policy: str) -> SessionHarness:
    made = SessionHarness(folder, SCRIPT, permission_mode="bypassPermissions")
    made.environment["PARLEY_FSYNC"] = policy
    return made


async def kinds_at_syncs(folder: Path, policy: str) -> list[str]:
    """What stood last in the log each time the device was waited for."""

    async with harness(folder, policy) as live:
        log, synced = live.session.config.storage.log, []
        log.sync = lambda: synced.append(list(log.entries())[-1].kind)  # type: ignore[method-assign]
        live.prompt("go")
        await live.receive("result")
        return synced


async def test_turn_waits_before_an_effect_and_before_the_result(tmp_path: Path) -> None:
    assert await kinds_at_syncs(tmp_path, "turn") == ["permission", "result"]


async def test_always_waits_at_every_record(tmp_path: Path) -> None:
    synced = await kinds_at_syncs(tmp_path, "always")

    assert synced.count("permission") == 2
    assert synced.count("assistant") == 3
    assert synced[-1] == "result"


async def test_off_never_waits(tmp_path: Path) -> None:
    assert await kinds_at_syncs(tmp_path, "off") == []


async def test_what_cannot_be_made_durable_does_not_run(tmp_path: Path) -> None:
    async with harness(tmp_path, "turn") as live:
        log = live.session.config.storage.log
        sync = log.sync

        def broken() -> None:
            raise SessionError("the device is gone")

        log.sync = broken  # type: ignore[method-assign]
        live.prompt("go")
        first = await live.receive("result")
        log.sync = sync  # type: ignore[method-assign]
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
