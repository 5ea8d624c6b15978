"""The client, with both kinds of engine."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from parley import (
    AssistantMessage,
    CLIConnectionError,
    Client,
    CLINotFoundError,
    ControlError,
    HookJSONOutput,
    HookMatcher,
    Options,
    OptionsError,
    ProcessError,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    Turn,
    UserMessage,
    query,
)
from tests.helpers import paths
from tests.helpers.sdk import LOOPS, ClientHarness, kinds, run

TURN = ["SystemMessage:init", "AssistantMessage", "ResultMessage:success"]
SLOW = """
at_end = "repeat"
[[turn]]
tools = [{ name = "Bash", input = { command = "sleep 0.5" } }]
[[turn]]
text = "Slept."
"""


async def asked(options: Options, prompt: Any = "Hi") -> list[Any]:
    return [message async for message in query(prompt=prompt, options=options)]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_query_yields_its_turn_and_ends(harness: ClientHarness, engine: str, loop: str) -> None:
    messages = run(loop, asked, harness.options(engine))

    assert kinds(messages) == TURN
    assert messages[1].content == [TextBlock("Hello.")]
    assert messages[2].result == "Hello."
    assert harness.warnings == []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_runs_turn_after_turn_in_one_session(harness: ClientHarness, engine: str, loop: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            ids = []
            for prompt in ("one", "two"):
                await client.query(prompt)
                assert kinds([message async for message in client.receive_response()]) == TURN
                ids.append(client.session_id)
            assert (client.pid is None) == (options.engine == "local" and options.workers is None)
            return ids

    ids = run(loop, play, harness.options(engine))

    assert ids[0] == ids[1] is not None


def test_a_turn_yields_its_own_messages_only(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> tuple[Turn, Turn]:
        async with Client(options) as client:
            first = await client.ask("one")
            second = await client.ask("two")
            assert (await second.wait()) is second.result  # read in another order than sent
            assert [one async for one in first if isinstance(one, ResultMessage)] == [first.result]
            return first, second

    script = '[[turn]]\nwhen = "one"\ntext = "First."\n[[turn]]\nwhen = "two"\ntext = "Second."\n'
    first, second = run("asyncio", play, harness.options(engine, script))

    assert [turn.result and turn.result.result for turn in (first, second)] == ["First.", "Second."]
    assert first.state == second.state == "completed"


def test_a_prompt_sent_into_a_running_turn_is_accounted_for(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            turn = await client.ask("begin")
            async for message in turn:
                if isinstance(message, AssistantMessage):
                    break
            receipt = await client.ask("and this", join=True)
            await receipt.until("queued")
            begun = await receipt.until("started")
            result = await turn.wait()
            assert result == await receipt.wait()
            return [begun, receipt.state, result and result.result]

    found = run("asyncio", play, harness.options(engine, SLOW, permission_mode="bypassPermissions"))

    assert found[0] in ("started", "completed")  # the turn may have ended before we look
    assert found[1:] == ["completed", "Slept."]


def test_a_queued_prompt_can_be_cancelled(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> tuple[bool, str, Any]:
        async with Client(options) as client:
            turn = await client.ask("begin")
            async for message in turn:
                if isinstance(message, AssistantMessage):
                    break
            receipt = await client.ask("never mind", priority="later")
            await receipt.until("queued")
            taken = await client.cancel(receipt)
            return taken, await receipt.until("cancelled"), receipt.result

    options = harness.options(engine, SLOW, permission_mode="bypassPermissions")
    assert run("asyncio", play, options) == (True, "cancelled", None)


def test_an_interrupt_ends_the_turn_and_the_next_one_is_clean(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> tuple[Any, str | None]:
        async with Client(options) as client:
            turn = await client.ask("begin")
            async for message in turn:
                if isinstance(message, AssistantMessage):
                    assert await client.interrupt() == {"still_queued": []}
            again = await client.ask("again")
            return turn.result, await again.text()

    script = SLOW.replace("sleep 0.5", "sleep 60")
    result, text = run("asyncio", play, harness.options(engine, script, permission_mode="bypassPermissions"))

    assert (result.subtype, result.is_error, text) == ("error_during_execution", True, "Slept.")


def test_prompts_may_come_from_a_generator(harness: ClientHarness, engine: str) -> None:
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        for text in ("one", "two"):
            yield {"type": "user", "message": {"role": "user", "content": text}}

    messages = run("asyncio", lambda options: asked(options, prompts()), harness.options(engine))

    assert [one.result for one in messages if isinstance(one, ResultMessage)][-1] == "Hello."


def test_a_generator_that_fails_ends_the_prompts_and_not_the_session(
    harness: ClientHarness, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "one"}}
        raise RuntimeError("no more ideas")

    async def play(options: Options) -> tuple[list[Any], str]:
        client = Client(options)
        await client.connect(prompts())
        try:
            return [one async for one in client.receive_response()], await (await client.ask("two")).text()
        finally:
            await client.close()

    messages, answer = run("asyncio", play, harness.options(engine))

    assert isinstance(messages[-1], ResultMessage)
    assert answer == "Hello."
    assert "the iterable of prompts raised an exception" in caplog.text


def test_partial_messages_are_stream_events(harness: ClientHarness, engine: str) -> None:
    messages = run("asyncio", asked, harness.options(engine, include_partial_messages=True))

    events = [one.event["type"] for one in messages if isinstance(one, StreamEvent)]
    assert events[0] == "message_start"
    assert events[-1] == "message_stop"


def test_control_requests_are_answered(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            info = await client.get_server_info()
            turn = await client.ask("hi")
            await turn
            return [
                info is not None and "commands" in info,
                await client.set_permission_mode("acceptEdits"),
                (await client.get_context_usage())["maxTokens"] > 0,
                (await client.get_mcp_status())["mcpServers"],
                (await client.rewind_files(turn.uuid, dry_run=True)).get("canRewind"),
                isinstance(await client.get_settings(), dict),
                isinstance(await client.list_permission_rules(), dict),
            ]

    found = run("asyncio", play, harness.options(engine, enable_file_checkpointing=True))

    assert found == [True, {"mode": "acceptEdits"}, True, [], True, True, True]


def test_a_refused_request_is_a_typed_error(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> None:
        async with Client(options) as client:
            await client.set_permission_mode("no such mode")  # type: ignore[arg-type]  # on purpose

    with pytest.raises(ControlError) as raised:
        run("asyncio", play, harness.options(engine))

    assert raised.value.subtype == "set_permission_mode"


def test_a_failed_run_raises_after_its_result(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> tuple[list[Any], ResultError]:
        messages = []
        try:
            async for message in query(prompt="Hi", options=options):
                messages.append(message)  # noqa: PERF401  # messages before the error must be kept
        except ResultError as exc:
            return messages, exc
        raise AssertionError("nothing was raised")

    script = '[[turn]]\nerror = { status = 400, type = "invalid_request_error", message = "no such thing" }\n'
    messages, raised = run("asyncio", play, harness.options(engine, script))

    assert isinstance(messages[-1], ResultMessage)
    assert (raised.exit_code, raised.terminal_reason, raised.api_error_status) == (1, "api_error", 400)
    assert raised.session_id == messages[-1].session_id


def test_a_session_that_does_not_exist_is_an_error_that_says_so(harness: ClientHarness, engine: str) -> None:
    unknown = "00000000-0000-4000-8000-000000000000"

    with pytest.raises(ResultError, match="No conversation found") as raised:
        run("asyncio", asked, harness.options(engine, resume=unknown))

    assert raised.value.exit_code == 1


def test_invalid_options_raise_the_engines_error_message(harness: ClientHarness, engine: str) -> None:
    with pytest.raises(ProcessError, match="Invalid session ID") as raised:
        run("asyncio", asked, harness.options(engine, session_id="not-a-uuid"))

    assert (raised.value.exit_code, "Invalid session ID" in (raised.value.stderr or "")) == (1, True)


def test_a_session_in_this_process_cannot_move_to_a_worktree(harness: ClientHarness) -> None:
    with pytest.raises(OptionsError, match="--worktree cannot be combined with"):
        run("asyncio", asked, harness.options("local", extra_args={"worktree": "one"}))


def test_a_missing_folder_is_a_connection_error(harness: ClientHarness, engine: str) -> None:
    with pytest.raises(CLIConnectionError, match="working directory"):
        run("asyncio", asked, harness.options(engine, cwd=harness.folder / "nowhere"))


def test_a_missing_engine_is_named(harness: ClientHarness) -> None:
    with pytest.raises(CLINotFoundError, match="no-such-engine"):
        run("asyncio", asked, harness.options("process", cli_path=harness.folder / "no-such-engine"))


def test_an_engine_may_run_as_a_named_user(harness: ClientHarness) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    answers = run("asyncio", asked, harness.options("process", user=name))

    assert isinstance(answers[-1], ResultMessage)
    with pytest.raises(CLIConnectionError, match="no-such-user"):
        run("asyncio", asked, harness.options("process", user="no-such-user"))


def test_nothing_can_be_sent_before_connect_and_after_close(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> None:
        client = Client(options)
        with pytest.raises(CLIConnectionError):
            await client.query("too early")
        await client.connect()
        await client.close()
        await client.close()
        with pytest.raises(CLIConnectionError):
            await client.interrupt()

    run("asyncio", play, harness.options(engine))


@pytest.mark.parametrize("loop", LOOPS)
def test_of_two_tasks_that_connect_at_once_one_fails_and_one_engine_runs(
    harness: ClientHarness, engine: str, loop: str
) -> None:
    async def play(options: Options) -> list[str]:
        client, said = Client(options), []

        async def connect() -> None:
            try:
                await client.connect()
                said.append("connected")
            except CLIConnectionError as exc:
                said.append(str(exc))

        async with create_task_group() as tasks:
            tasks.start_soon(connect)
            tasks.start_soon(connect)
        await (await client.ask("Hi"))
        await client.close()
        return sorted(said)

    assert run(loop, play, harness.options(engine)) == [
        "connected",
        "the client is already connecting: connect() was called twice",
    ]


def test_messages_before_the_end_can_be_read_after_it(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            await client.query("Hi")
            await client.get_context_usage()
            await (await client.ask("and then"))
        return [message async for message in client.receive_messages()]

    assert kinds(run("asyncio", play, harness.options(engine))) == TURN


def test_a_session_continues_where_another_client_left_it(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> tuple[str | None, str | None]:
        async with Client(options) as client:
            await (await client.ask("remember"))
            first = client.session_id
        async with Client(harness.options(engine, resume=first)) as client:
            await (await client.ask("what?"))
            return first, client.session_id

    first, second = run("asyncio", play, harness.options(engine))

    assert first == second


@dataclass
class City:
    name: str
    people: int


def test_a_structured_result_becomes_a_value_of_the_given_type(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> Any:
        async with Client(options) as client:
            return await (await client.ask("Which city?")).output()

    script = """
