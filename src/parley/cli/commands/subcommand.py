"""Run a subcommand: parse its words as `catalog.py` declares them, print its help, and write output.

    def list_sessions(given: GivenArgs) -> int:         runs an action; returns the exit code
        given.words, given.has("json"), given.one("limit"), given.options
        return write_result(given, rows, lines)

    class SessionsCommand(Subcommand):                  runs several: each has the method of its name
        def show(self, name: str) -> int: ...

All subcommands behave alike. Without arguments, a command that needs some prints its help. Wrong usage is an error
with one line of usage. An unknown word is refused with the nearest known one. Output has colours if stdout is a
terminal that can show them; `NO_COLOR` turns them off, `FORCE_COLOR` turns them on.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import msgspec

from parley.cli.commands.catalog import ACTION_ALIASES, BY_NAME, FLAG_GROUPS, Action, Command
from parley.cli.nearest import find_nearest
from parley.cli.stdio import reveal, warn, write
from parley.errors import InvalidArguments, UnknownCommand, UsageError
from parley.protocol.base import Struct, encode_json
from parley.protocol.options import BY_FLAG, CliOptions, is_flag, parse
from parley.settings.base import MAX_SHOWN, SettingsWriteError, printable
from parley.terminal.rendering.style import Styles, Theme
from parley.version import how_to_install

if TYPE_CHECKING:
    from parley.compose.launch_context import LaunchContext


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
    writes_rows: bool = False
    """Whether `--json` prints one object per line."""

    def has(self, key: str) -> bool:
        return key in self.values

    def all(self, key: str) -> list[str]:
        return self.values.get(key, [])

    def one(self, key: str, default: str = "") -> str:
        return self.values[key][-1] if self.values.get(key) else default

    def file(self, key: str) -> str:
        """An absolute path; empty if none is given."""
        return os.path.abspath(self.one(key)) if self.one(key) else ""

    def number(self, key: str, default: int, least: int = 0, most: int | None = None) -> int:
        """Raises InvalidArguments."""
        value = parse_number(f"--{key}", self.one(key)) if self.has(key) else default
        if value < least or (most is not None and value > most):
            expected = f"{least} or more" if most is None else f"from {least} to {most}"
            raise InvalidArguments(f"--{key} must be {expected}, not {value}")
        return value

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
        action = command.actions[given.action]
        try:
            handler = find_handler(action)
            gc.freeze()  # modules live until the end
            gc.enable()  # main() disabled it, but a server runs for long
            return handler(given)
        except ModuleNotFoundError as exc:
            if not action.extra:
                raise
            missing = f"parley-{action.extra}" if (exc.name or "").startswith("parley.") else exc.name
            raise UsageError(
                f"`{f'parley {name} {given.action}'.strip()}` needs {missing}, which is not installed; "
                f"run: {how_to_install(action.extra)}"
            ) from None

    if name == "resident" and argv[:1] == ["serve"] and len(argv) == 3:
        # The server itself. It is not listed, because launchers start it with a lock.
        return int(import_module("parley.cli.commands.resident").serve(*argv[1:]))
    return run_command(command, argv, handle)


class Subcommand:
    """Base of a command whose actions are methods. Each takes the words, and returns the exit code."""

    def __init__(self, given: GivenArgs) -> None:
        self.given = given

    def run(self) -> int:
        name = self.given.action.replace("-", "_")
        action: Callable[..., int] = getattr(self, f"{name}_" if iskeyword(name) else name)
        return action(*self.given.words)

    def write(self, value: Any, lines: Iterable[str], code: int = 0, *, nothing: str = "") -> int:
        return write_result(self.given, value, lines, code, nothing=nothing)


def find_handler(action: Action) -> Callable[[GivenArgs], int]:
    """The function that runs an action, which is imported here."""
    module, _, function = action.handler.partition(":")
    handler = getattr(import_module(f"parley.cli.commands.{module}"), function)
    if isinstance(handler, type):
        return lambda given: int(handler(given).run())
    found: Callable[[GivenArgs], int] = handler
    return found


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
        # Parse the options of a session; warns of those without effect.
        parsed = parse(words)
        if parsed.unknown:
            own = [name for flag in action.flags for name in flag.names.split()]
            raise unknown_flag(parsed.unknown[0], [*own, *BY_FLAG])
        for warning in parsed.warnings:
            warn(warning)
        words, options = list(parsed.words), parsed.options
    if missing := action.required[len(words) :]:
        raise UsageError(f"missing argument {' '.join(missing)}")
    if action.most is not None and len(words) > action.most:
        raise UsageError(f"unexpected argument {words[action.most]!r}; quote an argument that contains spaces")
    return GivenArgs(
        action=name,
        words=tuple(words),
        values=values,
        options=options,
        option_words=option_words,
        writes_rows=set(FLAG_GROUPS["json-lines"]) <= set(action.flags),
    )


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


def unknown_flag(name: str, known: Collection[str]) -> UsageError:
    takes_address = name in ("--port", "--host", "--bind") and "--listen" in known
    hint = " (did you mean --listen HOST:PORT?)" if takes_address else find_nearest(name, known)
    return UsageError(f"unknown option '{name}'{hint}; put -- before words that start with a dash")


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


def open_launch(options: CliOptions | None = None, report: Callable[[str], None] = warn) -> LaunchContext:
    """What a session here would start from; by default, warnings go to stderr. Raises UsageError."""
    from parley.compose.launch_context import LaunchContext, working_directory  # `help` and completion do not need it

    return LaunchContext(options or CliOptions(), dict(os.environ), working_directory(), warn=report)


def write_result(given: GivenArgs, value: Any, lines: Iterable[str], code: int = 0, *, nothing: str = "") -> int:
    """Write what an action found; returns the exit code.

    With `--json`, that is `value`: one document, or rows, as the flag is declared. Otherwise it is the lines; if there
    are none, `nothing` is a warning that says so.
    """
    if given.has("json") and given.writes_rows:
        return code if write_all(encode_json(row) + b"\n" for row in value) else 1
    if given.has("json"):
        return write_json(value, code)
    if nothing and not value:
        warn(nothing)
        return code
    return write_lines(lines, code)


def write_lines(lines: Iterable[str], code: int = 0) -> int:
    """Write lines to stdout; returns the exit code."""
    return code if write_all(f"{line}\n".encode(errors="replace") for line in lines) else 1


def write_json(value: Any, code: int = 0) -> int:
    """Write an indented JSON document to stdout; returns the exit code."""
    return code if write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n") else 1


def write_all(parts: Iterable[bytes]) -> bool:
    """Write the parts to stdout one by one; returns whether that succeeded. A closed pipe is not an error."""
    return all(map(write, parts))


def show_lines(lines: Iterable[str], *, is_whole: bool = False) -> Iterator[str]:
    """The lines without effect on a terminal. They are shortened, unless they are the content."""
    return (printable(line, max(MAX_SHOWN, is_whole * len(line))) for line in lines)


ON, PLAIN = Styles(theme=Theme("subcommands", bad="31")), Styles(attributes=False)


def choose_style(environment: Mapping[str, str] = os.environ, descriptor: int = 1) -> Styles:
    """The style for a stream of this process."""
    if environment.get("NO_COLOR"):
        return PLAIN
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return ON
    return ON if os.isatty(descriptor) and environment.get("TERM", "dumb") != "dumb" else PLAIN


def terminal_width(most: int, descriptor: int = 1) -> int:
    """The columns of the terminal, at most this many; this many if the stream is not a terminal."""
    if not os.isatty(descriptor):
        return most
    import shutil

    return min(most, shutil.get_terminal_size().columns)


def can_ask() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals."""
    return os.isatty(0) and os.isatty(2)


def confirm(question: str) -> bool:
    """Ask a person at the terminal; only `y` or `yes` confirms."""
    sys.stderr.write(f"{reveal(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
