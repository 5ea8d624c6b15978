"""The hooks of settings and of other packages, with what they use.

See also: `parley.hooks.settings` reads them, `parley.hooks.extension` those of packages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from parley.compose.launch_context import LaunchContext
from parley.compose.mcp import ConfinedStarter
from parley.compose.permissions import new_policy
from parley.hooks.base import Condition, Hook, HookRuntime, HookServices, HttpHookPolicy
from parley.hooks.handlers import merge_lists
from parley.hooks.settings import load_hooks
from parley.permissions.base import Allow, Deny, ToolRequest
from parley.permissions.policy import LaunchRules
from parley.settings.base import TREE, SettingsValue
from parley.tools.base import Workspace
from parley.tools.catalog import FILE_EFFECTS, find_traits

URLS = "allowedHttpHookUrls"
VARIABLES = "httpHookAllowedEnvVars"


def load_settings_hooks(
    launch: LaunchContext, layers: Sequence[SettingsValue], workspace: Workspace, services: HookServices
) -> tuple[Sequence[Hook], Sequence[str]]:
    """The hooks of all layers, and what is wrong with them."""

    def make_runtime(layer: SettingsValue) -> HookRuntime:
        starter = ConfinedStarter(workspace, "hook", by_project=layer.source in TREE)
        return HookRuntime(
            services=services,
            processes=starter,
            environment=workspace.environment,
            project=launch.started_in,
            get_http_policy=lambda: http_policy(launch, by_admin=layer.source == "managed"),
        )

    hooks, problems = load_hooks(layers, partial(make_condition, launch), make_runtime)
    return hooks, [str(problem) for problem in problems]


def find_hook_problems(launch: LaunchContext) -> list[str]:
    """What a session would report about the hooks of the settings in effect."""
    make = partial(make_condition, launch)
    return [str(problem) for problem in load_hooks(launch.settings.merged.hooks, make)[1]]


def http_policy(launch: LaunchContext, *, by_admin: bool) -> HttpHookPolicy:
    """What the settings permit to http hooks: the lists of all files together, except those of the project.

    Hooks of managed settings are limited only by lists that managed settings have too: a user must not turn off what
    an administrator requires.
    """
    layers = [layer for layer in launch.settings.layers() if layer.source not in TREE]

    def is_unlimited(key: str) -> bool:
        return by_admin and not any(key in layer.values for layer in layers if layer.source == "managed")

    variables = None if is_unlimited(VARIABLES) else merge_lists([list_of(one.values, VARIABLES) for one in layers])
    return HttpHookPolicy(
        urls=merge_lists([list_of(one.values, URLS) for one in layers]),
        is_exempt=is_unlimited(URLS),
        variables=None if variables is None else frozenset(variables),
    )


def list_of(values: dict[str, Any], key: str) -> list[str] | None:
    """A list of strings in a settings file. A value of another type permits nothing."""
    value = values.get(key)
    if value is None:
        return None
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []


def make_condition(launch: LaunchContext, rule: str, warn: Callable[[str], None]) -> Condition:
    """Whether a call matches a rule, as a deny rule would: a command that contains a matching one, or may, does."""

    problems: list[str] = []
    rules = LaunchRules(cwd=launch.started_in, user_root=str(launch.config), denied=(rule,))
    policy = new_policy(launch, rules, problems.append)
    if problems or not policy.list_rules()["rules"]:
        warn(f"`if`: {rule!r:.100} is not a valid permission rule; the hook runs for every call")
        return lambda request: True
    # Rules for commands and files are compared with commands, where the answer may be unknown.
    may_be_unknown = find_traits(policy.rules.rules[0].tool).effect in (*FILE_EFFECTS, "runs_commands")

    def matches(request: ToolRequest) -> bool:
        # The tools that ask a person, or that the client runs, are decided upon before what is unknown of a call.
        request = msgspec.structs.replace(request, asks_user=False, runs_elsewhere=False)
        decision = policy.decide(request, "bypassPermissions")
        return isinstance(decision, Deny) or (may_be_unknown and not isinstance(decision, Allow))

    return matches