at_end = "repeat"
[[turn]]
tools = [{ name = "StructuredOutput", input = { name = "Ulm", people = 126000 } }]
[[turn]]
text = "Done."
"""
    assert run("asyncio", play, harness.options(engine, script, output_type=City)) == City("Ulm", 126000)


def test_the_init_line_is_a_system_message_with_its_data(harness: ClientHarness, engine: str) -> None:
    messages = run("asyncio", asked, harness.options(engine))

    init = messages[0]
    assert isinstance(init, SystemMessage)
    assert init.data["session_id"] == messages[-1].session_id
    assert init.raw == init.data


def test_the_engines_commands_agents_and_account_can_be_requested(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            servers = await client.set_mcp_servers({})
            return [
                all("name" in one for one in await client.supported_commands()),
                isinstance(await client.supported_agents(), list),
                isinstance(await client.account_info(), dict),
                isinstance(await client.supported_models(), list),
                isinstance(servers, dict),
            ]

    assert run("asyncio", play, harness.options(engine)) == [True] * 5


def test_initialize_can_be_repeated_with_other_hooks(harness: ClientHarness, engine: str) -> None:
    heard: list[str] = []

    async def hook(input: Any, tool_use_id: str | None, context: Any) -> HookJSONOutput:
        heard.append(input["prompt"])
        return {}

    async def play(options: Options) -> None:
        async with Client(options) as client:
            await (await client.ask("one"))
            options.hooks = {"UserPromptSubmit": [HookMatcher(hooks=[hook])]}
            assert "commands" in await client.reinitialize()
            await (await client.ask("two"))

    run("asyncio", play, harness.options(engine))

    assert heard == ["two"]


async def prompt_of_a_generator() -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": "Hi"}}


@pytest.mark.parametrize("make", [lambda: "Hi", prompt_of_a_generator])
def test_a_client_may_begin_with_a_prompt(harness: ClientHarness, engine: str, make: Any) -> None:
    async def play(options: Options) -> list[Any]:
        client = Client(options)
        await client.connect(make())
        messages = [message async for message in client.receive_response()]
        await client.disconnect()
        return messages

    assert kinds(run("asyncio", play, harness.options(engine))) == TURN


def test_a_session_that_the_program_ends_in_the_middle_is_not_an_error(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            await client.query("Hi")
            first = await anext(client.receive_messages())
        return [first, *[message async for message in client.receive_messages()]]

    slow = 'at_end = "repeat"\n[[turn]]\ntext = "Never."\ndelay_ms = 60000\n'
    messages = run("asyncio", play, harness.options(engine, slow))

    assert kinds(messages)[0] == "SystemMessage:init"


def test_a_priority_that_no_one_knows_is_refused_with_those_there_are(harness: ClientHarness) -> None:
    async def play() -> None:
        async with Client(harness.options("local")) as client:
            with pytest.raises(ValueError, match="priority must be one of 'now', 'next', 'later', not 'urgent'"):
                await client.ask("say Hello.", priority="urgent")  # type: ignore[arg-type]  # that is the case

    run("asyncio", play)


@pytest.mark.parametrize("prompt", [None, 3, {"type": "text", "text": "Hi"}, ["Hi"]])
def test_what_is_not_a_prompt_is_refused_and_the_session_continues(harness: ClientHarness, prompt: Any) -> None:
    async def play() -> None:
        async with Client(harness.options("local")) as client:
            with pytest.raises(TypeError, match="a string or a list of content blocks"):
                await client.ask(prompt)
            assert await (await client.ask([{"type": "text", "text": "Hi"}])).text() == "Hello."

    run("asyncio", play)


def test_a_prompt_that_no_line_can_say_leaves_no_trace(harness: ClientHarness) -> None:
    async def play() -> bool:
        async with Client(harness.options("local")) as client:
            for say in (client.ask, client.query):
                with pytest.raises(UnicodeEncodeError):
                    await say("\ud800")
            return client.router.is_busy

    assert run("asyncio", play) is False


def test_servers_reach_the_engine_in_initialize(harness: ClientHarness) -> None:
    server = {
        "command": sys.executable,
        "args": [str(paths.MCP_SERVERS / "plain.py"), "well"],
        "env": {"KEY": "hidden"},
    }
    script = '[[turn]]\ntools = [{ name = "mcp__own__echo", input = { a = 1 } }]\n[[turn]]\ntext = "Done."\n'
    given: dict[str, Any] = {"mcp_servers": {"own": server}, "mcp_servers_delivery": "initialize"}

    async def play(options: Options) -> tuple[str, list[Any]]:
        async with Client(options) as client:
            command_line = Path(f"/proc/{client.pid}/cmdline").read_text()
            await client.query("go")
            return command_line, [message async for message in client.receive_response()]

    options = harness.options("process", script, allowed_tools=["mcp__own"], **given)
    command_line, messages = run("asyncio", play, options)

    assert "--await-initialize" in command_line
    assert not any(word in command_line for word in ("mcp-config", "hidden", "plain.py"))
    [answer] = [message.content for message in messages if isinstance(message, UserMessage)]
    assert isinstance(answer[0], ToolResultBlock)
    assert answer[0].content == [{"type": "text", "text": '{"a": 1}'}]


def test_servers_in_initialize_need_an_engine_that_reads_them(harness: ClientHarness) -> None:
    given: dict[str, Any] = {"mcp_servers": {"own": {"command": "x"}}, "mcp_servers_delivery": "initialize"}

    with pytest.raises(CLIConnectionError, match="does not read MCP servers"):
        run("asyncio", asked, harness.options("process", extra_args={"safe-mode": None}, **given))
    with pytest.raises(ValueError, match="needs engine='process'"):
        run("asyncio", asked, harness.options("local", **given))
