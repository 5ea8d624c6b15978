"""Convert options to what an engine is started with: a command line, an `initialize` request, an environment.

    build_launch(options, hooks, os.environ)  ->  LaunchSpec(argv=[…], initialize=…, environment={…}, files=[…])

The command line contains nothing long and no secrets. Prompts, agents, schemas and the names of the
program's own servers go into `initialize`, which the client sends first; settings and the configuration of other
servers go into files with mode 0600; the API key goes into the environment. This avoids the system's limit on the
length of a command line and keeps secrets out of process lists.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import msgspec

from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests as wire
from parley.protocol.options import FIELDS, format_args
from parley.protocol.options import CliOptions as Flags
from parley.sdk.errors import CLIConnectionError
from parley.sdk.hooks import Registry
from parley.sdk.options import Options
from parley.sdk.permissions import CanUseToolShadowedWarning
from parley.sdk.runtime.prompts import trace_context
from parley.sdk.schema import schema_of
from parley.sdk.types.agents import AgentDefinition
from parley.settings.secret_variables import COMMANDS
from parley.version import __version__

if TYPE_CHECKING:
    from parley.sdk.runtime.mcp_tool import SdkMcpTool

OFFICIAL_LEVEL = "0.2.184"
"""The version of the official SDK that we report to the engine: it decides which features the engine uses."""


@dataclass
class LaunchSpec:
    """Everything that an engine is started with."""

    argv: list[str]
    """The arguments, without the program's name."""
    initialize: wire.Initialize
    environment: dict[str, str]
    servers: dict[str, Any]
    """The MCP servers that run in this process, by name."""
    files: list[str] = field(default_factory=list)
    """Temporary files to remove after the engine has exited."""

    def remove_files(self) -> None:
        while self.files:
            try:
                os.unlink(self.files.pop())
            except OSError:
                continue


def build_launch(options: Options[Any], hooks: Registry, inherited: Mapping[str, str]) -> LaunchSpec:
    """Raises ValueError, TypeError or CLIConnectionError for invalid options."""
    check_options(options)
    config, servers = split_mcp_servers(options)
    initialize = build_initialize(options, hooks, servers)
    if config and options.mcp_servers_delivery == "initialize":
        initialize = msgspec.structs.replace(initialize, mcpServers=config)
    spec = LaunchSpec(
        argv=[],
        initialize=initialize,
        environment=build_environment(options, inherited),
        servers=servers,
    )
    try:
        spec.argv += build_argv(options, config, spec.files)
    except BaseException:
        spec.remove_files()
        raise
    return spec


def check_options(options: Options[Any]) -> None:
    """Check what the official SDK checks here, too. Raises ValueError."""
    if options.can_use_tool is not None and options.permission_prompt_tool_name is not None:
        raise ValueError("can_use_tool and permission_prompt_tool_name cannot be used together; set only one")
    if options.session_store is not None and options.enable_file_checkpointing:
        raise ValueError("enable_file_checkpointing and session_store cannot be used together; set only one")
    if options.can_use_tool is not None:
        warn_if_shadowed(options)


def warn_if_shadowed(options: Options[Any]) -> None:
    """Warn about a `can_use_tool` that other options bypass."""
    whole_tools = [rule for rule in options.allowed_tools if "(" not in rule]
    if options.permission_mode == "bypassPermissions":
        text = "can_use_tool is never called because permission_mode is bypassPermissions"
    elif whole_tools:
        text = f"can_use_tool is not called for {', '.join(whole_tools)} because allowed_tools allows these tools"
    else:
        return
    warnings.warn(text, CanUseToolShadowedWarning, stacklevel=2)


# The command line.

ALWAYS: Json = {"output_format": "stream-json", "input_format": "stream-json", "verbose": True}
ROWS = {row.sdk_name: row for row in FIELDS.values() if row.flags and not row.initialize}
"""The options that are flags, by their names in the SDK."""
COERCIONS: dict[Any, Callable[[Any], Any]] = {
    int: lambda value: value if isinstance(value, int) else int(float(value)),
    float: lambda value: value if isinstance(value, int | float) else float(value),
    bool: bool,
    str: os.fspath,
    list[str]: lambda value: tuple(map(str, value)),
}
"""Numbers may be given as text, paths as `PathLike`."""


