"""`parley doctor`: check what a session here needs.

A check is ok, a warning, or an error that keeps a session from working. Keys are named, never shown.

See also: `installation.py`, `resident.py`, `configuration.py` and `store.py` for the checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.doctor.base import Check, Level
from parley.cli.commands.doctor.configuration import check_configuration
from parley.cli.commands.doctor.installation import check_bytecode, check_installation
from parley.cli.commands.doctor.resident import check_resident
from parley.cli.commands.doctor.store import check_store
from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.cli.style import Style, choose_style
from parley.errors import SessionError, UsageError
from parley.settings.base import printable
from parley.version import __version__

MARKS: dict[Level, str] = {"ok": "✔", "warning": "!", "error": "✘"}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["doctor"], argv, {"": run_doctor})


def run_doctor(given: GivenArgs) -> int:
    checks = list(run_checks())
    count = {level: sum(check.level == level for check in checks) for level in MARKS}
    code = 1 if count["error"] else 0
    if given.has("json"):
        rows = [{"name": check.name, "level": check.level, "detail": check.detail} for check in checks]
        return write_json(
            {"ok": not code, "errors": count["error"], "warnings": count["warning"], "checks": rows}, code
        )
    style = choose_style()
    lines = [format_check(check, style) for check in checks]
    summary = f"{plural(count['error'], 'error')}, {plural(count['warning'], 'warning')}"
    return write_lines([f"Parley {__version__} doctor", *lines, style.bold(summary)], code)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_check(check: Check, style: Style) -> str:
    paint = {"ok": style.green, "warning": style.yellow, "error": style.red}[check.level]
    return f"{paint(MARKS[check.level])} {style.bold(check.name)}: {printable(check.detail, 2_000)}"


def run_checks() -> Iterator[Check]:
    yield from check_installation()
    yield from check_resident()
    try:
        launch = open_launch()
    except (UsageError, SessionError) as exc:
        yield Check("settings", "error", str(exc))
        return
    launch.warn = lambda text: None  # each check reports what it finds
    yield from check_configuration(launch)
    yield from check_store(launch)
    yield check_bytecode()  # last: it looks at all modules that the other checks have loaded
