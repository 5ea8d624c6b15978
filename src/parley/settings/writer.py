"""Writing settings: what a host decided to keep, into the file it is meant for.

Read, change and replace happen under a lock, so that nobody's change is lost. Keys that
are not ours to change keep their spelling. A file that is no JSON is left alone.

What is written into a project's files on the person's word is put on record as well
(trust.py): the next session believes those entries, and no others that it finds there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Raw

from parley.protocol.base import Json
from parley.settings import trust
from parley.settings.base import NotWritten, entry
from parley.settings.keys import KEYS, UPDATABLE

if TYPE_CHECKING:
    from parley.settings.safe_folder import Folder

Behavior = Literal["allow", "deny", "ask"]
FILES = {
    "userSettings": "settings.json",
    "projectSettings": "settings.json",
    "localSettings": "settings.local.json",
}
DIRECTORIES = "additionalDirectories"


class Store:
    """The settings files of a person and a project."""

    def __init__(self, config: Path, project: str) -> None:
        self._config = config
        self._project = project

    # Each raises NotWritten.

    def add_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None:
        self._edit_list(destination, behavior, lambda old: [*old, *rules])
        if behavior == "allow":
            self._consent(destination, (entry("permissions.allow", rule) for rule in rules))

    def replace_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None:
        self._edit_list(destination, behavior, lambda old: list(rules))
        if behavior == "allow":
            self._consent(destination, (entry("permissions.allow", rule) for rule in rules))

    def remove_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None:
        self._edit_list(destination, behavior, lambda old: [rule for rule in old if rule not in rules])
        if behavior == "allow":
            self._withdraw(destination, (entry("permissions.allow", rule) for rule in rules))

    def add_directories(self, destination: str, directories: Sequence[str]) -> None:
        self._edit_list(destination, DIRECTORIES, lambda old: [*old, *directories])
        self._consent(destination, (entry(f"permissions.{DIRECTORIES}", folder) for folder in directories))

    def remove_directories(self, destination: str, directories: Sequence[str]) -> None:
        self._edit_list(destination, DIRECTORIES, lambda old: [folder for folder in old if folder not in directories])
        self._withdraw(destination, (entry(f"permissions.{DIRECTORIES}", folder) for folder in directories))

    def set_mode(self, destination: str, mode: str) -> None:
        self._edit_permissions(destination, lambda permissions: permissions | {"defaultMode": encoded(mode)})

    def update(self, destination: str, settings: Json) -> None:
        """Set keys; None takes one out. Only harmless keys may be set."""
        if destination not in ("localSettings", "userSettings"):
            raise NotWritten(f"settings are written to localSettings or userSettings, not to {destination!r}")
        for key, value in settings.items():
            if key not in UPDATABLE:
                raise NotWritten(f"{key} may not be set this way; these may: {', '.join(sorted(UPDATABLE))}")
            if value is not None and not KEYS[key].kind.fits(value):
                raise NotWritten(f"{key} must be {KEYS[key].kind.words}")

        def change(old: dict[str, Raw]) -> dict[str, Raw]:
            kept = {key: value for key, value in old.items() if settings.get(key, "") is not None}
            return kept | {key: encoded(value) for key, value in settings.items() if value is not None}

        self._edit(destination, change)
        self._consent(destination, (entry(key, value) for key, value in settings.items() if value is not None))

    def _edit_list(self, destination: str, key: str, make: Callable[[list[str]], list[str]]) -> None:
        def change(permissions: dict[str, Raw]) -> dict[str, Raw]:
            old = texts(permissions.get(key), key)
            return permissions | {key: encoded(list(dict.fromkeys(make(old))))}

        self._edit_permissions(destination, change)

    def _edit_permissions(self, destination: str, make: Callable[[dict[str, Raw]], dict[str, Raw]]) -> None:
        def change(values: dict[str, Raw]) -> dict[str, Raw]:
            return values | {"permissions": encoded(make(fields(values.get("permissions"), "permissions")))}

        self._edit(destination, change)

    def _edit(self, destination: str, make: Callable[[dict[str, Raw]], dict[str, Raw]]) -> None:
        name = FILES.get(destination)
        if name is None:
            raise NotWritten(f"there is no place {destination!r} to write settings to; there are {', '.join(FILES)}")
        with self._folder(destination) as folder, folder.locked():
            data = folder.read(name)
            values = make(fields(Raw(data or b"{}"), f"{folder.path}/{name}"))
            new = msgspec.json.format(msgspec.json.encode(values), indent=indent_of(data))
            folder.replace(name, new + b"\n")

    def _folder(self, destination: str) -> AbstractContextManager[Folder]:
        from parley.settings.safe_folder import opened  # every session has a store, and few write

        if destination == "userSettings":
            return opened(self._config)
        return opened(self._project, (".claude",))

    def _consent(self, destination: str, entries: Iterable[str]) -> None:
        if destination != "userSettings":
            trust.consent(self._config, trust.identify(self._project), entries)

    def _withdraw(self, destination: str, entries: Iterable[str]) -> None:
        if destination != "userSettings":
            trust.withdraw(self._config, trust.identify(self._project), entries)


def encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def fields(raw: Raw | None, what: str) -> dict[str, Raw]:
    """An object with its values as they are spelled. Raises NotWritten."""
    try:
        return {} if raw is None else msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
        raise NotWritten(f"{what} is no JSON object, and is left alone: {flaw}") from None


def texts(raw: Raw | None, key: str) -> list[str]:
    """Raises NotWritten."""
    try:
        return [] if raw is None else msgspec.json.decode(raw, type=list[str])
    except msgspec.DecodeError as flaw:
        raise NotWritten(f"permissions.{key} is no list of strings, and is left alone: {flaw}") from None


def indent_of(data: bytes | None) -> int:
    """As the file has it."""
    found = re.match(rb'\s*\{\r?\n( +)"', data or b"")
    return len(found[1]) if found else 2
