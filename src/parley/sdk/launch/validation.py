"""Check the types and values of options before anything is started. Errors name the option:

    allowed_tools must be a list of strings, not str                                TypeError
    max_turns must be a whole number, 0 or more, not -3                             ValueError

A message shows the type of a value, not the value, because it may be a secret. Only numbers and values of an
enumeration are shown. What the official SDK accepts is accepted here: numbers as text, and empty strings for
"not set". Non-bool values of a switch and unknown hook events only cause a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, NamedTuple, get_args

from parley.sdk.options import Options
from parley.sdk.spelling import check_keys, nearest
from parley.sdk.types import shapes
from parley.sdk.types.generic import OutputT
from parley.sdk.types.hooks import HookEvent, MoreHookEvent
from parley.sdk.types.shapes import EffortLevel, PermissionMode, SessionStoreFlushMode

SHOWN_CHARS = 200
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
SWITCH = OptionRule("a switch", lambda value: True)
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
    **dict.fromkeys(("dict[str, Any]", "ThinkingConfig", "SandboxSettings", "TaskBudget"), DICT),
}
"""The rule for each declared type."""
RULES: dict[str, OptionRule] = {
    **{one.name: KINDS[kind] for one in fields(Options) if (kind := str(one.type).removesuffix(" | None")) in KINDS},
    **dict.fromkeys(("settings", "debug_file", "store", "database", "record"), PATH),
    **dict.fromkeys(("max_buffer_size", "load_timeout_ms", "control_timeout_seconds"), SDK_NUMBER),
    "mcp_servers_delivery": one_of(Literal["argv", "initialize"]),
    "workers": OptionRule(
        "a whole number, 1 or more",
        lambda value: isinstance(value, int) and not isinstance(value, bool),
        lambda value: value >= 1,
    ),
    "system_prompt": OptionRule("a string or a dict", instance_of(str, Mapping)),
    **dict.fromkeys(("allowed_tools", "disallowed_tools", "betas", "setting_sources"), STRINGS),
    **dict.fromkeys(("supported_dialog_kinds", "faults"), STRINGS),
    **dict.fromkeys(("can_use_tool", "on_question", "on_plan", "on_elicitation", "on_user_dialog"), FUNCTION),
    "stderr": FUNCTION,
    "tools": OptionRule("a list of tool names and functions, or a preset", any_of(is_tools, instance_of(dict))),
    "model": OptionRule("a string or a Script", any_of(instance_of(str), is_script)),
    "budget": OptionRule("a Budget", lambda value: hasattr(value, "check") and hasattr(value, "add")),
    "tool_aliases": OptionRule("a dict of strings", dict_of(instance_of(str))),
    "skills": OptionRule('a list of strings or "all"', lambda value: is_strings(value) or value == "all"),
    "add_dirs": OptionRule("a list of paths", list_of(instance_of(str, os.PathLike))),
    "plugins": OptionRule("a list of dicts", list_of(instance_of(dict))),
    "env": OptionRule("a dict of strings", dict_of(instance_of(str))),
    "extra_args": OptionRule("a dict of flags and their values", instance_of(Mapping)),
    "hooks": OptionRule("a dict of lists of HookMatcher", dict_of(list_of(is_matcher))),
    "agents": OptionRule("a dict of AgentDefinition", dict_of(is_agent)),
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
    """Return the options if all are valid. Raises TypeError or ValueError."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise TypeError(f"options must be an Options, not {type(options).__name__}")
    for name, rule in RULES.items():
        value = getattr(options, name)
        if value is not None or name in ALWAYS:
            check_value(name, rule, value)
        if rule is SWITCH and isinstance(value, str):
            warnings.warn(
                f"{name} must be a bool, but a string was given; any non-empty string, even 'false', "
                "turns the option on",
                stacklevel=3,
            )
    check_hooks(options)
    check_option_keys(options)
    return options


def check_option_keys(options: Options[Any]) -> None:
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


def check_hooks(options: Options[Any]) -> None:
    """Raises TypeError or ValueError."""
    known = (*get_args(HookEvent), *get_args(MoreHookEvent))
    hooks: Mapping[Any, Any] = options.hooks or {}
    for event, matchers in hooks.items():
        if event not in known:
            if meant := nearest(event, known):
                raise TypeError(f"hooks: unknown event {event!r}; did you mean {meant!r}?")
            text = f"hooks: unknown event {event!r}; these hooks are probably never called (known events: "
            warnings.warn(f"{text}{', '.join(known)})", stacklevel=4)
        for matcher in matchers:
            for name, rule in MATCHER_RULES.items():
                if (value := getattr(matcher, name, None)) is not None:
                    check_value(f"{name} of hooks[{event!r}]", rule, value)


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
