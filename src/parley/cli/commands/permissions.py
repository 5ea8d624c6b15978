"""`parley permissions`: explain why a tool call is allowed, is denied or needs approval.

parley permissions check TOOL INPUT [options]      the decision of a session with these options, and why
parley permissions replay SESSION [options]        what other rules would have decided in a past session
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_lines
from parley.cli.nearest import find_nearest
from parley.cli.output import update_flags
from parley.cli.stdio import read_stdin, warn
from parley.compose.launch_context import working_directory
from parley.compose.permissions import may_bypass
from parley.compose.setup.permission_check import PermissionChecker, UnknownTool
from parley.compose.tools import list_tools
from parley.engine.approval.explanation import CheckResult
from parley.errors import InvalidArguments, SessionError, UsageError
from parley.protocol.base import Json
from parley.protocol.options import CliOptions
from parley.settings.base import printable
from parley.terminal.rendering.decisions import format_decision, format_rows
from parley.tools.catalog import find_traits

EXIT_CODES = {"allow": 0, "ask": 1, "deny": 2}


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    return run_command(COMMANDS["permissions"], argv, {"check": check_call, "replay": replay_session})


def read_options(given: GivenArgs) -> CliOptions:
    return given.options.replace(permission_mode=given.one("mode")) if given.has("mode") else given.options


def replay_session(given: GivenArgs) -> int:
    from parley.cli.commands.permission_replay import replay

    return write_lines([replay(given.words[0], read_options(given), given.has("json"))])


def check_call(given: GivenArgs) -> int:
    """Raises InvalidArguments for all errors: their exit code must not be that of a decision."""
    try:
        return write_decision(given)
    except UnknownTool as exc:
        raise InvalidArguments(str(UnknownTool(exc.name, find_nearest(exc.name, list_tools())))) from None
    except (UsageError, SessionError) as exc:
        raise InvalidArguments(str(exc)) from None


def write_decision(given: GivenArgs) -> int:
    """Raises UsageError."""
    name, *input = given.words
    checker = PermissionChecker(read_options(given), working_directory(), warn)
    may_bypass(checker.basis, checker.mode)
    result = checker.check(name, parse_input(checker, name, input))
    is_offered = result.tool in checker.offered_tools or checker.tool(name) is None
    code = EXIT_CODES[result.decision]
    if given.has("json"):
        more = {"mode_source": checker.mode_source(), "offered": is_offered}
        return write_lines([msgspec.json.encode({**result.to_json(), **more}).decode()], code)
    return write_lines(format_result(result, checker.mode_source(), is_offered), code)


def parse_input(checker: PermissionChecker, name: str, given: Sequence[str]) -> Json:
    """Raises UsageError."""
    tool = checker.tool(name)
    text = given[0] if given else "{}"
    if text == "-":
        text = (read_stdin(needed=True) or b"").decode(errors="replace").strip()
    if not text.lstrip().startswith("{"):
        subject = find_traits(name).subject_field
        if not subject:
            raise UsageError(f"INPUT for {name} must be a JSON object; got {printable(text)!r}")
        return {subject: text}
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UsageError(f"INPUT is not valid JSON: {exc}") from None
    return checker.complete_input(tool, read)


def format_result(result: CheckResult, mode_source: str, is_offered: bool) -> Iterator[str]:
    yield from format_decision(result.to_json(), mode_source=mode_source, is_offered=is_offered)
    for suggestion in result.suggestions:
        yield from format_rows(("allow with", " ".join(update_flags(suggestion))))
