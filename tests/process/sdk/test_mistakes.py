"""What a program learns from its mistakes: at once, in one sentence, in the words of the SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from parley import (
    Client,
    HookMatcher,
    NotConnected,
    Options,
    OptionsError,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultError,
    RunResult,
    Script,
    SyncClient,
    ToolResultBlock,
    UserMessage,
    query,
    query_sync,
    run_sync,
    tool,
)
from parley.testing import call
from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.sdk import ClientHarness, run

UNPRICED = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"engine": "locl"}, "engine must be 'process', 'local' or the URL of a gateway, not 'locl'"),
        ({"output_type": "City"}, "output_type must be a type, not str"),
        ({"hooks": {"PreToolUs": []}}, "hooks: unknown event 'PreToolUs'; did you mean 'PreToolUse'?"),
        ({"hooks": {"Stop": [HookMatcher(hooks=[3])]}}, "a hook for Stop must be a function, not int"),  # type: ignore[list-item]
        ({"mcp_servers": {"a": {"comand": "x"}}}, "mcp_servers['a'] has no key 'comand'; did you mean 'command'?"),
        ({"sandbox": {"enabld": True}}, "sandbox has no key 'enabld'; did you mean 'enabled'?"),
        ({"system_prompt": {"type": "prest"}}, "unknown system_prompt type 'prest' (choose from preset, custom, file)"),
        ({"skills": ["a b"]}, "invalid skill name 'a b'"),
        ({"extra_args": {"a b": None}}, "extra_args: invalid flag name 'a b'"),
        ({"workers": 2}, "workers needs engine='local', but engine is 'process'"),
        ({"token": "x"}, "token needs the URL of a gateway as engine, but engine is 'process'"),
        ({"tools": [3]}, "tools must be a list of tool names and functions, or a preset, not [int]"),
    ],
)
def test_options_that_cannot_be_right_are_refused_where_they_are_written(given: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError)) as exc:
        Options(**given)
    assert says in str(exc.value)


@pytest.mark.parametrize("engine", ["process", "local"])
def test_a_missing_key_is_one_sentence_without_flags(harness: ClientHarness, engine: str) -> None:
    options = harness.options(engine, env={"ANTHROPIC_API_KEY": ""}, model=None)
    with pytest.raises(ResultError) as exc:
        run_sync("Hello", options)
    text = str(exc.value)
    assert text.startswith("No API key: set ANTHROPIC_API_KEY")
    assert ("api_key" in text, "model='offline'" in text, "--" in text, "\n" in text) == (True, True, False, False)


@pytest.mark.parametrize("engine", ["process", "local"])
def test_options_that_the_engine_refuses_are_an_options_error(harness: ClientHarness, engine: str) -> None:
    options = harness.options(engine, env=UNPRICED, model="openai:own", max_budget_usd=1)
    with pytest.raises(OptionsError) as exc:
        run_sync("Hello", options)
    assert "the model openai:own has no known price" in str(exc.value)
    assert "limit tokens with max_budget_tokens" in str(exc.value)
    assert exc.value.exit_code == 1


def test_an_engine_in_this_process_leaves_the_stderr_of_the_program_alone(harness: ClientHarness) -> None:
    program = """
import parley
options = parley.Options(engine="local", model="openai:own", max_budget_usd=1)
try:
    parley.run_sync("Hello", options)
except parley.OptionsError as exc:
    print(type(exc).__name__)
