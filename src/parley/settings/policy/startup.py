"""Settings that a session must not start with: a policy that would be skipped, a sandbox that is missing.

A managed key that has no effect here stops the start, as an invalid managed file does. Everything is decided from the
layers and the merged settings; nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from parley.errors import SessionError, StartRefused
from parley.protocol.options import CliOptions
from parley.settings.base import (
    NO_EFFECT,
    UNENFORCED,
    UNKNOWN_KEY,
    MergedSettings,
    SettingsLayer,
    SettingsProblem,
    printable,
)
from parley.settings.keys.validation import validate_layer
from parley.version import PROTOCOL_LEVEL

INVALID = "managed_settings_invalid"
"""The reason on the wire of a start that managed settings stop."""
SANDBOX_REFUSED = (
    "Sandbox required but unavailable: sandbox is enabled but {problem}. "
    "Set sandbox.failIfUnavailable=false to allow unsandboxed execution."
)
SANDBOX_MISSING = (
    "Sandbox disabled: sandbox is enabled but {problem}. "
    "Commands will run WITHOUT sandboxing. Network and filesystem restrictions will NOT be enforced."
)
SIDELOADING: dict[str, tuple[str, Literal["agents", "plugins"]]] = {
    "plugin_dirs": ("--plugin-dir", "plugins"),
    "plugin_dirs_no_mcp": ("--plugin-dir", "plugins"),
    "agents": ("--agents", "agents"),
}
"""The options that an administrator can refuse, besides `--mcp-config`, and what they add."""


def check_start(
    layers: Sequence[SettingsLayer], merged: MergedSettings, find_sandbox_problem: Callable[[MergedSettings], str]
) -> None:
    """Raises SessionError; StartRefused if managed settings are the reason.

    `find_sandbox_problem`: says why there is no sandbox; "" if there is one."""
    for layer in layers:
        if layer.source == "managed":
            check_managed(layer, merged)
    for problem in merged.problems:
        if problem.restricts:
            raise SessionError(f"{problem}; {UNENFORCED}")
    check_sandbox(merged, find_sandbox_problem)
    check_version(merged)


def check_managed(layer: SettingsLayer, merged: MergedSettings) -> None:
    """Raises StartRefused if a value of a managed layer has no effect."""
    _, problems = validate_layer(layer)
    missed = [
        SettingsProblem(path=layer.path, text=f"{printable(entry.key)}: {entry.reason}")
        for entry in merged.ignored
        if entry.source == "managed" and entry.path == layer.path and entry.reason in (NO_EFFECT, UNKNOWN_KEY)
    ]
    if found := [*problems, *missed]:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise StartRefused(
            f"{found[0]}{more}; the session does not start, because a policy cannot be enforced", INVALID
        )


def check_sandbox(merged: MergedSettings, find_problem: Callable[[MergedSettings], str]) -> None:
    """Raises StartRefused if a sandbox is asked for and missing, unless the settings say that it may be missing.

    Only an administrator can say that of a sandbox that an administrator enables.
    """
    enabled, required = merged.values.get("sandbox.enabled"), merged.values.get("sandbox.failIfUnavailable")
    if enabled is None or enabled.value is not True:
        return
    is_required = required is None or required.value is True
    if is_required or (enabled.source == "managed" and required is not None and required.source != "managed"):
        require_sandbox(find_problem(merged))


def require_sandbox(problem: str) -> None:
    """Raises StartRefused if there is a problem."""
    if problem:
        raise StartRefused(SANDBOX_REFUSED.format(problem=problem), "sandbox_required_unavailable")


def check_version(merged: MergedSettings) -> None:
    """Raises StartRefused if an administrator requires another version."""
    lowest, highest = merged.get("requiredMinimumVersion"), merged.get("requiredMaximumVersion")
    own = version_key(PROTOCOL_LEVEL)
    if lowest is not None and own < version_key(lowest):
        raise StartRefused(
            f"managed settings require version {lowest} or later (requiredMinimumVersion); "
            f"this engine is compatible with version {PROTOCOL_LEVEL}. Update it.",
            "cli_version_too_old",
        )
    if highest is not None and own > version_key(highest):
        raise StartRefused(
            f"managed settings require version {highest} or earlier (requiredMaximumVersion); "
            f"this engine is compatible with version {PROTOCOL_LEVEL}. Install an approved version.",
            INVALID,
        )


def version_key(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    return tuple([*numbers, 0, 0, 0][: max(3, len(numbers))])


def check_flags(options: CliOptions, merged: MergedSettings, cwd: str) -> None:
    """Raises StartRefused if a managed key forbids an option, or UsageError."""
    for field, (flag, surface) in SIDELOADING.items():
        if getattr(options, field) and (key := merged.find_lock(surface)):
            raise StartRefused(f"option '{flag}' is disabled by managed settings ({key})", INVALID)
    if not options.mcp_config or not (key := merged.find_lock("mcp")):
        return
    from parley.settings.mcp_files import from_command_line

    servers = [server for one in from_command_line(options.mcp_config, cwd) for server in one.servers.values()]
    # A server that the client runs itself is not started by us.
    if any(not isinstance(server, dict) or server.get("type") != "sdk" for server in servers):
        raise StartRefused(
            f"MCP servers of --mcp-config or initialize are disabled by managed settings ({key})", INVALID
        )
