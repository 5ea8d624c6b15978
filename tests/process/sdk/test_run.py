"""Whole runs in one call, many at the same time, scripts as models, functions as tools, and shared budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from parley import (
    Budget,
    BudgetExceeded,
    CLIConnectionError,
    Client,
    HookContext,
    HookMatcher,
    MessageParseError,
    Options,
    ResultError,
    RunOutcome,
    RunProgress,
    Script,
    ScriptedError,
    ScriptedTurn,
    SyncClient,
    ToolResultBlock,
    UserMessage,
    UserPromptSubmitHookInput,
    run_many,
    run_many_sync,
    run_sync,
    tool,
)
from parley import run as run_prompt
from parley.testing import call, running
from tests.helpers.sdk import LOOPS, ClientHarness, children, run

FAILING = Script([ScriptedTurn(error=ScriptedError(status=400, message="no such thing"))], at_end="repeat")
ECHO = Script([ScriptedTurn(when=f"prompt {n}.", text=f"answer {n}") for n in range(30)])
USAGE = {"input_tokens": 60, "output_tokens": 40}


@dataclass
class City:
    name: str
    people: int


ULM = Script([call("StructuredOutput", name="Ulm", people=126000), "Done."])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_is_one_call(harness: ClientHarness, engine: str, loop: str) -> None:
    async def play(options: Options) -> Any:
        result = await run_prompt("Hi", options)
        return result.text, result.session_id == result.message.session_id, result.is_error

    assert run(loop, play, harness.options(engine)) == ("Hello.", True, False)


def test_a_run_needs_no_event_loop(harness: ClientHarness, engine: str) -> None:
    options = harness.options(engine)
    assert run_sync("Hi", options).text == "Hello."
    with SyncClient(options) as client:
        assert client.run("Hi").text == "Hello."
        assert "".join(client.ask("Hi").text_stream()) == "Hello."


Shortcut = Callable[[Client, str], Awaitable[object]]


async def await_turn(client: Client, prompt: str) -> object:
    return await (await client.ask(prompt))


async def read_text(client: Client, prompt: str) -> object:
    return await (await client.ask(prompt)).text()


async def read_output(client: Client, prompt: str) -> object:
    return await (await client.ask(prompt)).output()


async def read_stream(client: Client, prompt: str) -> object:
    return [text async for text in (await client.ask(prompt)).text_stream()]


@pytest.mark.parametrize("shortcut", [Client.run, await_turn, read_text, read_output, read_stream])
def test_every_shortcut_raises_for_a_failed_turn_and_the_client_goes_on(
    harness: ClientHarness, engine: str, shortcut: Shortcut
) -> None:
    async def play(options: Options) -> str:
        async with Client(options) as client:
            with pytest.raises(ResultError, match="no such thing") as raised:
                await shortcut(client, "fail")
            assert raised.value.api_error_status == 400
            assert raised.value.result_message is not None
            assert "no such thing" in (await client.run("fail", check=False)).text
            return await (await client.ask("fail")).text(check=False)

    assert "no such thing" in run("asyncio", play, harness.options(engine, model=FAILING))


def test_without_a_loop_a_failed_turn_raises_too(harness: ClientHarness) -> None:
    options = harness.options("local", model=FAILING)
    with pytest.raises(ResultError, match="no such thing"):
        run_sync("fail", options)
    assert run_sync("fail", options, check=False).is_error
    with SyncClient(options) as client:
        for shortcut in (
            client.run,
            lambda prompt: client.ask(prompt).text(),
            lambda prompt: client.ask(prompt).wait(),
        ):
            with pytest.raises(ResultError, match="no such thing"):
                shortcut("fail")


def test_a_run_has_the_output_as_its_type(harness: ClientHarness, engine: str) -> None:
    options: Options[City] = harness.options(engine, model=ULM, output_type=City)

    assert run_sync("Where?", options).output == City("Ulm", 126000)


def test_an_output_that_does_not_match_is_an_error(harness: ClientHarness) -> None:
    options = harness.options("local", model=Script(["No city."]), output_type=City, max_turns=1)
    with pytest.raises((MessageParseError, ResultError)):
        run_sync("Where?", options)


def test_text_arrives_while_the_model_writes(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[str]:
        async with Client(options) as client:
            return [text async for text in (await client.ask("go")).text_stream()]

    script = Script([["Look. ", call("Bash", command="true")], ScriptedTurn(text="abcdef", chunk_chars=2)])
    options: dict[str, Any] = {"model": script, "permission_mode": "bypassPermissions"}

    assert run("asyncio", play, harness.options(engine, **options)) == ["Look. ", "abcdef"]
    streamed = run("asyncio", play, harness.options(engine, include_partial_messages=True, **options))
    assert streamed == ["Look. ", "ab", "cd", "ef"]


# Turns of their own.


@pytest.mark.parametrize("loop", LOOPS)
def test_prompts_that_are_asked_together_have_turns_of_their_own(
    harness: ClientHarness, engine: str, loop: str
) -> None:
    async def play(options: Options) -> dict[int, str]:
        found: dict[int, str] = {}

        async def ask(number: int) -> None:
            found[number] = (await client.run(f"prompt {number}.")).text

        async with Client(options) as client, anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(ask, number)
        return found

    assert run(loop, play, harness.options(engine, model=ECHO)) == {n: f"answer {n}" for n in range(4)}


SLEEP = Script([call("Bash", command="sleep 0.3"), "Slept."], at_end="repeat")


def test_a_prompt_that_joins_shares_the_turn(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> Any:
        async with Client(options) as client:
            first = await client.ask("begin")
            await first.until("started")
            second = await client.ask("and this", join=True)
            await second
            return first.result is second.result

    assert run("asyncio", play, harness.options(engine, model=SLEEP, permission_mode="bypassPermissions"))


def test_waiting_prompts_can_be_withdrawn_one_by_one_or_by_an_interrupt(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> Any:
        async with Client(options) as client:
            first = await client.ask("begin")
            await first.until("started")
            second, third = await client.ask("two"), await client.ask("three")
            assert await client.cancel(second)
            answer = await client.interrupt(cancel_queued=True)
            with pytest.raises(ResultError):
                await first
            for withdrawn in (second, third):
                with pytest.raises(ResultError, match="withdrawn"):
                    await withdrawn
            return answer["cancelled"] == [third.uuid], second.state, third.state

    options = harness.options(engine, model=SLEEP, permission_mode="bypassPermissions")
    assert run("asyncio", play, options) == (True, "cancelled", "cancelled")


def test_an_interrupt_lets_the_next_prompt_run(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> Any:
        async with Client(options) as client:
            first = await client.ask("begin")
            await first.until("started")
            second = await client.ask("two")
            still = (await client.interrupt())["still_queued"]
            await first.wait(check=False)
            return still == [second.uuid], await second.text()

    options = harness.options(engine, model=SLEEP, permission_mode="bypassPermissions")
    assert run("asyncio", play, options) == (True, "Slept.")


def test_prompts_that_wait_when_the_client_closes_end(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> Any:
        async with Client(options) as client:
            turns = [await client.ask("begin"), await client.ask("two")]
            await turns[0].until("started")
        with pytest.raises(CLIConnectionError, match="before the turn ended"):
            await turns[1]
        return turns[1].state

    assert run("asyncio", play, harness.options(engine, model=SLEEP)) == "queued"


def test_a_run_that_is_cancelled_while_it_waits_is_never_sent(harness: ClientHarness, engine: str) -> None:
    sent: list[str] = []

    async def note(input: UserPromptSubmitHookInput, tool_use_id: str | None, context: HookContext) -> None:
        sent.append(input["prompt"])

    async def play(options: Options) -> None:
        async with Client(options) as client:
            first = await client.ask("prompt 1.")
            waiting = asyncio.create_task(client.run("prompt 2."))
            await asyncio.sleep(0)  # lets it start, so that it waits for the first turn
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await first
            await client.run("prompt 3.")

    hooks = {"UserPromptSubmit": [HookMatcher(hooks=[note])]}
    run("asyncio", play, harness.options(engine, model=ECHO, hooks=hooks))
    assert sent == ["prompt 1.", "prompt 3."]


def test_two_waiting_prompts_cannot_have_one_uuid(harness: ClientHarness) -> None:
    async def play(options: Options) -> None:
        async with Client(options) as client:
            await client.ask("begin")
            await client.ask("two", uuid="00000000-0000-4000-8000-000000000001")
            with pytest.raises(ValueError, match="is still waiting"):
                await client.ask("three", uuid="00000000-0000-4000-8000-000000000001")

    run("asyncio", play, harness.options("local", model=SLEEP))


# Tools.


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def shout(text: str) -> str:
    """Convert to upper case."""
    return text.upper()


def test_functions_among_the_tools_are_called_without_asking(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            return [
                block.content
                async for message in await client.ask("go")
                if isinstance(message, UserMessage) and not isinstance(message.content, str)
                for block in message.content
                if isinstance(block, ToolResultBlock)
            ]

    script = Script(
        [
            [call("mcp__tools__add", a=2, b=3), call("mcp__tools__shout", text="hi"), call("Bash", command="true")],
            "Done.",
        ]
    )
    [five, loud, bash] = run("asyncio", play, harness.options(engine, model=script, tools=["Read", add, shout]))

    assert (five[0]["text"], loud[0]["text"]) == ("5", "HI")
    assert "Bash" in str(bash)  # there is no such tool


# Many runs.


def texts(outcomes: list[RunOutcome[Any]]) -> list[str | None]:
    return [outcome.result.text if outcome.result else None for outcome in outcomes]


@pytest.mark.parametrize("loop", LOOPS)
def test_many_prompts_have_their_outcomes_in_order(harness: ClientHarness, loop: str) -> None:
    steps: list[tuple[int, int, int]] = []

    def note(progress: RunProgress[Any]) -> None:
        steps.append((progress.done, progress.failed, progress.total))

    async def play(options: Options) -> list[RunOutcome[Any]]:
        return await run_many([f"prompt {n}." for n in (3, 1, 99, 2)], options, concurrency=2, on_progress=note)

    outcomes = run(loop, play, harness.options("local", model=ECHO))

    assert texts(outcomes) == ["answer 3", "answer 1", None, "answer 2"]
    assert [outcome.index for outcome in outcomes] == [0, 1, 2, 3]
    assert isinstance(outcomes[2].error, ResultError)
    with pytest.raises(ResultError):
        outcomes[2].unwrap()
    assert [step[0] for step in steps] == [1, 2, 3, 4]
    assert steps[-1] == (4, 1, 4)


def test_many_prompts_need_no_event_loop(harness: ClientHarness, engine: str) -> None:
    outcomes = run_many_sync([f"prompt {n}." for n in range(5)], harness.options(engine, model=ECHO), concurrency=3)

    assert texts(outcomes) == [f"answer {n}" for n in range(5)]


def test_many_prompts_that_are_cancelled_leave_no_engine(harness: ClientHarness) -> None:
    before = children()
    slow = ScriptedTurn(text="Never.", delay_ms=60_000)
    script = Script([ScriptedTurn(when="fast", text="Fast."), slow])

    async def play(options: Options) -> bool:
        with anyio.CancelScope() as scope:
            await run_many(["slow", "fast", "slow"], options, concurrency=2, on_progress=lambda _: scope.cancel())
        return scope.cancelled_caught

    assert run("asyncio", play, harness.options("process", model=script))
    assert children() == before


def test_an_error_of_the_progress_callback_ends_the_runs(harness: ClientHarness) -> None:
    def fail(progress: RunProgress[Any]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_many_sync(["prompt 1.", "prompt 2."], harness.options("local", model=ECHO), on_progress=fail)


@pytest.mark.parametrize("given", [{"prompts": "one"}, {"prompts": [], "concurrency": 0}])
def test_what_cannot_be_run_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"prompts must be|concurrency must be"):
        asyncio.run(run_many(**given))


# Budgets.

COSTLY = Script([ScriptedTurn(text="Dear.", usage=USAGE)], at_end="repeat")


def test_a_spent_budget_starts_no_turn(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> None:
        async with Client(options) as one, Client(options) as other:
            await one.run("first")
            await other.run("second")
            for client in (one, other):
                with pytest.raises(BudgetExceeded, match="200 tokens is spent"):
                    await client.run("third")
                with pytest.raises(BudgetExceeded):
                    await client.query("fourth")

    budget = Budget(tokens=200)
    run("asyncio", play, harness.options(engine, model=COSTLY, budget=budget))

    assert (budget.spent_tokens, budget.remaining_tokens, budget.remaining_usd) == (200, 0, None)


def test_a_waiting_prompt_is_not_sent_when_the_budget_is_spent(harness: ClientHarness) -> None:
    async def play(options: Options) -> None:
        async with Client(options) as client:
            first, second = await client.ask("first"), await client.ask("second")
            assert await first.text() == "Dear."
            with pytest.raises(BudgetExceeded):
                await second.text()

    run("asyncio", play, harness.options("local", model=COSTLY, budget=Budget(tokens=100)))


def test_a_missing_key_is_named_in_the_error(harness: ClientHarness, engine: str) -> None:
    with pytest.raises(ResultError, match=r"^No API key: set ANTHROPIC_API_KEY") as raised:
        run_sync("Hi", harness.options(engine, model="sonnet", env={"ANTHROPIC_API_KEY": ""}))
    assert (raised.value.reason, raised.value.subtype) == ("no_key", "success")


def test_an_engine_is_limited_to_what_is_left(harness: ClientHarness, engine: str) -> None:
    script = Script([ScriptedTurn(tools=[call("Bash", command="true")], usage=USAGE)], at_end="repeat")
    budget = Budget(tokens=1000)
    budget.add(0, 750)
    options = harness.options(engine, model=script, budget=budget, permission_mode="bypassPermissions")

    with pytest.raises(ResultError) as raised:
        run_sync("go on", options)
    assert raised.value.terminal_reason == "budget_exhausted"
    assert budget.spent_tokens == 1050  # exceeded by one call at most


def test_many_prompts_share_a_budget_in_dollars(harness: ClientHarness) -> None:
    budget = Budget(usd=0.01)
    turn = ScriptedTurn(text="Dear.", usage={"input_tokens": 1000, "output_tokens": 200})
    with running(Script([turn], at_end="repeat")) as server:
        options = harness.options(
            "local", model="claude-sonnet-4-5", budget=budget, env={"ANTHROPIC_BASE_URL": server.url}
        )
        outcomes = run_many_sync(["a"] * 4, options, concurrency=1)

    assert texts(outcomes) == ["Dear.", None, None, None] or texts(outcomes) == ["Dear.", "Dear.", None, None]
    assert isinstance(outcomes[-1].error, BudgetExceeded)
    costs = [outcome.result.cost_usd or 0 for outcome in outcomes if outcome.result]
    assert budget.spent_usd >= sum(costs) > 0


def test_a_resumed_session_is_not_counted_twice(harness: ClientHarness) -> None:
    budget = Budget(tokens=10_000)
    options = harness.options("local", model=COSTLY, budget=budget)
    first = run_sync("one", options)
    options.resume = first.session_id
    run_sync("two", options)

    assert budget.spent_tokens == 200


def test_threads_may_share_a_budget() -> None:
    budget = Budget(usd=1000, tokens=10**9)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: budget.add(0.5, 3), range(1000)))

    assert (budget.spent_usd, budget.spent_tokens, budget.remaining_usd) == (500.0, 3000, 500.0)


@pytest.mark.parametrize(
    ("given", "kind"), [({}, ValueError), ({"usd": -1}, ValueError), ({"tokens": "many"}, TypeError)]
)
def test_a_budget_needs_valid_limits(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="Budget"):
        Budget(**given)
