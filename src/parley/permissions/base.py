"""The data of permission decisions: the request, what is known of it, and the decision.

Every tool call gets exactly one decision (`Allow`, `Deny` or `Ask`), and the decision is recorded. A decision has a
budget. It is counted in steps and sizes, not in time, so equal calls get equal decisions; a call that would exceed it
needs approval, in every mode.

See also: how a call is assessed and decided (decision.py, command.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from parley.permissions.rule import Rule
from parley.protocol.base import Json, Struct
from parley.settings.base import MergedSettings
from parley.workspace.base import Scope, Worktree

Category = Literal["harmless", "edit", "other"]
RESTRICTING: tuple[Literal["deny", "ask"], ...] = ("deny", "ask")
OUTSIDE = "The path is outside of the working directories"
KEYS = "The path may contain keys or passwords"
ENDLESS = "The path is a symlink loop, or its target is unknown"
PROTECTED = "The file is protected because it decides what runs later; no rule approves writing to it in advance"


def word_set(text: str) -> frozenset[str]:
    """A table of words, written as one text."""
    return frozenset(text.split())


def word_table(text: str) -> dict[str, frozenset[str]]:
    """Tables of words by name, written as one text: rows of `names: words`."""
    rows = [(names, word_set(words)) for names, words in split_rows(text)]
    return {name: words for names, words in rows for name in names.split()}


def split_rows(text: str) -> Iterator[tuple[str, str]]:
    """Rows of `head: rest` in a text that is indented by four; a line that is indented more continues the row."""
    for row in re.split(r"\n {4}(?=\S)", f"\n{text.strip(chr(10))}")[1:]:
        head, _, rest = row.strip().partition(":")
        yield head, rest.lstrip()


class Finding(Struct, frozen=True):
    """Something in a repository that may run a program, access the network, or lead to other files."""

    kind: str
    path: str
    text: str
    """Shown to people; leaves out the value, which may be a secret."""
    value: str = ""


class SessionRepository(Struct, frozen=True, kw_only=True):
    """The repository in which the session started. Rules apply to this one."""

    common_dir: str
    """The folder with its configuration, with symlinks followed."""
    identity: tuple[int, int] | None
    accepted: frozenset[Finding] = frozenset()
    """The findings at the start, if the folder is trusted."""


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A tool call that needs a decision."""

    tool: str
    input: Json
    cwd: str
    """The working directory of the session's shell; relative paths start here."""
    reads_only: bool = False
    """The tool changes nothing outside the session."""
    asks_user: bool = False
    """The call itself is a question to a person."""
    plan_file: str | None = None
    """The file that may be written in plan mode."""
    runs_elsewhere: bool = False
    """The client runs the tool and decides what it does there."""
    worktree: Worktree | None = None
    """The caller's own worktree, if it has one."""
    server: str = ""
    """The tool's MCP server, spelled as in the tool name; empty for built-in tools, or if unknown."""
    search_path: str | None = None
    """The PATH of commands; None if unknown: then program names are trusted."""
    home: str | None = None
    """The HOME of commands, empty if unset; None if unknown: then it is the user's."""
    others_run: bool = False
    """Other commands of the session are running, and may change what a path leads to."""


class Assessment(Struct, frozen=True, kw_only=True):
    """What is known of a call before the decision."""

    deny: Rule | None = None
    ask: Rule | None = None
    critical: str = ""
    """Why the call needs approval even in bypassPermissions."""
    hazard: str = ""
    """Why no allow rule, and no mode but bypassPermissions, approves the call."""
    unapproved: str = ""
    """Why neither a rule for the beginning of a command nor one for all commands approves it."""
    allow: Rule | None = None
    allow_type: str = "rule"
    """The name on the wire of an allow by rule."""
    category: Category = "other"
    """The kind of call, without rules: harmless, an edit in the working directories, or anything else."""
    can_change: bool = True
    """Whether the call can change anything; plan mode asks for those."""
    reason: str = ""
    """Why the call would need approval, if the category alone does not say it."""
    reason_type: str = ""
    scope: Scope = Scope(anywhere=True)
    """The files that an allow of this call covers."""
    confined: Literal["", "reader", "editor"] = ""
    """How a command is confined if no rule or person allows the command itself."""
    blocked_path: str | None = None
    suggestions: tuple[Json, ...] = ()


