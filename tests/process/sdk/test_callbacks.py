"""Callbacks of a program, with both kinds of engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from parley import (
    Answers,
    CanUseToolShadowedWarning,
    Client,
    HookJSONOutput,
    HookMatcher,
    Options,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    Plan,
    PlanDecision,
    Questions,
    ResultMessage,
    SdkMcpTool,
    ToolPermissionContext,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
from tests.helpers.sdk import LOOPS, ClientHarness, run


def calls(name: str, input: str, then: str = "Done.") -> str:
    return f'at_end = "repeat"\n[[turn]]\ntools = [{{ name = "{name}", input = {input} }}]\n[[turn]]\ntext = "{then}"\n'


WRITE = calls("Write", '{ file_path = "note.txt", content = "a" }')


async def results(options: Options, prompt: str = "go") -> list[ToolResultBlock]:
    """The outcomes of the calls of a run."""
    return [
        block
        async for message in query(prompt=prompt, options=options)
        if isinstance(message, UserMessage) and not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


@pytest.mark.parametrize("loop", LOOPS)
def test_permission_is_requested_and_the_answer_takes_effect(harness: ClientHarness, engine: str, loop: str) -> None:
    asked: list[tuple[str, dict[str, Any], ToolPermissionContext]] = []

    async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
        asked.append((name, input, context))
        return PermissionResultAllow(updated_input={**input, "content": "b"})

    [block] = run(loop, results, harness.options(engine, WRITE, can_use_tool=may))

    [(name, _, context)] = asked
    assert (name, context.tool_use_id, block.is_error) == ("Write", block.tool_use_id, None)
    assert context.suggestions
    assert isinstance(context.suggestions[0], PermissionUpdate)
    assert (harness.folder / "work" / "note.txt").read_text() == "b"


def test_a_denial_is_reported_to_the_model_in_its_own_words(harness: ClientHarness, engine: str) -> None:
    async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResultDeny:
        return PermissionResultDeny(message="not in this house")

    [block] = run("asyncio", results, harness.options(engine, WRITE, can_use_tool=may))

    assert (block.content, block.is_error) == ("not in this house", True)
    assert not (harness.folder / "work" / "note.txt").exists()


@pytest.mark.parametrize(
    ("answer", "words"),
    [(True, "must return PermissionResultAllow"), (None, "must return"), (KeyError("lost"), "lost")],
)
def test_a_callback_that_raises_denies_the_call_with_the_reason(
    harness: ClientHarness, engine: str, answer: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    [block] = run("asyncio", results, harness.options(engine, WRITE, can_use_tool=may))

    assert block.is_error
    assert words in str(block.content)
    [said] = [record for record in caplog.records if record.name == "parley.sdk"]
    # The program's own exception has a traceback; an answer that is none is one sentence.
    assert ("can_use_tool" in said.getMessage(), bool(said.exc_info)) == (True, isinstance(answer, Exception))


def test_an_interrupt_cancels_the_question_and_its_callback(harness: ClientHarness, engine: str) -> None:
    signals: list[Any] = []

    async def play(options: Options) -> ResultMessage | None:
        started = anyio.Event()

        async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> Any:
            signals.append(context.signal)
            started.set()
            await anyio.sleep_forever()

        options.can_use_tool = may
        async with Client(options) as client:
            turn = await client.ask("go")
            await started.wait()
            await client.interrupt()
            return await turn.wait(check=False)

    result = run("asyncio", play, harness.options(engine, WRITE))

    assert result is not None
    assert result.is_error
    assert [signal.aborted for signal in signals] == [True]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_hooks_receive_the_input_from_the_engine_and_their_answers_take_effect(
    harness: ClientHarness, engine: str, loop: str
) -> None:
    heard: list[tuple[str, str | None]] = []

    async def check(input: Any, tool_use_id: str | None, context: Any) -> HookJSONOutput:
        heard.append((input["hook_event_name"], tool_use_id))
        if input["hook_event_name"] != "PreToolUse":
            return {}
        return {
            "continue_": True,
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "hooks say no",
            },
        }

    hooks = {event: [HookMatcher(hooks=[check])] for event in ("PreToolUse", "UserPromptSubmit", "Stop")}
    [block] = run(loop, results, harness.options(engine, WRITE, hooks=hooks))

    assert [event for event, _ in heard] == ["UserPromptSubmit", "PreToolUse", "Stop"]
    assert heard[1][1] == block.tool_use_id
    assert "hooks say no" in str(block.content)


@pytest.mark.parametrize(
    "wrong",
    [
        {"permisionDecision": "deny"},
        {"permissionDecision": "deny"},
        {"hookSpecificOutput": {"decision": "deny"}},
        ["no"],
    ],
)
def test_a_hook_whose_answer_cannot_be_read_denies_the_call_and_the_program_is_informed(
    harness: ClientHarness, engine: str, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = {"PreToolUse": [HookMatcher(hooks=[lambda *told: wrong])]}
    [block] = run("asyncio", results, harness.options(engine, WRITE, hooks=hooks, permission_mode="acceptEdits"))

    assert (block.is_error, "the hook (callback hook_0) failed" in str(block.content)) == (True, True)
    assert ("Traceback" in caplog.text, "InvalidReturn" in str(block.content)) == (False, False)
    assert any("failed: the client answered with an error" in line for line in harness.warnings)
    assert any(words in str(block.content) for words in ("did you mean permissionDecision?", "it belongs in", "a dict"))


def no(input: Any, tool_use_id: str | None, context: Any) -> HookJSONOutput:
    return {"decision": "block", "reason": "a plain no"}


PICK = calls(
    "AskUserQuestion",
    '{ questions = [{ question = "Which?", header = "Pick", multiSelect = false, options = ['
    '{ label = "A", description = "first" }, { label = "B", description = "second" }] }] }',
)
PLAN = calls("ExitPlanMode", '{ plan = "1. do it" }')


@pytest.mark.parametrize(
    ("script", "given", "words"),
    [
        (WRITE, {"can_use_tool": lambda *asked: PermissionResultAllow()}, "note.txt"),
        (WRITE, {"hooks": {"PreToolUse": [HookMatcher(hooks=[no])]}}, "a plain no"),
        (PICK, {"on_question": lambda asked: asked.answer({"Which?": "Neither"})}, "Neither"),
        (PLAN, {"on_plan": lambda plan: plan.reject("too short"), "permission_mode": "plan"}, "too short"),
    ],
    ids=["can_use_tool", "hooks", "on_question", "on_plan"],
)
def test_plain_functions_answer_as_well(
    harness: ClientHarness, engine: str, script: str, given: dict[str, Any], words: str
) -> None:
    [block] = run("asyncio", results, harness.options(engine, script, **given))

    assert words in str(block.content)
    assert "await" not in str(block.content)


def test_the_log_names_the_callback_that_failed(harness: ClientHarness, caplog: pytest.LogCaptureFixture) -> None:
    run("asyncio", results, harness.options("local", PICK, on_question=lambda asked: asked.answer({"What?": "A"})))

    assert "the callback for the request on_question failed" in caplog.text


@tool
def add(a: float, b: Annotated[float, "the other one"]) -> float:
    """Add two numbers."""
    return a + b


@tool("shout", "Say it loud.", {"text": str})
async def shout(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": args["text"].upper()}]}


@tool
async def fail() -> None:
    raise RuntimeError("it cannot be done")


@pytest.mark.parametrize(
    ("name", "input", "text", "loop"),
    [
        *(("add", "{ a = 1.5, b = 2 }", "3.5", loop) for loop in LOOPS),
        ("shout", '{ text = "hi" }', "HI", "asyncio"),
        ("fail", "{}", "it cannot be done", "asyncio"),
    ],
)
def test_functions_of_the_program_become_tools(
    harness: ClientHarness, engine: str, name: str, input: str, text: str, loop: str
) -> None:
    server = create_sdk_mcp_server("mine", tools=[add, shout, fail])
    options = harness.options(
        engine, calls(f"mcp__mine__{name}", input), mcp_servers={"mine": server}, allowed_tools=["mcp__mine"]
    )

    [block] = run(loop, results, options)

    assert text in str(block.content)


def test_a_plain_function_has_the_schema_of_its_hints() -> None:
    assert isinstance(add, SdkMcpTool)
    assert add.listed() == {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number", "description": "the other one"}},
            "required": ["a", "b"],
        },
    }


def test_a_question_is_answered_with_a_typed_answer(harness: ClientHarness, engine: str) -> None:
    async def choose(asked: Questions) -> Answers | None:
        [question] = asked.questions
        return asked.answer({question.text: question.choices[1].label})

    question = (
        '{ questions = [{ question = "Which one?", header = "Pick", multiSelect = false, options = ['
        '{ label = "A", description = "first" }, { label = "B", description = "second" }] }] }'
    )
    [block] = run("asyncio", results, harness.options(engine, calls("AskUserQuestion", question), on_question=choose))

    assert "Which one?" in str(block.content)
    assert "B" in str(block.content)


def test_a_plan_is_approved_with_the_mode_to_continue_in(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            await (await client.ask("plan it"))
            return [one.data.get("permissionMode") async for one in modes(client)]

    async def modes(client: Client) -> Any:
        turn = await client.ask("and now")
        async for one in turn:
            if getattr(one, "subtype", None) == "init":
                yield one

    async def review(plan: Plan) -> PlanDecision:
        return plan.approve(mode="acceptEdits")

    script = calls("ExitPlanMode", '{ plan = "1. do it" }')
    options = harness.options(engine, script, on_plan=review, permission_mode="plan")

    assert run("asyncio", play, options) == ["acceptEdits"]


def test_a_callback_that_is_never_called_gives_a_warning(harness: ClientHarness) -> None:
    async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
        return PermissionResultAllow()

    with pytest.warns(CanUseToolShadowedWarning, match="Bash"):
        run("asyncio", results, harness.options("local", can_use_tool=may, allowed_tools=["Bash", "Edit(src/**)"]))


def test_callbacks_run_concurrently(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> None:
        seen: list[str] = []
        together = anyio.Event()

        async def wait(input: Any, tool_use_id: str | None, context: Any) -> HookJSONOutput:
            seen.append(str(tool_use_id))
            if len(seen) == 2:
                together.set()
            await together.wait()
            return {}

        options.hooks = {"PreToolUse": [HookMatcher(hooks=[wait]), HookMatcher(hooks=[wait])]}
        assert await results(options)

    run("asyncio", play, harness.options(engine, calls("Read", '{ file_path = "none" }')))


BACKGROUND = """
at_end = "repeat"
[[turn]]
when = "begin"
tools = [{ name = "Agent", input = { description = "d", prompt = "WORK", run_in_background = true } }]
[[turn]]
when = "WORK"
delay_ms = 1000
tools = [{ name = "Write", input = { file_path = "note.txt", content = "a" } },
         { name = "mcp__mine__add", input = { a = 1, b = 2 } }]
