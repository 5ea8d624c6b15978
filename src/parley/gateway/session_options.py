"""The options that a client may give a new session. Their rows in `protocol/options.py` have the scope that each needs.

A client without the scope 'approve' cannot create a session that asks less than the server's own defaults. The command
line itself is for administrators: it can name settings, hooks and MCP servers, which run commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.errors import UsageError
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope, is_asking
from parley.protocol.base import UNSET, Struct, UnsetType, to_builtins
from parley.protocol.option_kinds import add_options
from parley.protocol.options import FIELDS, CliOptions, format_args, parse
from parley.workspace.remote.address import Kind, SessionWorkspace, check_address


class ArgsOption(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    args: list[str] | UnsetType = UNSET
    """Any further options of the command line. Needs the scope 'admin'."""


if TYPE_CHECKING:
    SessionOptions = ArgsOption
else:
    SessionOptions = add_options(
        ArgsOption, "SessionOptions", {row.field: row.json_type() for row in FIELDS.values() if row.gateway}
    )
    """With the options that have a scope of their own in the table."""


class WorkspaceRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the files of a session are."""

    kind: Kind
    """`local`: on the host that creates it. `shared`: on every host, at the same path. `remote`: at an address."""
    address: str = ""
    """Of a `parley workspace`, with the folder. Needs the scope 'admin', unless it is the default of the server."""
    wait: bool | None = None
    """Whether prompts wait while the host with the files is away; None for the default of the server."""


class SessionRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new session is created with."""

    cwd: str | None = None
    """Where it works, seen from the root of the server."""
    title: str | None = None
    permission_mode: str | UnsetType = UNSET
    """The same as in `options`; official clients send it here."""
    options: SessionOptions | None = None
    workspace: WorkspaceRequest | None = None
    """Where its files are; by default, what the host says."""


def format_options(wanted: SessionRequest, principal: Principal) -> list[str]:
    """The options as a command line. Raises Refusal."""
    given = {} if wanted.options is None else to_builtins(wanted.options)
    if wanted.permission_mode is not UNSET:
        given["permission_mode"] = wanted.permission_mode
    if "args" in given:
        require(principal, Scope.ADMIN, "options.args")
    args = given.pop("args", [])
    for name, value in given.items():
        if value:
            require(principal, Scope(FIELDS[name].gateway), f"options.{name}")
    mode = given.get("permission_mode")
    if mode is not None and not is_asking(mode):
        require(principal, Scope.APPROVE, f"options.permission_mode {mode!r}")
    argv = [*format_args(CliOptions(**{name: value for name, value in given.items() if value != []})), *args]
    try:
        unknown = parse(argv).unknown
    except UsageError as exc:
        raise Refusal("invalid_options", str(exc)) from None
    if unknown:
        raise Refusal("invalid_options", f"options.args: unknown option {unknown[0]!r}")
    return argv


def choose_workspace(
    wanted: WorkspaceRequest | None, default: SessionWorkspace | None, principal: Principal
) -> SessionWorkspace | None:
    """The workspace of a new session. Raises Refusal.

    `default`: what the host has if nothing is wanted; None for a server that is not part of a cluster.
    """
    if wanted is None:
        if default is None:
            return None
        wanted = WorkspaceRequest(kind=default.kind)
    if wanted.kind == "remote":
        return SessionWorkspace(kind="remote", address=choose_address(wanted.address, default, principal))
    if default is None:
        text = f"workspace.kind {wanted.kind!r} is for clusters: this server uses its own files; 'remote' is possible"
        raise Refusal("invalid_options", text)
    if wanted.address:
        raise Refusal("invalid_options", f"workspace.address is for the kind 'remote', not {wanted.kind!r}")
    if wanted.kind == "shared":
        return SessionWorkspace(kind="shared")
    wait = default.wait if wanted.wait is None else wanted.wait
    return SessionWorkspace(kind="local", host=default.host, wait=wait)


def choose_address(given: str, default: SessionWorkspace | None, principal: Principal) -> str:
    """Raises Refusal."""
    address = default.address if default is not None else ""
    if given and given != address:
        # The server at the address gets a proof that we have the token, which it could pass on.
        require(principal, Scope.ADMIN, "workspace.address")
        address = given
    if not address:
        raise Refusal("invalid_options", "workspace.address is missing: the server has no default address")
    if principal.roots:
        text = f"the token {principal.name!r} is limited to directories of the server, and the workspace is remote"
        raise Refusal("outside_roots", text)
    try:
        return check_address(address)
    except UsageError as exc:
        raise Refusal("invalid_options", f"workspace.address: {exc}") from None


def require(principal: Principal, scope: Scope, what: str) -> None:
    if not principal.may(scope):
        raise Refusal("forbidden", f"{what} needs the scope '{scope}'")
