"""Write settings that a client changes to the settings files.

A file is read, changed and replaced under a lock, so that no concurrent change is lost. Other keys keep
their exact text. A file that is not valid JSON is left unchanged.

Entries written to a project's files are also recorded as consents (trust.py), so that they take effect
in the next session; other entries in these files still require trust.
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
from parley.settings.base import SettingsLayer, SettingsWriteError, format_entry
from parley.settings.keys.table import KEYS, UPDATABLE
from parley.settings.keys.validation import validate_layer

if TYPE_CHECKING:
    from parley.settings.safe_folder import SafeFolder

Behavior = Literal["allow", "deny", "ask"]
FILES = {
    "userSettings": "settings.json",
    "projectSettings": "settings.json",
    "localSettings": "settings.local.json",
}
DIRECTORIES = "additionalDirectories"
ENTRY_OBJECTS = ("env", "mcpServers", "enabledPlugins", "models")
"""Objects that are trusted entry by entry."""


class SettingsWriter:
    """Writes the settings files of a user and a project."""

    def __init__(self, config: Path, project: str, *, is_remote: bool = False) -> None:
        self._config = config
        self._project = project
        self._is_remote = is_remote
        """The project is not on this machine, so its files are not written."""

    # Each method raises SettingsWriteError.

    def add_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None:
        self._edit_list(destination, behavior, lambda old: [*old, *rules])
        if behavior == "allow":
            self._consent(destination, (format_entry("permissions.allow", rule) for rule in rules))

    def replace_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None:
        self._edit_list(destination, behavior, lambda old: list(rules))
        if behavior == "allow":
            self._consent(destination, (format_entry("permissions.allow", rule) for rule in rules))

    def remove_rules(self, destination: str, behavior: Behavior, rules: Sequence[str]) -> None:
        self._edit_list(destination, behavior, lambda old: [rule for rule in old if rule not in rules])
        if behavior == "allow":
            self._withdraw(destination, (format_entry("permissions.allow", rule) for rule in rules))

    def add_directories(self, destination: str, directories: Sequence[str]) -> None:
        self._edit_list(destination, DIRECTORIES, lambda old: [*old, *directories])
        self._consent(destination, (format_entry(f"permissions.{DIRECTORIES}", folder) for folder in directories))

    def remove_directories(self, destination: str, directories: Sequence[str]) -> None:
        self._edit_list(destination, DIRECTORIES, lambda old: [folder for folder in old if folder not in directories])
        self._withdraw(destination, (format_entry(f"permissions.{DIRECTORIES}", folder) for folder in directories))

    def set_mode(self, destination: str, mode: str) -> None:
        self._edit_permissions(destination, lambda permissions: permissions | {"defaultMode": encode(mode)})

    def update(self, destination: str, settings: Json) -> None:
        """Set keys; None removes one. Only the keys of UPDATABLE are allowed."""
        if destination not in ("localSettings", "userSettings"):
            raise SettingsWriteError(f"destination must be localSettings or userSettings, not {destination!r}")
        for key, value in settings.items():
            if key not in UPDATABLE:
                raise SettingsWriteError(f"a client cannot set {key} (choose from {', '.join(sorted(UPDATABLE))})")
            if value is not None and not KEYS[key].kind.accepts(value):
                raise SettingsWriteError(f"{key} must be {KEYS[key].kind.description}")

        def change(old: dict[str, Raw]) -> dict[str, Raw]:
            remaining = {key: value for key, value in old.items() if settings.get(key, "") is not None}
            return remaining | {key: encode(value) for key, value in settings.items() if value is not None}

        self._edit(destination, change)
        self._consent(destination, (format_entry(key, value) for key, value in settings.items() if value is not None))

    def set_value(self, destination: str, path: Sequence[str], value: object) -> str:
        """Set a key, or one inside an object; None removes it. Returns the file. Unlike `update`, for the user only."""
        key = path[0]
        if key not in KEYS:
            from difflib import get_close_matches

            near = get_close_matches(key, KEYS, n=1)
            raise SettingsWriteError(f"unknown setting {key!r}" + (f" (did you mean {near[0]}?)" if near else ""))

        def change(values: dict[str, Raw]) -> dict[str, Raw]:
            new = set_inside(values, path, value)
            check_values({key: msgspec.json.decode(new[key])} if key in new else {}, self._project)
            return new

        file = self._edit(destination, change)
        if value is not None and (len(path) == 1 or (len(path) == 2 and key in ENTRY_OBJECTS)):
            self._consent(destination, [format_entry(".".join(path), value)])
        return file

    def _edit_list(self, destination: str, key: str, make: Callable[[list[str]], list[str]]) -> None:
        def change(permissions: dict[str, Raw]) -> dict[str, Raw]:
            old = parse_texts(permissions.get(key), key)
            return permissions | {key: encode(list(dict.fromkeys(make(old))))}

        self._edit_permissions(destination, change)

    def _edit_permissions(self, destination: str, make: Callable[[dict[str, Raw]], dict[str, Raw]]) -> None:
        def change(values: dict[str, Raw]) -> dict[str, Raw]:
            return values | {"permissions": encode(make(parse_object(values.get("permissions"), "permissions")))}

        self._edit(destination, change)

    def _edit(self, destination: str, make: Callable[[dict[str, Raw]], dict[str, Raw]]) -> str:
        """Change a file; returns its path."""
        name = FILES.get(destination)
        if name is None:
            raise SettingsWriteError(
                f"unknown destination {destination!r} for settings (choose from {', '.join(FILES)})"
            )
        if self._is_remote and destination != "userSettings":
            raise SettingsWriteError(f"{destination} cannot be written: the project is in a remote workspace")
        with self._folder(destination) as folder, folder.lock():
            data = folder.read(name)
            values = make(parse_object(Raw(data or b"{}"), f"{folder.path}/{name}"))
            new = msgspec.json.format(msgspec.json.encode(values), indent=detect_indent(data))
            folder.replace(name, new + b"\n")
            return f"{folder.path}/{name}"

    def _folder(self, destination: str) -> AbstractContextManager[SafeFolder]:
        from parley.settings.safe_folder import open_folder  # most sessions write no settings

        if destination == "userSettings":
            return open_folder(self._config)
        return open_folder(self._project, (".claude",))

    def _consent(self, destination: str, entries: Iterable[str]) -> None:
        if destination != "userSettings":
            trust.record_consent(self._config, trust.identify(self._project), entries)

    def _withdraw(self, destination: str, entries: Iterable[str]) -> None:
        if destination != "userSettings":
            trust.withdraw_consent(self._config, trust.identify(self._project), entries)


def set_inside(values: dict[str, Raw], path: Sequence[str], value: object) -> dict[str, Raw]:
    """Set or remove what a path of keys leads to; the text of everything else stays. Raises SettingsWriteError."""
    key, *rest = path
    if rest:
        inner = parse_object(values.get(key), key)
        return values | {key: encode(set_inside(inner, rest, value))}
    others = {name: raw for name, raw in values.items() if name != key or value is not None}
    return others if value is None else others | {key: encode(value)}


def check_values(values: Json, root: str) -> None:
    """Raises SettingsWriteError if a value has the wrong type."""
    _, problems = validate_layer(SettingsLayer(source="user", path="", root=root, values=values))
    if problems:
        raise SettingsWriteError(problems[0].text.removesuffix("; ignored"))


def encode(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def parse_object(raw: Raw | None, what: str) -> dict[str, Raw]:
    """Parse an object, keeping the text of its values. Raises SettingsWriteError."""
    try:
        return {} if raw is None else msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SettingsWriteError(f"{what} is not a JSON object, so the file was left unchanged: {exc}") from None


def parse_texts(raw: Raw | None, key: str) -> list[str]:
    """Raises SettingsWriteError."""
    try:
        return [] if raw is None else msgspec.json.decode(raw, type=list[str])
    except msgspec.DecodeError as exc:
        raise SettingsWriteError(
            f"permissions.{key} is not a list of strings, so the file was left unchanged: {exc}"
        ) from None


def detect_indent(data: bytes | None) -> int:
    """Return the indentation of a file, 2 by default."""
    found = re.match(rb'\s*\{\r?\n( +)"', data or b"")
    return len(found[1]) if found else 2
