"""What is allowed when a session begins, and who answers when nothing says so."""

from __future__ import annotations

import os
import re

from parley.compose.launch_context import Basis
from parley.compose.paths import own_folders
from parley.compose.registry import OVER_STDIO, dialect_name
from parley.errors import UsageError
from parley.permissions.base import Permits
from parley.permissions.lazy import Later
from parley.settings.base import shown
from parley.settings.env_vars import truthy

BYPASS = "bypassPermissions"
UNASKED_ROOT = "nobody can be asked, and we are root"
"""No mode: why there is none."""
PROMPT_TOOL = r"mcp__[\w-]+?__[\w-]+"
RESTRICTED_BYPASS = f"a restricted session may not go into {BYPASS}"
ROOT_BYPASS = "root may not bypass permissions (--dangerously-skip-permissions) outside of a sandbox (IS_SANDBOX=1)"


def permission_mode(basis: Basis) -> str:
    """The mode a session begins in: what the command line says, else what the settings say. Raises UsageError."""
    wanted, disabled = wanted_mode(basis), basis.settings.merged.bypass_disabled
    if wanted == UNASKED_ROOT:
        basis.complain(f"{ROOT_BYPASS}: calls that somebody would have to be asked about are denied")
        return "default"
    if wanted == BYPASS and basis.is_restricted:
        if options_say_bypass(basis):
            raise UsageError(RESTRICTED_BYPASS)
        return "default"
    if wanted == BYPASS and disabled is not None:
        basis.complain(f"settings: {shown(disabled.path)} disables {BYPASS}; the mode is default")
        return "default"
    return wanted


def options_say_bypass(basis: Basis) -> bool:
    return basis.options.skip_permissions or basis.options.permission_mode == BYPASS


def wanted_mode(basis: Basis) -> str:
    options, set_mode = basis.options, basis.settings.merged.mode
    wanted = BYPASS if options.skip_permissions else options.permission_mode
    if wanted is None and set_mode is not None:
        wanted = set_mode.value
    if wanted is None and dialect_name(options) in OVER_STDIO:
        # Where nobody can be asked, everything is allowed that no rule denies.
        return UNASKED_ROOT if is_bare_root(basis) else BYPASS
    return "default" if wanted in (None, "manual") else str(wanted)


def is_bare_root(basis: Basis) -> bool:
    return os.geteuid() == 0 and not truthy(basis.environment.get("IS_SANDBOX"))


def may_bypass(basis: Basis, begins_in: str) -> bool:
    """Raises UsageError if the session would begin in a mode in which root could do anything at all."""
    bypasses = begins_in == BYPASS
    if is_bare_root(basis):
        if bypasses:
            raise UsageError(ROOT_BYPASS)
        return False
    if basis.is_restricted or basis.settings.merged.bypass_disabled is not None:
        return False
    return bypasses or basis.options.allow_skip_permissions


def permits(basis: Basis, session_id: str) -> Permits:
    """What the command line and the settings allow and deny. What is wrong with a rule is told at the start."""
    later = Later(lambda: open_book(basis, session_id))
    if basis.options.allowed_tools or basis.options.disallowed_tools or basis.settings.merged.rules:
        later.open()
    return later


def open_book(basis: Basis, session_id: str) -> Permits:
    from parley.permissions.paths.filesystem import RealView
    from parley.permissions.policy import Book, Given

    options = basis.options
    given = Given(
        cwd=basis.cwd,
        user_root=str(basis.config),
        allowed=options.allowed_tools or (),
        denied=options.disallowed_tools or (),
        folders=options.add_dirs or (),
        readable=own_folders(basis, session_id),
        trusted="project" in basis.settings.trust.sources,
    )
    book = Book(given, RealView(str(basis.home)), basis.settings.store, basis.complain)
    book.settle(basis.settings.merged)
    if not basis.is_restricted:
        return book
    from parley.permissions.restricted import Confined

    return Confined(book, [basis.cwd, *basis.folders(), *own_folders(basis, session_id)])


def asks_host(basis: Basis) -> bool:
    options = basis.options
    if dialect_name(options) in OVER_STDIO:
        return False  # there is no way to say the question
    return options.permission_prompt_tool == "stdio" and options.permission_prompts != "none"


def prompt_tool(basis: Basis) -> str | None:
    """The MCP tool that answers permission questions. Raises UsageError."""
    name = basis.options.permission_prompt_tool
    if name in (None, "stdio") or basis.options.permission_prompts == "none":
        return None
    if not re.fullmatch(PROMPT_TOOL, str(name)):
        raise UsageError(f"option '--permission-prompt-tool' must be stdio or mcp__SERVER__TOOL, got {name!r}")
    return name