"""
    environment = {**base_environment(), "HOME": str(harness.folder), **UNPRICED}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.stdout, done.stderr) == ("OptionsError\n", "")


def test_misspelled_names_are_reported_with_the_right_ones(
    harness: ClientHarness, caplog: pytest.LogCaptureFixture
) -> None:
    options = harness.options(
        "local", tools=["Raed"], allowed_tools=["Bsh", "Bash", "mcp__x__y"], settings='{"modle": "x"}'
    )
    run_sync("Hello", replace(options, stderr=None))
    said = [record.getMessage() for record in caplog.records if record.name == "parley.engine"]
    assert any("the allow rule 'Bsh' matches no tool (did you mean Bash?)" in line for line in said)
    assert any("modle (did you mean model?) has no effect" in line for line in said)
    assert "option 'tools': there is no tool 'Raed' (did you mean Read?)" in said
    assert len(said) == 3


def test_a_tool_that_a_model_cannot_understand_is_reported() -> None:
    with pytest.warns(UserWarning, match="the tool lookup has no type hint for 'city'"):

        @tool
        def lookup(city):  # type: ignore[no-untyped-def]
            """Look a city up."""

    with pytest.warns(UserWarning, match="the tool lookup has no docstring"):

        @tool
        def lookup(city: str) -> None:
            pass


def test_a_result_says_what_it_took(harness: ClientHarness) -> None:
    script = Script([call("Bash", command="touch x"), "Done."])
    result: RunResult[Any] = run_sync("Hello", harness.options("local", model=script))
    assert (result.text, result.cost_usd) == ("Done.", 0)
    assert result.model is not None
    assert result.model in (result.message.model_usage or {})
    assert result.usage["output_tokens"] > 0
    assert [denial["tool_name"] for denial in result.denials] == ["Bash"]


def test_a_misspelled_key_of_a_project_is_named_also_without_trust(harness: ClientHarness) -> None:
    options = harness.options("local")
    folder = Path(str(options.cwd), ".claude")
    folder.mkdir()
    (folder / "settings.json").write_text('{"modle": "x"}')
    run_sync("Hello", options)
    [said] = [line for line in harness.warnings if "modle" in line]
    assert "modle (did you mean model?) has no effect: unknown key" in said


@pytest.mark.parametrize("engine", ["process", "local"])
def test_a_home_that_cannot_be_written_says_what_works(harness: ClientHarness, engine: str) -> None:
    (harness.folder / "file").touch()
    options = harness.options(engine, env={"CLAUDE_CONFIG_DIR": str(harness.folder / "file")})
    with pytest.raises(ResultError, match="give persist_session=False to keep nothing"):
        run_sync("Hello", options)
    assert run_sync("Hello", replace(options, persist_session=False)).text == "Hello."


WRITE = Script([call("Write", file_path="note.txt", content="a"), "Done."])


def denial_of(options: Options) -> str:
    """What the model is told about its only call, which is not executed."""
    return next(
        str(block.content)
        for message in query_sync(prompt="Hello", options=options)
        if isinstance(message, UserMessage) and not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock) and block.is_error
    )


@pytest.mark.parametrize(
    "decide",
    [partial(PermissionResultAllow, "deny"), partial(PermissionResultDeny, "Not allowed.")],  # type: ignore[arg-type]
)
def test_a_behavior_of_the_other_class_is_refused_and_denies_the_call(
    harness: ClientHarness, decide: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TypeError, match=r'write PermissionResultDeny\(message="..."\)$'):
        decide()
    options = harness.options("local", model=WRITE, can_use_tool=lambda *asked: decide())
    assert 'write PermissionResultDeny(message="...")' in denial_of(options)
    assert not Path(str(options.cwd), "note.txt").exists()
    assert "Traceback" not in caplog.text


def test_a_behavior_that_is_assigned_later_does_not_run_the_call(harness: ClientHarness) -> None:
    decision = PermissionResultAllow()
    decision.behavior = "deny"  # type: ignore[assignment]  # that is the mistake
    options = harness.options("local", model=WRITE, can_use_tool=lambda *asked: decision)
    assert "the behavior of PermissionResultAllow is always 'allow', not 'deny'" in denial_of(options)
    assert not Path(str(options.cwd), "note.txt").exists()


def test_a_callback_with_too_few_parameters_is_one_sentence(
    harness: ClientHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def may(name: str) -> PermissionResultAllow:
        return PermissionResultAllow()

    options = harness.options("local", model=WRITE, can_use_tool=may)
    assert "may() takes 1 positional argument but 3 were given" in denial_of(options)
    [said] = [record for record in caplog.records if record.name == "parley.sdk"]
    assert "may() takes 1 positional argument but 3 were given" in said.getMessage()
    assert said.exc_info is None


@pytest.mark.parametrize("arguments", [{"count": "x"}, {"count": 1, "sort": True}, {}])
def test_wrong_arguments_of_the_model_name_the_parameter_and_are_no_failure(
    harness: ClientHarness, arguments: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def two(count: int) -> int:
        """Count twice."""
        return 2 * count

    options = harness.options("local", model=Script([call("mcp__tools__two", **arguments), "Done."]), tools=[two])
    told = denial_of(options)
    assert ("sort" if "sort" in arguments else "count") in told
    assert [record for record in caplog.records if record.name == "parley.sdk"] == []


def nameless(*numbers: int) -> int:
    """Add numbers."""
    return sum(numbers)


def named(number: int) -> int:
    """Return a number."""
    return number


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ([named, named], "more than one tool named 'named'"),
        ([nameless], "parameter 'numbers' of nameless cannot be passed by name"),
        ([lambda: 1], "has no name"),
    ],
)
def test_functions_that_cannot_be_tools_are_refused_where_they_are_given(tools: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        Options(tools=tools)


def test_a_warning_about_a_tool_points_at_its_function() -> None:
    with pytest.warns(UserWarning, match="no docstring") as warned:

        @tool
        def lookup(city: str) -> None:
            pass

    [said] = warned
    assert (said.filename, said.lineno) == (__file__, lookup.function.__code__.co_firstlineno)


def test_a_client_names_the_other_class_and_says_why_it_is_not_connected(harness: ClientHarness) -> None:
    wrong: Any = Client
    with pytest.raises(TypeError, match="use `with SyncClient"), wrong():
        pass

    async def enter() -> None:
        wrong: Any = SyncClient
        async with wrong():
            pass

    with pytest.raises(TypeError, match="use `async with Client"):
        asyncio.run(enter())
    ask: Any = query
    with pytest.raises(TypeError, match=r"write query\(prompt=\.\.\., options=\.\.\.\)"):
        ask("Hello", Options())
    client = SyncClient(harness.options("local"))
    with pytest.raises(NotConnected, match="use it in `with SyncClient"):
        client.run("Hello")
    with client:
        pass
    with pytest.raises(NotConnected, match="the client was closed"):
        client.run("Hello")


def test_a_turn_cannot_be_read_twice_without_a_word(harness: ClientHarness) -> None:
    with SyncClient(harness.options("local")) as client:
        turn = client.ask("Hello")
        assert list(turn)
        with pytest.raises(RuntimeError, match="already read"):
            list(turn)
        assert (turn.text(), turn.text()) == ("Hello.", "Hello.")


def test_a_callback_that_waits_for_its_own_client_is_refused(harness: ClientHarness) -> None:
    async def play() -> str:
        async def may(*asked: Any) -> PermissionResultAllow:
            await client.run("May it?")
            return PermissionResultAllow()

        client = Client(harness.options("local", model=WRITE, can_use_tool=may))
        async with client:
            async for message in await client.ask("Hello"):
                if isinstance(message, UserMessage) and not isinstance(message.content, str):
                    return str(message.content)
        return ""

    assert "this would deadlock" in run("asyncio", play)


@pytest.mark.parametrize("engine", ["process", "local"])
def test_an_unknown_session_is_one_sentence_without_the_command_line(harness: ClientHarness, engine: str) -> None:
    with pytest.raises(ResultError) as exc:
        run_sync("Hello", harness.options(engine, resume="unknown"))
    text = str(exc.value)
    assert ("exit code" in text, "parley sessions" in text, "list_sessions()" in text) == (False, False, True)
