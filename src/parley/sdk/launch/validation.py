"""Check the types and values of options before anything is started. Errors name the option:

    allowed_tools must be a list of strings, not str                                TypeError
    max_turns must be a whole number, 0 or more, not -3                             ValueError

`Options(...)` checks what each option accepts, and a client checks again what was changed since. Official options that
cannot be used together are an error when the client connects (`args.py`).

A message shows the type of a value, not the value, because it may be a secret. Only numbers and values of an
enumeration are shown. What the official SDK accepts is accepted here: numbers as text, empty strings for "not set", and
0 and 1 for a switch. Unknown hook events only cause a warning.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, NamedTuple, get_args

from parley.hooks.event_types import HookEvent, MoreHookEvent
from parley.sdk.options import Options
from parley.sdk.spelling import check_keys, nearest
from parley.sdk.types import shapes
from parley.sdk.types.generic import OutputT
from parley.sdk.types.shapes import EffortLevel, PermissionMode, SessionStoreFlushMode

SHOWN_CHARS = 200
SKILL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]*")
FLAG_NAME = re.compile(r"(--)?[A-Za-z][A-Za-z0-9-]*")
HOOK_EVENTS = (*get_args(HookEvent), *get_args(MoreHookEvent))
HERE_ONLY = (
    "cli_path",
    "env",
    "api_key",
    "user",
    "session_store",
    "workers",
    "continue_conversation",
    "add_dirs",
    "command_env",
)
"""Options about this machine, which a session on a gateway cannot have."""
Test = Callable[[Any], bool]


class OptionRule(NamedTuple):
    """What an option accepts."""

    expected: str
    has_type: Test
    """If not, TypeError."""
    is_valid: Test = lambda value: True
    """If not, ValueError."""


def instance_of(*kinds: type) -> Test:
    return lambda value: isinstance(value, kinds)


def list_of(fits: Test) -> Test:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def dict_of(fits: Test) -> Test:
    return lambda value: (
        isinstance(value, Mapping) and all(isinstance(name, str) and fits(one) for name, one in value.items())
    )


def any_of(*tests: Test) -> Test:
    return lambda value: any(fits(value) for fits in tests)


def is_strings(value: Any) -> bool:
    """Lists only: for `skills`, any other value means a preset."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def is_tools(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) or callable(one) for one in value)


def is_script(value: Any) -> bool:
    return hasattr(value, "turn") and hasattr(value, "to_json")


def is_matcher(value: Any) -> bool:
    return hasattr(value, "matcher") and isinstance(value.hooks, list | tuple)