[[turn]]
text = "Noted."
"""


async def one(text: str) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": text}}


@pytest.mark.parametrize("as_generator", [False, True])
def test_callbacks_are_answered_for_agents_that_outlive_the_turn(
    harness: ClientHarness, engine: str, as_generator: bool
) -> None:
    heard: list[str] = []

    async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
        heard.append(name)
        return PermissionResultAllow()

    async def hook(input: Any, tool_use_id: str | None, context: Any) -> HookJSONOutput:
        heard.append(f"hook {input['tool_name']}")
        return {}

    async def play(options: Options) -> list[Any]:
        prompt = one("begin") if as_generator else "begin"
        return [message async for message in query(prompt=prompt, options=options)]

    options = harness.options(
        engine,
        BACKGROUND,
        can_use_tool=may,
        hooks={"PostToolUse": [HookMatcher(hooks=[hook])]},
        mcp_servers={"mine": create_sdk_mcp_server("mine", tools=[add])},
    )
    messages = run("asyncio", play, options)

    assert sorted(heard) == sorted(["Write", "mcp__mine__add", "hook Agent", "hook Write", "hook mcp__mine__add"])
    assert (harness.folder / "work" / "note.txt").exists()
    assert len([one for one in messages if isinstance(one, ResultMessage)]) == 2


async def cancelled_by_another(*_: Any) -> Any:
    """Waits for something that another task cancels."""
    waited_for = asyncio.ensure_future(asyncio.sleep(60))
    waited_for.cancel()
    await waited_for


async def cancels_itself(*_: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


@pytest.mark.parametrize("callback", [cancelled_by_another, cancels_itself])
def test_a_callback_that_is_cancelled_is_answered(harness: ClientHarness, engine: str, callback: Any) -> None:
    hooks = {"PreToolUse": [HookMatcher(hooks=[callback], on_failure="block")]}
    tools = create_sdk_mcp_server("house", tools=[SdkMcpTool("ring", "Ring.", {}, callback)])
    asked: list[tuple[str, dict[str, Any]]] = [
        (WRITE, {"can_use_tool": callback}),
        (WRITE, {"hooks": hooks, "permission_mode": "bypassPermissions"}),
        (calls("mcp__house__ring", "{}"), {"mcp_servers": {"house": tools}, "allowed_tools": ["mcp__house"]}),
    ]

    for script, given in asked:
        [block] = run("asyncio", results, harness.options(engine, script, **given))
        assert block.is_error
        assert "CancelledError" in str(block.content)
    assert not (harness.folder / "work" / "note.txt").exists()


def test_a_foreign_cancellation_is_answered_on_trio(harness: ClientHarness, engine: str) -> None:
    async def may(*_: Any) -> Any:
        raise asyncio.CancelledError

    [block] = run("trio", results, harness.options(engine, WRITE, can_use_tool=may))

    assert block.is_error
    assert "CancelledError" in str(block.content)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_callback_may_close_its_own_client(harness: ClientHarness, engine: str, loop: str) -> None:
    async def play() -> list[str]:
        told: list[str] = []
        closed = anyio.Event()

        async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
            await client.close()
            await anyio.lowlevel.checkpoint()  # a cancellation would be raised here
            told.append("closed")
            closed.set()
            return PermissionResultAllow()

        client = Client(harness.options(engine, WRITE, can_use_tool=may))
        await client.connect()
        await client.ask("go")
        await closed.wait()
        return told

    assert run(loop, play) == ["closed"]
    assert not (harness.folder / "work" / "note.txt").exists()
