"""The permission mode and rules that a session starts with, and who answers approval requests."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from parley.compose.launch_context import LaunchContext, own_folders
from parley.compose.registry import get_profile
from parley.errors import SessionError, UsageError
from parley.permissions.base import Decision, Deny, Policy, ToolRequest, is_auto_disabled
from parley.permissions.rule import MalformedRule, parse_rule
from parley.settings.base import TREE, UNENFORCED, MergedSettings, RuleText, printable
from parley.settings.env_vars import is_truthy
from parley.tools.catalog import FILE_EFFECTS, canonical_name, find_traits

if TYPE_CHECKING:
    from parley.permissions.policy import LaunchRules, RuleWriter, SessionPolicy

AWAY_VARIABLE = "PARLEY_WORKSPACE_AWAY"
"""Set by a host of a cluster that does not reach the files of a session: the reason."""
BYPASS = "bypassPermissions"
ROOT_UNATTENDED = "root without approval requests"
"""Not a mode, but the reason why bypassPermissions is not used."""
OTHER_TOOL = r"(?!mcp__)[A-Za-z_][\w.-]*"
"""The name of a tool that other versions or packages may have."""
PROMPT_TOOL = r"mcp__[\w-]+?__[\w-]+"
RESTRICTED_BYPASS = f"a restricted session cannot use {BYPASS}"
ROOT_BYPASS = (
    "root cannot bypass permissions (--permission-mode bypassPermissions, --dangerously-skip-permissions); "
    "in a container or another sandbox, where nothing can be damaged, set IS_SANDBOX=1"
)


def permission_mode(launch: LaunchContext) -> str:
    """The mode a session starts in: from the command line, else from the settings. Raises UsageError."""
    requested, disabled = requested_mode(launch), launch.settings.merged.bypass_disabled
    if requested == ROOT_UNATTENDED:
        launch.warn(f"{ROOT_BYPASS}. Calls that need approval are denied")
        return "default"
    if requested == BYPASS and launch.is_restricted:
        if launch.options.skip_permissions or launch.options.permission_mode == BYPASS:
            raise UsageError(RESTRICTED_BYPASS)
        return "default"
    if requested == BYPASS and disabled is not None:
        launch.warn(f"settings: {printable(disabled.path)} disables {BYPASS}; using the mode default")
        return "default"
    if requested == "auto" and is_auto_disabled(launch.settings.merged):
        launch.warn("settings: the mode auto is disabled (disableAutoMode); using the mode default")
        return "default"
    return requested


def requested_mode(launch: LaunchContext) -> str:
    options, set_mode = launch.options, launch.settings.merged.mode
    requested = BYPASS if options.skip_permissions else options.permission_mode
    if requested is None and set_mode is not None:
        requested = set_mode.value
    if requested is None and get_profile(options).over_stdio:
        # A dialect that cannot ask allows everything that no rule denies.
        return ROOT_UNATTENDED if is_bare_root(launch) else BYPASS
    return "default" if requested in (None, "manual") else str(requested)


def is_bare_root(launch: LaunchContext) -> bool:
    return os.geteuid() == 0 and not is_truthy(launch.environment.get("IS_SANDBOX"))


def may_bypass(launch: LaunchContext, initial_mode: str) -> bool:
    """Whether the client may switch to bypassPermissions. Raises UsageError if root would start in it."""
    bypasses = initial_mode == BYPASS
    if is_bare_root(launch):
        if bypasses:
            raise UsageError(ROOT_BYPASS)
        return False
    if launch.is_restricted or launch.settings.merged.bypass_disabled is not None:
        return False
    return bypasses or launch.options.allow_skip_permissions


def make_policy(launch: LaunchContext, session_id: str) -> Policy:
    """What the command line and the settings allow and deny.

    With rules or working directories, the policy is opened at once: malformed rules are reported at the start.
    """
    options, merged = launch.options, launch.settings.merged
    if launch.remote is not None:
        return open_policy(launch, session_id)
    if reason := launch.environment.get(AWAY_VARIABLE):
        return cast("Policy", AwayPolicy(lambda: open_policy(launch, session_id), reason))
    policy = LazyPolicy(lambda: open_policy(launch, session_id))
    if options.allowed_tools or options.disallowed_tools or options.add_dirs or merged.rules or merged.directories:
        policy.open()
    return cast("Policy", policy)


class LazyPolicy:
    """A policy that is opened at the first use, so that a turn without tool calls starts sooner."""

    def __init__(self, factory: Callable[[], Policy]) -> None:
        self._factory = factory
        self._policy: Policy | None = None

    def open(self) -> Policy:
        if self._policy is None:
            self._policy = self._factory()
        return self._policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.open(), name)

    def is_hidden(self, path: str) -> bool:
        """Its own method, because sessions are given it as a function before anything is asked."""
        return self.open().is_hidden(path)

    def drop_server_rules(self, server: str) -> None:
        if self._policy is not None:
            self._policy.drop_server_rules(server)

    def list_folders(self) -> tuple[str, ...]:
        return () if self._policy is None else self._policy.list_folders()


class AwayPolicy(LazyPolicy):
    """The policy of a session whose files are on a machine that is away: what would touch files here is denied."""

    def __init__(self, factory: Callable[[], Policy], reason: str) -> None:
        super().__init__(factory)
        self._reason = reason

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        if not request.runs_elsewhere and find_traits(request.tool).effect in {*FILE_EFFECTS, "runs_commands"}:
            return Deny(message=f"The call was not run: {self._reason}.", source="internal", reason_type="other")
        return self.open().decide(request, mode)

    def is_hidden(self, path: str) -> bool:
        return True


def has_sandbox(launch: LaunchContext, merged: MergedSettings) -> bool:
    """Whether commands run in a sandbox."""
    if not merged.is_on("sandbox.enabled") and not launch.options.require_sandbox:
        return False
    from parley.compose.sandbox import offer_for

    return offer_for(merged, is_remote=launch.remote is not None).kind != "none"


def find_confinement(launch: LaunchContext) -> str:
    """What confines commands that are allowed because they only edit."""
    merged = launch.settings.merged
    if merged.get("sandbox.confineReaders") is False and not has_sandbox(launch, merged):
        return "none"
    from parley.compose.sandbox import offer_for

    return offer_for(merged, is_remote=launch.remote is not None).kind


def check_restrictions(launch: LaunchContext, known: Sequence[str]) -> list[str]:
    """Check the deny and ask rules; returns a sentence for each rule whose tool seems to be misspelt.

    `known`: the names of all tools. Raises SessionError if a rule for one of them is malformed.
    """

    flags = launch.options.disallowed_tools or ()
    written = [
        RuleText(behavior="deny", text=text, source="flag", root=launch.cwd, path="--disallowedTools") for text in flags
    ]
    misspelt = [
        f"the allow rule {text!r:.200} matches no tool (did you mean {near}?)"
        for text in launch.options.allowed_tools or ()
        if (name := canonical_name(text.partition("(")[0].strip())) not in known
        and re.fullmatch(OTHER_TOOL, name)
        and (near := find_nearest(name, known))
    ]
    for rule in (*written, *(rule for rule in launch.settings.merged.rules if rule.behavior != "allow")):
        name = canonical_name(rule.text.partition("(")[0].strip())
        if name not in known and re.fullmatch(OTHER_TOOL, name):
            if near := find_nearest(name, known):
                misspelt.append(f"the {rule.behavior} rule {rule.text!r:.200} matches no tool (did you mean {near}?)")
            continue
        parsed = parse_rule(rule.text, rule.behavior, rule.source, rule.root)
        if isinstance(parsed, MalformedRule):
            place = rule.path if rule.line is None else f"{rule.path}:{rule.line}"
            raise SessionError(
                f"the {rule.behavior} rule {rule.text!r:.200} ({place}) is malformed: {parsed.reason}; {UNENFORCED}"
            )
    return misspelt


def find_nearest(name: str, known: Sequence[str]) -> str | None:
    from difflib import get_close_matches  # slow to import and rarely needed

    by_lower = {one.lower(): one for one in known}
    return next((by_lower[near] for near in get_close_matches(name.lower(), by_lower, n=1)), None)


def open_policy(launch: LaunchContext, session_id: str) -> Policy:
    from parley.permissions.policy import LaunchRules

    options = launch.options
    allowed = options.allowed_tools or ()
    if allowed and launch.settings.merged.is_on("allowManagedPermissionRulesOnly"):
        launch.warn("option '--allowedTools' has no effect: only managed settings can add allow rules")
        allowed = ()
    launch_rules = LaunchRules(
        cwd=launch.started_in,
        user_root=str(launch.config),
        allowed=allowed,
        denied=options.disallowed_tools or (),
        folders=options.add_dirs or (),
        readable=own_folders(launch, session_id),
        has_sandbox=lambda merged: has_sandbox(launch, merged),
        find_confinement=lambda: find_confinement(launch),
        trusted="project" in launch.settings.trust.sources,
    )
    if launch.remote is None and launch.is_restricted:
        from parley.permissions.boundary import RestrictedPolicy
        from parley.permissions.filesystem import RealFilesystem

        roots = [launch.cwd, *launch.additional_directories(), *own_folders(launch, session_id)]
        fs = RealFilesystem(str(launch.home))
        policy: SessionPolicy = RestrictedPolicy(roots, launch_rules, fs, launch.settings.writer, launch.warn)
    else:
        policy = new_policy(launch, launch_rules, launch.warn, launch.settings.writer)
    policy.apply_settings(launch.settings.merged)
    return policy


def new_policy(
    launch: LaunchContext, rules: LaunchRules, warn: Callable[[str], None], writer: RuleWriter | None = None
) -> SessionPolicy:
    """Rules for the files of the session, here or in its remote workspace."""
    if launch.remote is not None:
        from parley.compose.remote import RemotePolicy

        return RemotePolicy(launch.remote, rules, launch.remote.filesystem, writer, warn)
    from parley.permissions.filesystem import RealFilesystem
    from parley.permissions.policy import SessionPolicy

    return SessionPolicy(rules, RealFilesystem(str(launch.home)), writer, warn)


def open_policy_without_project(launch: LaunchContext) -> Policy:
    """The rules that the user's own hooks, servers and memory files are subject to, on this machine."""
    from parley.permissions.filesystem import RealFilesystem
    from parley.permissions.policy import LaunchRules, SessionPolicy

    rules = LaunchRules(
        cwd=launch.started_in, user_root=str(launch.config), denied=launch.options.disallowed_tools or ()
    )
    policy = SessionPolicy(rules, RealFilesystem(str(launch.home)))
    policy.apply_settings(launch.settings.without_project)
    return policy


