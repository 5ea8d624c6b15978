"""The types of values in settings, each with a description for error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.protocol.base import Struct
from parley.protocol.options import MODES, SYNC_POLICIES
from parley.settings.option_values import LIMITS, are_limits

EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""The effort levels, lowest first."""
SURFACES = ("skills", "agents", "hooks", "mcp")
"""What `strictPluginOnlyCustomization` can lock."""
PROVIDERS = (
    "anthropic",
    "customEndpoint",
    "bedrock",
    "vertex",
    "foundry",
    "anthropicAws",
    "mantle",
    "gateway",
    "openai",
)
SKILL_STATES = ("on", "name-only", "user-invocable-only", "off")
RATES = ("input", "output", "cacheRead", "cacheWrite")


class ValueKind(Struct, frozen=True):
    """A type of values, with its description for error messages."""

    description: str
    accepts: Callable[[Any], bool]


def is_memory(value: Any) -> bool:
    from parley.settings.memory_options import is_valid

    return is_valid(value)


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def one_of(*values: str) -> ValueKind:
    return ValueKind(f"one of {', '.join(values)}", lambda value: value in values)


def list_of(*values: str) -> ValueKind:
    return ValueKind(
        f"a list with items from {', '.join(values)}",
        lambda value: is_texts(value) and all(item in values for item in value),
    )


def is_server_list(value: Any) -> bool:
    """Entries that name a server by exactly one of its name, its command or its URL."""
    return isinstance(value, list) and all(isinstance(entry, dict) and is_server_entry(entry) for entry in value)


def is_server_entry(entry: dict[str, Any]) -> bool:
    if len(entry) != 1:
        return False
    key, value = next(iter(entry.items()))
    if key == "serverCommand":
        return is_texts(value) and bool(value)
    return key in ("serverName", "serverUrl") and isinstance(value, str) and bool(value)


def is_remote_servers(value: Any) -> bool:
    """Servers by name, each with a URL, and without commands and variables."""
    return isinstance(value, dict) and all(
        isinstance(server, dict)
        and server.get("type") in ("http", "sse")
        and isinstance(server.get("url"), str)
        and "command" not in server
        and "${" not in repr(server)
        for server in value.values()
    )


def is_version(value: Any) -> bool:
    return isinstance(value, str) and all(part.isdecimal() for part in value.split("."))


def is_pricing(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() - {"multiplier", "overrides"}:
        return False
    multiplier, overrides = value.get("multiplier", 1), value.get("overrides", {})
    if not is_number(multiplier) or not 0 < multiplier <= 10 or not isinstance(overrides, dict):
        return False
    return all(
        isinstance(row, dict)
        and row.keys() == set(RATES)
        and all(is_number(rate) and 0 <= rate <= 10_000 for rate in row.values())
        for row in overrides.values()
    )


def is_surfaces(value: Any) -> bool:
    return isinstance(value, bool) or (is_texts(value) and all(item in SURFACES for item in value))


def is_attribution(value: Any) -> bool:
    if isinstance(value, bool):
        return True
    return isinstance(value, dict) and all(isinstance(value.get(key, ""), str) for key in ("commit", "pr"))


def is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


TEXT = ValueKind("a string", lambda value: isinstance(value, str))
SWITCH = ValueKind("true or false", lambda value: isinstance(value, bool))
WHOLE = ValueKind("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))
COUNT = ValueKind("a whole number, 0 or more", lambda value: WHOLE.accepts(value) and value >= 0)
OBJECT = ValueKind("an object", lambda value: isinstance(value, dict))
LIST = ValueKind("a list", lambda value: isinstance(value, list))
TEXTS = ValueKind("a list of strings", is_texts)
TEXT_OR_TEXTS = ValueKind("a string or a list of strings", lambda value: isinstance(value, str) or is_texts(value))
TEXT_MAP = ValueKind("an object with strings as its values", is_text_map)
MODE = ValueKind(f"one of {', '.join(MODES)}", lambda value: value in (*MODES, "manual"))
SYNC = one_of(*SYNC_POLICIES)
DISABLE = ValueKind('"disable"', lambda value: value == "disable")
LIMIT_OBJECT = ValueKind(f"an object of numbers with keys from {', '.join(LIMITS)}", are_limits)
MEMORY_OBJECT = ValueKind("an object with known keys and valid values (docs/memory.md)", is_memory)
SERVER_LIST = ValueKind("a list of objects, each with serverName, serverCommand (a list) or serverUrl", is_server_list)
REMOTE_SERVERS = ValueKind(
    'an object of servers of the type "http" or "sse"; their values cannot contain ${VAR}', is_remote_servers
)
VERSION = ValueKind("a version such as 2.1.300", is_version)
PRICING = ValueKind(
    f"an object with multiplier (a number) and overrides (by model, each with {', '.join(RATES)})", is_pricing
)
SURFACE_LIST = ValueKind(f"true, false or a list with items from {', '.join(SURFACES)}", is_surfaces)
ATTRIBUTION = ValueKind("true, false or an object with the strings commit and pr", is_attribution)
SKILL_MAP = ValueKind(
    f"an object with values from {', '.join(SKILL_STATES)}",
    lambda value: isinstance(value, dict) and all(item in SKILL_STATES for item in value.values()),
)
EFFORT = one_of(*EFFORTS)
ANY = ValueKind("anything", lambda value: True)