def is_given(value: Any) -> bool:
    """Whether an option is more than its default; a limit of 0 is."""
    return value is not None and value is not False and value not in ((), [], {}, "")


def build_argv(options: Options[Any], config: Json, files: list[str]) -> list[str]:
    given = dict(ALWAYS)
    for each in fields(options):
        value = getattr(options, each.name)
        if (convert := CONVERTERS.get(each.name)) is not None:
            given |= convert(options)
        elif (row := ROWS.get(each.name)) is not None and is_given(value):
            given[row.field] = COERCIONS[row.kind.json_type](value)
    if config and options.mcp_servers_delivery == "initialize":
        given["await_initialize"] = True
    elif config:
        given["mcp_config"] = (write_private_file({"mcpServers": config}, files, options),)
    if options.model and not isinstance(options.model, str):
        script = options.model.to_json()
        # A gateway may run elsewhere, and cannot read files of this machine.
        is_local = options.engine in ("process", "local")
        given["model"] = f"scripted:{write_temporary_file(script, files) if is_local else script.decode()}"
    settings = merge_settings(options)
    if settings is not None:
        given["settings"] = write_private_file(settings, files, options) if isinstance(settings, dict) else settings
    return format_args(Flags(**given)) + extra_flags(options.extra_args)


def tool_flags(options: Options[Any]) -> Json:
    """The built-in tools. The program's own are a server (`split_mcp_servers`)."""
    if options.tools is None:
        return {}
    is_list = isinstance(options.tools, list | tuple)
    return {"tools": tuple(each for each in options.tools if isinstance(each, str)) if is_list else ("default",)}


def allowed_tool_flags(options: Options[Any]) -> Json:
    """The allowed tools, with a rule for each enabled skill and each of the program's own tools."""
    rules = [*options.allowed_tools, *(f"mcp__{OWN_SERVER}__{tool.name}" for tool in own_tools(options))]
    if options.skills == "all":
        rules.append("Skill")
    elif isinstance(options.skills, list):
        rules += [f"Skill({name})" for name in options.skills]
    return {"allowed_tools": tuple(dict.fromkeys(rules))} if rules else {}


def source_flags(options: Options[Any]) -> Json:
    if options.setting_sources is not None:
        return {"setting_sources": tuple(options.setting_sources)}
    return {"setting_sources": ("user", "project")} if options.skills is not None else {}


def prompt_file_flags(options: Options[Any]) -> Json:
    prompt = options.system_prompt
    return {"system_prompt_file": str(prompt["path"])} if isinstance(prompt, dict) and prompt["type"] == "file" else {}


def prompt_tool_flags(options: Options[Any]) -> Json:
    has_callback = options.can_use_tool or options.on_question or options.on_plan
    name = options.permission_prompt_tool_name or ("stdio" if has_callback else None)
    return {} if name is None else {"permission_prompt_tool": name}


def thinking_flags(options: Options[Any]) -> Json:
    thinking = options.thinking
    if thinking is None:
        return {}
    given: Json = {"thinking": thinking["type"]}
    if thinking["type"] == "enabled":
        given = {"max_thinking_tokens": thinking["budget_tokens"]}
    display = thinking.get("display")
    return {**given, "thinking_display": display} if display else given


def plugin_flags(options: Options[Any]) -> Json:
    return {"plugin_dirs": tuple(str(plugin["path"]) for plugin in options.plugins)} if options.plugins else {}


def limit_flags(options: Options[Any]) -> Json:
    """In the official SDK, 0 means "no limit"."""
    max_turns = COERCIONS[int](options.max_turns or 0)
    return {"max_turns": max_turns} if max_turns else {}


