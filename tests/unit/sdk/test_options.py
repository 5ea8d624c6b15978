"""Every option arrives where it is used: on the command line, in `initialize`, in the environment, or in the client."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley import (
    AgentDefinition,
    Client,
    HookJSONOutput,
    HookMatcher,
    Options,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ResultError,
    Script,
    tool,
)
from parley.models.script import read_script
from parley.protocol.options import FIELDS
from parley.sdk.errors import CLIConnectionError
from parley.sdk.hooks import Registry
from parley.sdk.launch.args import LaunchSpec, build_launch
from parley.sdk.launch.validation import RULES


async def may(*asked: Any) -> PermissionResultAllow:
    return PermissionResultAllow()


async def hook(*told: Any) -> HookJSONOutput:
    return {}


def spell(**given: Any) -> LaunchSpec:
    options = Options(**{"engine": "local", **given})  # then no temporary files are written
    return build_launch(options, Registry(options.hooks), {"PATH": "/bin", "CLAUDECODE": "1"})


def told(made: LaunchSpec) -> Any:
    """The `initialize` request as it goes out."""
    return json.loads(msgspec.json.encode(made.initialize))


AGENT = AgentDefinition(description="d", prompt="p")
WRONG: dict[str, Any] = {
    **dict.fromkeys(("allowed_tools", "disallowed_tools", "betas", "setting_sources", "tools", "add_dirs"), "Bash"),
    **dict.fromkeys(("faults", "supported_dialog_kinds", "plugins", "skills"), "Bash"),
    **dict.fromkeys(("can_use_tool", "on_question", "on_plan", "on_elicitation", "on_user_dialog", "stderr"), "yes"),
    "env": {"X": 1},
    "extra_args": ["--debug"],
    "hooks": {"PreToolUse": [may]},
    "agents": {"a": {"prompt": "a secret"}},
    "mcp_servers": [{"command": "a secret"}],
}


@pytest.mark.parametrize("name", WRONG)
def test_an_option_of_the_wrong_kind_is_reported_by_its_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a ") as raised:
        Client(Options(**{name: WRONG[name]}))

    assert "secret" not in str(raised.value)


SCALARS: dict[str, Any] = {
    **dict.fromkeys(("model", "resume", "session_id", "user", "title", "agent", "api_key"), 5),
    **dict.fromkeys(("cwd", "cli_path", "settings", "debug_file", "store"), 5),
    **dict.fromkeys(("max_turns", "max_thinking_tokens", "max_budget_tokens"), "many"),
    **dict.fromkeys(("max_budget_usd", "max_budget_seconds", "control_timeout_seconds"), "much"),
    **dict.fromkeys(("thinking", "sandbox", "output_format", "task_budget"), "yes"),
    "system_prompt": 5,
    "max_buffer_size": "5",
}


@pytest.mark.parametrize("name", SCALARS)
def test_an_option_that_is_not_a_list_is_reported_by_its_name_as_well(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a .*, not (int|str)$"):
        Client(Options(**{name: SCALARS[name]}))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("permission_mode", "yolo", "one of 'default', 'acceptEdits', .*, not 'yolo'"),
        ("effort", "wild", "one of 'low', 'medium', 'high', 'xhigh', 'max', not 'wild'"),
        ("session_store_flush", "never", "one of 'batched', 'eager', not 'never'"),
        ("max_turns", -1, "a whole number, 0 or more, not -1"),
        ("max_turns", "-1", "a whole number, 0 or more, not '-1'"),
        ("max_budget_usd", -0.5, "a number, 0 or more, not -0.5"),
    ],
)
def test_an_invalid_value_is_reported_with_the_valid_ones(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be {words}$"):
        Client(Options(**{name: value}))


@pytest.mark.filterwarnings("ignore:max_turns=0")
@pytest.mark.parametrize(
    ("given", "argv"),
    [
        ({"max_turns": "3"}, ["--max-turns=3"]),
        ({"max_turns": 3.0}, ["--max-turns=3"]),
        ({"max_turns": "0"}, []),
        ({"max_budget_usd": "0.5"}, ["--max-budget-usd=0.5"]),
        ({"max_budget_usd": Decimal("0.5")}, ["--max-budget-usd=0.5"]),
        ({"model": "", "permission_mode": "", "resume": "", "effort": ""}, []),
        ({"settings": Path("/s.json")}, ["--settings=/s.json"]),
        ({"include_partial_messages": 1}, ["--include-partial-messages"]),
        ({"include_partial_messages": 0, "fork_session": None}, []),
    ],
)
def test_what_works_with_the_official_sdk_works_here(given: Any, argv: list[str]) -> None:
    Client(Options(**given))
    assert [word for word in spell(**given).argv if word not in spell().argv] == argv


@pytest.mark.parametrize(
    ("name", "value"),
    [("include_partial_messages", "no"), ("persist_session", [1]), ("continue_conversation", 2)],
)
def test_a_switch_must_be_a_bool(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be a bool, not (str|\[int\]|int)$"):
        Options(**{name: value})


def test_no_limit_of_turns_is_warned_of_once_where_it_is_written() -> None:
    with pytest.warns(UserWarning, match=r"^max_turns=0 sets no limit") as warned:
        Client(replace(Options(max_turns=0), model="sonnet"))
    assert [each.filename for each in warned] == [__file__]


def test_an_event_of_hooks_that_no_one_knows_is_warned_of_and_registered() -> None:
    hooks: Any = {"Eclipse": [HookMatcher(hooks=[hook])], "WorktreeCreate": [HookMatcher(hooks=[hook])]}
    with pytest.warns(UserWarning, match="unknown event 'Eclipse'.*PreToolUse") as warned:
        Client(Options(hooks=hooks))

    assert len(warned) == 1
    assert list(told(spell(hooks=hooks))["hooks"]) == ["Eclipse", "WorktreeCreate"]


@pytest.mark.parametrize("event", ["PreTool", "PreTooluse", "pre_tool_use"])
def test_a_misspelled_event_of_hooks_is_refused(event: str) -> None:
    hooks: Any = {event: [HookMatcher(hooks=[hook])]}
    with pytest.raises(TypeError, match=f"unknown event '{event}'; did you mean 'PreToolUse'"):
        Client(Options(hooks=hooks))


@pytest.mark.parametrize(
    ("make", "given", "meant"),
    [
        (Options, "modle", "model"),
        (Options, "allowedTools", "allowed_tools"),
        (AgentDefinition, "max_turns", "maxTurns"),
        (HookMatcher, "match", "matcher"),
        (PermissionResultAllow, "updatedInput", "updated_input"),
        (PermissionResultDeny, "mesage", "message"),
        (PermissionUpdate, "behaviour", "behavior"),
    ],
)
def test_a_misspelled_argument_names_the_one_that_was_meant(make: Any, given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"has no argument '{given}'; did you mean '{meant}'"):
        make(**{given: "x"})


def test_a_misspelled_attribute_is_refused_and_one_of_a_subclass_is_not() -> None:
    @dataclass
    class Mine(Options[Any]):
        extra: int = 0

    mine = Mine(model="offline")
    mine.extra = 3
    assert (mine.model, mine.extra) == ("offline", 3)
    with pytest.raises(AttributeError, match="'max_turn'; did you mean 'max_turns'"):
        mine.max_turn = 3  # type: ignore[attr-defined]  # that is the case


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("sandbox", {"enbled": True}, "sandbox has no key 'enbled'; did you mean 'enabled'"),
        ("sandbox", {"network": {"allowedDomain": []}}, "did you mean 'allowedDomains'"),
        ("thinking", {"type": "enabled", "budgetTokens": 5}, "did you mean 'budget_tokens'"),
        ("system_prompt", {"type": "preset", "presett": "claude_code"}, "did you mean 'preset'"),
        ("mcp_servers", {"a": {"comand": "x"}}, r"mcp_servers\['a'\] has no key 'comand'; did you mean 'command'"),
        ("plugins", [{"type": "local", "paths": "/p"}], "did you mean 'path'"),
    ],
)
def test_a_misspelled_key_in_an_option_is_refused(option: str, value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Client(Options(**{option: value}))


def test_a_key_that_a_newer_engine_may_know_is_passed_on() -> None:
    made = spell(sandbox={"enabled": True, "gravity": 1})

    assert '--settings={"sandbox":{"enabled":true,"gravity":1}}' in made.argv


async def shout(args: dict[str, str]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": args["text"].upper()}]}


def double(number: int) -> int:
    """Double it."""
    return 2 * number


def test_functions_among_the_tools_are_a_server_with_rules() -> None:
    made = spell(tools=["Read", double, tool("shout", "Shout.", {"text": str})(shout)], allowed_tools=["Read"])

    assert "--tools=Read" in made.argv
    assert "--allowedTools=Read,mcp__tools__double,mcp__tools__shout" in made.argv
    assert told(made)["sdkMcpServers"] == ["tools"]
    assert list(made.servers["tools"].tools) == ["double", "shout"]


def test_functions_alone_leave_no_built_in_tool() -> None:
    assert "--tools=" in spell(tools=[double]).argv
    assert "--tools=default" in spell(tools=["default", double]).argv


def test_the_name_of_the_server_of_functions_is_taken() -> None:
    with pytest.raises(ValueError, match="'tools' is reserved"):
        spell(tools=[double], mcp_servers={"tools": {"command": "x"}})


def test_a_script_as_the_model_is_a_file_that_is_removed() -> None:
    made = spell(model=Script(["Hello."]))
    [path] = made.files
    assert f"--model=scripted:{path}" in made.argv
    assert read_script(Path(path).read_text(), "it") == Script(["Hello."])

    made.remove_files()
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("matcher", "kind", "words"),
    [
        ({"matcher": 5}, TypeError, "matcher of hooks['Stop'] must be a string, not int"),
        ({"timeout": "long"}, TypeError, "timeout of hooks['Stop'] must be a number, 0 or more, not str"),
        ({"on_failure": "stop"}, ValueError, "on_failure of hooks['Stop'] must be 'continue' or 'block', not 'stop'"),
    ],
)
def test_an_invalid_hook_matcher_is_reported_with_its_position(matcher: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        Client(Options(hooks={"Stop": [HookMatcher(hooks=[hook], **matcher)]}))


def test_every_option_is_checked_but_those_that_may_be_anything() -> None:
    anything = {"debug_stderr", "session_store", "deps"}
    assert {one.name for one in fields(Options)} - set(RULES) == anything


def test_fields_and_rows_agree() -> None:
    """A field is the typed view of its row: it has the type and the default of the row."""
    rows = {row.sdk_name: row for row in FIELDS.values()}
    own = {
        "system_prompt",
        "permission_prompt_tool_name",
        "thinking",
        "task_budget",
        "agents",
        "output_format",
        "debug",
    }
    made = Options[Any]()
    found = {
        each.name: (str(each.type).removesuffix(" | None"), getattr(made, each.name))
        for each in fields(Options)
        if each.name in rows and each.name not in own
    }
    words: dict[Any, set[str]] = {
        str: {"str", "str | Path", "str | Script", "PermissionMode", "EffortLevel"},
        list[str]: {"list[str]", "Sequence[str]", "list[str | Path]", "list[SettingSource]",
                    "Sequence[str | Callable[..., Any]] | ToolsPreset"},
        bool: {"bool"}, int: {"int"}, float: {"float"},
    }  # fmt: skip

    assert len(found) > 40
    assert {name: kind for name, (kind, _) in found.items() if kind not in words[rows[name].kind.json_type]} == {}
    assert {name: default for name, (_, default) in found.items() if default not in (None, False, [])} == {}


def test_wrong_types_fail_in_the_constructor() -> None:
    with pytest.raises(TypeError, match=r"^allowed_tools must be a list of strings, not str$"):
        Options(allowed_tools="Bash")  # type: ignore[arg-type]  # that is the case
    with pytest.raises(ValueError, match=r"^max_turns must be a whole number, 0 or more, not -1$"):
        Options(max_turns=-1)


def test_options_must_be_options() -> None:
    given: Any = {"model": "sonnet"}
    with pytest.raises(TypeError, match="must be an Options, not dict"):
        Client(given)


SCHEMA = {"type": "object", "properties": {}}

ON_THE_COMMAND_LINE: dict[str, tuple[Any, list[str]]] = {
    "tools": (["Read", "Grep"], ["--tools=Read,Grep"]),
    "allowed_tools": (["Read", "Bash(ls *)"], ["--allowedTools=Read,Bash(ls *)"]),
    "disallowed_tools": (["Bash"], ["--disallowedTools=Bash"]),
    "mcp_servers": ({"a": {"command": "b"}}, ['--mcp-config={"mcpServers":{"a":{"command":"b"}}}']),
    "strict_mcp_config": (True, ["--strict-mcp-config"]),
    "permission_mode": ("plan", ["--permission-mode=plan"]),
    "continue_conversation": (True, ["--continue"]),
    "resume": ("-x", ["--resume=-x"]),
    "session_id": ("s", ["--session-id=s"]),
    "fork_session": (True, ["--fork-session"]),
    "resume_session_at": ("u", ["--resume-session-at=u"]),
    "resume_drops_turn": ("", ["--resume-drops-turn="]),
    "max_turns": (3, ["--max-turns=3"]),
    "max_budget_usd": (0.5, ["--max-budget-usd=0.5"]),
    "task_budget": ({"total": 9}, ["--task-budget=9"]),
    "model": ("m", ["--model=m"]),
    "fallback_model": ("f", ["--fallback-model=f"]),
    "betas": (["b1"], ["--betas=b1"]),
    "permission_prompt_tool_name": ("mcp__a__b", ["--permission-prompt-tool=mcp__a__b"]),
    "can_use_tool": (may, ["--permission-prompt-tool=stdio"]),
    "on_question": (may, ["--permission-prompt-tool=stdio"]),
    "on_plan": (may, ["--permission-prompt-tool=stdio"]),
    "skills": (["a"], ["--allowedTools=Skill(a)", "--setting-sources=user,project"]),
    "setting_sources": ([], ["--setting-sources="]),
    "settings": ("/s.json", ["--settings=/s.json"]),
    "sandbox": ({"enabled": True}, ['--settings={"sandbox":{"enabled":true}}']),
    "plugins": ([{"type": "local", "path": "/p"}], ["--plugin-dir=/p"]),
    "add_dirs": (["/a", Path("/b")], ["--add-dir=/a", "--add-dir=/b"]),
    "extra_args": ({"x": None, "y": "1", "z": "-v"}, ["--x", "--y=1", "--z=-v"]),
    "include_partial_messages": (True, ["--include-partial-messages"]),
    "include_hook_events": (True, ["--include-hook-events"]),
    "thinking": ({"type": "enabled", "budget_tokens": 5, "display": "omitted"}, ["--max-thinking-tokens=5"]),
    "max_thinking_tokens": (5, ["--max-thinking-tokens=5"]),
    "effort": ("low", ["--effort=low"]),
    "session_store": (object(), ["--session-mirror"]),
    "agent": ("a", ["--agent=a"]),
    "persist_session": (False, ["--no-session-persistence"]),
    "allow_dangerously_skip_permissions": (True, ["--allow-dangerously-skip-permissions"]),
    "debug": (True, ["--debug="]),
    "debug_file": ("/d", ["--debug-file=/d"]),
    "replay_user_messages": (True, ["--replay-user-messages"]),
    "fail_on_denial": (True, ["--fail-on-denial"]),
    "store": ("folder", ["--store=folder"]),
    "database": ("/db", ["--db=/db"]),
    "steal": (True, ["--steal"]),
    "offline": (True, ["--offline"]),
    "record": ("/t", ["--record=/t"]),
    "faults": (["reset"], ["--fault=reset"]),
    "bare": (True, ["--bare"]),
    "max_budget_tokens": (7, ["--max-budget-tokens=7"]),
    "max_budget_calls": (7, ["--max-budget-calls=7"]),
    "max_budget_seconds": (7.0, ["--max-budget-seconds=7.0"]),
    "autocompact": ("off", ["--autocompact=off"]),
}
IN_INITIALIZE: dict[str, tuple[Any, dict[str, Any]]] = {
    "system_prompt": ("Be brief.", {"systemPrompt": "Be brief."}),
    "hooks": (
        {"Stop": [HookMatcher(matcher="a", hooks=[hook], timeout=3, on_failure="block")]},
        {"hooks": {"Stop": [{"matcher": "a", "hookCallbackIds": ["hook_0"], "timeout": 3, "onFailure": "block"}]}},
    ),
    "agents": ({"a": AGENT}, {"agents": {"a": {"description": "d", "prompt": "p"}}}),
    "forward_subagent_text": (True, {"forwardSubagentText": True}),
    "output_format": ({"type": "json_schema", "schema": SCHEMA}, {"jsonSchema": SCHEMA}),
    "output_type": (dict[str, int], {"jsonSchema": {"type": "object", "additionalProperties": {"type": "integer"}}}),
    "supported_dialog_kinds": (["k"], {"supportedDialogKinds": ["k"]}),
    "title": ("t", {"title": "t"}),
    "tool_aliases": ({"Bash": "mcp__x__sh"}, {"toolAliases": {"Bash": "mcp__x__sh"}}),
    "plan_mode_instructions": ("p", {"planModeInstructions": "p"}),
    "prompt_suggestions": (True, {"promptSuggestions": True}),
    "agent_progress_summaries": (True, {"agentProgressSummaries": True}),
    "guard": (True, {"guard": True}),
}
IN_THE_ENVIRONMENT: dict[str, tuple[Any, dict[str, str]]] = {
    "env": ({"A": "b"}, {"A": "b"}),
    "cwd": ("/", {"PWD": "/"}),
    "command_env": ({"C": "d"}, {"C": "d", "PARLEY_COMMAND_ENV": "C"}),
    "client_app": ("app/1", {"CLAUDE_AGENT_SDK_CLIENT_APP": "app/1"}),
    "enable_file_checkpointing": (True, {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"}),
    "api_key": ("k", {"ANTHROPIC_API_KEY": "k"}),
}
THE_CLIENTS_OWN = {
    "cli_path": "test_a_missing_engine_is_named",
    "mcp_servers_delivery": "test_servers_reach_the_engine_in_initialize",
    "user": "the process has it; only root can change the user",
    "max_buffer_size": "test_a_line_that_is_too_long_fails_alone",
    "stderr": "test_a_query_yields_its_turn_and_ends",
    "debug_stderr": "of no effect, as in the official SDK",
    "verbatim_prompts": "test_verbatim_prompts_are_marked_on_every_line",
    "session_store_flush": "test_a_store_has_what_the_disk_has",
    "load_timeout_ms": "test_a_session_continues_from_a_store_where_the_disk_is_empty",
    "engine": "test_both_engines_send_the_same_lines_and_keys",
    "workers": "test_sessions_go_to_the_worker_with_the_fewest",
    "token": "test_a_conversation_with_callbacks",
    "on_elicitation": "answered by the client",
    "on_user_dialog": "answered by the client",
    "deps": "test_every_callback_knows_whose_run_it_is",
    "budget": "test_a_spent_budget_starts_no_turn",
    "control_timeout_seconds": "test_an_engine_that_never_answers_is_given_up_and_ended",
}
"""Options that stay in the client, and the tests that cover them."""


def test_every_option_is_passed_on() -> None:
    placed = {*ON_THE_COMMAND_LINE, *IN_INITIALIZE, *IN_THE_ENVIRONMENT, *THE_CLIENTS_OWN}

    assert sorted({one.name for one in fields(Options)} ^ placed) == []


@pytest.mark.parametrize("name", ON_THE_COMMAND_LINE)
def test_an_option_is_a_flag(name: str) -> None:
    value, flags = ON_THE_COMMAND_LINE[name]
    argv = spell(**{name: value}).argv

    assert [flag for flag in flags if flag not in argv] == []
    assert len(argv) >= len(spell().argv) + len(flags)


@pytest.mark.parametrize("name", IN_INITIALIZE)
def test_an_option_is_part_of_initialize(name: str) -> None:
    value, part = IN_INITIALIZE[name]

    made = spell(**{name: value})

    assert {key: told(made)[key] for key in part} == part
    assert made.argv == spell().argv


@pytest.mark.parametrize("name", IN_THE_ENVIRONMENT)
def test_an_option_is_a_variable(name: str) -> None:
    value, variables = IN_THE_ENVIRONMENT[name]

    made = spell(**{name: value})

    assert variables.items() <= made.environment.items()
    assert not any(word == "k" for word in made.argv)


def test_nothing_said_is_not_a_flag_but_those_of_the_protocol() -> None:
    assert spell().argv == ["--output-format=stream-json", "--input-format=stream-json", "--verbose"]
    assert "CLAUDECODE" not in spell().environment


PROMPT_KEYS = ("systemPrompt", "appendSystemPrompt", "excludeDynamicSections")


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        (None, {"systemPrompt": [""]}),
        ({"type": "preset", "preset": "claude_code"}, {}),
        ({"type": "preset", "preset": "claude_code", "append": "And."}, {"appendSystemPrompt": "And."}),
        (
            {"type": "preset", "preset": "claude_code", "exclude_dynamic_sections": True},
            {"excludeDynamicSections": True},
        ),
    ],
)
def test_a_system_prompt_may_be_nothing_or_a_preset(prompt: Any, part: dict[str, Any]) -> None:
    found = told(spell(system_prompt=prompt))

    assert {key: value for key, value in found.items() if key in PROMPT_KEYS} == part


def test_a_system_prompt_may_be_a_file() -> None:
    assert "--system-prompt-file=/p.md" in spell(system_prompt={"type": "file", "path": "/p.md"}).argv


@pytest.mark.parametrize(
    ("given", "flag"),
    [([], "--tools="), ({"type": "preset", "preset": "claude_code"}, "--tools=default")],
)
def test_tools_may_be_none_or_a_preset(given: Any, flag: str) -> None:
    assert flag in spell(tools=given).argv


@pytest.mark.parametrize(
    ("wish", "flags"),
    [
        ({"type": "adaptive"}, ["--thinking=adaptive"]),
        ({"type": "disabled"}, ["--thinking=disabled"]),
        ({"type": "adaptive", "display": "omitted"}, ["--thinking=adaptive", "--thinking-display=omitted"]),
    ],
)
def test_thinking_is_one_option_with_several_flags(wish: Any, flags: list[str]) -> None:
    assert set(flags) <= set(spell(thinking=wish).argv)


@pytest.mark.parametrize(
    ("given", "problem", "words"),
    [
        ({"can_use_tool": may, "permission_prompt_tool_name": "x"}, ValueError, "cannot be used together"),
        ({"session_store": object(), "enable_file_checkpointing": True}, ValueError, "session_store"),
        ({"skills": ["a b"]}, ValueError, "invalid skill name"),
        ({"skills": ["-x"]}, ValueError, "invalid skill name"),
        ({"extra_args": {"x y": None}}, ValueError, "invalid flag name"),
        ({"extra_args": {"x": "a\0b"}}, ValueError, "NUL"),
        ({"plugins": [{"type": "remote", "path": "/p"}]}, ValueError, "local"),
        ({"settings": "/no/such/file", "sandbox": {"enabled": True}}, CLIConnectionError, "cannot read"),
        ({"settings": "{"}, CLIConnectionError, "must be a JSON object"),
        ({"mcp_servers": "/no/such/file"}, CLIConnectionError, "cannot read"),
        ({"system_prompt": {"type": "poem"}}, ValueError, "system_prompt"),
        ({"engine": "elsewhere"}, ValueError, "engine must be"),
    ],
)
def test_invalid_options_are_refused_before_the_start(given: Any, problem: type[Exception], words: str) -> None:
    with pytest.raises(problem, match=words):
        spell(**given)


def test_what_is_secret_or_long_goes_into_a_file_that_only_the_person_can_read() -> None:
    made = spell(engine="process", mcp_servers={"a": {"type": "http", "url": "http://x", "headers": {"k": "secret"}}})
    try:
        [flag] = [word for word in made.argv if word.startswith("--mcp-config=")]
        path = Path(flag.partition("=")[2])
        assert "secret" not in " ".join(made.argv)
        assert path.stat().st_mode & 0o777 == 0o600
        assert "secret" in path.read_text()
    finally:
        made.remove_files()
    assert not path.exists()


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"subtype": "success", "api_error": "no_key", "terminal_reason": "api_error"}, "no_key"),
        ({"subtype": "success", "terminal_reason": "api_error"}, "api_error"),
        ({"subtype": "error_max_turns", "terminal_reason": "max_turns"}, "error_max_turns"),
        ({"subtype": "success"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_result_error_gives_a_reason_other_than_success(result: dict[str, str], reason: str) -> None:
    assert ResultError("it failed", result).reason == reason


def test_a_result_error_can_be_pickled() -> None:
    problem = ResultError("it failed", {"subtype": "error_max_turns", "errors": ["too many"], "session_id": "s"}, 1)

    again = pickle.loads(pickle.dumps(problem))

    assert (str(again), again.subtype, again.errors, again.session_id, again.exit_code) == (
        str(problem),
        "error_max_turns",
        ["too many"],
        "s",
        1,
    )
