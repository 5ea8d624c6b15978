"""Command hooks as real processes: their input, and the meaning of their exit."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from parley.hooks import command as module
from parley.hooks.base import HookInvocation, HookRun, HookRuntime, HookServices, HttpHookPolicy
from parley.hooks.command import CommandHook
from parley.hooks.events import EVENTS
from parley.hooks.output import MAX_OUTPUT_BYTES, HookFailed, HookOutput, parse_output
from parley.protocol.base import UNSET
from parley.workspace.process.processes import CommandStarter, Processes
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.remote_workspace import make_processes


def make_runtime(processes: CommandStarter, environment: dict[str, str], folder: Path) -> HookRuntime:
    """Commands use no services."""
    return HookRuntime(
        services=cast(HookServices, None),
        processes=processes,
        environment=environment,
        project=str(folder),
        get_http_policy=HttpHookPolicy,
    )


async def at(folder: Path, scenario: Callable[[HookRuntime], Awaitable[None]]) -> None:
    environment = {"PATH": "/usr/bin:/bin", "BASH_ENV": "/no/such", "GIVEN": "yes"}
    processes = make_processes()
    place = make_runtime(processes, environment, folder)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await scenario(place)
    finally:
        await processes.close()


def hook(place: HookRuntime, line: str, event: str = "PreToolUse", **fields: Any) -> CommandHook:
    return CommandHook(
        event=event,
        matcher="",
        command=line,
        timeout_seconds=PATIENCE_SECONDS,
        source="/s.json",
        runtime=place,
        **fields,
    )


async def ran(made: CommandHook, progress: Callable[[str, str], None] = lambda out, err: None) -> HookRun:
    fired = HookInvocation(event=EVENTS[made.event], input={"hook_event_name": made.event}, tool_use_id="t")
    return await made.run(fired, progress)


async def test_a_command_gets_the_event_on_stdin_and_a_clean_environment(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        line = 'cat; env >&2; echo "$PWD $CLAUDE_PROJECT_DIR" >&2'
        found = await ran(hook(place, line))
        assert json.loads(found.stdout) == {"hook_event_name": "PreToolUse"}
        names = {line.partition("=")[0] for line in found.stderr.splitlines()}
        assert {"PATH", "GIVEN", "CLAUDE_PROJECT_DIR"} <= names
        assert "BASH_ENV" not in names
        assert found.stderr.splitlines()[-1] == f"{tmp_path} {tmp_path}"

    await at(tmp_path, scenario)


@pytest.mark.parametrize("line", ["cat > told", "true", "exec <&-; cat told || true"])
async def test_an_event_larger_than_a_pipe_reaches_a_command_that_reads_and_harms_none_that_does_not(
    tmp_path: Path, line: str
) -> None:
    async def scenario(place: HookRuntime) -> None:
        made = hook(place, line)
        fired = HookInvocation(event=EVENTS[made.event], input={"prompt": "x" * 1_000_000}, tool_use_id="t")
        assert (await made.run(fired, lambda out, err: None)).exit_code == 0
        if line.startswith("cat"):
            assert len((tmp_path / "told").read_bytes()) == 1_000_014

    await at(tmp_path, scenario)


async def test_words_are_run_without_a_shell(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        assert (await ran(hook(place, "printf", args=("%s", "$HOME;")))).stdout == "$HOME;"

    await at(tmp_path, scenario)


DENY = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}
CONTEXT = {"hookSpecificOutput": {"additionalContext": "some text"}}
BRACED = {"hookSpecificOutput": {"additionalContext": "{ some text"}}


@pytest.mark.parametrize(
    ("line", "event", "expected"),
    [
        (f"echo '{json.dumps(DENY)}'", "PreToolUse", HookRun(output=parse_output(DENY), exit_code=0)),
        ("true", "PreToolUse", HookRun(exit_code=0)),
        ("echo some text", "PreToolUse", HookRun(exit_code=0)),
        (
            f"printf '\\357\\273\\277%s' '{json.dumps(DENY)}'",
            "PreToolUse",
            HookRun(output=parse_output(DENY), exit_code=0),
        ),
        ("echo some text", "UserPromptSubmit", HookRun(output=parse_output(CONTEXT), exit_code=0)),
        ("echo '{ some text'", "UserPromptSubmit", HookRun(output=parse_output(BRACED), exit_code=0)),
        ("echo no >&2; exit 2", "PreToolUse", HookRun(blocks="no", exit_code=2)),
        ("echo no; exit 2", "PreToolUse", HookRun(blocks="no", exit_code=2)),
        ("echo why >&2; exit 3", "PreToolUse", HookRun(failure="exit code 3: why", exit_code=3)),
        ("exit 3", "PreToolUse", HookRun(failure="exit code 3", exit_code=3)),
        ("kill -9 $$", "PreToolUse", HookRun(failure="exit code 137", exit_code=137)),
    ],
)
async def test_the_end_of_a_command_is_its_answer(tmp_path: Path, line: str, event: str, expected: HookRun) -> None:
    async def scenario(place: HookRuntime) -> None:
        found = await ran(hook(place, line, event))
        told = (found.output, found.blocks, found.failure, found.exit_code)
        assert told == (expected.output, expected.blocks, expected.failure, expected.exit_code)

    await at(tmp_path, scenario)


LONG = """printf '{"hookSpecificOutput": {"permissionDecision": "deny", "additionalContext": "'
head -c %d /dev/zero | tr '\\0' x; printf '"}}'"""


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("echo '{\"continue\": 1}'", "the output is invalid"),
        ('echo \'{"decision": "block",}\'', "the output is not valid JSON"),
        (LONG % MAX_OUTPUT_BYTES, "the output is longer than"),
        ('echo \'{"decision": "block", "decisi\\u006fn": "approve"}\'', "the output is invalid"),
        ('echo checking; echo \'{"decision": "block"}\'', "the output contains a decision"),
        ('echo \'[{"decision": "block"}]\'', "the output contains a decision"),
        ('echo \'{"permisionDecision": "deny"}\'', "the output has no decision, but it has unknown keys"),
    ],
)
async def test_an_answer_that_cannot_be_understood_is_a_failure(tmp_path: Path, line: str, failure: str) -> None:
    async def scenario(place: HookRuntime) -> None:
        assert ((await ran(hook(place, line))).failure or "").startswith(failure)

    await at(tmp_path, scenario)


async def test_a_long_answer_counts_as_a_whole(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        said = (await ran(hook(place, LONG % 500_000))).output.hookSpecificOutput
        assert said is not None
        assert (said.permissionDecision, len(said.additionalContext or "")) == ("deny", 500_000)

    await at(tmp_path, scenario)


async def test_a_command_that_cannot_be_started_is_a_failure(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        with pytest.raises(HookFailed, match="NUL"):
            await ran(hook(place, "a\0b"))

    await at(tmp_path, scenario)


async def test_cancelling_ends_the_command(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        os.mkfifo(tmp_path / "pid")
        running = asyncio.create_task(ran(hook(place, "echo $$ > pid; exec sleep 600")))
        pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
        running.cancel()
        await asyncio.wait({running})
        assert isinstance(place.processes, Processes)
        await place.processes.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    await at(tmp_path, scenario)


async def test_relative_entries_of_the_path_are_dropped(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        environment = {"PATH": f".:bin::{tmp_path}:/usr/bin:/bin"}
        given = make_runtime(place.processes, environment, tmp_path)
        assert (await ran(hook(given, 'echo "$PATH"'))).stdout.strip() == f"{tmp_path}:/usr/bin:/bin"

    await at(tmp_path, scenario)


async def test_what_a_command_writes_is_reported_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROGRESS_SECONDS", 0.01)

    async def scenario(place: HookRuntime) -> None:
        os.mkfifo(tmp_path / "go")
        told: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        progress = lambda out, err: None if told.done() else told.set_result((out, err))  # noqa: E731  # a callback
        running = asyncio.create_task(ran(hook(place, "echo begun; read < go; echo ended"), progress))
        assert (await told)[0] == "begun\n"
        await asyncio.to_thread((tmp_path / "go").write_text, "\n")
        assert (await running).stdout == "begun\nended\n"

    await at(tmp_path, scenario)


@pytest.mark.parametrize("by", ["entry", "first line"])
async def test_a_command_may_continue_in_the_background(tmp_path: Path, by: str) -> None:
    async def scenario(place: HookRuntime) -> None:
        os.mkfifo(tmp_path / "go")
        first = "" if by == "entry" else 'echo \'{"async": true, "asyncTimeout": 20000}\'; '
        made = hook(place, f"{first}read < go; echo '{json.dumps(CONTEXT)}'", "Stop", in_background=by == "entry")
        found = await ran(made)
        assert (found.output, found.exit_code, found.background is not None) == (HookOutput(is_async=True), UNSET, True)
        assert found.background is not None
        ending = asyncio.ensure_future(found.background)
        await asyncio.to_thread((tmp_path / "go").write_text, "\n")
        assert (await ending).output == parse_output(CONTEXT)

    await at(tmp_path, scenario)


@pytest.mark.parametrize("ms", ["-1", "0", "null"])
async def test_a_time_that_is_invalid_is_not_heeded(tmp_path: Path, ms: str) -> None:
    async def scenario(place: HookRuntime) -> None:
        os.mkfifo(tmp_path / "go")
        found = await ran(hook(place, f'echo \'{{"async": true, "asyncTimeout": {ms}}}\'; read < go', "Stop"))
        assert found.background is not None
        ending = asyncio.ensure_future(found.background)
        await asyncio.to_thread((tmp_path / "go").write_text, "\n")
        assert (await ending).failure is None

    await at(tmp_path, scenario)


async def test_a_command_that_answers_later_and_has_ended_already_is_one_in_the_background(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        found = await ran(hook(place, f"echo '{{\"async\": true}}'; echo '{json.dumps(CONTEXT)}'", "Stop"))
        assert found.background is not None
        assert (await found.background).output == parse_output(CONTEXT)

    await at(tmp_path, scenario)


async def test_one_in_the_background_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def scenario(place: HookRuntime) -> None:
        found = await ran(hook(place, 'echo \'{"async": true, "asyncTimeout": 1}\'; sleep 600', "Stop"))
        assert found.background is not None
        assert (await found.background).failure == "the command did not finish within 0.001 s and was stopped"

    await at(tmp_path, scenario)
