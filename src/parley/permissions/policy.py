"""The rules of a live session: those of the command line, of the settings, and those a host adds.

Not here: the decision itself (decision.py), and files of settings (settings/).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from parley.permissions.base import BadUpdate, Decision, Recorded, Request, View
from parley.permissions.decision import decide
from parley.permissions.paths.filesystem import Glance
from parley.permissions.rule import Behavior, Malformed, Rule, read_rule, written
from parley.permissions.rules import Rules
from parley.permissions.updates import (
    SOURCES,
    AddDirectories,
    AddRules,
    Contents,
    RemoveDirectories,
    RemoveRules,
    ReplaceRules,
    SetMode,
    Update,
    read_updates,
)
from parley.protocol.base import Json, Struct
from parley.settings.base import Merged, NotWritten

WIRE_NAMES = {
    "managed": "policySettings",
    "flag": "cliArg",
    "local": "localSettings",
    "project": "projectSettings",
    "user": "userSettings",
    "session": "session",
}


class Keeper(Protocol):
    """Who writes to settings files. Each raises NotWritten."""

    def add_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None: ...
    def replace_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None: ...
    def remove_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None: ...
    def add_directories(self, destination: str, directories: Sequence[str]) -> None: ...
    def remove_directories(self, destination: str, directories: Sequence[str]) -> None: ...
    def set_mode(self, destination: str, mode: str) -> None: ...


class Given(Struct, frozen=True, kw_only=True):
    """What the command line says."""

    cwd: str
    user_root: str
    """The folder that a leading `/` means in the person's own settings."""
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    """Folders of the session's own that may be read."""
    trusted: bool = False
    """Whether the person trusts the working directory, and with it what its repository says."""


