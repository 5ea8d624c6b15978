"""Convert options to what an engine is started with: a command line, an `initialize` request, an environment.

    build_launch(options, hooks, os.environ)  ->  LaunchSpec(argv=[…], initialize=…, environment={…}, files=[…])

The command line contains nothing long and no secrets. Prompts, agents, schemas and the names of the
program's own servers go into `initialize`; settings and the configuration of other servers go into
files with mode 0600; the API key goes into the environment. This avoids the system's limit on the
length of a command line and keeps secrets out of process lists.
"""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from parley.protocol.base import Json
from parley.protocol.messages import requests as wire
from parley.protocol.options import ROWS, format_args
from parley.protocol.options import CliOptions as Flags
from parley.sdk.hooks import Registry
from parley.sdk.launch.handshake import OWN_SERVER, build_initialize, own_tools, parse_object, split_mcp_servers
from parley.sdk.options import Options
from parley.sdk.permissions import CanUseToolShadowedWarning
from parley.sdk.runtime.tracing import trace_context
from parley.version import __version__

OFFICIAL_LEVEL = "0.2.184"
"""The version of the official SDK that we report to the engine: it decides which features the engine uses."""
SKILL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]*")
FLAG_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


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
    if options.can_use_tool is not None and options.permission_prompt_tool_name is not None:
        raise ValueError("can_use_tool and permission_prompt_tool_name cannot be used together; set only one")
    if options.session_store is not None and options.enable_file_checkpointing:
        raise ValueError("enable_file_checkpointing and session_store cannot be used together; set only one")
    if is_gateway(options.engine):
        from parley.sdk.launch.network import check_network_options

        check_network_options(options)
    elif options.engine not in ("process", "local"):
        raise ValueError(f"engine must be 'process', 'local' or the URL of a gateway, not {options.engine!r}")
    elif options.token is not None:
        raise ValueError(f"token needs the URL of a gateway as engine, but engine is {options.engine!r}")
    if options.mcp_servers_delivery == "initialize" and options.engine != "process":
        raise ValueError(f"mcp_servers_delivery='initialize' needs engine='process', but engine is {options.engine!r}")
    if options.workers is not None and options.engine != "local":
        raise ValueError(f"workers needs engine='local', but engine is {options.engine!r}")
    for skill in options.skills if isinstance(options.skills, list) else ():
        if not isinstance(skill, str) or not SKILL_NAME.fullmatch(skill):
            raise ValueError(
                f"invalid skill name {skill!r} (a name starts with a letter or digit "
                "and contains letters, digits, '_', ':', '.' and '-')"
            )
    if options.can_use_tool is not None:
        warn_if_shadowed(options)


def is_gateway(engine: str) -> bool:
    return engine.startswith(("http://", "https://"))


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


def build_argv(options: Options[Any], config: Json, files: list[str]) -> list[str]:
    given: dict[str, Any] = {"output_format": "stream-json", "input_format": "stream-json", "verbose": True}
    known = {row.field for row in ROWS}
    for each in fields(options):
        value = getattr(options, each.name)
        if each.name in SPECIAL or each.name not in known or value is None or value is False or value in ([], {}, ""):
            continue
        given[each.name] = tuple(map(str, value)) if isinstance(value, list) else coerce(value, str(each.type))
    for build_flags in SPECIAL_ROWS:
        given |= build_flags(options)
    if config and options.mcp_servers_delivery == "initialize":
        given["await_initialize"] = True
    elif config:
        given["mcp_config"] = (write_private_file({"mcpServers": config}, files, options),)
    if options.model:
        given["model"] = options.model
        if not isinstance(options.model, str):
            script = options.model.to_json()
            # A gateway may run elsewhere, and cannot read files of this machine.
            is_local = options.engine in ("process", "local")
            given["model"] = f"scripted:{write_temporary_file(script, files) if is_local else script.decode()}"
    settings = merge_settings(options)
    if settings is not None:
        given["settings"] = write_private_file(settings, files, options) if isinstance(settings, dict) else settings
    return format_args(Flags(**given)) + extra_flags(options.extra_args)


def coerce(value: Any, kind: str) -> Any:
    """Convert a value to the type of its flag: numbers may be given as text, paths as `PathLike`."""
    if kind.startswith("int"):
        return value if isinstance(value, int) else int(float(value))
    if kind.startswith("float"):
        return value if isinstance(value, int | float) else float(value)
    if kind.startswith("bool"):
        return bool(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def tool_flags(options: Options[Any]) -> Json:
    """The built-in tools. The program's own are a server (handshake.py)."""
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
    for plugin in options.plugins:
        if plugin.get("type") != "local":
            raise ValueError(f"unknown plugin type {plugin.get('type')!r} (only 'local' is supported)")
    return {"plugin_dirs": tuple(str(plugin["path"]) for plugin in options.plugins)} if options.plugins else {}


def other_flags(options: Options[Any]) -> Json:
    given: Json = {}
    max_turns = coerce(options.max_turns or 0, "int")
    if max_turns:  # in the official SDK, 0 means "no limit"
        given["max_turns"] = max_turns
    if options.task_budget is not None:
        given["task_budget"] = options.task_budget["total"]
    if not options.persist_session:
        given["no_session_persistence"] = True
    if options.allow_dangerously_skip_permissions:
        given["allow_skip_permissions"] = True
    if options.debug:
        given["debug"] = ""
    if options.session_store is not None:
        given["session_mirror"] = True
    if options.resume_drops_turn is not None:
        given["resume_drops_turn"] = options.resume_drops_turn
    if options.faults:
        given["faults"] = tuple(options.faults)
    return given


SPECIAL_ROWS: tuple[Callable[[Options[Any]], Json], ...] = (
    tool_flags, allowed_tool_flags, source_flags, prompt_file_flags, prompt_tool_flags, thinking_flags,
    plugin_flags, other_flags,
)  # fmt: skip
SPECIAL = frozenset(
    (
        *("tools", "allowed_tools", "setting_sources", "system_prompt", "thinking", "task_budget", "settings"),
        *("debug", "faults", "resume_drops_turn", "max_turns", "model"),
        *("agents", "output_format", "prompt_suggestions", "forward_subagent_text", "guard", "api_key"),
    )
)
"""Options whose value differs from the flag's, or that go into `initialize`."""


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
    """Write a temporary file with mode 0600; returns its path, or the JSON itself if the engine is no subprocess."""
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
    flags = []
    for name, value in args.items():
        flag = f"--{name.removeprefix('--')}"
        if not FLAG_NAME.fullmatch(flag[2:]):
            raise ValueError(f"extra_args: invalid flag name {name!r} (expected letters, digits and '-')")
        if value is not None and "\0" in str(value):
            raise ValueError(f"extra_args: the value of {flag} contains a NUL character")
        flags.append(flag if value is None else f"{flag}={value}")
    return flags


# The environment.


def build_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in inherited.items() if name != "CLAUDECODE"}
    found |= {"CLAUDE_CODE_ENTRYPOINT": "sdk-py"}
    found |= {name.upper(): value for name, value in trace_context().items()}
    found |= options.env
    found |= {"CLAUDE_AGENT_SDK_VERSION": OFFICIAL_LEVEL, "PARLEY_SDK_VERSION": __version__}
    if options.api_key is not None:
        found["ANTHROPIC_API_KEY"] = options.api_key
    if options.client_app is not None:
        found["CLAUDE_AGENT_SDK_CLIENT_APP"] = options.client_app
    if options.enable_file_checkpointing:
        found["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] = "true"
    if options.cwd is not None:
        found["PWD"] = os.path.abspath(options.cwd)
    return found
