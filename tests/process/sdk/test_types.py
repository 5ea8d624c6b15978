"""A program outside the project passes strict type checkers, and they find its mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths
from tests.helpers.environment import make_install_environment

PROGRAM = '''
import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, assert_type

from parley import (
    AgentDefinition, Answers, AssistantMessage, Budget, BudgetExceeded, ClaudeAgentOptions, ClaudeSDKClient, Client,
    ElicitationRequest, ElicitationResult, FunctionTool, HookContext, HookEvent, HookInput, HookJSONOutput,
    HookMatcher, Hooks, Message, MessageParseError, Options, PermissionResult, PermissionResultAllow,
    PermissionResultDeny, Plan, PlanDecision, PreToolUseHookInput, Questions, ResultError, ResultMessage, RunOutcome,
    RunProgress, RunResult, Script, ScriptedTurn, StopHookInput, SyncClient, SyncTurn, ToolPermissionContext, Turn,
    create_sdk_mcp_server, query, query_sync, run, run_many, run_many_sync, run_sync, tool,
)
from parley.testing import call


@dataclass
class City:
    name: str
    people: int


class Town(TypedDict):
    name: str


@tool
def add(a: float, b: Annotated[float, "the number to add"] = 1) -> float:
    """Add two numbers."""
    return a + b


@tool("fetch", "Fetch a page.")
async def fetch(url: str) -> str:
    return url


@tool("shout", "Shout.", {"text": str})
async def shout(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": args["text"].upper()}]}


def plain(text: str) -> str:
    return text


assert_type(add(1.0, 2.0), float)
add("one")  # error


async def tools_stay_functions() -> None:
    assert_type(await fetch("x"), str)
    assert_type(await shout({"text": "x"}), dict[str, Any])


async def before(input: PreToolUseHookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    if input["tool_name"] == "Bash" and context["signal"] is not None and not context["signal"].aborted:
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}
    return {}


def at_end(input: StopHookInput, tool_use_id: str | None, context: HookContext) -> None:
    print(input["stop_hook_active"])


async def any_event(input: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    if input["hook_event_name"] == "PreToolUse":
        print(input["tool_input"])
    return {"continue_": True}


async def misspelled(input: PreToolUseHookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    return {"permisionDecision": "deny"}  # error


async def misplaced(input: PreToolUseHookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    return {"permissionDecision": "deny"}  # error


async def bad_input(input: PreToolUseHookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    print(input["tool"])  # error
    return {}


hooks: Hooks = {"PreToolUse": [HookMatcher(matcher="Bash", hooks=[before, any_event])]}
official: dict[HookEvent, list[HookMatcher]] = {"Stop": [HookMatcher(hooks=[any_event])]}
Options(hooks=hooks)
Options(hooks=official)
Options(hooks={"PreToolUse": [HookMatcher(hooks=[before])], "Stop": [HookMatcher(hooks=[at_end, any_event])]})
Options(hooks={"PreTolUse": [HookMatcher(hooks=[before])]})  # error
Options(hooks={"Stop": [HookMatcher(hooks=[before])]})  # error
Options(modle="sonnet")  # error


async def decide(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
    if context.agent_id is None:
        return PermissionResultAllow(updated_input={**input, "timeout": 5})
    return PermissionResultDeny(message="no")


async def choose(asked: Questions) -> Answers | None:
    return asked.answer({question.text: question.choices[0].label for question in asked.questions})


async def review(plan: Plan) -> PlanDecision:
    return plan.approve(mode="acceptEdits")


async def elicit(request: ElicitationRequest) -> ElicitationResult:
    return {"action": "accept", "content": {"answer": request["message"]}}


def show(progress: RunProgress[City]) -> None:
    print(progress.done, progress.failed, progress.total, progress.latest.prompt)


budget = Budget(usd=5, tokens=1000)
script = Script(
    ["Hello.", ["I will look.", call("Bash", command="ls")], ScriptedTurn(text="Done.", delay_ms=5)], at_end="repeat"
)
untyped = Options(
    model=script, tools=["Read", add, shout, fetch, plain], can_use_tool=decide, on_question=choose, on_plan=review,
    on_elicitation=elicit, budget=budget, mcp_servers={"mine": create_sdk_mcp_server("mine", tools=[add, shout])},
    agents={"a": AgentDefinition(description="d", prompt="p")},
    system_prompt={"type": "preset", "preset": "claude_code"},
)
typed = Options(model="sonnet", output_type=City)
towns = Options(output_type=Town)
lists = Options(output_type=list[City])


def names(options: Options) -> str | None:
    return options.cwd if isinstance(options.cwd, str) else None


async def main() -> None:
    names(typed)
    async with Client(typed) as client:
        turn = await client.ask("Describe Ulm.")
        assert_type(turn, Turn[City])
        assert_type(await turn.output(), City)
        assert_type(await turn.text(check=False), str)
        assert_type(await turn, ResultMessage)
        async for text in (await client.ask("Again.", join=True)).text_stream():
            assert_type(text, str)
        async for message in await client.ask("Again.", priority="later"):
            if isinstance(message, AssistantMessage):
                print(message.text)
        result = await client.run("Describe Ulm.")
        assert_type(result, RunResult[City])
        assert_type(result.output, City)
        print(result.output.size)  # error
        await client.ask("now", priority="urgent")  # error
        await client.interrupt()
    async with Client(towns) as town_client:
        assert_type((await town_client.run("?")).output, Town)
    async with Client(lists) as list_client:
        assert_type((await list_client.run("?")).output, list[City])
    async with ClaudeSDKClient(ClaudeAgentOptions(max_turns=3)) as old:
        await old.query("Hello")
        async for message in old.receive_response():
            assert_type(message, Message)
    async with Client() as bare:
        print((await bare.run("Hello")).text)
    assert_type(await run("Describe Ulm.", typed), RunResult[City])
    outcomes = await run_many(["a", "b"], typed, concurrency=20, on_progress=show)
    assert_type(outcomes, list[RunOutcome[City]])
    for outcome in outcomes:
        if outcome.result is not None:
            print(outcome.result.output.people, outcome.result.cost_usd)
        print(outcome.error, outcome.unwrap().output.name)
    async for message in query(prompt=prompts(), options=untyped):
        print(message)


async def prompts() -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": "Hi"}}


def without_async() -> None:
    with SyncClient(typed) as client:
        assert_type(client.ask("?"), SyncTurn[City])
        assert_type(client.ask("?").output(), City)
        assert_type(client.run("?").output, City)
        for text in client.ask("?").text_stream():
            assert_type(text, str)
    try:
        assert_type(run_sync("?", typed).output, City)
        print(run_sync("Hello").text, run_many_sync(["a"], untyped)[0].index)
    except (ResultError, BudgetExceeded, MessageParseError) as exc:
        print(exc)
    for message in query_sync(prompt="Hello"):
        print(message)


def wrapped(function: FunctionTool[[str], str]) -> str:
    return function("x")


wrapped(tool(plain))
asyncio.run(main())
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


MISTAKES = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# error")}


def check(*command: str, cwd: Path) -> str:
    """Run a type checker outside the project."""
    # Pyright installs a part of itself when it runs for the first time.
    environment = make_install_environment(os.environ)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if not done.stdout:
        pytest.skip(f"{command[0]} cannot be run: {done.stderr[-500:]}")
    return done.stdout


def test_mypy_finds_the_mistakes_and_nothing_else(program: Path) -> None:
    output = check(
        *("mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(paths.MYPY_CACHE)),
        *("--show-error-codes", "--no-error-summary", "--hide-error-context", program.name),
        cwd=program.parent,
    )
    errors = [line for line in output.splitlines() if ": error: " in line]

    assert {int(line.split(":")[1]) for line in errors} == MISTAKES, output


def test_pyright_finds_the_mistakes_and_nothing_else(program: Path) -> None:
    pytest.importorskip("pyright")
    (program.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "include": ["program.py"]}')
    output = check("pyright", "--outputjson", "--pythonpath", sys.executable, cwd=program.parent)
    found = [one for one in json.loads(output)["generalDiagnostics"] if one["severity"] == "error"]

    assert {one["range"]["start"]["line"] + 1 for one in found} == MISTAKES, output
