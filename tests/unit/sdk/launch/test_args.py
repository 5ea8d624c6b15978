"""How options reach an engine: command line, handshake, environment, and private files."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from parley import AgentDefinition, CLIConnectionError, HookMatcher, Options, create_sdk_mcp_server
from parley.protocol.base import UNSET, to_builtins
from parley.protocol.options import parse
from parley.sdk.hooks import Registry
from parley.sdk.launch.args import LaunchSpec, build_launch


def named(part: dict[str, Any]) -> str:
    return ",".join(part) or "nothing"


SECRET = "a-secret-nobody-should-see"


LIMITS = ("max_budget_usd", "max_budget_seconds", "max_budget_calls", "max_budget_tokens", "max_thinking_tokens")


def spell(options: Options, inherited: dict[str, str] | None = None) -> LaunchSpec:
    return build_launch(options, Registry(options.hooks), inherited or {})


def told(made: LaunchSpec) -> dict[str, Any]:
    """The options that an engine parses from the command line."""
    parsed = parse(made.argv)
    assert parsed.warnings == ()
    given = dict(parsed.options.given)
    for name in ("output_format", "input_format", "verbose"):
        assert given.pop(name)
    return given


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"model": "opus", "fallback_model": "haiku"}, {"model": "opus", "fallback_model": "haiku"}),
        ({"tools": []}, {"tools": ()}),
        ({"tools": ["Read", "Bash"]}, {"tools": ("Read", "Bash")}),
        ({"tools": {"type": "preset", "preset": "claude_code"}}, {"tools": ("default",)}),
        ({"allowed_tools": ["Read", "Bash(git *)"]}, {"allowed_tools": ("Read", "Bash(git *)")}),
        ({"disallowed_tools": ["Bash"]}, {"disallowed_tools": ("Bash",)}),
        ({"max_turns": 3, "max_budget_usd": 0.5}, {"max_turns": 3, "max_budget_usd": 0.5}),
        ({"max_turns": 0}, {}),
        (dict.fromkeys(LIMITS, 0), dict.fromkeys(LIMITS, 0)),
        ({"faults": (), "betas": [], "include_partial_messages": False, "fallback_model": ""}, {}),
        ({"task_budget": {"total": 9}}, {"task_budget": 9}),
        ({"permission_mode": "plan"}, {"permission_mode": "plan"}),
        ({"permission_prompt_tool_name": "mcp__a__b"}, {"permission_prompt_tool": "mcp__a__b"}),
        ({"continue_conversation": True, "fork_session": True}, {"continue_conversation": True, "fork_session": True}),
        ({"resume": "-x", "resume_session_at": "u", "resume_drops_turn": ""},
         {"resume": "-x", "resume_session_at": "u", "resume_drops_turn": ""}),
        ({"setting_sources": []}, {"setting_sources": ()}),
        ({"setting_sources": ["user", "local"]}, {"setting_sources": ("user", "local")}),
        ({"skills": "all"}, {"allowed_tools": ("Skill",), "setting_sources": ("user", "project")}),
        ({"skills": ["a:b"], "setting_sources": ["local"]},
         {"allowed_tools": ("Skill(a:b)",), "setting_sources": ("local",)}),
        ({"add_dirs": ["/a b", Path("/c")]}, {"add_dirs": ("/a b", "/c")}),
        ({"betas": ["x"], "effort": "high"}, {"betas": ("x",), "effort": "high"}),
        ({"thinking": {"type": "adaptive"}}, {"thinking": "adaptive"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9, "display": "omitted"}},
         {"max_thinking_tokens": 9, "thinking_display": "omitted"}),
        ({"thinking": {"type": "disabled"}}, {"thinking": "disabled"}),
        ({"max_thinking_tokens": 7}, {"max_thinking_tokens": 7}),
        ({"plugins": [{"type": "local", "path": "/p"}]}, {"plugin_dirs": ("/p",)}),
        ({"include_partial_messages": True, "include_hook_events": True},
         {"include_partial_messages": True, "include_hook_events": True}),
        ({"strict_mcp_config": True}, {"strict_mcp_config": True}),
        ({"system_prompt": {"type": "file", "path": "/p.md"}}, {"system_prompt_file": "/p.md"}),
        ({"settings": "/s.json"}, {"settings": "/s.json"}),
        ({"extra_args": {"debug-file": "/d", "bare": None}}, {"debug_file": "/d", "bare": True}),
        ({"persist_session": False, "allow_dangerously_skip_permissions": True},
         {"no_session_persistence": True, "allow_skip_permissions": True}),
        ({"store": "folder:/x", "fail_on_denial": True, "faults": ["stall"]},
         {"store": "folder:/x", "fail_on_denial": True, "faults": ("stall",)}),
        ({"agent": "reviewer", "steal": True, "offline": True}, {"agent": "reviewer", "steal": True, "offline": True}),
    ],
    ids=named,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:max_turns=0")
def test_options_are_flags(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert told(spell(Options(**given))) == expected


async def callback(*given: Any) -> Any:
    return None


@pytest.mark.parametrize("name", ["can_use_tool", "on_question", "on_plan"])
def test_everyone_who_can_be_asked_is_asked(name: str) -> None:
    given: dict[str, Any] = {name: callback}

    assert told(spell(Options(**given)))["permission_prompt_tool"] == "stdio"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"systemPrompt": [""]}),
        ({"system_prompt": "Be brief."}, {"systemPrompt": "Be brief."}),
        ({"system_prompt": {"type": "custom", "prompt": "p", "snapshot": True}},
         {"systemPrompt": "p", "systemPromptSnapshot": True}),
        ({"system_prompt": {"type": "preset", "preset": "claude_code", "append": "a",
                            "exclude_dynamic_sections": True}},
         {"appendSystemPrompt": "a", "excludeDynamicSections": True}),
        ({"system_prompt": {"type": "preset", "preset": "claude_code"}}, {}),
        ({"agents": {"a": AgentDefinition("d", "p", tools=["Read"])}},
         {"systemPrompt": [""], "agents": {"a": {"description": "d", "prompt": "p", "tools": ["Read"]}}}),
        ({"skills": ["s"]}, {"systemPrompt": [""], "skills": ["s"]}),
        ({"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
         {"systemPrompt": [""], "jsonSchema": {"type": "object"}}),
        ({"forward_subagent_text": True, "title": "t", "guard": True},
         {"systemPrompt": [""], "forwardSubagentText": True, "title": "t", "guard": True}),
        ({"mcp_servers": {"calc": create_sdk_mcp_server("calc")}}, {"systemPrompt": [""], "sdkMcpServers": ["calc"]}),
        ({"hooks": {"Stop": [HookMatcher(hooks=[callback], timeout=5, on_failure="block")]}},
         {"systemPrompt": [""],
          "hooks": {"Stop": [{"matcher": None, "hookCallbackIds": ["hook_0"], "timeout": 5, "onFailure": "block"}]}}),
    ],
    ids=named,
)  # fmt: skip
def test_what_may_be_long_is_in_the_handshake(given: dict[str, Any], expected: dict[str, Any]) -> None:
    made = to_builtins(spell(Options(**given)).initialize)

    assert {name: value for name, value in made.items() if name != "subtype" and value is not None} == expected


def test_nothing_long_or_secret_is_on_the_command_line() -> None:
    options = Options(
        system_prompt="x" * 100_000,
        agents={f"a{n}": AgentDefinition("d", "x" * 10_000) for n in range(20)},
        output_format={"type": "json_schema", "schema": {"description": "x" * 50_000}},
        mcp_servers={"git": {"command": "git-mcp", "env": {"TOKEN": SECRET}}},
        settings=json.dumps({"env": {"KEY": SECRET}}),
        sandbox={"enabled": True},
        api_key=SECRET,
    )
    made = spell(options)

    assert len("\0".join(made.argv)) < 4096
    assert SECRET not in str(made.argv)
    assert made.environment["ANTHROPIC_API_KEY"] == SECRET
    config, settings = (json.loads(Path(path).read_text()) for path in made.files)
    assert config == {"mcpServers": {"git": {"command": "git-mcp", "env": {"TOKEN": SECRET}}}}
    assert settings == {"env": {"KEY": SECRET}, "sandbox": {"enabled": True}}
    files = list(made.files)
    assert [os.stat(path).st_mode & 0o777 for path in files] == [0o600, 0o600]
    made.remove_files()
    assert not any(os.path.exists(path) for path in files)


def test_the_environment_is_the_programs_with_what_was_given() -> None:
    options = Options(env={"A": "2"}, cwd="/srv", client_app="app/1", enable_file_checkpointing=True)
    made = spell(options, {"A": "1", "B": "1", "CLAUDECODE": "1"}).environment

    assert (made["A"], made["B"], made["PWD"], "CLAUDECODE" in made) == ("2", "1", "/srv", False)
    assert made["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] == "true"
    assert made["CLAUDE_AGENT_SDK_CLIENT_APP"] == "app/1"


@pytest.mark.parametrize(
    ("given", "problem", "words"),
    [
        ({"can_use_tool": callback, "permission_prompt_tool_name": "x"}, ValueError, "cannot be used together"),
        ({"skills": ["../x"]}, ValueError, "invalid skill name"),
        ({"engine": "remote"}, ValueError, "engine"),
        ({"plugins": [{"type": "npm", "path": "p"}]}, ValueError, "local"),
        ({"extra_args": {"a b": None}}, ValueError, "flag"),
        ({"session_store": object(), "enable_file_checkpointing": True}, ValueError, "session_store"),
        ({"hooks": {"Stop": [HookMatcher(hooks=["no function"])]}}, TypeError, "function"),  # type: ignore[list-item]
        ({"mcp_servers": "/no/such/file"}, CLIConnectionError, "cannot read"),
        ({"settings": "{]"}, CLIConnectionError, "must be a JSON object"),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)
def test_an_impossible_value_is_reported_before_anything_starts(
    given: dict[str, Any], problem: type[Exception], words: str
) -> None:
    with pytest.raises(problem, match=words):
        spell(Options(**given))


def test_every_option_has_a_default_and_a_place() -> None:
    made = Options()

    assert {each.name for each in fields(made)} >= {"tools", "model", "hooks", "session_store", "client_app"}
    assert spell(made).initialize.hooks in (None, UNSET)
