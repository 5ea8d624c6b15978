"""Permission updates: how a host changes the permissions of a session, or of later sessions as well.

    parse_updates([{"type": "addRules", "rules": [...], "behavior": "allow", "destination": "session"}])

See also: how they are applied (policy.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from parley.permissions.base import InvalidUpdate
from parley.permissions.rule import Behavior
from parley.protocol.base import Json, Struct

Destination = Literal["session", "cliArg", "localSettings", "projectSettings", "userSettings"]
SOURCES: dict[Destination, str] = {
    "session": "session",
    "cliArg": "session",
    "localSettings": "local",
    "projectSettings": "project",
    "userSettings": "user",
}
MAX_ITEMS = 4096
"""Updates, rules and directories in one request, together."""


class RuleContents(Struct, frozen=True, forbid_unknown_fields=True):
    toolName: str
    ruleContent: str | None = None


class _RuleUpdate(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    rules: list[RuleContents]
    behavior: Behavior
    destination: Destination = "session"


class AddRules(_RuleUpdate, frozen=True, kw_only=True, tag="addRules"):
    """Add rules to the existing ones."""


class ReplaceRules(_RuleUpdate, frozen=True, kw_only=True, tag="replaceRules"):
    """Replace all rules of this behavior and destination."""


class RemoveRules(_RuleUpdate, frozen=True, kw_only=True, tag="removeRules"):
    """Remove exactly these rules."""


class SetMode(Struct, frozen=True, kw_only=True, tag_field="type", tag="setMode", forbid_unknown_fields=True):
    mode: Literal["default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto"]
    destination: Destination = "session"


class AddDirectories(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="addDirectories", forbid_unknown_fields=True
):
    directories: list[str]
    destination: Destination = "session"


class RemoveDirectories(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="removeDirectories", forbid_unknown_fields=True
):
    directories: list[str]
    destination: Destination = "session"


Update = AddRules | ReplaceRules | RemoveRules | SetMode | AddDirectories | RemoveDirectories


def parse_updates(updates: Sequence[Json]) -> list[Update]:
    """Raises InvalidUpdate if one of them is malformed, or if there are too many.

    Unknown keys are refused: with a misspelt `ruleContent`, a rule would match every call of its tool.
    """
    cleaned = [{key: value for key, value in update.items() if value is not None} for update in updates]
    try:
        parsed: list[Update] = msgspec.convert(cleaned, list[Update])
    except msgspec.ValidationError as exc:
        raise InvalidUpdate(str(exc)) from None
    if sum(1 + count_items(update) for update in parsed) > MAX_ITEMS:
        raise InvalidUpdate(
            f"too many permission updates: more than {MAX_ITEMS} updates, rules and directories in total"
        )
    return parsed


def count_items(update: Any) -> int:
    return len(getattr(update, "rules", ())) + len(getattr(update, "directories", ()))
