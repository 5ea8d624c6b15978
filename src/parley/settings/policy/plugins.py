"""Whether an administrator limits the marketplaces that plugins come from.

Parley uses no marketplaces and cannot tell which one a plugin comes from. Under such a policy, only plugins that the
managed settings themselves enable are loaded, and none is installed.
"""

from __future__ import annotations

from parley.protocol.base import Json
from parley.settings.base import MergedSettings

ALLOWED = ("strictKnownMarketplaces", "allowedMarketplaces")
"""An empty list permits no marketplace."""
BLOCKED = "blockedMarketplaces"


def find_marketplace_policy(merged: MergedSettings) -> str | None:
    """The managed key that limits marketplaces, if there is one."""
    limits = [key for key in ALLOWED if merged.get(key) is not None]
    return next(iter([*limits, *([BLOCKED] if merged.get(BLOCKED) else [])]), None)


def describe_obstacle(key: str) -> str:
    return f"managed settings restrict plugin marketplaces ({key}), and the marketplace of this plugin is not known"


def build_block(plugin: str, key: str) -> Json:
    """The error of a plugin that is not loaded because of a managed key."""
    message = describe_obstacle(key)
    if key == "enabledPlugins":
        message = f"managed settings enable a plugin of the same name ({key})"
    return {"plugin": plugin, "type": "plugin-blocked", "message": message}
