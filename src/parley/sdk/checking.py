"""Options of the wrong kind: told by name where they are used, before anything is started.

    allowed_tools must be a list of strings, not str

What was given is shown by its shape, never by its values: there may be keys among them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

from parley.sdk.options import Options

SHOWN_CHARS = 200
Test = Callable[[Any], bool]


class Rule(NamedTuple):
    words: str
    fits: Test


def a(*kinds: type) -> Test:
    return lambda value: isinstance(value, kinds)


def listed(fits: Test) -> Test:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def mapped(fits: Test) -> Test:
    return lambda value: (
        isinstance(value, Mapping) and all(isinstance(name, str) and fits(one) for name, one in value.items())
    )


def either(*tests: Test) -> Test:
    return lambda value: any(fits(value) for fits in tests)


def strings(value: Any) -> bool:
    """A list only: the two that ask would take a tuple for "whatever there is"."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def is_matcher(value: Any) -> bool:
    return hasattr(value, "matcher") and isinstance(value.hooks, list | tuple)


def is_agent(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


STRINGS = Rule("a list of strings", listed(a(str)))
FUNCTION = Rule("a function", callable)
RULES: dict[str, Rule] = {
    **dict.fromkeys(("allowed_tools", "disallowed_tools", "betas", "setting_sources"), STRINGS),
    **dict.fromkeys(("supported_dialog_kinds", "faults"), STRINGS),
    **dict.fromkeys(("can_use_tool", "on_question", "on_plan", "on_elicitation", "on_user_dialog"), FUNCTION),
    "stderr": FUNCTION,
    "tools": Rule("a list of strings or a preset", either(strings, a(dict))),
    "skills": Rule('a list of strings or "all"', lambda value: strings(value) or value == "all"),
    "add_dirs": Rule("a list of paths", listed(a(str, os.PathLike))),
    "plugins": Rule("a list of dicts", listed(a(dict))),
    "env": Rule("a dict of strings", mapped(a(str))),
    "extra_args": Rule("a dict of flags and their values", a(Mapping)),
    "hooks": Rule("a dict of lists of HookMatcher", mapped(listed(is_matcher))),
    "agents": Rule("a dict of AgentDefinition", mapped(is_agent)),
    "mcp_servers": Rule("a dict of servers by name, or a path", either(mapped(a(dict)), a(str, os.PathLike))),
}
ALWAYS = frozenset(("allowed_tools", "plugins", "env", "extra_args", "mcp_servers"))
"""Those that None cannot stand for."""


def checked(options: Options | None) -> Options:
    """The options, if all can be used. Raises TypeError."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise TypeError(f"options must be an Options, not {type(options).__name__}")
    for name, rule in RULES.items():
        value = getattr(options, name)
        if (value is not None or name in ALWAYS) and not rule.fits(value):
            raise TypeError(f"{name} must be {rule.words}, not {shape(value):.{SHOWN_CHARS}}")
    return options


def shape(value: Any) -> str:
    """A value with the names of types in place of what it holds."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {shape(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shape, value)) + "]"
    return type(value).__name__
