"""Options as an engine takes them: a command line, an `initialize` request, an environment.

    spelled(options)  ->  Spelled(argv=[…], initialize=Initialize(…), environment={…}, files=[…])

Nothing long or secret is on the command line: prompts, agents, schemas and the program's own
servers go into `initialize`, the configuration of other servers and settings into files that
only the person can read, the key into the environment. So no system's limit on a command line
is met, and no list of processes tells anything.
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
from parley.protocol.options import ROWS, spell
from parley.protocol.options import Options as Flags
from parley.sdk.hooks import Registry
from parley.sdk.launch.handshake import initialize, mcp, object_in
from parley.sdk.options import Options
from parley.sdk.permissions import CanUseToolShadowedWarning
from parley.sdk.runtime.tracing import trace_context
from parley.version import __version__

OFFICIAL_LEVEL = "0.2.182"
"""Engines ask which official client they talk to, and what it can bear; we bear what this one bears."""
SKILL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]*")
FLAG_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


@dataclass
class Spelled:
    argv: list[str]
    """Behind the program's name."""
    initialize: wire.Initialize
    environment: dict[str, str]
    servers: dict[str, Any]
    """The program's own, by name."""
    files: list[str] = field(default_factory=list)
    """To be removed when the engine is gone."""

    def remove_files(self) -> None:
        while self.files:
            try:
                os.unlink(self.files.pop())
            except OSError:
                continue


def spelled(options: Options, hooks: Registry, inherited: Mapping[str, str]) -> Spelled:
    """Raises ValueError, TypeError or CLIConnectionError for options that cannot be."""
    check(options)
    config, servers = mcp(options)
    made = Spelled(
        argv=[],
        initialize=initialize(options, hooks, servers),
        environment=environment(options, inherited),
        servers=servers,
    )
    try:
        made.argv += command_line(options, config, made.files)
    except BaseException:
        made.remove_files()
        raise
    return made


def check(options: Options) -> None:
    if options.can_use_tool is not None and options.permission_prompt_tool_name is not None:
        raise ValueError("can_use_tool and permission_prompt_tool_name exclude each other")
    if options.session_store is not None and options.enable_file_checkpointing:
        raise ValueError("enable_file_checkpointing does not go with a session_store")
    if options.engine not in ("process", "local"):
        raise ValueError(f"engine must be 'process' or 'local', not {options.engine!r}")
    for skill in options.skills if isinstance(options.skills, list) else ():
        if not isinstance(skill, str) or not SKILL_NAME.fullmatch(skill):
            raise ValueError(f"{skill!r} cannot be the name of a skill")
    if options.can_use_tool is not None:
        warn_of_shadows(options)


def warn_of_shadows(options: Options) -> None:
    """A callback that is never asked is a trap."""
    whole = [rule for rule in options.allowed_tools if "(" not in rule]
    if options.permission_mode == "bypassPermissions":
        words = "permission_mode is bypassPermissions, so can_use_tool is not asked"
    elif whole:
        words = f"allowed_tools allows {', '.join(whole)} before can_use_tool is asked"
    else:
        return
    warnings.warn(words, CanUseToolShadowedWarning, stacklevel=2)


# The command line.


def command_line(options: Options, config: Json, files: list[str]) -> list[str]:
    given: dict[str, Any] = {"output_format": "stream-json", "input_format": "stream-json", "verbose": True}
    known = {row.field for row in ROWS}
    for each in fields(options):
        value = getattr(options, each.name)
        if each.name in SPECIAL or each.name not in known or value is None or value is False or value in ([], {}, ""):
            continue
        given[each.name] = tuple(map(str, value)) if isinstance(value, list) else plain(value, str(each.type))
    for spell_it in SPECIAL_ROWS:
        given |= spell_it(options)
    if config:
        given["mcp_config"] = (kept({"mcpServers": config}, files, options),)
    settings = settings_of(options)
    if settings is not None:
        given["settings"] = kept(settings, files, options) if isinstance(settings, dict) else settings
    return spell(Flags(**given)) + extra(options.extra_args)


