"""The types of values in settings, each with a description for error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from parley.protocol.base import Json, Struct
from parley.protocol.options import EFFORTS, MODES, SYNC_POLICIES
from parley.settings.env_vars import LIMITS, are_limits

PROVIDERS = (
    *("anthropic", "customEndpoint", "bedrock", "vertex", "foundry", "anthropicAws", "mantle", "gateway", "openai"),
)
Surface = Literal["skills", "agents", "hooks", "mcp"]
"""What `strictPluginOnlyCustomization` can lock."""
Rate = Annotated[float, Meta(ge=0, le=10_000)]
Count = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(min_length=1)]


class ValueKind(Struct, frozen=True):
    """A type of values, with its description for error messages."""

    description: str
    accepts: Callable[[Any], bool]


def of_type(description: str, kind: Any) -> ValueKind:
    """Values that msgspec accepts for a type."""

    def accepts(value: Any) -> bool:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return False
        return True

    return ValueKind(description, accepts)


def one_of(*values: str) -> ValueKind:
    return ValueKind(f"one of {', '.join(values)}", lambda value: value in values)


def list_of(*values: str) -> ValueKind:
    return ValueKind(
        f"a list with items from {', '.join(values)}",
        lambda value: TEXTS.accepts(value) and all(item in values for item in value),
    )


class MemoryKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys under `memory`, by the fields of the memory policy. A misspelled key would have no effect."""

    enabled: bool | UnsetType = UNSET
    model: Name | UnsetType = UNSET
    summary_model: Name | UnsetType = field(name="summaryModel", default=UNSET)
    view_tokens: Count | UnsetType = field(name="viewTokens", default=UNSET)
    consolidates: bool | UnsetType = field(name="consolidate", default=UNSET)
    trivial_tokens: Annotated[int, Meta(ge=0)] | UnsetType = field(name="trivialTokens", default=UNSET)
    piece_tokens: Count | UnsetType = field(name="pieceTokens", default=UNSET)
    max_calls: Count | UnsetType = field(name="maxCalls", default=UNSET)
    max_seconds: Count | UnsetType = field(name="maxSeconds", default=UNSET)


def policy_fields(value: Json) -> Json:
    """The values under `memory` by the names of the policy's fields."""
    given = msgspec.structs.asdict(msgspec.convert(value, MemoryKeys))
    return {name: found for name, found in given.items() if found is not UNSET and name != "enabled"}


class ModelRates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: Rate
    output: Rate
    cacheRead: Rate
    cacheWrite: Rate


class ModelPricing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    multiplier: Annotated[float, Meta(gt=0, le=10)] = 1
    overrides: dict[str, ModelRates] = {}


class AttributionTexts(Struct, frozen=True, kw_only=True):
    commit: str = ""
    pr: str = ""


def is_server_entry(entry: Any) -> bool:
    """Whether an entry names a server by exactly one of its name, its command or its URL."""
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    key, value = next(iter(entry.items()))
    if key == "serverCommand":
        return TEXTS.accepts(value) and bool(value)
    return key in ("serverName", "serverUrl") and isinstance(value, str) and bool(value)


def is_remote_server(server: Any) -> bool:
    """Whether a server has a URL, and neither a command nor variables."""
    return (
        isinstance(server, dict)
        and server.get("type") in ("http", "sse")
        and isinstance(server.get("url"), str)
        and "command" not in server
        and "${" not in repr(server)
    )


def is_version(value: Any) -> bool:
    return isinstance(value, str) and all(part.isdecimal() for part in value.split("."))


TEXT = ValueKind("a string", lambda value: isinstance(value, str))
SWITCH = ValueKind("true or false", lambda value: isinstance(value, bool))
COUNT = ValueKind(
    "a whole number, 0 or more", lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0
)
OBJECT = ValueKind("an object", lambda value: isinstance(value, dict))
GROUP = ValueKind("an object", OBJECT.accepts)
"""An object whose keys are rows of the table."""
LIST = ValueKind("a list", lambda value: isinstance(value, list))
RULES = ValueKind("a list", LIST.accepts)
"""A list whose items are checked one by one."""
TEXTS = of_type("a list of strings", list[str])
TEXT_OR_TEXTS = of_type("a string or a list of strings", str | list[str])
TEXT_MAP = of_type("an object with strings as its values", dict[str, str])
MODE = ValueKind(f"one of {', '.join(MODES)}", lambda value: value in (*MODES, "manual"))
SYNC = one_of(*SYNC_POLICIES)
DISABLE = ValueKind('"disable"', lambda value: value == "disable")
LIMIT_OBJECT = ValueKind(f"an object of numbers with keys from {', '.join(LIMITS)}", are_limits)
MEMORY_OBJECT = of_type("an object with known keys and valid values (docs/memory.md)", MemoryKeys)
SERVER_LIST = ValueKind(
    "a list of objects, each with serverName, serverCommand (a list) or serverUrl",
    lambda value: isinstance(value, list) and all(map(is_server_entry, value)),
)
REMOTE_SERVERS = ValueKind(
    'an object of servers of the type "http" or "sse"; their values cannot contain ${VAR}',
    lambda value: isinstance(value, dict) and all(map(is_remote_server, value.values())),
)
VERSION = ValueKind("a version such as 2.1.300", is_version)
PRICING = of_type(
    "an object with multiplier (a number) and overrides (by model, each with input, output, cacheRead, cacheWrite)",
    ModelPricing,
)
SURFACE_LIST = of_type("true, false or a list with items from skills, agents, hooks, mcp", bool | list[Surface])
ATTRIBUTION = of_type("true, false or an object with the strings commit and pr", bool | AttributionTexts)
SKILL_MAP = of_type(
    "an object with values from on, name-only, user-invocable-only, off",
    dict[str, Literal["on", "name-only", "user-invocable-only", "off"]],
)
EFFORT = one_of(*EFFORTS)
ANY = ValueKind("anything", lambda value: True)
