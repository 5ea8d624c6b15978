"""The context of the tools: complete when it is made, and forked for subagents. The registry makes a tool once."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from parley.tools.base import (
    AgentCalls,
    AgentState,
    Context,
    SessionServices,
    Tool,
    ToolRegistry,
    Workspace,
    make_context,
)
from parley.tools.work_list import TodoWrite
from parley.workspace.base import Worktree
from tests.helpers.tools import ToolHarness


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return ToolHarness(tmp_path).context


def no_agents() -> AgentCalls:
    raise AssertionError("no tool runs here")


def test_only_the_state_of_a_context_changes(context: Context) -> None:
    context.state.cwd = "/elsewhere"
    context.state.notes["Mine"] = 1
    for part, field in ((context, "files"), (context, "state"), (context, "session"), (context.session, "tasks")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(part, field, None)


def test_a_context_has_everything_of_its_workspace(context: Context) -> None:
    workspace = Workspace(**{name: getattr(context, name) for name in Workspace.__struct_fields__})
    services = SessionServices(must_read_first=lambda: True)
    made = make_context(workspace, "/project", services, hides=lambda path: path == "/project/secret")

    assert all(getattr(made, name) is getattr(workspace, name) for name in Workspace.__struct_fields__)
    assert (made.state, made.session, made.worktree) == (AgentState(cwd="/project"), services, None)
    assert made.hides("/project/secret")
    assert make_context(workspace, "/project").session == SessionServices()


def test_a_subagent_starts_where_its_caller_is_and_keeps_notes_of_its_own(context: Context) -> None:
    context.state.cwd, context.state.notes["Bash"] = "/sub", "/"
    fork = context.fork(no_agents)
    fork.state.cwd, fork.state.notes["Bash"] = "/other", "/sub"

    assert (context.state.cwd, context.state.notes) == ("/sub", {"Bash": "/"})
    assert replace(fork, state=context.state, session=context.session) == context
    assert fork.session == replace(context.session, open_agents=no_agents)


def test_what_is_hidden_in_the_checkout_is_hidden_in_a_worktree(context: Context) -> None:
    hiding = replace(context, hides=lambda path: path in ("/top/secret", "/tree/own"))
    fork = hiding.fork(no_agents, Worktree(path="/tree", cwd="/tree/sub", top="/top", branch="b"))

    assert (fork.state.cwd, fork.worktree and fork.worktree.path) == ("/tree/sub", "/tree")
    assert [path for path in ("/top/secret", "/tree/secret", "/tree/own", "/tree/a") if fork.hides(path)] == [
        "/top/secret",
        "/tree/secret",
        "/tree/own",
    ]
    assert hiding.worktree is None


def test_a_tool_is_made_when_it_is_taken_and_once() -> None:
    made: list[str] = []

    def make(name: str) -> Tool:
        made.append(name)
        return TodoWrite()

    shelf = ToolRegistry(["b", "a"], make)
    assert (list(shelf), len(shelf), "a" in shelf, "c" in shelf, made) == (["b", "a"], 2, True, False, [])
    assert shelf["a"] is shelf["a"]
    assert made == ["a"]
    assert shelf.get("c") is None
    with pytest.raises(KeyError):
        shelf["c"]
    assert len(list(shelf.values())) == 2
    assert made == ["a", "b"]
