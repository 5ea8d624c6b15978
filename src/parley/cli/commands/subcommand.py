"""Run a subcommand: parse its words as `catalog.py` declares them, print its help, and write output.

    def list_sessions(given: GivenArgs) -> int:         a row of HANDLERS; returns the exit code
        given.words, given.has("json"), given.one("limit"), given.options
        return write_result(given, rows, lines)

All subcommands behave alike. Without arguments, a command that needs some prints its help. Wrong usage is an error
with one line of usage. An unknown word is refused with the nearest known one.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from parley.cli.commands.catalog import ACTION_ALIASES, BY_NAME, Action, Command
from parley.cli.nearest import find_nearest
from parley.cli.stdio import warn, write
from parley.errors import InvalidArguments, UnknownCommand, UsageError
from parley.protocol.base import Struct, encode_json
from parley.protocol.options import BY_FLAG, CliOptions, is_flag, parse
from parley.settings.base import MAX_SHOWN, SettingsWriteError, printable

if TYPE_CHECKING:
    from parley.compose.launch_context import LaunchContext

HANDLERS = {
    "acp": "acp:serve_acp",
    "attach": "attach:attach",
    "auth": "config:show_key",
    "cluster status": "cluster:show_status",
    "cluster drain": "cluster:drain",
    "cluster move": "cluster:move",
    "cluster sign-tokens": "cluster:sign_tokens",
    "cluster release": "cluster:release",
    "cluster demo": "cluster:run_demo",
    "completion": "completion:write_script",
    "completion words": "completion:write_words",
    "config": "config:run_action",
    "conform": "conform:conform",
    "conform-client": "conform:conform_client",
    "console": "serve:open_console",
    "doctor": "doctor:run_doctor",
    "eval": "eval:evaluate",
    "fake": "replay:run_fake",
    "help": "help:show_help",
    "host": "cluster:serve_host",
    "init": "setup:init",
    "inspect": "recordings:inspect",
    "link": "setup:link",
    "man": "man:write_page",
    "mcp add": "mcp.servers:add",
    "mcp add-json": "mcp.servers:add_json",
    "mcp get": "mcp.servers:get",
    "mcp list": "mcp.servers:list_servers",
    "mcp remove": "mcp.servers:remove",
    "mcp reset-project-choices": "mcp.servers:reset_project_choices",
    "mcp serve": "mcp.serve:serve",
    "memory": "memory:run",
    "model-server": "model_server:run_server",
    "models": "models:show_models",
    "permissions check": "permissions:check_call",
    "permissions replay": "permissions:replay_session",
    "plugin": "plugin:run_action",
    "replay": "replay:run_replay",
    "resident start": "resident:run_start",
    "resident status": "resident:run_status",
    "resident stop": "resident:run_stop",
    "schema": "recordings:show_schema",
    "serve": "serve:serve",
    "sessions": "sessions:run",
    "tap": "tap:run_tap",
    "trust": "config:change_trust",
    "update": "setup:show_update",
    "workspace": "serve:serve_files",
}
"""The function that runs an action, or all actions of a command: its module in this package, and its name."""
MAX_DIGITS = 15
MAX_USAGE_FLAGS = 10
"""A usage line with more flags cannot be read; the list below it has them all."""


class GivenArgs(Struct, frozen=True, kw_only=True):
    """The parsed words after a command."""

    action: str
    words: tuple[str, ...]
    values: dict[str, list[str]]
    options: CliOptions = CliOptions()
    option_words: tuple[str, ...] = ()
    """The options of a session as they were given, and the other words."""

    def has(self, key: str) -> bool:
        return key in self.values

    def all(self, key: str) -> list[str]:
        return self.values.get(key, [])

    def one(self, key: str, default: str = "") -> str:
        return self.values[key][-1] if self.values.get(key) else default

    def number(self, key: str, default: int) -> int:
        """Raises InvalidArguments."""
        return parse_number(f"--{key}", self.one(key)) if self.has(key) else default

    def decimal(self, key: str, default: float, most: float, *, is_whole: bool = False) -> float:
        """A number from 0 to `most`. Raises InvalidArguments."""
        text = self.one(key, f"{default:g}")
        try:
            value = int(text) if is_whole else float(text)
        except ValueError:
            value = -1
        if not 0 <= value <= most:
            expected = f"expected a number from 0 to {most:g}"
            raise InvalidArguments(f"invalid value {text!r} for option '--{key}' ({expected})")
        return value


def run_subcommand(name: str, argv: Sequence[str]) -> int:
    """Returns the exit code. Raises UsageError or SessionError."""
    command = BY_NAME[name]

    def handle(given: GivenArgs) -> int:
        handler = find_handler(command.name, given.action)
        gc.freeze()  # modules live until the end
        gc.enable()  # main() disabled it, but a server runs for long
        return handler(given)

    if name == "resident" and argv[:1] == ["serve"] and len(argv) == 3:
        # The server itself. It is not listed, because launchers start it with a lock.
        return int(import_module("parley.cli.commands.resident").serve(*argv[1:]))
    return run_command(command, argv, handle)


def find_handler(command: str, action: str) -> Callable[[GivenArgs], int]:
    """The function that runs an action, which is imported here."""
    module, _, function = HANDLERS.get(f"{command} {action}".rstrip(), HANDLERS.get(command, "")).partition(":")
    handler: Callable[[GivenArgs], int] = getattr(import_module(f"parley.cli.commands.{module}"), function)
    return handler


def run_command(command: Command, argv: Sequence[str], handle: Callable[[GivenArgs], int]) -> int:
    """Parse the words and pass them on. Raises UsageError, or what the handler raises."""
    if wants_help(command, argv):
        return write_help(command, argv)
    name, rest = ("", argv) if command.single else split_action(command, argv)
    if name in command.refused:
        raise UnknownCommand(f"`parley {command.name} {name}` is not available: {command.refused[name]}")
    if name not in command.actions:
        raise unknown_action(command, name)
    usage = f"\nUsage: {usage_line(command, name)}"
    error_code = command.actions[name].error_code
    try:
        given = parse_args(command, name, rest)
    except UsageError as exc:
        text = f"{exc}{usage}"
        raise (UsageError(text) if command.is_shared else InvalidArguments(text, error_code)) from None
    try:
        return handle(given)
    except UnknownCommand:
        raise
    except InvalidArguments as exc:
        raise InvalidArguments(f"{exc}{usage}", error_code) from None
    except SettingsWriteError as exc:
        raise UsageError(str(exc)) from None


def wants_help(command: Command, argv: Sequence[str]) -> bool:
    """Whether help is asked for before a `--`, or there are no arguments although some are needed."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    if "--help" in own or "-h" in own:
        return True
    if command.single is not None:
        return not argv and bool(command.single.required)
    return not argv or argv[0] == "help"


