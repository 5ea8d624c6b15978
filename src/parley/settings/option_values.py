"""The values of options that can also be set by an environment variable or in settings.

    values = OptionValues(options, environment, merged.get)
    values.get("max_turns")      # the value, or the default
    values.resolve()             # the options with all such values filled in
    values.deadlines()           # the timeouts of model calls that are set, in seconds

The flag takes precedence over the variable, and the variable over the settings. Managed `limits` are ceilings: the
others may only be lower. The rows of `protocol/options.py` name the variable and the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.options import FIELDS, CliOptions, Option
from parley.settings.env_vars import is_truthy

PREFIX = "limits."
LIMITS = {row.setting.removeprefix(PREFIX): row for row in FIELDS.values() if row.setting.startswith(PREFIX)}
"""The options under `limits` in settings, by their keys."""
DEADLINES = {
    "connect_timeout_ms": "connect_seconds",
    "first_byte_timeout_ms": "first_byte_seconds",
    "stream_idle_timeout_ms": "silence_seconds",
    "content_timeout_ms": "content_seconds",
    "request_timeout_ms": "request_seconds",
}


class OptionValues(Struct, frozen=True):
    """Where the values of a session's options come from."""

    options: CliOptions
    environment: Mapping[str, str]
    get_setting: Callable[[str], Any]
    ceilings: Mapping[str, Any] = {}
    """The `limits` of managed settings."""

    def get(self, field: str) -> Any:
        """Return the value of an option, or its default. Raises UsageError for an invalid value."""
        row = FIELDS[field]
        value = self._find(row)
        return row.default if value is None else value

    def resolve(self) -> CliOptions:
        """Return the options with what variables and settings say. Raises UsageError for an invalid value."""
        found = ((row.field, self._find(row)) for row in FIELDS.values() if is_checked(row))
        return self.options.replace(**{field: value for field, value in found if value is not None})

    def deadlines(self) -> dict[str, float]:
        """Return the timeouts by the names that the model backends use. Raises UsageError."""
        named = ((name, self.get(field)) for field, name in DEADLINES.items())
        return {name: value / 1000 for name, value in named if value}

    def _find(self, row: Option[Any]) -> Any:
        """The value that is set, or None; at most the ceiling of an administrator."""
        value = self._find_set(row)
        ceiling = self.ceilings.get(row.setting.removeprefix(PREFIX)) if row.setting.startswith(PREFIX) else None
        # 0 milliseconds means the default timeout.
        if ceiling is None or (row.field in DEADLINES and not ceiling):
            return value
        return ceiling if value is None or (row.field in DEADLINES and not value) else min(value, ceiling)

    def _find_set(self, row: Option[Any]) -> Any:
        given = self.options.given.get(row.field)
        if given is not None:
            return check_range(given, row, f"option '{row.flags[0]}'") if row.flags else given
        if row.variable and (text := self.environment.get(row.variable)):
            return check_range(parse_variable(text, row), row, row.variable)
        if row.setting.startswith(PREFIX):
            return (self.get_setting("limits") or {}).get(row.setting.removeprefix(PREFIX))
        return self.get_setting(row.setting) if row.setting else None


def is_checked(row: Option[Any]) -> bool:
    """Whether a value has another source than the flag, or a range."""
    return bool(row.variable or row.setting or row.least is not None)


def parse_variable(text: str, row: Option[Any]) -> Any:
    if row.kind.empty is False:
        return is_truthy(text)
    if row.kind.is_open:
        return text
    try:
        return row.kind.read(row.variable, [text])
    except UsageError:
        raise UsageError(f"{row.variable} must be {row.kind.expects}, not {text!r}") from None


def check_range(value: Any, row: Option[Any], name: str) -> Any:
    """Raises UsageError."""
    if row.least is not None and not is_in_range(value, row):
        raise UsageError(f"{name} must be {row.kind.expects}, {row.least} or more")
    return value


def is_in_range(value: Any, row: Option[Any]) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (row.kind.is_whole and not isinstance(value, int)):
        return False
    return row.least is None or bool(value >= row.least)


def are_limits(value: Any) -> bool:
    """Whether a value is valid under `limits`. Unknown names are invalid: a misspelled limit would never apply."""
    return isinstance(value, dict) and all(
        name in LIMITS and is_in_range(given, LIMITS[name]) for name, given in value.items()
    )
