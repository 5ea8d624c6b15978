"""What callbacks and commands of a session get from the program, and what they do not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

from parley import (
    Client,
    HookContext,
    HookMatcher,
    Options,
    PermissionResultAllow,
    RunContext,
    Script,
    ToolPermissionContext,
    run_sync,
    tool,
)
from parley.testing import call
from tests.helpers.sdk import LOOPS, ClientHarness, run


@dataclass
class Request:
    user: str


@pytest.mark.parametrize("loop", LOOPS)
def test_every_callback_knows_whose_run_it_is(harness: ClientHarness, engine: str, loop: str) -> None:
    seen: list[tuple[str, str]] = []

    def note(where: str, context: RunContext[Request]) -> None:
        assert RunContext.current() == context
        assert (context.session_id, context.prompt_uuid) != (None, None)
        seen.append((where, context.deps.user))

    @tool
    async def greet(context: RunContext[Request], word: str) -> str:
        """Greet the user."""
        note("tool", context)
        return f"{word}, {context.deps.user}"

    @tool
    def leave(context: RunContext[Request]) -> None:
        """Leave, in a thread."""
        note("thread", context)

    def hook(input: Any, tool_use_id: str | None, context: HookContext) -> None:
        note("hook", context["run"])

    def may(name: str, input: Any, context: ToolPermissionContext) -> PermissionResultAllow:
        note("permission", context.run)
        return PermissionResultAllow()

    calls = [call("mcp__tools__greet", word="Hello"), call("mcp__tools__leave"), call("Bash", command="touch x")]
    script = Script([*calls, "Done.", *calls[:1], "Done."])
    options = harness.options(
        engine,
        model=script,
        tools=["default", greet, leave],
        can_use_tool=may,
        hooks={"Stop": [HookMatcher(hooks=[hook])]},
        deps=Request("nobody"),
    )

    async def play() -> None:
        async with Client(options) as client:
            await client.run("Begin.", deps=Request("Ada"))
            await client.run("Again.")

    run(loop, play)
    ada = [(where, "Ada") for where in ("tool", "thread", "permission", "hook")]
    assert seen == [*ada, ("tool", "nobody"), ("hook", "nobody")]
    assert greet.input_schema["required"] == list(greet.input_schema["properties"]) == ["word"]


def test_there_is_no_context_outside_of_a_callback() -> None:
    with pytest.raises(LookupError):
        RunContext.current()


@pytest.mark.parametrize(
    ("kind", "given", "sees"),
    [
        ("local", {}, "- - named"),
        ("local", {"command_env": {"GIVEN": "given"}}, "- given named"),
        ("local", {"command_env": "all"}, "inherited - named"),
        ("process", {}, "inherited - named"),
        ("process", {"command_env": {}}, "- - named"),
    ],
)
def test_commands_see_the_variables_that_were_named(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch, kind: str, given: Any, sees: str
) -> None:
    monkeypatch.setenv("INHERITED", "inherited")
    line = "test -n $HOME && test -n $PATH && echo ${INHERITED:--} ${GIVEN:--} ${NAMED:--} > seen"
    options: Options[Any] = harness.options(
        kind,
        model=Script([call("Bash", command=line), "Done."]),
        permission_mode="bypassPermissions",
        env={"NAMED": "named"},
        **given,
    )
    run_sync("Begin.", options)
    with open(os.path.join(str(options.cwd), "seen")) as file:
        assert file.read().strip() == sees
