"""Whether an administrator limits the marketplaces that plugins come from.

    find_marketplace_policy(merged, {"source": "github", "repo": "acme/tools"})   -> "blockedMarketplaces" or None

A plugin of the command line, or one that was installed from a folder, an archive or a repository, has no marketplace.
Under any such policy, it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parley.protocol.base import Json
from parley.settings.base import MergedSettings
from parley.settings.safe_read import UnreadableFile

ALLOWED = ("strictKnownMarketplaces", "allowedMarketplaces")
"""An empty list permits no marketplace."""
BLOCKED = "blockedMarketplaces"


def find_marketplace_policy(merged: MergedSettings, source: Json | None = None) -> str | None:
    """The managed key that forbids plugins of a marketplace; without a source, the key that limits marketplaces."""
    for key in ALLOWED:
        listed = merged.get(key)
        if listed is not None and (source is None or not any(matches(rule, source, True) for rule in listed)):
            return key
    blocked = merged.get(BLOCKED)
    return BLOCKED if blocked and (source is None or any(matches(rule, source, False) for rule in blocked)) else None


def find_refused(merged: MergedSettings, config: Path, enabled: Mapping[str, str]) -> dict[str, Json]:
    """An error for each enabled plugin whose marketplace is not permitted.

    `enabled` says by which settings. One that the administrator enables needs no marketplace.
    """
    from parley.settings.files.marketplaces import read_known

    try:
        known = read_known(config)
    except UnreadableFile:  # without the list, no marketplace is known to be permitted
        known = {}
    found: dict[str, Json] = {}
    for id, by in enabled.items():
        market = known.get(id.rpartition("@")[2])
        source = market.source if market is not None else None
        if source is None and by == "managed":
            continue
        if key := find_marketplace_policy(merged, source):
            found[id] = build_block(id, key, source)
    return found


def matches(rule: Any, source: Json, allows: bool) -> bool:
    """Whether an entry of a policy means a source. In doubt, one that allows does not, and one that blocks does."""
    from parley.settings.files.marketplaces import canonical, host_of, is_local

    if not isinstance(rule, dict):
        return not allows
    for key, text in (("hostPattern", host_of(source)), ("pathPattern", str(source.get("path", "")))):
        if rule.get("source") == key:
            try:
                pattern = re.compile(str(rule.get(key)))
            except re.error:
                return not allows
            return bool(text) and (pattern.fullmatch(text) if allows else pattern.search(text)) is not None
    if canonical(rule) != canonical(source) or is_local(rule) != is_local(source):
        return False
    wanted = rule.get("ref", "")
    return wanted == source.get("ref", "") or (not allows and not wanted)


def describe_obstacle(key: str, source: Json | None = None) -> str:
    if source is not None:
        return f"managed settings do not permit its marketplace ({key})"
    return f"managed settings restrict plugin marketplaces ({key}), and this plugin has none"


def build_block(plugin: str, key: str, source: Json | None = None) -> Json:
    """The error of a plugin that is not loaded because of a managed key."""
    message = describe_obstacle(key, source)
    if key == "enabledPlugins":
        message = f"managed settings enable a plugin of the same name ({key})"
    return {"plugin": plugin, "type": "plugin-blocked", "message": message}
