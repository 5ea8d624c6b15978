"""`parley plugin`: install plugins from a folder, a zip file or a git repository, and switch them on and off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import (
    SWITCH,
    GivenWords,
    check_count,
    parse_words,
    unknown_command,
    wants_help,
    write_json,
    write_lines,
)
from parley.cli.stdio import warn
from parley.compose.setup.plugins import DESTINATIONS, NO_MARKETPLACE, PluginStore
from parley.errors import UnknownCommand, UsageError
from parley.protocol.base import Json
from parley.settings.base import printable

USAGE = """\
usage: parley plugin list [--json]
       parley plugin install [-s SCOPE] [--path FOLDER] SOURCE
       parley plugin enable | disable [-s SCOPE] PLUGIN
       parley plugin uninstall [-s SCOPE] PLUGIN
       parley plugin validate PATH

  install    copy a plugin here and enable it. SOURCE is a folder, a zip file or the URL of a git repository.
             --path names the folder of the plugin in the source, if it has several
  validate   check a plugin without installing it

SCOPE is user (default), project or local: the settings file that enables the plugin. PLUGIN is NAME or
NAME@MARKETPLACE. `--json` works with every command.

A plugin may contain hooks and MCP servers, which run programs on this machine. Install only plugins you trust."""
REFUSED = {
    "marketplace": NO_MARKETPLACE,
    "update": "to update a plugin, run `parley plugin install` with its source again",
    "prune": "plugins have no dependencies here",
    "autoremove": "plugins have no dependencies here",
    "init": "copy a folder with .claude-plugin/plugin.json instead",
    "new": "copy a folder with .claude-plugin/plugin.json instead",
    "configure": "plugins have no options here",
    "details": "`parley plugin validate PATH` shows what a plugin contains",
    "eval": "it is not supported",
    "test": "it is not supported",
    "tag": "use git tag",
    "restore-set-aside": NO_MARKETPLACE,
}
ALIASES = {"i": "install", "remove": "uninstall"}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    if wants_help(argv):
        return write_lines([USAGE])
    name, *rest = argv
    name = ALIASES.get(name, name)
    if name in REFUSED:
        raise UnknownCommand(f"`parley plugin {name}` is not available: {REFUSED[name]}")
    if name not in COMMANDS:
        raise unknown_command("plugin", name, COMMANDS)
    run, flags, arguments = COMMANDS[name]
    given = parse_words(rest, {**flags, "--json": SWITCH})
    check_count(given.words, arguments, arguments, USAGE)
    return run(PluginStore(open_launch()), given)


def list_plugins(store: PluginStore, given: GivenWords) -> int:
    rows = store.list_all()
    if given.has("--json"):
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


def install(store: PluginStore, given: GivenWords) -> int:
    scope = read_scope(given) or "user"
    entry, report = store.install(given.words[0], given.one("path"), scope)
    for warning in report.warnings:
        warn(f"plugin {entry['id']}: {warning}")
    if given.has("--json"):
        return write_json({**entry, "contents": report.contents})
    return write_lines(
        [
            f"✔ Successfully installed plugin: {entry['id']} (scope: {scope})",
            f"  It contains: {', '.join(report.contents) or 'nothing that Parley uses'}",
        ]
    )


def enable(store: PluginStore, given: GivenWords) -> int:
    return switch(store, given, True)


def disable(store: PluginStore, given: GivenWords) -> int:
    return switch(store, given, False)


def switch(store: PluginStore, given: GivenWords, is_enabled: bool) -> int:
    id, scope = store.switch(given.words[0], read_scope(given), is_enabled)
    if given.has("--json"):
        return write_json({"id": id, "scope": scope, "enabled": is_enabled})
    return write_lines([f"✔ Successfully {'enabled' if is_enabled else 'disabled'} plugin: {id} (scope: {scope})"])


def uninstall(store: PluginStore, given: GivenWords) -> int:
    id, scope = store.uninstall(given.words[0], read_scope(given))
    if given.has("--json"):
        return write_json({"id": id, "scope": scope, "uninstalled": True})
    return write_lines([f"✔ Successfully uninstalled plugin: {id} (scope: {scope})"])


def read_scope(given: GivenWords) -> str:
    """The scope that was asked for; empty for none. Raises UsageError."""
    scope = given.one("scope")
    if given.has("scope") and scope not in DESTINATIONS:
        raise UsageError(f"invalid scope {scope!r} (choose from {', '.join(DESTINATIONS)})")
    return scope


def validate(store: PluginStore, given: GivenWords) -> int:
    """Check a plugin without installing it; the exit code is 1 if it cannot be used."""
    (source,) = given.words
    path = Path(source)
    if path.name == "plugin.json" and path.parent.name == ".claude-plugin":
        source = str(path.parent.parent)
    report = store.validate(source, given.one("path"))
    code = 1 if report.errors else 0
    if given.has("--json"):
        found = {"errors": report.errors, "warnings": report.warnings, "contents": report.contents}
        return write_json({"valid": not report.errors, **found}, code)
    lines = [f"Validating plugin: {source}"]
    lines += [f"  ✘ {printable(error, 500)}" for error in report.errors]
    lines += [f"  ⚠ {printable(text, 500)}" for text in report.warnings]
    if report.contents:
        lines.append(f"  It contains: {', '.join(report.contents)}")
    lines.append("✘ Validation failed" if report.errors else "✔ Validation passed")
    return write_lines(lines, code)


SCOPE_FLAGS = {"-s": "scope", "--scope": "scope"}
COMMANDS: dict[str, tuple[Callable[[PluginStore, GivenWords], int], dict[str, str], int]] = {
    "list": (list_plugins, {}, 0),
    "install": (install, {**SCOPE_FLAGS, "--path": "path", "-y": SWITCH, "--yes": SWITCH}, 1),
    "enable": (enable, SCOPE_FLAGS, 1),
    "disable": (disable, SCOPE_FLAGS, 1),
    "uninstall": (uninstall, {**SCOPE_FLAGS, "-y": SWITCH, "--yes": SWITCH}, 1),
    "validate": (validate, {"--path": "path"}, 1),
}