class Allow(Struct, frozen=True, kw_only=True):
    """The call may run with exactly this input."""

    input: Json
    source: str
    """What allowed it: `mode`, `rule`, `host`, `prompt_tool`, or `client` for tools that the client runs."""
    reason: str = ""
    reason_type: str = "mode"
    """The name on the wire: `mode`, `rule`, `subcommandResults` or `other`."""
    rule: Rule | None = None
    scope: Scope = Scope(anywhere=True)
    """The files that the call may touch."""


class Deny(Struct, frozen=True, kw_only=True):
    """The call may not run. The message is for the model."""

    message: str
    source: str
    """`rule`, `mode`, `host`, `prompt_tool`, `internal`, or `nobody` if there is no one to ask."""
    reason: str = ""
    reason_type: str = ""
    rule: Rule | None = None
    interrupt: bool = False
    """The host also ends the turn."""
    stop_reason: str | None = None
    """Why a hook also ends the turn, if one does."""
    suggestions: tuple[Json, ...] = ()
    """Updates that would have allowed the call, as an Ask has them."""


class Ask(Struct, frozen=True, kw_only=True):
    """The call needs approval by the host or a person."""

    reason: str = ""
    reason_type: str = ""
    """The name on the wire: `rule`, `mode`, `workingDir`, `safetyCheck`, `subcommandResults`, `other` or empty."""
    rule: Rule | None = None
    suggestions: tuple[Json, ...] = ()
    """Updates that the host may return as `updatedPermissions`."""
    blocked_path: str | None = None
    scope: Scope = Scope(anywhere=True)
    """The files that the call may touch once it is approved."""


Decision = Allow | Deny | Ask


class SandboxRules(Struct, frozen=True, kw_only=True):
    """What the settings say about commands and the sandbox they run in."""

    auto_allows: bool = False
    """Commands in the sandbox need no approval."""
    allows_outside: bool = True
    """A call may ask to run outside."""
    excluded: tuple[str, ...] = ()
    """Patterns of commands that run outside."""


class PathsAndHosts(Struct, frozen=True, kw_only=True):
    """Rules for file tools and WebFetch, as the sandbox applies them to commands. Paths may contain `*`."""

    edit: tuple[str, ...] = ()
    edit_roots: tuple[str, ...] = ()
    """The folders above everything that rules allow to edit, and likewise to read."""
    read_roots: tuple[str, ...] = ()
    no_edit: tuple[str, ...] = ()
    no_read: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    no_hosts: tuple[str, ...] = ()
    asked_hosts: tuple[str, ...] = ()


class InvalidUpdate(Exception):
    """A permission update is malformed, or not possible in this session; the text says why."""


class Policy(Protocol):
    """The permissions of a session. Hosts can change them with updates; the session owns the object."""

    def decide(self, request: ToolRequest, mode: str) -> Decision: ...

    def is_hidden(self, path: str) -> bool:
        """Whether even the name of a file must not be shown."""

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        """Apply a host's updates, all or none. Returns the new mode, if one of them sets it.

        Raises InvalidUpdate if one of them is not possible in this session; then none is applied or stored.
        """

    def apply_settings(self, merged: MergedSettings) -> None:
        """Replace the rules of earlier settings by those of these settings."""

    def add_server_rules(self, server: str, rules: Mapping[str, str]) -> None:
        """Add the policies that a client declares for tools of an MCP server: `allow`, `ask` or `deny`, by tool."""

    def drop_server_rules(self, server: str) -> None:
        """Remove the policies for the tools of an MCP server."""

    def list_folders(self) -> tuple[str, ...]:
        """The working directories besides the session's own, as absolute paths."""

    def list_rules(self) -> Json:
        """All rules, as the host receives them."""

    def list_paths_and_hosts(self) -> PathsAndHosts:
        """What the rules mean for commands in the sandbox."""


def is_auto_disabled(merged: MergedSettings) -> bool:
    """Whether the settings disable the mode `auto`."""
    return "disable" in (merged.get("disableAutoMode"), merged.get("permissions.disableAutoMode"))


class OverBudget(Exception):
    """The call cannot be checked within the budget; the text is the reason shown to people."""


def describe_excess(problem: str, found: int, limit: int, unit: str) -> str:
    """`The command is too long to check (20,001 characters, at most 20,000)`."""
    return f"{problem} to check ({found:,} {unit}, at most {limit:,})"
