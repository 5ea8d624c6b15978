"""`parley plugin`: install plugins from a folder, a zip file or a git repository, and switch them on and off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from parley.cli.commands import catalog
from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.cli.stdio import warn
from parley.compose.setup.plugins import PluginStore
from parley.protocol.base import Json
from parley.settings.base import printable

ALIASES = {"i": "install", "remove": "uninstall"}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    words = [ALIASES.get(argv[0], argv[0]), *argv[1:]] if argv else []
    handlers = {name: partial(run_action, action) for name, action in ACTIONS.items()}
    return run_command(catalog.COMMANDS["plugin"], words, handlers)


def run_action(action: Callable[[PluginStore, GivenArgs], int], given: GivenArgs) -> int:
    return action(PluginStore(open_launch()), given)


def list_plugins(store: PluginStore, given: GivenArgs) -> int:
    rows = store.list_all()
    if given.has("json"):
        return write_json(rows)
    if not rows:
        return write_lines(["No plugins installed. Use `parley plugin install` to install a plugin."])
    return write_lines(["Installed plugins:", *(line for row in rows for line in format_row(row))])


def format_row(row: Json) -> Iterator[str]:
    yield ""
    yield f"  ❯ {printable(row['id'])}"
    yield f"    Version: {printable(str(row.get('version', 'unknown')))}"
    yield f"    Scope: {row['scope']}"
    status = "✘ failed to load" if "error" in row else "✔ enabled" if row["enabled"] else "✘ disabled"
    yield f"    Status: {status}"
    if "error" in row:
        yield f"    Error: {printable(row['error'])}"


def install(store: PluginStore, given: GivenArgs) -> int:
    scope = given.one("scope", "user")
    entry, report = store.install(given.words[0], given.one("path"), scope)
    for warning in report.warnings:
        warn(f"plugin {entry['id']}: {warning}")
    if given.has("json"):
        return write_json({**entry, "contents": report.contents})
    return write_lines(
        [
            f"✔ Successfully installed plugin: {entry['id']} (scope: {scope})",
            f"  It contains: {', '.join(report.contents) or 'nothing that Parley uses'}",
        ]
    )


def enable(store: PluginStore, given: GivenArgs) -> int:
    return switch(store, given, True)


def disable(store: PluginStore, given: GivenArgs) -> int:
    return switch(store, given, False)


def switch(store: PluginStore, given: GivenArgs, is_enabled: bool) -> int:
    id, scope = store.switch(given.words[0], given.one("scope"), is_enabled)
    if given.has("json"):
        return write_json({"id": id, "scope": scope, "enabled": is_enabled})
    return write_lines([f"✔ Successfully {'enabled' if is_enabled else 'disabled'} plugin: {id} (scope: {scope})"])


def uninstall(store: PluginStore, given: GivenArgs) -> int:
    id, scope = store.uninstall(given.words[0], given.one("scope"))
    if given.has("json"):
        return write_json({"id": id, "scope": scope, "uninstalled": True})
    return write_lines([f"✔ Successfully uninstalled plugin: {id} (scope: {scope})"])


def validate(store: PluginStore, given: GivenArgs) -> int:
    """Check a plugin without installing it; the exit code is 1 if it cannot be used."""
    (source,) = given.words
    path = Path(source)
    if path.name == "plugin.json" and path.parent.name == ".claude-plugin":
        source = str(path.parent.parent)
    report = store.validate(source, given.one("path"))
    code = 1 if report.errors else 0
    if given.has("json"):
        found = {"errors": report.errors, "warnings": report.warnings, "contents": report.contents}
        return write_json({"valid": not report.errors, **found}, code)
    lines = [f"Validating plugin: {source}"]
    lines += [f"  ✘ {printable(error, 500)}" for error in report.errors]
    lines += [f"  ⚠ {printable(text, 500)}" for text in report.warnings]
    if report.contents:
        lines.append(f"  It contains: {', '.join(report.contents)}")
    lines.append("✘ Validation failed" if report.errors else "✔ Validation passed")
    return write_lines(lines, code)


ACTIONS: dict[str, Callable[[PluginStore, GivenArgs], int]] = {
    "list": list_plugins,
    "install": install,
    "enable": enable,
    "disable": disable,
    "uninstall": uninstall,
    "validate": validate,
}