def plain(value: Any, kind: str) -> Any:
    """A number that was given as text or of a type of its own, and a path, as the command line has them."""
    if kind.startswith("int"):
        return value if isinstance(value, int) else int(float(value))
    if kind.startswith("float"):
        return value if isinstance(value, int | float) else float(value)
    if kind.startswith("bool"):
        return bool(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def tools(options: Options) -> Json:
    if options.tools is None:
        return {}
    return {"tools": tuple(options.tools) if isinstance(options.tools, list) else ("default",)}


def allowed(options: Options) -> Json:
    """Skills that may be used are allowed as well."""
    rules = list(options.allowed_tools)
    if options.skills == "all":
        rules.append("Skill")
    elif isinstance(options.skills, list):
        rules += [f"Skill({name})" for name in options.skills]
    return {"allowed_tools": tuple(dict.fromkeys(rules))} if rules else {}


def sources(options: Options) -> Json:
    if options.setting_sources is not None:
        return {"setting_sources": tuple(options.setting_sources)}
    return {"setting_sources": ("user", "project")} if options.skills is not None else {}


def prompt_file(options: Options) -> Json:
    prompt = options.system_prompt
    return {"system_prompt_file": str(prompt["path"])} if isinstance(prompt, dict) and prompt["type"] == "file" else {}


def prompt_tool(options: Options) -> Json:
    asks = options.can_use_tool or options.on_question or options.on_plan
    name = options.permission_prompt_tool_name or ("stdio" if asks else None)
    return {} if name is None else {"permission_prompt_tool": name}


def thinking(options: Options) -> Json:
    wish = options.thinking
    if wish is None:
        return {}
    given: Json = {"thinking": wish["type"]}
    if wish["type"] == "enabled":
        given = {"max_thinking_tokens": wish["budget_tokens"]}
    display = wish.get("display")
    return {**given, "thinking_display": display} if display else given


def plugins(options: Options) -> Json:
    for plugin in options.plugins:
        if plugin.get("type") != "local":
            raise ValueError(f"there are plugins of type 'local' only, not {plugin.get('type')!r}")
    return {"plugin_dirs": tuple(str(plugin["path"]) for plugin in options.plugins)} if options.plugins else {}


def others(options: Options) -> Json:
    given: Json = {}
    max_turns = plain(options.max_turns or 0, "int")
    if max_turns:  # the official SDK takes 0 for "no limit"
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


SPECIAL_ROWS: tuple[Callable[[Options], Json], ...] = (
    tools, allowed, sources, prompt_file, prompt_tool, thinking, plugins, others,
)  # fmt: skip
SPECIAL = frozenset(
    (
        *("tools", "allowed_tools", "setting_sources", "system_prompt", "thinking", "task_budget", "settings"),
        *("debug", "faults", "resume_drops_turn", "max_turns"),
        *("agents", "output_format", "prompt_suggestions", "forward_subagent_text", "guard", "api_key"),
    )
)
"""Options whose value is not the flag's, or that go into `initialize`."""


def settings_of(options: Options) -> str | Json | None:
    """The settings, with the sandbox in them. A path stays one."""
    given, sandbox = options.settings, options.sandbox
    if given is None:
        return None if sandbox is None else {"sandbox": sandbox}
    given = os.fspath(given)
    if not given.strip().startswith("{") and sandbox is None:
        return given
    merged = object_in(given, "settings")
    return merged if sandbox is None else {**merged, "sandbox": sandbox}


def kept(value: Json, files: list[str], options: Options) -> str:
    """A file that only this person can read; for an engine in this process, just the text."""
    text = msgspec.json.encode(value)
    if options.engine == "local":
        return text.decode()
    descriptor, path = tempfile.mkstemp(prefix="parley-", suffix=".json")
    files.append(path)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    return path


def extra(args: Mapping[str, str | None]) -> list[str]:
    words = []
    for name, value in args.items():
        flag = f"--{name.removeprefix('--')}"
        if not FLAG_NAME.fullmatch(flag[2:]):
            raise ValueError(f"{name!r} cannot be a flag")
        if value is not None and "\0" in str(value):
            raise ValueError(f"the value of {flag} has a NUL in it")
        words.append(flag if value is None else f"{flag}={value}")
    return words


# The environment.


def environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
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
