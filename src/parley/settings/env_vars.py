"""Read environment variables of the engine, and build the environment of its child processes.

Variables that the user sets reach commands and the engine. Variables that a trusted project sets
reach commands, and the engine only if nothing but the conversation depends on them. Variables that
select a server, contain a key, add a certificate, move the config directory or change the meaning of
a command are never accepted from a project.

Options may be set by a variable, too:

    values = OptionValues(options, environment, merged.get)
    values.get("max_turns")      # the value, or the default
    values.resolve()             # the options with all such values filled in
    values.deadlines()           # the timeouts of model calls that are set, in seconds

The flag takes precedence over the variable, and the variable over the settings. Managed `limits` are ceilings: the
others may only be lower. The rows of `protocol/options.py` name the variable and the key.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from parley.errors import ModelError, UsageError
from parley.protocol.base import Json, Struct
from parley.protocol.option_kinds import Option
from parley.protocol.options import FIELDS, CliOptions
from parley.settings.base import TREE, MergedSettings
from parley.settings.secret_variables import without_secrets
from parley.workspace.search_path import with_absolute_path

FIRST_TOLERANT_PYTHON = (0, 1, 50)
"""The first release of the official Python SDK known to accept unknown message types; 0.1.20 fails on them."""
STRICT = ("sdk-go", "sdk-go-client")
"""Clients that end the session after a message of an unknown type."""


def child_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of commands: without secrets, and with only absolute folders in PATH.

    CLAUDE_CODE_ENTRYPOINT tells hooks whether a person is there; a client has set its own value.
    """
    cleaned = without_secrets(environment)
    cleaned = with_absolute_path(cleaned) if "PATH" in cleaned else cleaned
    return {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli", **cleaned, "CLAUDECODE": "1"}


def state_events(environment: dict[str, str]) -> str | None:
    """Return which clients receive `session_state_changed`: `all`, `sdk` or None."""
    if is_truthy(environment.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")):
        return "all"
    return "sdk" if is_truthy(environment.get("CLAUDE_CODE_SDK_READS_SESSION_STATE")) else None


def is_truthy(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on")


def read_int(environment: dict[str, str], name: str) -> int | None:
    """Read a variable that is a whole number. Raises UsageError."""
    value = environment.get(name)
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {value!r}") from None


def read_int_or(environment: dict[str, str], name: str, default: int) -> int:
    value = read_int(environment, name)
    return default if value is None else value


def background_wait_seconds(environment: dict[str, str]) -> float | None:
    """How long to wait for background tasks after the input has ended; 0 in the variable means no limit."""
    milliseconds = read_int_or(environment, "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS", 600_000)
    return milliseconds / 1000 if milliseconds > 0 else None


def heartbeat_seconds(environment: dict[str, str]) -> float | None:
    """How often an idle turn sends a heartbeat; 0 in the variable means never."""
    milliseconds = read_int_or(environment, "PARLEY_HEARTBEAT_MS", 30_000)
    return milliseconds / 1000 if milliseconds > 0 else None


def custom_headers(text: str) -> dict[str, str]:
    """Parse `Name: value` lines."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def extra_body(text: str | None) -> Json:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict)
    except msgspec.DecodeError as exc:
        raise ModelError(f"CLAUDE_CODE_EXTRA_BODY is not a JSON object: {exc}", kind="no_key") from None


def takes_rate_limits(environment: Mapping[str, str]) -> bool:
    """Whether the client accepts `rate_limit_event` messages."""
    entrypoint = environment.get("CLAUDE_CODE_ENTRYPOINT")
    if entrypoint == "sdk-py":
        return parse_version(environment.get("CLAUDE_AGENT_SDK_VERSION", "")) >= FIRST_TOLERANT_PYTHON
    return entrypoint not in STRICT


def parse_version(text: str) -> tuple[int, ...]:
    """Parse a release number; (0,) if it is invalid."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (0,)


REFUSED_FROM_TREE = r"""
    ANTHROPIC_(?!(DEFAULT_\w+_)?MODEL$|SMALL_FAST_MODEL$).*   # endpoint, key, headers; a model's name is allowed
    | (OPENAI|AWS|AZURE|GOOGLE|GCLOUD|CLOUDSDK|VERTEX|BEDROCK|PARLEY)_.*
    | CLAUDE_CODE_(OAUTH|API_KEY|USE|SKIP|EXTRA_BODY|PROXY|CERT|CLIENT|HOST|ENABLE_TELEMETRY|TMPDIR|SHELL).*
    | OTEL_.* | CLOUD_ML_REGION
    | \w*_PROXY | \w*_BASE_URL | \w*_API_BASE | \w*API_?KEY | \w*AUTH_TOKEN
    | NODE_EXTRA_CA_CERTS | NODE_TLS_\w+ | NODE_OPTIONS | SSL\w* | \w*_CA_BUNDLE | \w*SSL_\w+ | \w*_ASKPASS
    | GIT_(CONFIG|PROXY|SSH|EXEC|ASKPASS|TEMPLATE|EXTERNAL)\w* | \w*CREDENTIAL\w*
    | HOME | CLAUDE_CONFIG_DIR | XDG_\w+ | TMPDIR | IS_SANDBOX
    | PATH | SHELL | LD_\w+ | DYLD_\w+ | BASH_ENV | ENV | SHELLOPTS | BASHOPTS | IFS | PS4 | PROMPT_COMMAND
    | GLOBIGNORE | EXECIGNORE | CDPATH | BASH_FUNC_.* | BASH_(XTRACEFD|COMPAT|LOADABLES_PATH) | POSIXLY_CORRECT
    | PAGER | GIT_PAGER | \w*EDITOR | RIPGREP_CONFIG_PATH
    """
OURS_FROM_TREE = frozenset(
    {"ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS"}
    | {"CLAUDE_CODE_ENABLE_TASKS", "MAX_THINKING_TOKENS"}
    | {f"ANTHROPIC_DEFAULT_{name}_MODEL" for name in ("OPUS", "SONNET", "HAIKU", "FABLE")}
)
"""Variables of a trusted project that the engine itself reads."""
NEVER_OURS = frozenset({"HOME", "CLAUDE_CONFIG_DIR", "IS_SANDBOX"})
"""Variables that the engine reads only from the real environment: where the user's files are, and the sandbox."""


def is_refused(name: str) -> bool:
    """Whether a variable is never accepted from a project, even a trusted one."""
    return refused_names().fullmatch(name) is not None


@functools.cache
def refused_names() -> re.Pattern[str]:
    """Compiled on first use: it takes 2 ms, and most projects set no variable."""
    return re.compile(REFUSED_FROM_TREE, re.VERBOSE | re.IGNORECASE | re.DOTALL)


def environment_for_commands(base: Mapping[str, str], merged: MergedSettings) -> dict[str, str]:
    """Return the environment of child processes, before secrets are removed."""
    return {**base, **{name: value.value for name, value in merged.environment.items()}}


def own_environment(base: Mapping[str, str], merged: MergedSettings) -> dict[str, str]:
    """Return the environment that the engine reads."""
    ours = {
        name: value.value
        for name, value in merged.environment.items()
        if name not in NEVER_OURS and (value.source not in TREE or name in OURS_FROM_TREE)
    }
    return {**base, **ours}


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
        switch, value = row.switch
        if is_truthy(self.environment.get(switch)):
            return value
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
    if not is_number or (row.kind.json_type is int and not isinstance(value, int)):
        return False
    return row.least is None or bool(value >= row.least)


def are_limits(value: Any) -> bool:
    """Whether a value is valid under `limits`. Unknown names are invalid: a misspelled limit would never apply."""
    return isinstance(value, dict) and all(
        name in LIMITS and is_in_range(given, LIMITS[name]) for name, given in value.items()
    )