CONVERTERS: dict[str, Callable[[Options[Any]], Json]] = {
    "tools": tool_flags,
    "allowed_tools": allowed_tool_flags,
    "setting_sources": source_flags,
    "system_prompt": prompt_file_flags,
    "permission_prompt_tool_name": prompt_tool_flags,
    "thinking": thinking_flags,
    "plugins": plugin_flags,
    "max_turns": limit_flags,
    "task_budget": lambda options: {} if options.task_budget is None else {"task_budget": options.task_budget["total"]},
    "persist_session": lambda options: {} if options.persist_session else {"no_session_persistence": True},
    "debug": lambda options: {"debug": ""} if options.debug else {},
    "session_store": lambda options: {} if options.session_store is None else {"session_mirror": True},
    "resume_drops_turn": lambda options: {"resume_drops_turn": options.resume_drops_turn},
    "model": lambda options: {"model": options.model} if isinstance(options.model, str) and options.model else {},
    **dict.fromkeys(("settings", "agents", "api_key", "output_format"), lambda options: {}),
}
"""The options whose values differ from those of flags. The last four reach the engine otherwise."""


def merge_settings(options: Options[Any]) -> str | Json | None:
    """Merge `sandbox` into the settings. A path without a sandbox is passed through."""
    given, sandbox = options.settings, options.sandbox
    if given is None:
        return None if sandbox is None else {"sandbox": sandbox}
    given = os.fspath(given)
    if not given.strip().startswith("{") and sandbox is None:
        return given
    merged = parse_object(given, "settings")
    return merged if sandbox is None else {**merged, "sandbox": sandbox}


def write_private_file(value: Json, files: list[str], options: Options[Any]) -> str:
    """Write a temporary file with mode 0600; returns its path, or the JSON itself for an engine in this process."""
    text = msgspec.json.encode(value)
    return write_temporary_file(text, files) if options.engine == "process" else text.decode()


def write_temporary_file(text: bytes, files: list[str]) -> str:
    """Write a file with mode 0600; returns its path."""
    descriptor, path = tempfile.mkstemp(prefix="parley-", suffix=".json")
    files.append(path)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    return path


def extra_flags(args: Mapping[str, str | None]) -> list[str]:
    flags = {f"--{name.removeprefix('--')}": value for name, value in args.items()}
    return [flag if value is None else f"{flag}={value}" for flag, value in flags.items()]


# The environment.

VARIABLES = {"api_key": "ANTHROPIC_API_KEY", "client_app": "CLAUDE_AGENT_SDK_CLIENT_APP"}


def build_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in inherited.items() if name != "CLAUDECODE"}
    found |= {"CLAUDE_CODE_ENTRYPOINT": "sdk-py"}
    found |= {name.upper(): value for name, value in trace_context().items()}
    found |= options.env
    found |= {"CLAUDE_AGENT_SDK_VERSION": OFFICIAL_LEVEL, "PARLEY_SDK_VERSION": __version__}
    found |= {name: str(value) for field, name in VARIABLES.items() if (value := getattr(options, field)) is not None}
    if options.enable_file_checkpointing:
        found[FIELDS["file_checkpointing"].variable] = "true"
    # The engine shares the program's environment, which may be that of a server.
    if options.command_env == "all":
        found[COMMANDS] = "*"
    elif options.command_env is not None:
        found |= {**options.command_env, COMMANDS: ",".join((*options.command_env, *options.env))}
    elif options.engine == "local":
        found.setdefault(COMMANDS, ",".join(options.env))
    if options.cwd is not None:
        found["PWD"] = os.path.abspath(options.cwd)
    return found


OWN_SERVER = "tools"
"""The name of the server with the program's own functions in `Options.tools`."""
INITIALIZE = {
    **{row.sdk_name: row.initialize for row in FIELDS.values() if row.initialize},
    "supported_dialog_kinds": "supportedDialogKinds",
    "tool_aliases": "toolAliases",
    "plan_mode_instructions": "planModeInstructions",
    "agent_progress_summaries": "agentProgressSummaries",
}
"""The options that are fields of the request as they are. The last ones cannot be set in another way."""


