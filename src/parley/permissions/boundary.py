"""The working directories as a boundary that no rule, mode or approval lifts.

`permissions.blockReadsOutsideWorkingDirectories` and `permissions.blockWritesOutsideWorkingDirectories` refuse file
tools outside the working directories. A command is refused unless every file that it touches is known and inside.
Tools of MCP servers and of the client are not bound.

`RestrictedPolicy` is the policy of a restricted session: its file tools stay inside the folders that it started with,
whatever the rules allow, and it has no other tools that touch files (compose/tools.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from parley.permissions import shell
from parley.permissions.base import Decision, Deny, InvalidUpdate, OverBudget, PathsAndHosts, Policy, ToolRequest
from parley.permissions.decision import build_scope, target_paths
from parley.permissions.filesystem import CachedFilesystem, Filesystem, ResolvedPath
from parley.permissions.patterns import relative_parts
from parley.permissions.rules import RuleSet
from parley.protocol.base import Json, Struct
from parley.settings.base import MergedSettings
from parley.tools.catalog import FILE_EFFECTS, find_traits
from parley.workspace.base import Scope

READS, WRITES = "blockReadsOutsideWorkingDirectories", "blockWritesOutsideWorkingDirectories"
EXEMPT, AS_GIVEN = "blockReadsExemptPaths", "workingDirectoriesAsGiven"
SETTINGS_FILES = ("settings.json", "settings.local.json")
OUTSIDE = "The session is restricted to its working directories"


class Boundary(Struct, frozen=True, kw_only=True):
    blocks_reads: bool = False
    blocks_writes: bool = False
    exempt: tuple[str, ...] = ()
    """Paths that may be read nevertheless, as they are written."""
    settings_folder: str = ""
    """The folder with the user's settings, which may not be changed either."""

    @classmethod
    def from_settings(cls, merged: MergedSettings, settings_folder: str) -> Boundary | None:
        """The boundary; None if there is none."""
        reads, writes = merged.is_on(f"permissions.{READS}"), merged.is_on(f"permissions.{WRITES}")
        if not reads and not writes:
            return None
        exempt = merged.get(f"permissions.{EXEMPT}", ())
        return cls(
            blocks_reads=reads,
            blocks_writes=writes,
            exempt=tuple(path for path in exempt if is_plain(path) and path != "/"),
            settings_folder=settings_folder,
        )

    def check(self, request: ToolRequest, decision: Decision, rules: RuleSet, mode: str, fs: Filesystem) -> Decision:
        """The decision, or a denial if the call crosses the boundary."""
        if isinstance(decision, Deny) or request.runs_elsewhere:
            return decision
        traits = find_traits(request.tool)
        try:
            if traits.effect == "runs_commands":
                key = self._check_command(request, rules, mode, CachedFilesystem(fs))
            elif traits.path_fields or traits.effect in ("reads_files", "searches_files", "writes_files"):
                return self._check_files(request, decision, rules, CachedFilesystem(fs))
            else:
                return decision
        except OverBudget:
            key = READS if self.blocks_reads else WRITES
        return decision if key is None else deny_outside(request, key)

    def _check_files(self, request: ToolRequest, decision: Decision, rules: RuleSet, fs: Filesystem) -> Decision:
        """The decision about a file tool. Its scope becomes exactly the paths that were checked."""
        effect = find_traits(request.tool).effect
        reads, writes = effect in ("reads_files", "searches_files"), effect == "writes_files"
        resolved = [fs.resolve(path) for path in target_paths(request)]
        if self.blocks_reads and not writes and not all(self._may_read(path, rules, fs) for path in resolved):
            return deny_outside(request, READS)
        if self.blocks_writes and not reads and not all(self._may_write(path, request, rules, fs) for path in resolved):
            return deny_outside(request, WRITES)
        if isinstance(decision, Deny) or (reads and not self.blocks_reads) or (writes and not self.blocks_writes):
            return decision
        return msgspec.structs.replace(decision, scope=build_scope(resolved, beneath=effect == "searches_files"))

    def _check_command(self, request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> str | None:
        """The key that refuses a command line, or None."""
        from parley.permissions.command import find_shell_home
        from parley.permissions.proven_command import build_proven_command
        from parley.permissions.shell.readers import reads_only

        value, unproven = request.input.get("command"), READS if self.blocks_reads else WRITES
        line = shell.parse_strict(value if isinstance(value, str) else "", find_shell_home(request, fs))
        if not isinstance(line, shell.CommandLine):
            return unproven
        command = build_proven_command(line, request, rules, mode, fs)
        files = command.files
        if not self.blocks_reads and not files.writes and not command.untrusted and all(map(reads_only, line.commands)):
            return None
        if files.unknown or files.merges_folders or command.untrusted:
            return unproven
        if not all(self._may_write(path, request, rules, fs) for path in files.writes) and self.blocks_writes:
            return WRITES
        touched = (fs.resolve(request.cwd), *files.reads, *files.writes)
        return READS if self.blocks_reads and not all(self._may_read(path, rules, fs) for path in touched) else None

    def _may_read(self, resolved: ResolvedPath, rules: RuleSet, fs: Filesystem) -> bool:
        if rules.is_readable(resolved, fs):
            return True
        return resolved.real is not None and all(is_below(name, self.exempt) for name in resolved.names)

    def _may_write(self, resolved: ResolvedPath, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> bool:
        if request.plan_file is not None and resolved.real == fs.resolve(request.plan_file).real:
            return True
        return rules.is_inside(resolved, fs) and not any(map(self._is_settings_file, resolved.names))

    def _is_settings_file(self, path: str) -> bool:
        folder, name = os.path.split(path)
        is_settings = name.lower() in SETTINGS_FILES
        return is_settings and (os.path.basename(folder).lower() == ".claude" or folder == self.settings_folder)


def is_plain(path: str) -> bool:
    """Whether a path is absolute and normalized."""
    return path.startswith("/") and path == path.strip() and path == os.path.normpath(path) and path[:2] != "//"


def is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or relative_parts(path, folder) is not None for folder in folders)


def deny_outside(request: ToolRequest, key: str) -> Deny:
    kind = "reads" if key == READS else "writes"
    text = f"{request.tool} was denied: the settings refuse {kind} outside the working directories ({key})."
    if find_traits(request.tool).effect == "runs_commands":
        text += " A command runs only if all files that it touches are known and inside them."
    return Deny(message=text, source="rule", reason=f"permissions.{key}", reason_type="workingDir")


class WrappedPolicy:
    def __init__(self, policy: Policy) -> None:
        self._inner = policy

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        return self._inner.decide(request, mode)

    def is_hidden(self, path: str) -> bool:
        return self._inner.is_hidden(path)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        return self._inner.update(updates, may_bypass=may_bypass)

    def apply_settings(self, merged: MergedSettings) -> None:
        self._inner.apply_settings(merged)

    def add_server_rules(self, server: str, rules: Mapping[str, str]) -> None:
        self._inner.add_server_rules(server, rules)

    def drop_server_rules(self, server: str) -> None:
        self._inner.drop_server_rules(server)

    def list_folders(self) -> tuple[str, ...]:
        return self._inner.list_folders()

    def list_rules(self) -> Json:
        return self._inner.list_rules()

    def list_paths_and_hosts(self) -> PathsAndHosts:
        return self._inner.list_paths_and_hosts()


class RestrictedPolicy(WrappedPolicy):
    def __init__(self, policy: Policy, roots: Iterable[str]) -> None:
        super().__init__(policy)
        self._roots = tuple(os.path.realpath(root) for root in roots)

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        decision = super().decide(request, mode)
        is_exempt = find_traits(request.tool).effect not in FILE_EFFECTS or request.runs_elsewhere
        if is_exempt or isinstance(decision, Deny) or self._contains(decision.scope):
            return decision
        text = f"{request.tool} was denied: this session is restricted to its working directories."
        return Deny(message=text, source="mode", reason=OUTSIDE, reason_type="workingDir")

    def _contains(self, scope: Scope) -> bool:
        """Whether every file of a call is in the working directories."""
        paths = (*scope.files, *scope.folders)
        return not scope.anywhere and all(self._is_inside(os.path.realpath(path)) for path in paths)

    def _is_inside(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self._roots)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        from parley.permissions.policy import AddDirectories, parse_updates

        for update in parse_updates(updates):
            for folder in update.directories if isinstance(update, AddDirectories) else ():
                path = os.path.realpath(os.path.join(self._roots[0], os.path.expanduser(folder)))
                if not self._is_inside(path):
                    raise InvalidUpdate(
                        f"{folder!r:.200} is outside the directories that this session is restricted to"
                    )
        return super().update(updates, may_bypass=False)
