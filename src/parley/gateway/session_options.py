"""The options that a client may give a new session, and the scope that each needs.

A client without the scope 'approve' cannot create a session that asks less than the server's own defaults. The command
line itself is for administrators: it can name settings, hooks and MCP servers, which run commands.
"""

from __future__ import annotations

from typing import Any

import msgspec

from parley.gateway.access import ASKING_MODES, Principal, Scope
from parley.gateway.refusal import Refusal
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.protocol.options import parse


class SessionOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str | UnsetType = UNSET
    fallback_model: str | UnsetType = UNSET
    permission_mode: str | UnsetType = UNSET
    """Modes that ask less than 'default' need the scope 'approve'."""
    allowed_tools: list[str] | UnsetType = UNSET
    """Needs the scope 'approve'."""
    disallowed_tools: list[str] | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    append_system_prompt: str | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    max_budget_usd: float | UnsetType = UNSET
    effort: str | UnsetType = UNSET
    include_partial_messages: bool = False
    """Clients get stream events unless they connect with `?partial=false`."""
    args: list[str] | UnsetType = UNSET
    """Any further options of the command line. Needs the scope 'admin'."""


FLAGS = {
    "model": "--model",
    "fallback_model": "--fallback-model",
    "permission_mode": "--permission-mode",
    "system_prompt": "--system-prompt",
    "append_system_prompt": "--append-system-prompt",
    "max_turns": "--max-turns",
    "max_budget_usd": "--max-budget-usd",
    "effort": "--effort",
}


def parse_options(given: Any, principal: Principal) -> list[str]:
    """The options as a command line. Raises Refusal."""
    try:
        options = msgspec.convert(given or {}, SessionOptions)
    except msgspec.ValidationError as exc:
        raise Refusal("invalid_options", f"options: {exc}") from None
    if options.args is not UNSET:
        require(principal, Scope.ADMIN, "options.args")
    if options.allowed_tools:
        require(principal, Scope.APPROVE, "options.allowed_tools")
    if options.permission_mode is not UNSET and options.permission_mode not in ASKING_MODES:
        require(principal, Scope.APPROVE, f"options.permission_mode {options.permission_mode!r}")
    fields: Json = msgspec.structs.asdict(options)
    argv = [f"{flag}={fields[name]}" for name, flag in FLAGS.items() if fields[name] is not UNSET]
    for name, flag in (("allowed_tools", "--allowedTools"), ("disallowed_tools", "--disallowedTools")):
        if fields[name]:
            argv.append(f"{flag}={','.join(fields[name])}")
    if options.include_partial_messages:
        argv.append("--include-partial-messages")
    given = list(options.args or [])
    if unknown := parse(given).unknown:
        raise Refusal("invalid_options", f"options.args: unknown option {unknown[0]!r}")
    return [*argv, *given]


def require(principal: Principal, scope: Scope, what: str) -> None:
    if not principal.may(scope):
        raise Refusal("forbidden", f"{what} needs the scope '{scope}'")
