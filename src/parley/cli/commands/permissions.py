"""`parley permissions`: explain why a tool call is allowed, asked about or denied.

parley permissions check TOOL INPUT [options]      the decision of a session with these options, and why
parley permissions replay SESSION [options]        what other rules would have decided in a past session
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from parley.cli.commands.permission_check import CheckResult, PermissionChecker
from parley.cli.stdio import read_stdin, warn, write
from parley.compose.launch_context import working_directory
from parley.compose.permissions import may_bypass
from parley.errors import UsageError
from parley.protocol.base import Json
from parley.protocol.options import CliOptions, parse
from parley.settings.base import printable
from parley.tools.catalog import find_traits

USAGE = """\
usage: parley permissions check TOOL INPUT [--mode MODE] [--json] [session options]
       parley permissions replay SESSION --settings FILE [--mode MODE] [--json] [session options]

INPUT is a JSON object, - to read it from stdin, or just the command, path, pattern or URL.
Put lists of rules (--allowedTools, --disallowedTools) after TOOL and INPUT."""


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    if not argv or "--help" in argv or "-h" in argv:
        return write_text(USAGE)
    as_json, rest = parse_args(argv)
    parsed = parse(rest)
    for warning in parsed.warnings:
        warn(warning)
    match parsed.words:
        case ["check", tool, *input]:
            return write_text(check(tool, input, parsed.options, as_json))
        case ["replay", session]:
            from parley.cli.commands.permission_replay import replay

            return write_text(replay(session, parsed.options, as_json))
    raise UsageError(USAGE)


def parse_args(argv: Sequence[str]) -> tuple[bool, list[str]]:
    """Split off the two flags of this command; the rest are session options."""
    end = argv.index("--") if "--" in argv else len(argv)
    ours, after = argv[:end], argv[end:]
    renamed = ["--permission-mode" + word[6:] if word.partition("=")[0] == "--mode" else word for word in ours]
    return "--json" in ours, [word for word in renamed if word != "--json"] + list(after)


def write_text(text: str) -> int:
    return 0 if write(f"{text}\n".encode(errors="replace")) else 1


def check(name: str, given: Sequence[str], options: CliOptions, as_json: bool) -> str:
    checker = PermissionChecker(options, working_directory(), warn)
    may_bypass(checker.basis, checker.mode)
    result = checker.check(name, parse_input(checker, name, given))
    is_offered = result.tool in checker.offered_tools or checker.tool(name) is None
    if as_json:
        more = {"mode_source": checker.mode_source(), "offered": is_offered}
        return msgspec.json.encode({**result.to_json(), **more}).decode()
    return "\n".join(format_result(result, checker.mode_source(), is_offered))


def parse_input(checker: PermissionChecker, name: str, given: Sequence[str]) -> Json:
    """Raises UsageError."""
    tool = checker.tool(name)
    if len(given) > 1:
        raise UsageError(f"INPUT must be one argument; quote it: {' '.join(given)!r}")
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
    yield f"{result.decision}: {result.outcome}"
    yield from format_rows(
        ("tool", result.tool if is_offered else f"{result.tool} (not offered to the model)"),
        ("input", msgspec.json.encode(result.input).decode()),
        ("mode", f"{result.mode} ({mode_source})"),
        ("source", result.source),
        ("reason", " ".join(filter(None, (result.reason, f"({result.reason_type})" if result.reason_type else "")))),
        ("rule", format_rule(result.rule)),
        ("path", result.blocked_path or ""),
        ("message", result.message),
    )
    for suggestion in result.suggestions:
        yield from format_rows(("suggested", msgspec.json.encode(suggestion).decode()))


def format_rows(*pairs: tuple[str, str]) -> Iterator[str]:
    return (f"  {name:10} {printable(value)}" for name, value in pairs if value)


def format_rule(rule: Json | None) -> str:
    if rule is None:
        return ""
    where = rule["source"]
    if "file" in rule:
        where += f", {rule['file']}" + ("" if rule["line"] is None else f":{rule['line']}")
    return f"{rule['behavior']} {rule['text']} ({where})"