def build_initialize(options: Options[Any], hooks: Registry, servers: Mapping[str, Any]) -> wire.Initialize:
    prompt = options.system_prompt
    preset: Json = dict(prompt) if isinstance(prompt, dict) else {}
    text: Any = UNSET
    if prompt is None:
        text = [""]
    elif isinstance(prompt, str):
        text = prompt
    elif prompt["type"] == "custom":
        text = prompt["prompt"]
    given: Json = {
        INITIALIZE[each.name]: bool(value) if isinstance(each.default, bool) else value
        for each in fields(options)
        if each.name in INITIALIZE and (value := getattr(options, each.name)) not in (None, each.default)
    }
    return wire.Initialize(
        hooks=hooks.matchers or None,
        agents=convert_agents(options.agents),
        systemPrompt=text,
        appendSystemPrompt=preset.get("append", UNSET),
        excludeDynamicSections=preset.get("exclude_dynamic_sections", UNSET),
        systemPromptSnapshot=preset.get("snapshot", UNSET),
        skills=options.skills if isinstance(options.skills, list) else UNSET,
        jsonSchema=json_schema(options),
        sdkMcpServers=list(servers) or UNSET,
        **given,
    )


def convert_agents(given: Mapping[str, AgentDefinition] | None) -> Any:
    if given is None:
        return UNSET
    return {
        name: wire.AgentDefinition(
            **{each.name: value for each in fields(one) if (value := getattr(one, each.name)) is not None}
        )
        for name, one in given.items()
    }


def json_schema(options: Options[Any]) -> Any:
    output_format = options.output_format
    if output_format is not None:
        return output_format["schema"] if output_format.get("type") == "json_schema" else UNSET
    return UNSET if options.output_type is None else schema_of(options.output_type)


def parse_object(given: str | os.PathLike[str], name: str) -> Json:
    """Parse an option that is a JSON object, or the path of a file with one. Raises CLIConnectionError."""
    text = os.fspath(given).strip()
    if not text.startswith("{"):
        try:
            with open(given, encoding="utf-8") as file:
                text = file.read()
        except OSError as exc:
            raise CLIConnectionError(f"{name}: cannot read {given}: {exc.strerror}") from None
    try:
        found: Json = msgspec.json.decode(text.encode(), type=dict)
    except msgspec.DecodeError as exc:
        raise CLIConnectionError(f"{name} must be a JSON object: {exc}") from None
    return found


def split_mcp_servers(options: Options[Any]) -> tuple[Json, dict[str, Any]]:
    """Split the servers into configurations for the engine and instances that run in this process."""
    given = options.mcp_servers
    config: Json = {}
    own: dict[str, Any] = {}
    if not isinstance(given, dict):
        found = parse_object(given, "mcp_servers")
        config = found.get("mcpServers", found)
    else:
        own = {name: server["instance"] for name, server in given.items() if server.get("type") == "sdk"}  # type: ignore[typeddict-item]  # only "sdk" servers have it
        config = {name: dict(server) for name, server in given.items() if name not in own}
    if tools := own_tools(options):
        if OWN_SERVER in config or OWN_SERVER in own:
            raise ValueError(
                f"mcp_servers: the name {OWN_SERVER!r} is reserved for the functions in `tools`; use another name"
            )
        from parley.sdk.runtime.mcp_tool import create_sdk_mcp_server

        own[OWN_SERVER] = create_sdk_mcp_server(OWN_SERVER, tools=tools)["instance"]
    return config, own


def own_tools(options: Options[Any]) -> list[SdkMcpTool[Any]]:
    """The program's own functions in `tools`."""
    if not isinstance(options.tools, list | tuple) or all(isinstance(each, str) for each in options.tools):
        return []
    from parley.sdk.runtime.mcp_tool import to_tool

    return [to_tool(each) for each in options.tools if not isinstance(each, str)]


def stream_close_seconds(env: dict[str, str]) -> float:
    """Return the handshake timeout from the official SDK's environment variable, which is in milliseconds."""
    given = env.get("CLAUDE_CODE_STREAM_CLOSE_TIMEOUT") or os.environ.get("CLAUDE_CODE_STREAM_CLOSE_TIMEOUT") or "0"
    try:
        seconds = float(given) / 1000
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