def denies_user_files(launch: LaunchContext, denies: Callable[[str], bool]) -> Callable[[str], bool]:
    """Whether a rule hides a memory file of the user. `denies`: the same with the rules of the project."""
    by_project = any(rule.behavior == "deny" and rule.source in TREE for rule in launch.settings.merged.rules)
    return open_policy_without_project(launch).is_hidden if by_project else denies


def asks_host(launch: LaunchContext) -> bool:
    options = launch.options
    if get_profile(options).over_stdio:
        return False  # the dialect has no permission request
    return options.permission_prompt_tool == "stdio" and may_prompt(launch)


def may_prompt(launch: LaunchContext) -> bool:
    """Whether calls that need approval wait for an answer."""
    return launch.options.permission_prompts != "none" and not refuses_unapproved(launch)


def refuses_unapproved(launch: LaunchContext) -> bool:
    return launch.settings.merged.is_on("permissions.denyInsteadOfPrompting")


def prompt_tool(launch: LaunchContext) -> str | None:
    """The MCP tool that answers approval requests. Raises UsageError."""
    name = launch.options.permission_prompt_tool
    if name in (None, "stdio") or not may_prompt(launch):
        return None
    if not re.fullmatch(PROMPT_TOOL, str(name)):
        raise UsageError(f"option '--permission-prompt-tool' must be stdio or mcp__SERVER__TOOL, got {name!r}")
    return name
