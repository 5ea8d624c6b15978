"""PermissionUpdates: how a host changes what a session may do, now or for later sessions as well.

    parse_updates([{"type": "addRules", "rules": [...], "behavior": "allow", "destination": "session"}])

Not here: who takes them in (policy.py).
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
"""Updates, rules and folders of one answer, together."""


class RuleContents(Struct, frozen=True, forbid_unknown_fields=True):
    toolName: str
    ruleContent: str | None = None


class _RuleUpdate(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    rules: list[RuleContents]
    behavior: Behavior
    destination: Destination = "session"


class AddRules(_RuleUpdate, frozen=True, kw_only=True, tag="addRules"):
    """Beside those there are."""


class ReplaceRules(_RuleUpdate, frozen=True, kw_only=True, tag="replaceRules"):
    """Instead of all rules of that behavior and destination."""


class RemoveRules(_RuleUpdate, frozen=True, kw_only=True, tag="removeRules"):
    """Those of exactly these."""


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
    """Raises BadUpdate if one of them cannot be understood, or if there are too many.

    A key that is not known is not ignored: without a misspelt `ruleContent` a rule would be for every call of its tool.
    """
    given = [{key: value for key, value in update.items() if value is not None} for update in updates]
    try:
        read: list[Update] = msgspec.convert(given, list[Update])
    except msgspec.ValidationError as exc:
        raise InvalidUpdate(str(exc)) from None
    if sum(1 + count_items(update) for update in read) > MAX_ITEMS:
        raise InvalidUpdate(f"there are more than {MAX_ITEMS} updates, rules and directories")
    return read


def count_items(update: Any) -> int:
    return len(getattr(update, "rules", ())) + len(getattr(update, "directories", ()))
