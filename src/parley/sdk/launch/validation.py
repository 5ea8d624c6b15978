"""Options that cannot be: told by name where they are used, before anything is started.

    allowed_tools must be a list of strings, not str                                TypeError
    max_turns must be a whole number, 0 or more, not -3                             ValueError

What was given is shown by its shape, never by its values: there may be keys among them. Only numbers, and words
of which there are few, are shown as they are. What works with the official SDK works here: numbers as text, empty
texts for nothing; anything for a switch, and events of hooks that nobody knows yet, of which we warn.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, get_args

from parley.sdk.options import Options
from parley.sdk.types.hooks import HookEvent, MoreHookEvent
from parley.sdk.types.shapes import EffortLevel, PermissionMode, SessionStoreFlushMode

SHOWN_CHARS = 200
Test = Callable[[Any], bool]


class Rule(NamedTuple):
    words: str
    fits: Test
    """Whether it is of the right kind."""
    can_be: Test = lambda value: True
    """Whether it is one of those that can be used, if it is."""


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


def is_number(value: Any) -> bool:
    """Also as text, or of a type of its own."""
    try:
        return not isinstance(value, bool) and float(value) - float(value) == 0
    except (TypeError, ValueError, OverflowError):
        return False


def is_whole(value: Any) -> bool:
    return is_number(value) and float(value).is_integer()


def one_of(literal: Any) -> Rule:
    names = get_args(literal)
    # An empty text is nothing said, wherever the engine is told a word.
    return Rule(f"one of {', '.join(map(repr, names))}", a(str), lambda value: value in ("", *names))


STRINGS = Rule("a list of strings", listed(a(str)))
FUNCTION = Rule("a function", callable)
TEXT = Rule("a string", a(str))
PATH = Rule("a path", a(str, os.PathLike))
DICT = Rule("a dict", a(Mapping))
SWITCH = Rule("a switch", lambda value: True)
WHOLE = Rule("a whole number, 0 or more", is_whole, lambda value: float(value) >= 0)
NUMBER = Rule("a number, 0 or more", is_number, lambda value: float(value) >= 0)
OUR_OWN = Rule("a number, 0 or more", lambda value: isinstance(value, int | float) and is_number(value), NUMBER.can_be)
"""Those that no engine hears of: we count with them."""
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
"""What an option must be that is declared so."""
RULES: dict[str, Rule] = {
    **{one.name: KINDS[kind] for one in fields(Options) if (kind := str(one.type).removesuffix(" | None")) in KINDS},
    **dict.fromkeys(("settings", "debug_file", "store", "database", "record"), PATH),
    **dict.fromkeys(("max_buffer_size", "load_timeout_ms", "control_timeout_seconds"), OUR_OWN),
    "system_prompt": Rule("a string or a dict", a(str, Mapping)),
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
MATCHER_RULES = {
    "matcher": TEXT,
    "timeout": NUMBER,
    "on_failure": Rule("'continue' or 'block'", a(str), lambda value: value in ("continue", "block")),
}
ALWAYS = frozenset(("allowed_tools", "plugins", "env", "extra_args", "mcp_servers"))
"""Those that None cannot stand for."""


def checked(options: Options | None) -> Options:
    """The options, if all can be used. Raises TypeError or ValueError."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise TypeError(f"options must be an Options, not {type(options).__name__}")
    for name, rule in RULES.items():
        value = getattr(options, name)
        if value is not None or name in ALWAYS:
            must_fit(name, rule, value)
        if rule is SWITCH and isinstance(value, str):
            warnings.warn(f"{name} is a switch, and every text but the empty one turns it on", stacklevel=3)
    check_hooks(options)
    return options


def check_hooks(options: Options) -> None:
    """Raises TypeError or ValueError."""
    known = (*get_args(HookEvent), *get_args(MoreHookEvent))
    for event, matchers in (options.hooks or {}).items():
        if event not in known:
            words = f"hooks: no event {event!r} is known, so that an engine may never call its hooks; there are"
            warnings.warn(f"{words} {', '.join(known)}", stacklevel=4)
        for matcher in matchers:
            for name, rule in MATCHER_RULES.items():
                if (value := getattr(matcher, name, None)) is not None:
                    must_fit(f"{name} of hooks[{event!r}]", rule, value)


def must_fit(name: str, rule: Rule, value: Any) -> None:
    if not rule.fits(value):
        raise TypeError(f"{name} must be {rule.words}, not {shape(value):.{SHOWN_CHARS}}")
    if not rule.can_be(value):
        raise ValueError(f"{name} must be {rule.words}, not {value!r:.{SHOWN_CHARS}}")


def shape(value: Any) -> str:
    """A value with the names of types in place of what it holds."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {shape(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shape, value)) + "]"
    return type(value).__name__
