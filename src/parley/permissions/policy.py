"""The rules of a live session: from the command line, from settings, and from updates by the host.

    policy = SessionPolicy(LaunchRules(cwd="/work", user_root="/home/me", allowed=("Bash(npm test)",)), fs)
    policy.decide(request, "default")
    policy.update([{"type": "addRules", "rules": [...], "behavior": "allow", "destination": "session"}])

An update changes the permissions of this session and, with another destination than `session`, of later ones.

See also: the decision itself (decision.py), settings files (settings/).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import msgspec

from parley.permissions.base import (
    Decision,
    InvalidUpdate,
    PathsAndHosts,
    SandboxRules,
    SessionRepository,
    ToolRequest,
    is_auto_disabled,
)
from parley.permissions.decision import decide
from parley.permissions.filesystem import CachedFilesystem, Filesystem
from parley.permissions.rule import Behavior, MalformedRule, Rule, format_rule, parse_rule
from parley.permissions.rules import RuleSet, WorktreeRules
from parley.protocol.base import Json, Struct
from parley.settings.base import MergedSettings, SettingsWriteError

if TYPE_CHECKING:
    from parley.permissions.boundary import Boundary


WIRE_NAMES = {
    "managed": "policySettings",
    "flag": "cliArg",
    "local": "localSettings",
    "project": "projectSettings",
    "user": "userSettings",
    "session": "session",
    "server": "mcpServerPolicy",
}
BOUNDARY_KEYS = (
    "blockReadsOutsideWorkingDirectories",
    "blockWritesOutsideWorkingDirectories",
    "workingDirectoriesAsGiven",
)
BEHAVIORS: dict[str, Behavior] = {"allow": "allow", "ask": "ask", "deny": "deny"}


# Updates.


Destination = Literal["session", "cliArg", "localSettings", "projectSettings", "userSettings"]
SOURCES: dict[Destination, str] = {
    "session": "session",
    "cliArg": "session",
    "localSettings": "local",
    "projectSettings": "project",
    "userSettings": "user",
}
MAX_ITEMS = 4096
"""Updates, rules and directories in one request, together."""


class RuleContents(Struct, frozen=True, forbid_unknown_fields=True):
    toolName: str
    ruleContent: str | None = None


ListChange = Literal["add", "replace", "remove"]


class _RuleUpdate(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    how: ClassVar[ListChange]
    rules: list[RuleContents]
    behavior: Behavior
    destination: Destination = "session"

    @property
    def entries(self) -> list[str]:
        return [format_rule(rule.toolName, rule.ruleContent or None) for rule in self.rules]

    @property
    def key(self) -> str:
        return self.behavior


class AddRules(_RuleUpdate, frozen=True, kw_only=True, tag="addRules"):
    """Add rules to the existing ones."""

    how = "add"


class ReplaceRules(_RuleUpdate, frozen=True, kw_only=True, tag="replaceRules"):
    """Replace all rules of this behavior and destination."""

    how = "replace"


class RemoveRules(_RuleUpdate, frozen=True, kw_only=True, tag="removeRules"):
    """Remove exactly these rules."""

    how = "remove"


class SetMode(Struct, frozen=True, kw_only=True, tag_field="type", tag="setMode", forbid_unknown_fields=True):
    mode: Literal["default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto"]
    destination: Destination = "session"


class _DirectoryUpdate(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    how: ClassVar[ListChange]
    key: ClassVar[str] = "additionalDirectories"
    directories: list[str]
    destination: Destination = "session"

    @property
    def entries(self) -> list[str]:
        return self.directories


class AddDirectories(_DirectoryUpdate, frozen=True, kw_only=True, tag="addDirectories"):
    """Add working directories."""

    how = "add"


class RemoveDirectories(_DirectoryUpdate, frozen=True, kw_only=True, tag="removeDirectories"):
    """Remove working directories."""

    how = "remove"


Update = AddRules | ReplaceRules | RemoveRules | SetMode | AddDirectories | RemoveDirectories


def parse_updates(updates: Sequence[Json]) -> list[Update]:
    """Raises InvalidUpdate if one of them is malformed, or if there are too many.

    Unknown keys are refused: with a misspelt `ruleContent`, a rule would match every call of its tool.
    """
    cleaned = [{key: value for key, value in update.items() if value is not None} for update in updates]
    try:
        parsed: list[Update] = msgspec.convert(cleaned, list[Update])
    except msgspec.ValidationError as exc:
        raise InvalidUpdate(str(exc)) from None
    items = [item for update in parsed for item in (*getattr(update, "rules", ()), *getattr(update, "directories", ()))]
    if len(parsed) + len(items) > MAX_ITEMS:
        raise InvalidUpdate(
            f"too many permission updates: more than {MAX_ITEMS} updates, rules and directories in total"
        )
    return parsed


# The session.


class RuleWriter(Protocol):
    """Writes rules to settings files. Each method raises SettingsWriteError."""

    def change_list(self, destination: str, key: str, how: ListChange, entries: Sequence[str]) -> None: ...
    def set_mode(self, destination: str, mode: str) -> None: ...


class LaunchRules(Struct, frozen=True, kw_only=True):
    """The permissions given on the command line."""

    cwd: str
    user_root: str
    """The folder that a leading `/` means in user settings."""
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    """Folders of the session itself that may be read."""
    has_sandbox: Callable[[MergedSettings], bool] = lambda merged: False
    """Whether commands run in a sandbox with these settings."""
    find_confinement: Callable[[], str] = lambda: "none"
    """What confines commands that only edit (`RuleSet.confinement`)."""
    trusted: bool = False
    """Whether the user trusts the working directory, and with it the configuration of its repository."""


class SessionPolicy:
    def __init__(
        self,
        launch: LaunchRules,
        fs: Filesystem,
        writer: RuleWriter | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._launch = launch
        self._fs = fs
        self._writer = writer
        self._warn = warn
        self._settings_rules: tuple[Rule, ...] = ()
        """The rules of settings files; replaced as a whole when the files are read again."""
        self._settings_folders: tuple[str, ...] = ()
        denied = self._parse_rules(launch.denied, "deny", "flag")
        self._session_rules = (*denied, *self._parse_rules(launch.allowed, "allow", "flag"))
        self._session_folders = tuple(map(self._make_absolute, launch.folders))
        self._server_rules: dict[str, dict[str, Rule]] = {}
        """The policies of MCP servers: by server, by tool and behavior."""
        self._repository: SessionRepository | None = None
        self.has_repository = False
        """Whether the repository was looked for."""
        self._boundary: Boundary | None = None
        self._as_given: frozenset[str] = frozenset()
        self._sandbox: SandboxRules | None = None
        self._auto_disabled = False
        self._managed_only = False
        """Only managed settings may allow calls by rules."""
        self.rules = self._merge_rules()

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        if not self.has_repository:
            self.set_repository(self.find_repository())
        rules = self.rules
        if request.worktree is not None:
            rules = WorktreeRules.for_worktree(rules, request.worktree)
        if mode == "auto" and self._auto_disabled:
            mode = "default"
        decision = decide(request, rules, mode, self._fs)
        return decision if self._boundary is None else self._boundary.check(request, decision, rules, mode, self._fs)

    def find_repository(self) -> SessionRepository | None:
        """The repository that rules apply to."""
        from parley.permissions.git.repository import record_repository

        fs, rules = CachedFilesystem(self._fs), self.rules
        trusted = self._launch.trusted
        return record_repository(self._launch.cwd, fs, lambda resolved: rules.is_inside(resolved, fs), trusted=trusted)

    def set_repository(self, found: SessionRepository | None) -> None:
        """Record the repository, before the first call runs: a call could create another."""
        self.has_repository = True
        self._repository = found
        self.rules = self._merge_rules()

    def is_hidden(self, path: str) -> bool:
        return self.rules.is_hidden(path, self._fs)

    def list_folders(self) -> tuple[str, ...]:
        return self.rules.folders

    def list_rules(self) -> Json:
        rows = [
            {
                "behavior": rule.behavior,
                "source": WIRE_NAMES[rule.source],
                "rule": rule.text,
                "editability": "editable" if rule.source in ("local", "project", "user", "session") else "readonly",
            }
            for rule in self.rules.rules
        ]
        folders = [{"path": folder} for folder in self.rules.folders]
        return {
            "rules": rows,
            "workspaceDirectories": folders,
            "originalCwd": self._launch.cwd,
            "managedOnly": self._managed_only,
        }

    def list_paths_and_hosts(self) -> PathsAndHosts:
        from parley.permissions.boundary import list_paths_and_hosts

        return list_paths_and_hosts(self.rules.rules, self._launch.cwd, self._fs.home)

    def apply_settings(self, merged: MergedSettings) -> None:
        found: list[Rule] = []
        for text in merged.rules:
            location = text.path if text.line is None else f"{text.path}:{text.line}"
            found += self._parse_rules([text.text], text.behavior, text.source, text.root, location)
        self._settings_rules = tuple(found)
        self._auto_disabled = is_auto_disabled(merged)
        self._managed_only = merged.is_on("allowManagedPermissionRulesOnly")
        if self._managed_only:
            self._drop_rules(lambda rule: rule.behavior == "allow" and rule.source != "managed")
        self._set_boundary(merged)
        self._sandbox = None
        if self._launch.has_sandbox(merged):
            from parley.permissions.boundary import read_sandbox_rules

            self._sandbox = read_sandbox_rules(merged)
        self._settings_folders = tuple(self._make_absolute(folder.value, folder.root) for folder in merged.directories)
        self.rules = self._merge_rules()

    def _set_boundary(self, merged: MergedSettings) -> None:
        """Apply the settings about the outside of the working directories, which few sessions have."""
        self._boundary = None
        if not any(f"permissions.{key}" in merged.values for key in BOUNDARY_KEYS):
            return
        from parley.permissions.boundary import AS_GIVEN, Boundary, is_plain

        # Once listed, a folder stays so.
        self._as_given |= frozenset(filter(is_plain, merged.get(f"permissions.{AS_GIVEN}", ())))
        self._boundary = Boundary.from_settings(merged, self._launch.user_root)

    def add_server_rules(self, server: str, rules: Mapping[str, str]) -> None:
        held = self._server_rules.setdefault(server, {})
        for tool, policy in rules.items():
            for rule in self._parse_rules([tool], BEHAVIORS[policy], "server", location=f"MCP server {server!a}"):
                held[f"{policy} {tool}"] = rule
        self.rules = self._merge_rules()

    def drop_server_rules(self, server: str) -> None:
        if self._server_rules.pop(server, None):
            self.rules = self._merge_rules()

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        mode = None
        parsed = self._without_closed(parse_updates(updates))
        for update in parsed:  # all or none: nothing is applied or written before every update is checked
            self._check(update, may_bypass=may_bypass)
        for update in parsed:
            self._apply(update)
            self._store(update)
            if isinstance(update, SetMode):
                mode = update.mode
        self.rules = self._merge_rules()
        return mode

    def _without_closed(self, updates: Sequence[Update]) -> list[Update]:
        """The updates that an administrator leaves to others."""
        closed = [
            update
            for update in updates
            if self._managed_only and isinstance(update, AddRules | ReplaceRules) and update.behavior == "allow"
        ]
        if closed:
            self._warn("an allow rule has no effect: only managed settings can add allow rules")
        return [update for update in updates if update not in closed]

    def _merge_rules(self) -> RuleSet:
        folders = dict.fromkeys((*self._session_folders, *self._settings_folders))
        return RuleSet(
            cwd=self._launch.cwd,
            rules=(*self._settings_rules, *self._session_rules, *self._list_server_rules()),
            folders=tuple(folders),
            readable=self._launch.readable,
            repository=self._repository,
            as_given=self._as_given,
            sandbox=self._sandbox,
            confinement=self._launch.find_confinement,
        )

    def _list_server_rules(self) -> list[Rule]:
        found = [rule for rules in self._server_rules.values() for rule in rules.values()]
        return [rule for rule in found if rule.behavior != "allow"] if self._managed_only else found

    def _make_absolute(self, folder: str, root: str | None = None) -> str:
        """An absolute path. `~` is the home folder; a relative path starts at `root`."""
        base = self._launch.cwd if root is None else root
        if folder == "~" or folder.startswith("~/"):
            base, folder = self._fs.home, folder[2:]
        return os.path.normpath(os.path.join(base, folder))

    def _parse_rules(
        self, texts: Iterable[str], behavior: Behavior, source: str, root: str | None = None, location: str = ""
    ) -> list[Rule]:
        """The valid rules; a warning names each malformed one."""
        if root is None:
            root = self._launch.user_root if source == "user" else self._launch.cwd
        parsed = [parse_rule(text, behavior, source, root) for text in texts]
        for rule in parsed:
            if isinstance(rule, MalformedRule):
                self._warn(f"the {behavior} rule {rule.text!r} ({location or source}) has no effect: {rule.reason}")
        return [rule for rule in parsed if isinstance(rule, Rule)]

    # Updates.

    def _check(self, update: Update, *, may_bypass: bool) -> None:
        """Raises InvalidUpdate if an update has no effect in this session: it must not be stored either."""
        if isinstance(update, SetMode) and update.mode == "bypassPermissions" and not may_bypass:
            raise InvalidUpdate("the mode bypassPermissions was not allowed at launch, or the settings disable it")
        if isinstance(update, SetMode) and update.mode == "auto" and self._auto_disabled:
            raise InvalidUpdate("the settings disable the mode auto (disableAutoMode)")
        if isinstance(update, AddRules | ReplaceRules):
            for text in update.entries:
                rule = parse_rule(text, update.behavior, SOURCES[update.destination], self._launch.cwd)
                if isinstance(rule, MalformedRule):
                    raise InvalidUpdate(f"the {update.behavior} rule {text!r:.200} has no effect: {rule.reason}")
        if isinstance(update, AddDirectories):
            for folder in update.directories:
                if not folder or "\0" in folder:
                    raise InvalidUpdate(f"{folder!r:.200} is not a directory")
                if self._boundary is not None and not self._is_inside(folder):
                    raise InvalidUpdate(f"{folder!r:.200} is outside, where the settings refuse reads or writes")

    def _is_inside(self, folder: str) -> bool:
        fs = CachedFilesystem(self._fs)
        return self.rules.is_inside(fs.resolve(self._make_absolute(folder)), fs)

    def _apply(self, update: Update) -> None:
        """Change the rules and folders of this session. It owns the mode itself; `update` returns it."""
        if isinstance(update, _RuleUpdate):
            source = SOURCES[update.destination]
            rules = self._parse_rules(update.entries, update.behavior, source)
            if isinstance(update, RemoveRules):
                removed = {(rule.behavior, rule.tool, rule.spec, rule.source) for rule in rules}
                self._drop_rules(lambda rule: (rule.behavior, rule.tool, rule.spec, rule.source) in removed)
                return
            if isinstance(update, ReplaceRules):
                self._drop_rules(lambda rule: rule.source == source and rule.behavior == update.behavior)
            self._session_rules += tuple(rule for rule in rules if rule not in self._session_rules)
        elif isinstance(update, _DirectoryUpdate):
            folders = tuple(map(self._make_absolute, update.directories))
            if isinstance(update, AddDirectories):
                self._session_folders += folders
                return
            self._session_folders = tuple(folder for folder in self._session_folders if folder not in folders)
            self._settings_folders = tuple(folder for folder in self._settings_folders if folder not in folders)

    def _drop_rules(self, should_drop: Callable[[Rule], bool]) -> None:
        self._session_rules = tuple(rule for rule in self._session_rules if not should_drop(rule))
        self._settings_rules = tuple(rule for rule in self._settings_rules if not should_drop(rule))

    def _store(self, update: Update) -> None:
        """Write an update to its settings file, unless it is for this session only."""
        if SOURCES[update.destination] == "session":
            return
        if self._writer is None:
            self._warn(f"cannot write to {update.destination}; the update applies to this session only")
            return
        try:
            if isinstance(update, SetMode):
                self._writer.set_mode(update.destination, update.mode)
            else:
                self._writer.change_list(update.destination, update.key, update.how, update.entries)
        except SettingsWriteError as exc:
            self._warn(f"cannot write to {update.destination}; the update applies to this session only: {exc}")
