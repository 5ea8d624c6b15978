"""What a permission decision is. One decision guards every tool call, and it is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from parley.permissions.rule import Rule
from parley.protocol.base import Json, Struct
from parley.settings.base import MergedSettings
from parley.workspace.base import Scope, Worktree


class ResolvedPath(Struct, frozen=True):
    """From a path to the object it leads to."""

    names: tuple[str, ...]
    """Every name on the way, absolute: as it was given, with each link put in, and the real one."""
    real: str | None
    """Where it ends, whether or not something is there; None if it leads from link to link for ever."""


EntryKind = Literal["link", "folder", "file"]
"""What a name in a folder is: a link, a folder, or anything else."""


class RawFilesystem(Protocol):
    """All that must be known of the file system to decide."""

    home: str

    def readlink(self, path: str) -> str | None:
        """What the link at an absolute path says; None for what is no link, or is not there."""

    def exists(self, path: str) -> bool:
        """Whether anything is at an absolute path."""

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        """The names in the folder an absolute path leads to, and what each is; empty for what is not a folder,
        or cannot be listed. None if there are more than `limit`."""

    def is_folder(self, path: str) -> bool:
        """Whether a folder that can be entered is at an absolute path, links followed."""

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """What is in a regular file, links followed; None if it is none, cannot be read or is longer."""

    def identity(self, path: str) -> tuple[int, int] | None:
        """Device and inode of what is at an absolute path, links followed."""


class Finding(Struct, frozen=True):
    """Something in a repository that may run a program, reach out, or lead elsewhere."""

    kind: str
    path: str
    text: str
    """For people; without the value, which may be a secret."""
    value: str = ""


class SessionRepository(Struct, frozen=True, kw_only=True):
    """The repository that a session was started in: the one that its rules are about."""

    common_dir: str
    """Where its configuration is, links resolved."""
    identity: tuple[int, int] | None
    accepted: frozenset[Finding] = frozenset()
    """What was in it then, if the person trusts the folder."""


class Filesystem(RawFilesystem, Protocol):
    """What a decision knows of the file system."""

    def resolve(self, path: str) -> ResolvedPath:
        """Where an absolute path leads."""


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A call that waits for its decision."""

    tool: str
    input: Json
    cwd: str
    """Where the session's shell stands: relative paths start there."""
    reads_only: bool = False
    """The tool changes nothing outside the session."""
    asks_user: bool = False
    """Only a person can give the answer that the call is about."""
    plan_file: str | None = None
    """Where a plan may be written in plan mode."""
    runs_elsewhere: bool = False
    """It is the client that runs it, and that decides what it does on its side."""
    worktree: Worktree | None = None
    """The checkout that the caller works in, if it has one of its own."""
    server: str = ""
    """The MCP server that the tool is of, as the tool's name spells it; empty for our own, or where it is not known."""
    search_path: str | None = None
    """The PATH of commands; None where nothing is known of it, and programs are what their names say."""
    home: str | None = None
    """The HOME of commands, empty if they have none; None where nothing is known of it, and it is the person's."""


class Allow(Struct, frozen=True, kw_only=True):
    """The call may run with exactly this input."""

    input: Json
    source: str
    """Who said so: `mode`, `rule`, `host`, `prompt_tool`, or `client` for what the client runs itself."""
    reason: str = ""
    reason_type: str = "mode"
    """As the wire calls it: `mode`, `rule`, `subcommandResults` or `other`."""
    rule: Rule | None = None
    scope: Scope = Scope(anywhere=True)
    """How far the call may go with it."""


class Deny(Struct, frozen=True, kw_only=True):
    """The call may not run. The message goes to the model."""

    message: str
    source: str
    """`rule`, `mode`, `host`, `prompt_tool`, `internal`, or `nobody` where nobody could be asked."""
    reason: str = ""
    reason_type: str = ""
    rule: Rule | None = None
    interrupt: bool = False
    """The host wants the turn to end as well."""
    stop_reason: str | None = None
    """Why a hook wants the turn to end as well, if one does."""


class Ask(Struct, frozen=True, kw_only=True):
    """Somebody has to be asked."""

    reason: str = ""
    reason_type: str = ""
    """As the wire calls it: `rule`, `mode`, `workingDir`, `safetyCheck`, `subcommandResults`, `other` or nothing."""
    rule: Rule | None = None
    suggestions: tuple[Json, ...] = ()
    """What the host may answer with as `updatedPermissions`."""
    blocked_path: str | None = None
    scope: Scope = Scope(anywhere=True)
    """How far the call may go once it is approved."""


Decision = Allow | Deny | Ask


class InvalidUpdate(Exception):
    """A host's update of the permissions cannot be understood or is not possible in this session, and why."""


class Policy(Protocol):
    """What a session may do. It changes when a host says so; the session owns it."""

    def decide(self, request: ToolRequest, mode: str) -> Decision: ...

    def is_hidden(self, path: str) -> bool:
        """Whether a file may not even be mentioned."""

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        """Take a host's updates in, all or none; the mode to go into, if they say one.

        Raises BadUpdate if one of them is not possible in this session: then nothing is applied and nothing stored.
        """

    def apply_settings(self, merged: MergedSettings) -> None:
        """Take in what the settings say now."""

    def list_rules(self) -> Json:
        """All rules, for the host."""
