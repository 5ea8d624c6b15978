"""Write settings that a client changes to the settings files.

A file is read, changed and replaced under a lock, so that no concurrent change is lost. Other keys keep
their exact text. A file that is not valid JSON is left unchanged.

Entries written to a project's files are also recorded as consents (trust.py), so that they take effect
in the next session; other entries in these files still require trust.

    with open_folder("/home/me/project", (".claude",)) as folder, folder.lock():
        folder.replace("settings.local.json", data)

Names below the base folder are never followed if they are links. A file is replaced atomically. The lock
is on the folder itself, so no lock file remains; on file systems without such locks, a file in it is locked.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw

from parley.errors import explain_os_errors
from parley.protocol.base import Json
from parley.settings import safe_read, trust
from parley.settings.base import SettingsLayer, SettingsWriteError, format_entry
from parley.settings.keys import ENTRY_OBJECTS, KEYS, find_key, nearest
from parley.settings.merge import validate_layer
from parley.workspace import private_files

LOCK_SECONDS = 2.0
LOCK_FILE = ".settings.lock"


class SafeFolder:
    """An open folder; files in it are accessed through its descriptor."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self.path = path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other Parley processes from writing here. Raises SettingsWriteError."""
        with ExitStack() as stack:
            with explain_os_errors(f"cannot lock {self.path}", SettingsWriteError):
                try:
                    is_locked = private_files.lock(self._descriptor, timeout_seconds=LOCK_SECONDS)
                except OSError:  # the file system cannot lock folders
                    own = private_files.open_in(self._descriptor, os.getuid(), LOCK_FILE, os.O_RDWR | os.O_CREAT)
                    stack.callback(os.close, own)
                    is_locked = private_files.lock(own, timeout_seconds=LOCK_SECONDS)
            if not is_locked:
                raise SettingsWriteError(f"{self.path} is locked by another process; try again")
            yield

    def read(self, name: str, most_bytes: int = safe_read.MOST_BYTES) -> bytes | None:
        """Read a file; None if it does not exist. Raises SettingsWriteError if it is too large or no regular file."""
        try:
            descriptor = os.open(name, safe_read.FLAGS | os.O_NOFOLLOW, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise SettingsWriteError(
                f"cannot read {self.path}/{name}, or it is a symbolic link: {exc.strerror}"
            ) from None
        try:
            status = os.fstat(descriptor)
            safe_read.check_regular(status.st_mode)
            if status.st_size > most_bytes:
                raise safe_read.UnreadableFile(f"is too large: {status.st_size:,} bytes (the limit is {most_bytes:,})")
            return safe_read.read_all(descriptor, most_bytes)
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{self.path}/{name} {exc}") from None
        finally:
            os.close(descriptor)

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file's content. It keeps its mode; a new file gets mode 0600. Raises SettingsWriteError."""
        with explain_os_errors(f"cannot write {self.path}/{name}", SettingsWriteError):
            mode = self._mode(name)
            with private_files.replacing(self._descriptor, name, sync=True) as file:
                private_files.write_all(file, data)
                os.fchmod(file, mode)

    def _mode(self, name: str) -> int:
        try:
            old = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return private_files.PRIVATE_FILE
        if not stat.S_ISREG(old.st_mode):
            raise SettingsWriteError(f"{self.path}/{name} is not a regular file; left unchanged")
        return stat.S_IMODE(old.st_mode) & 0o777


@contextmanager
def open_folder(base: Path | str, names: tuple[str, ...] = ()) -> Iterator[SafeFolder]:
    """Open a folder below `base`, creating it if it is missing. Raises SettingsWriteError.

    The folders of a project may belong to others, so their owner is not checked.
    """
    path = str(base)
    with ExitStack() as stack:
        with explain_os_errors(f"cannot open the folder {path}", SettingsWriteError):
            descriptor, _ = stack.enter_context(private_files.open_folder(path, make=not names, to_list=True))
        for name in names:
            path = f"{path}/{name}"
            with explain_os_errors(f"cannot open the folder {path}, or it is a symbolic link", SettingsWriteError):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=descriptor)
                descriptor = os.open(name, private_files.LIST | os.O_NOFOLLOW, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        yield SafeFolder(descriptor, path)


ListChange = Literal["add", "replace", "remove"]
FILES = {
    "userSettings": "settings.json",
    "projectSettings": "settings.json",
    "localSettings": "settings.local.json",
}
DIRECTORIES = "additionalDirectories"


class SettingsWriter:
    """Writes the settings files of a user and a project."""

    def __init__(self, config: Path, project: str, *, is_remote: bool = False) -> None:
        self._config = config
        self._project = project
        self._is_remote = is_remote
        """The project is not on this machine, so its files are not written."""

    # Each method raises SettingsWriteError.

    def change_list(self, destination: str, key: str, how: ListChange, entries: Sequence[str]) -> None:
        """Change a list of permissions: the rules of a behavior, or the additional directories."""
        make: dict[ListChange, Callable[[list[str]], list[str]]] = {
            "add": lambda old: [*old, *entries],
            "replace": lambda old: list(entries),
            "remove": lambda old: [entry for entry in old if entry not in entries],
        }
        self._edit_list(destination, key, make[how])
        if key in ("allow", DIRECTORIES):
            record = self._withdraw if how == "remove" else self._consent
            record(destination, (format_entry(f"permissions.{key}", entry) for entry in entries))

    def set_mode(self, destination: str, mode: str) -> None:
        self._edit_permissions(destination, lambda permissions: permissions | {"defaultMode": encode(mode)})

    def update(self, destination: str, settings: Json) -> None:
        """Set keys; None removes one. Only the keys that clients may write are allowed."""
        if destination not in ("localSettings", "userSettings"):
            raise SettingsWriteError(f"destination must be localSettings or userSettings, not {destination!r}")
        for key, value in settings.items():
            row = find_key("", key)
            if row is None or not row.updatable:
                allowed = ", ".join(sorted(name for name, row in KEYS.items() if row.updatable))
                raise SettingsWriteError(f"a client cannot set {key} (choose from {allowed})")
            if value is not None and not row.kind.accepts(value):
                raise SettingsWriteError(f"{key} must be {row.kind.description}")

        def change(old: dict[str, Raw]) -> dict[str, Raw]:
            remaining = {key: value for key, value in old.items() if settings.get(key, "") is not None}
            return remaining | {key: encode(value) for key, value in settings.items() if value is not None}

        self._edit(destination, change)
        self._consent(destination, (format_entry(key, value) for key, value in settings.items() if value is not None))

    def set_value(self, destination: str, path: Sequence[str], value: object) -> str:
        """Set a key, or one inside an object; None removes it. Returns the file. Unlike `update`, for the user only."""
        key = path[0]
        if find_key("", key) is None:
            near = nearest("", key)
            raise SettingsWriteError(f"unknown setting {key!r}" + (f" (did you mean {near}?)" if near else ""))

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