def write_help(command: Command, argv: Sequence[str] = ()) -> int:
    """Print the help of the action that the words name, else that of the command."""
    from parley.cli.commands.help import format_action, format_command

    named = [word for word in argv if word in command.actions]
    return write_lines([format_action(command, named[0]) if named else format_command(command)])


def unknown_action(command: Command, name: str) -> UnknownCommand:
    choices = ", ".join(command.actions)
    return UnknownCommand(
        f"unknown command `parley {command.name} {name}`{find_nearest(name, command.actions)} (choose from {choices})"
    )


def split_action(command: Command, argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The name of the action and the rest. Flags may stand before it."""
    at = next((at for at, word in enumerate(argv) if word in command.actions), 0) if is_flag(argv[0]) else 0
    name = ACTION_ALIASES.get(command.name, {}).get(argv[at], argv[at])
    return name, [*argv[:at], *argv[at + 1 :]]


def parse_args(command: Command, name: str, argv: Sequence[str]) -> GivenArgs:
    """Raises UsageError."""
    action = command.actions[name]
    words, values = split_flags(action, argv)
    options, option_words = CliOptions(), tuple(words)
    if action.takes_options:
        words, options = parse_options(action, words)
    check_arguments(action, words)
    return GivenArgs(action=name, words=tuple(words), values=values, options=options, option_words=option_words)


def split_flags(action: Action, argv: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Split the flags of an action from the rest. Everything after `--` is a word. Raises UsageError.

    If the action takes the options of a session, the flags that are not its own stay in the rest, with the `--`.
    """
    flags = {name: flag for flag in action.flags for name in flag.names.split()}
    words: list[str] = []
    values: dict[str, list[str]] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += ["--", *rest] if action.takes_options else rest
            break
        name, is_joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        flag = flags.get(name)
        if flag is None:
            if is_flag(word) and not action.takes_options:
                raise unknown_flag(name, flags)
            words.append(word)
            continue
        if not flag.metavar:
            if is_joined:
                raise UsageError(f"option '{name}' takes no value, got {value!r}")
            values.setdefault(flag.key, [])
            continue
        if not is_joined and not rest:
            raise UsageError(f"option '{name}' needs a value")
        found = [value if is_joined else rest.pop(0)]
        if flag.choices and found[0] not in flag.choices:
            raise UsageError(f"invalid {flag.key} {found[0]!r} (choose from {', '.join(flag.choices)})")
        while flag.more and rest and re.match(flag.more, rest[0]):
            found.append(rest.pop(0))
        values.setdefault(flag.key, []).extend(found)
    return words, values


def parse_options(action: Action, argv: Sequence[str]) -> tuple[list[str], CliOptions]:
    """Parse the options of a session; warns of those without effect. Raises UsageError."""
    parsed = parse(argv)
    if parsed.unknown:
        own = [name for flag in action.flags for name in flag.names.split()]
        raise unknown_flag(parsed.unknown[0], [*own, *BY_FLAG])
    for warning in parsed.warnings:
        warn(warning)
    return list(parsed.words), parsed.options


def unknown_flag(name: str, known: Iterable[str]) -> UsageError:
    return UsageError(f"unknown option '{name}'{find_nearest(name, known)}; put -- before words that start with a dash")


def check_arguments(action: Action, words: Sequence[str]) -> None:
    """Raises UsageError."""
    if missing := action.required[len(words) :]:
        raise UsageError(f"missing argument {' '.join(missing)}")
    if action.most is not None and len(words) > action.most:
        raise UsageError(f"unexpected argument {words[action.most]!r}; quote an argument that contains spaces")


def usage_line(command: Command, name: str) -> str:
    """`parley sessions show SESSION [--json] [session options]`."""
    action = command.actions[name]
    flags = [f"[{flag.names.split()[0]}{f' {flag.metavar}' if flag.metavar else ''}]" for flag in action.flags]
    if len(flags) > MAX_USAGE_FLAGS:
        flags = ["[options]"]
    options = ["[session options]"] if action.takes_options else []
    return " ".join(filter(None, ["parley", command.name, name, action.arguments, *flags, *options]))


def parse_number(name: str, value: str) -> int:
    """Raises InvalidArguments."""
    if not (value.isascii() and value.isdigit()):
        raise InvalidArguments(f"{name} must be a whole number, not {value!r}")
    if len(value) > MAX_DIGITS:
        raise InvalidArguments(f"{name} must not have more than {MAX_DIGITS} digits")
    return int(value)


def open_launch(options: CliOptions | None = None) -> LaunchContext:
    """What a session here would start from; warnings go to stderr. Raises UsageError."""
    from parley.compose.launch_context import LaunchContext, working_directory  # `help` and completion do not need it

    launch = LaunchContext(CliOptions() if options is None else options, dict(os.environ), working_directory())
    launch.warn = warn
    return launch


def write_result(given: GivenArgs, value: Any, lines: Iterable[str], code: int = 0) -> int:
    """Write what an action found, as one JSON document with --json, else as lines; returns the exit code."""
    return write_json(value, code) if given.has("json") else write_lines(lines, code)


def write_lines(lines: Iterable[str], code: int = 0) -> int:
    """Write lines to stdout; returns the exit code."""
    return code if write("".join(f"{line}\n" for line in lines).encode(errors="replace")) else 1


def write_json(value: Any, code: int = 0) -> int:
    """Write an indented JSON document to stdout; returns the exit code."""
    return code if write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n") else 1


def write_all(parts: Iterable[bytes]) -> int:
    """Write the parts to stdout; returns the exit code. A closed pipe is not an error."""
    return 0 if all(write(part) for part in parts) else 1


def json_lines(rows: Iterable[Any]) -> Iterator[bytes]:
    """One JSON object per line, for `write_all`."""
    return (encode_json(row) + b"\n" for row in rows)


def text_lines(lines: Iterable[str], *, is_whole: bool = False) -> Iterator[bytes]:
    """Lines that have no effect on a terminal, for `write_all`. They are shortened, unless they are the content."""
    return (f"{printable(line, max(MAX_SHOWN, is_whole * len(line)))}\n".encode(errors="replace") for line in lines)