class Book:
    def __init__(
        self,
        given: Given,
        view: View,
        keeper: Keeper | None = None,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._given = given
        self._view = view
        self._keeper = keeper
        self._complain = complain
        self._settled: tuple[Rule, ...] = ()
        """What settings files say; replaced as a whole when they are read anew."""
        self._settled_folders: tuple[str, ...] = ()
        denied = self._understood(given.denied, "deny", "flag")
        self._own = (*denied, *self._understood(given.allowed, "allow", "flag"))
        self._own_folders = tuple(map(self._located, given.folders))
        self._repository: Recorded | None = None
        self._is_recorded = False
        self.rules = self._together()

    def decide(self, request: Request, mode: str) -> Decision:
        if not self._is_recorded:
            self._record()
        rules = self.rules
        if request.worktree is not None:
            from parley.permissions.worktree_rules import Apart

            rules = Apart.made(rules, request.worktree)
        return decide(request, rules, mode, self._view)

    def _record(self) -> None:
        """Which repository the rules are about: before the first call runs, for a call could make another."""
        from parley.permissions.git.repository import record

        view, rules = Glance(self._view), self.rules
        self._is_recorded = True
        trusted = self._given.trusted
        self._repository = record(self._given.cwd, view, lambda way: rules.is_inside(way, view), trusted=trusted)
        self.rules = self._together()

    def hides(self, path: str) -> bool:
        return self.rules.hides(path, self._view)

    def listed(self) -> Json:
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
        return {"rules": rows, "workspaceDirectories": folders, "originalCwd": self._given.cwd, "managedOnly": False}

    def settle(self, merged: Merged) -> None:
        found: list[Rule] = []
        for text in merged.rules:
            place = text.path if text.line is None else f"{text.path}:{text.line}"
            found += self._understood([text.text], text.behavior, text.source, text.root, place)
        self._settled = tuple(found)
        self._settled_folders = tuple(self._located(folder.value, folder.root) for folder in merged.directories)
        self.rules = self._together()

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        mode = None
        read = read_updates(updates)
        for update in read:  # all or none: nothing is taken in, or written, before everything is known to be right
            self._check(update, may_bypass=may_bypass)
        for update in read:
            TAKERS[type(update)](self, update)
            self._keep(update)
            if isinstance(update, SetMode):
                mode = update.mode
        self.rules = self._together()
        return mode

    def _together(self) -> Rules:
        folders = dict.fromkeys((*self._own_folders, *self._settled_folders))
        return Rules(
            cwd=self._given.cwd,
            rules=self._settled + self._own,
            folders=tuple(folders),
            readable=self._given.readable,
            repository=self._repository,
        )

    def _located(self, folder: str, root: str | None = None) -> str:
        """An absolute path; `~` is the home folder, and a relative one starts where it was written."""
        base = self._given.cwd if root is None else root
        if folder == "~" or folder.startswith("~/"):
            base, folder = self._view.home, folder[2:]
        return os.path.normpath(os.path.join(base, folder))

    def _understood(
        self, texts: Iterable[str], behavior: Behavior, source: str, root: str | None = None, place: str = ""
    ) -> list[Rule]:
        """The rules among some texts; what is none is complained about."""
        if root is None:
            root = self._given.user_root if source == "user" else self._given.cwd
        read = [read_rule(text, behavior, source, root) for text in texts]
        for bad in read:
            if isinstance(bad, Malformed):
                self._complain(f"the {behavior} rule {bad.text!r} ({place or source}) has no effect: {bad.reason}")
        return [rule for rule in read if isinstance(rule, Rule)]

    # Updates.

    def _check(self, update: Update, *, may_bypass: bool) -> None:
        """Raises BadUpdate for what has no effect in this session: it must not be stored for the next one either."""
        if isinstance(update, SetMode) and update.mode == "bypassPermissions" and not may_bypass:
            raise BadUpdate("the mode bypassPermissions was not allowed at launch, or the settings disable it")
        if isinstance(update, AddRules | ReplaceRules):
            for text in texts(update.rules):
                rule = read_rule(text, update.behavior, SOURCES[update.destination], self._given.cwd)
                if isinstance(rule, Malformed):
                    raise BadUpdate(f"the {update.behavior} rule {text!r:.200} has no effect: {rule.reason}")
        if isinstance(update, AddDirectories):
            for folder in update.directories:
                if not folder or "\0" in folder:
                    raise BadUpdate(f"{folder!r:.200} is not a directory")

    def _meant(self, update: AddRules | ReplaceRules | RemoveRules) -> list[Rule]:
        return self._understood(texts(update.rules), update.behavior, SOURCES[update.destination])

    def _add(self, update: AddRules) -> None:
        self._own += tuple(rule for rule in self._meant(update) if rule not in self._own)

    def _replace(self, update: ReplaceRules) -> None:
        source = SOURCES[update.destination]
        self._drop(lambda rule: rule.source == source and rule.behavior == update.behavior)
        self._own += tuple(self._meant(update))

    def _remove(self, update: RemoveRules) -> None:
        unwanted = {(rule.behavior, rule.tool, rule.spec, rule.source) for rule in self._meant(update)}
        self._drop(lambda rule: (rule.behavior, rule.tool, rule.spec, rule.source) in unwanted)

    def _drop(self, unwanted: Callable[[Rule], bool]) -> None:
        self._own = tuple(rule for rule in self._own if not unwanted(rule))
        self._settled = tuple(rule for rule in self._settled if not unwanted(rule))

    def _add_folders(self, update: AddDirectories) -> None:
        self._own_folders += tuple(map(self._located, update.directories))

    def _remove_folders(self, update: RemoveDirectories) -> None:
        unwanted = set(map(self._located, update.directories))
        self._own_folders = tuple(folder for folder in self._own_folders if folder not in unwanted)
        self._settled_folders = tuple(folder for folder in self._settled_folders if folder not in unwanted)

    def _set_mode(self, update: SetMode) -> None:
        """The mode is the session's."""

    def _keep(self, update: Update) -> None:
        """Write it where later sessions find it, if it is meant for them."""
        if SOURCES[update.destination] == "session":
            return
        if self._keeper is None:
            self._complain(f"nothing can be written to {update.destination}; the update counts for this session only")
            return
        try:
            KEEPERS[type(update)](self._keeper, update)
        except NotWritten as flaw:
            self._complain(f"{update.destination} was not changed, the update counts for this session only: {flaw}")


def texts(contents: Iterable[Contents]) -> list[str]:
    return [written(rule.toolName, rule.ruleContent or None) for rule in contents]


TAKERS: dict[type, Callable[[Book, Any], None]] = {
    AddRules: Book._add,
    ReplaceRules: Book._replace,
    RemoveRules: Book._remove,
    SetMode: Book._set_mode,
    AddDirectories: Book._add_folders,
    RemoveDirectories: Book._remove_folders,
}
KEEPERS: dict[type, Callable[[Keeper, Any], None]] = {
    AddRules: lambda keeper, update: keeper.add_rules(update.destination, update.behavior, texts(update.rules)),
    ReplaceRules: lambda keeper, update: keeper.replace_rules(update.destination, update.behavior, texts(update.rules)),
    RemoveRules: lambda keeper, update: keeper.remove_rules(update.destination, update.behavior, texts(update.rules)),
    SetMode: lambda keeper, update: keeper.set_mode(update.destination, update.mode),
    AddDirectories: lambda keeper, update: keeper.add_directories(update.destination, update.directories),
    RemoveDirectories: lambda keeper, update: keeper.remove_directories(update.destination, update.directories),
}