def is_agent(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def is_gateway(engine: str) -> bool:
    return engine.startswith(("http://", "https://"))


def is_type(value: Any) -> bool:
    """Accepts whatever may be a type hint, such as `list[City]`."""
    return not isinstance(value, str | bytes | int | float | list | tuple | Mapping)


def is_number(value: Any) -> bool:
    """Accepts numbers given as text, and other numeric types."""
    try:
        return not isinstance(value, bool) and float(value) - float(value) == 0
    except (TypeError, ValueError, OverflowError):
        return False


def is_whole(value: Any) -> bool:
    return is_number(value) and float(value).is_integer()


def one_of(literal: Any) -> OptionRule:
    names = get_args(literal)
    # An empty string counts as not set.
    return OptionRule(f"one of {', '.join(map(repr, names))}", instance_of(str), lambda value: value in ("", *names))


STRINGS = OptionRule("a list of strings", list_of(instance_of(str)))
FUNCTION = OptionRule("a function", callable)
TEXT = OptionRule("a string", instance_of(str))
PATH = OptionRule("a path", instance_of(str, os.PathLike))
DICT = OptionRule("a dict", instance_of(Mapping))
SWITCH = OptionRule("a bool", lambda value: isinstance(value, int) and value in (0, 1))
WHOLE = OptionRule("a whole number, 0 or more", is_whole, lambda value: float(value) >= 0)
NUMBER = OptionRule("a number, 0 or more", is_number, lambda value: float(value) >= 0)
SDK_NUMBER = OptionRule(
    "a number, 0 or more", lambda value: isinstance(value, int | float) and is_number(value), NUMBER.is_valid
)
"""Numbers that the SDK itself uses; text is not accepted."""
KINDS = {
    "str": TEXT,
    "bool": SWITCH,
    "int": WHOLE,
    "float": NUMBER,
    "str | Path": PATH,
    "PermissionMode": one_of(PermissionMode),
    "EffortLevel": one_of(EffortLevel),
    "SessionStoreFlushMode": one_of(SessionStoreFlushMode),
    "Literal['argv', 'initialize']": one_of(Literal["argv", "initialize"]),
    **dict.fromkeys(("dict[str, Any]", "ThinkingConfig", "SandboxSettings", "TaskBudget"), DICT),
    **dict.fromkeys(("list[str]", "Sequence[str]", "list[SettingSource]"), STRINGS),
    **dict.fromkeys(("CanUseTool", "OnQuestion", "OnPlan", "OnElicitation", "OnUserDialog"), FUNCTION),
    "Callable[[str], None]": FUNCTION,
    "dict[str, str]": OptionRule("a dict of strings", dict_of(instance_of(str))),
    "list[str | Path]": OptionRule("a list of paths", list_of(instance_of(str, os.PathLike))),
    "list[SdkPluginConfig]": OptionRule("a list of dicts", list_of(instance_of(dict))),
    "dict[str, AgentDefinition]": OptionRule("a dict of AgentDefinition", dict_of(is_agent)),
}
"""The rule for each declared type."""
RULES: dict[str, OptionRule] = {
    **{one.name: KINDS[kind] for one in fields(Options) if (kind := str(one.type).removesuffix(" | None")) in KINDS},
    **dict.fromkeys(("settings", "debug_file", "store", "database", "record"), PATH),
    **dict.fromkeys(("max_buffer_size", "load_timeout_ms", "control_timeout_seconds"), SDK_NUMBER),
    "workers": OptionRule(
        "a whole number, 1 or more",
        lambda value: isinstance(value, int) and not isinstance(value, bool),
        lambda value: value >= 1,
    ),
    "engine": OptionRule(
        "'process', 'local' or the URL of a gateway",
        instance_of(str),
        lambda value: value in ("process", "local") or is_gateway(value),
    ),
    "command_env": OptionRule(
        "a dict of strings or 'all'", any_of(dict_of(instance_of(str)), lambda value: value == "all")
    ),
    "output_type": OptionRule("a type", is_type),
    "system_prompt": OptionRule("a string or a dict", instance_of(str, Mapping)),
    "tools": OptionRule("a list of tool names and functions, or a preset", any_of(is_tools, instance_of(dict))),
    "model": OptionRule("a string or a Script", any_of(instance_of(str), is_script)),
    "budget": OptionRule("a Budget", lambda value: hasattr(value, "check") and hasattr(value, "add")),
    "skills": OptionRule('a list of strings or "all"', lambda value: is_strings(value) or value == "all"),
    "extra_args": OptionRule("a dict of flags and their values", instance_of(Mapping)),
    "hooks": OptionRule("a dict of lists of HookMatcher", dict_of(list_of(is_matcher))),
    "mcp_servers": OptionRule(
        "a dict of servers by name, or a path", any_of(dict_of(instance_of(dict)), instance_of(str, os.PathLike))
    ),
}
MATCHER_RULES = {
    "matcher": TEXT,
    "timeout": NUMBER,
    "on_failure": OptionRule("'continue' or 'block'", instance_of(str), lambda value: value in ("continue", "block")),
}
KEYED: dict[str, tuple[Any, ...]] = {
    "system_prompt": (shapes.SystemPromptPreset, shapes.SystemPromptCustom, shapes.SystemPromptFile),
    "thinking": get_args(shapes.ThinkingConfig),
    "sandbox": (shapes.SandboxSettings,),
    "task_budget": (shapes.TaskBudget,),
    "tools": (shapes.ToolsPreset,),
}
"""The options that are dicts, and the types that declare their keys."""
ALWAYS = frozenset(("allowed_tools", "plugins", "env", "extra_args", "mcp_servers"))
"""Options that must not be None."""


def check_types(options: Options[OutputT] | None) -> Options[OutputT]:
    """Return the options if all are valid, also after changes. Raises TypeError or ValueError."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise TypeError(f"options must be an Options, not {type(options).__name__}")
    check_values(options)
    for event in options.hooks or ():
        if event not in HOOK_EVENTS:
            text = f"hooks: unknown event {event!r}; these hooks are probably never called (known events: "
            warnings.warn(f"{text}{', '.join(HOOK_EVENTS)})", stacklevel=3)
    return options


def check_tools(options: Options[Any]) -> None:
    """Raises TypeError or ValueError for functions in `tools` that cannot be tools."""
    if isinstance(options.tools, list | tuple) and not all(isinstance(each, str) for each in options.tools):
        from parley.sdk.runtime.mcp_tool import create_sdk_mcp_server  # only programs with tools need its imports

        create_sdk_mcp_server("tools", tools=[each for each in options.tools if not isinstance(each, str)])


def warn_of_no_limit(options: Options[Any]) -> None:
    """Warn the program that makes these options. A copy (`dataclasses.replace`) causes no second warning."""
    is_copy = sys._getframe(4).f_globals.get("__name__") == "dataclasses"
    if options.max_turns is not None and float(options.max_turns) == 0 and not is_copy:
        text = "max_turns=0 sets no limit, as in the official SDK; give 1 or more, or leave it out for no limit"
        warnings.warn(text, stacklevel=5)  # this function, __post_init__, two __init__


def check_values(options: Options[Any]) -> None:
    """Raises TypeError or ValueError."""
    for name, rule in RULES.items():
        value = getattr(options, name)
        if value is not None or name in ALWAYS:
            check_value(name, rule, value)
    check_hooks(options)
    check_keys_of_dicts(options)
    check_names(options)
    check_engine(options)


def check_hooks(options: Options[Any]) -> None:
    hooks: Mapping[Any, Any] = options.hooks or {}
    for event, matchers in hooks.items():
        if event not in HOOK_EVENTS and (meant := nearest(event, HOOK_EVENTS)):
            raise TypeError(f"hooks: unknown event {event!r}; did you mean {meant!r}?")
        for matcher in matchers:
            for name, rule in MATCHER_RULES.items():
                if (value := getattr(matcher, name, None)) is not None:
                    check_value(f"{name} of hooks[{event!r}]", rule, value)
            for hook in matcher.hooks:
                if not callable(hook):
                    raise TypeError(f"a hook for {event} must be a function, not {type(hook).__name__}")


def check_keys_of_dicts(options: Options[Any]) -> None:
    """Raises TypeError for a misspelled key in an option that is a dict."""
    for name, kinds in KEYED.items():
        value = getattr(options, name)
        if isinstance(value, Mapping):
            check_keys(name, value, keys_of(*kinds))
    if isinstance(options.sandbox, Mapping) and isinstance(network := options.sandbox.get("network"), Mapping):
        check_keys("sandbox['network']", network, keys_of(shapes.SandboxNetworkConfig))
    for number, plugin in enumerate(options.plugins):
        check_keys(f"plugins[{number}]", plugin, keys_of(shapes.SdkPluginConfig))
    servers = options.mcp_servers if isinstance(options.mcp_servers, Mapping) else {}
    for name, server in servers.items():
        check_keys(f"mcp_servers[{name!r}]", server, keys_of(*get_args(shapes.McpServerConfig)))


def keys_of(*kinds: Any) -> set[str]:
    """The keys that TypedDicts declare."""
    return {key for kind in kinds for key in (*kind.__required_keys__, *kind.__optional_keys__)}


def check_names(options: Options[Any]) -> None:
    prompt = options.system_prompt
    if isinstance(prompt, Mapping) and prompt.get("type") not in ("preset", "custom", "file"):
        raise ValueError(f"unknown system_prompt type {prompt.get('type')!r} (choose from preset, custom, file)")
    for plugin in options.plugins:
        if plugin.get("type") != "local":
            raise ValueError(f"unknown plugin type {plugin.get('type')!r} (only 'local' is supported)")
    for skill in options.skills if isinstance(options.skills, list) else ():
        if not SKILL_NAME.fullmatch(skill):
            raise ValueError(
                f"invalid skill name {skill!r} (a name starts with a letter or digit "
                "and contains letters, digits, '_', ':', '.' and '-')"
            )
    for name, value in options.extra_args.items():
        if not FLAG_NAME.fullmatch(name):
            raise ValueError(f"extra_args: invalid flag name {name!r} (expected letters, digits and '-')")
        if value is not None and "\0" in str(value):
            raise ValueError(f"extra_args: the value of {name} contains a NUL character")


def check_engine(options: Options[Any]) -> None:
    """Raises ValueError for options that this kind of engine cannot have."""
    if is_gateway(options.engine):
        for name in HERE_ONLY:
            if getattr(options, name):
                raise ValueError(
                    f"{name} has no effect with engine={options.engine!r}: the session runs on the gateway"
                )
        if options.fork_session and not options.resume:
            raise ValueError("fork_session needs resume: the id of the session on the gateway to copy")
        if options.resume_session_at and not options.fork_session:
            raise ValueError(
                "resume_session_at needs fork_session with an engine on a gateway: other clients see the session"
            )
    elif options.token is not None:
        raise ValueError(f"token needs the URL of a gateway as engine, but engine is {options.engine!r}")
    if options.mcp_servers_delivery == "initialize" and options.engine != "process":
        raise ValueError(f"mcp_servers_delivery='initialize' needs engine='process', but engine is {options.engine!r}")
    if options.workers is not None and options.engine != "local":
        raise ValueError(f"workers needs engine='local', but engine is {options.engine!r}")


def check_value(name: str, rule: OptionRule, value: Any) -> None:
    if not rule.has_type(value):
        raise TypeError(f"{name} must be {rule.expected}, not {describe_shape(value):.{SHOWN_CHARS}}")
    if not rule.is_valid(value):
        raise ValueError(f"{name} must be {rule.expected}, not {value!r:.{SHOWN_CHARS}}")


def describe_shape(value: Any) -> str:
    """Describe a value by the types it contains, e.g. `{'name': str}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {describe_shape(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(describe_shape, value)) + "]"
    return type(value).__name__
