"""`parley plugin`: install, update and switch plugins, and add marketplaces.

With `--json`, what changes something prints one line in the shape of Claude Code's, also if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from parley.cli.commands.subcommand import GivenArgs, open_launch, write_json, write_lines
from parley.cli.nearest import find_nearest
from parley.cli.stdio import warn
from parley.compose.setup.plugins import PluginFailure, PluginStore
from parley.errors import UsageError
from parley.protocol.base import Json
from parley.settings.base import printable


def run_action(given: GivenArgs) -> int:
    """Raises UsageError, unless the failure is printed as JSON."""
    try:
        return ACTIONS[given.action](PluginStore(open_launch()), given)
    except UsageError as exc:
        if not given.has("json") or given.action in ("list", "validate"):
            raise
        fields: Json = {"outcome": "failed", "message": str(exc)}
        if isinstance(exc, PluginFailure):
            fields["failureCode"] = exc.code
        if fields.get("failureCode") == "already_in_goal_state":
            fields["alreadyInGoalState"] = True
        write_line(given, **fields)
        return 1


def write_line(given: GivenArgs, **fields: Any) -> int:
    """Write the result of an action as one line of JSON."""
    command, subject = given.action, {"plugin": given.words[0]}
    if given.action == "marketplace":
        command, subject = f"marketplace-{given.words[0]}", dict(zip(["marketplace"], given.words[1:], strict=False))
    line = {"command": command, "outcome": "ok", **subject, **fields}
    return write_lines([msgspec.json.encode(line).decode()])


def list_plugins(store: PluginStore, given: GivenArgs) -> int:
    rows = store.list_all()
    if given.has("available") and not given.has("json"):
        raise UsageError("--available needs --json")
    if given.has("json"):
        has_more = given.has("available")
        return write_json({"installed": rows, "available": store.list_available()} if has_more else rows)
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
    text = f"Successfully installed plugin: {entry['id']} (scope: {scope})"
    if given.has("json"):
        named = {"pluginId": entry["id"], "scope": scope, "message": text}
        return write_line(given, **named, contentHash=entry["contentHash"], contents=report.contents)
    return write_lines([f"✔ {text}", f"  It contains: {', '.join(report.contents) or 'nothing that Parley uses'}"])


def update(store: PluginStore, given: GivenArgs) -> int:
    done = store.update(given.words[0], given.one("scope"))
    versions = f"from {done.old_version} to {done.new_version}" if done.changes else f"({done.new_version})"
    text = f'Plugin "{done.id}" {"updated" if done.changes else "is already at the latest version"} {versions}'
    if given.has("json"):
        return write_line(
            given,
            pluginId=done.id,
            scope=done.scope,
            message=text,
            updateOutcome="updated" if done.changes else "up_to_date",
            oldVersion=done.old_version,
            newVersion=done.new_version,
            changes=done.changes,
            contentHash=done.content_hash,
        )
    return write_lines([f"✔ {text}", *(f"  {printable(change)}" for change in done.changes)])


def switch(store: PluginStore, given: GivenArgs) -> int:
    id, scope = store.switch(given.words[0], given.one("scope"), given.action == "enable")
    return write_switched(given, id, scope, f"{given.action}d")


def uninstall(store: PluginStore, given: GivenArgs) -> int:
    id, scope = store.uninstall(given.words[0], given.one("scope"))
    return write_switched(given, id, scope, "uninstalled")


def write_switched(given: GivenArgs, id: str, scope: str, verb: str) -> int:
    text = f"Successfully {verb} plugin: {id} (scope: {scope})"
    if given.has("json"):
        return write_line(given, pluginId=id, scope=scope, message=text)
    return write_lines([f"✔ {text}"])


def validate(store: PluginStore, given: GivenArgs) -> int:
    """Check a plugin without installing it; the exit code is 1 if it cannot be used."""
    (source,) = given.words
    path = Path(source)
    if path.name == "plugin.json":
        source = str(path.parent.parent if path.parent.name == ".claude-plugin" else path.parent)
    report = store.validate(source, given.one("path"))
    code = 1 if report.errors else 0
    if given.has("json"):
        found = {
            kind: [{"path": "", "message": text, "code": None} for text in texts]
            for kind, texts in (("errors", report.errors), ("warnings", report.warnings))
        }
        manifest = {"file": source, "type": report.kind, **found, "notes": []}
        shape = {"success": not report.errors, "strict": False, "target": source, "manifest": manifest}
        return write_json({**shape, "contents": [], "provides": report.provides, "advice": []}, code)
    lines = [f"Validating {report.kind}: {source}"]
    lines += [f"  ✘ {printable(error, 500)}" for error in report.errors]
    lines += [f"  ⚠ {printable(text, 500)}" for text in report.warnings]
    if report.contents:
        lines.append(f"  It contains: {', '.join(report.contents)}")
    lines.append("✘ Validation failed" if report.errors else "✔ Validation passed")
    return write_lines(lines, code)


def manage_marketplaces(store: PluginStore, given: GivenArgs) -> int:
    """Raises UsageError."""
    name = {"rm": "remove"}.get(given.words[0], given.words[0])
    handlers = {"add": add_marketplace, "list": list_marketplaces, "update": update_marketplaces}
    handlers["remove"] = remove_marketplace
    if name not in handlers:
        raise UsageError(
            f"unknown command `parley plugin marketplace {printable(name)}`{find_nearest(name, handlers)} "
            f"(choose from {', '.join(handlers)})"
        )
    if given.one("scope", "user") != "user":
        raise UsageError("marketplaces are those of the user; --scope must be user")
    if name in ("add", "remove") and len(given.words) < 2:
        raise UsageError(f"`parley plugin marketplace {name}` needs {'a SOURCE' if name == 'add' else 'a NAME'}")
    return handlers[name](store, given)


def add_marketplace(store: PluginStore, given: GivenArgs) -> int:
    name = store.add_marketplace(given.words[1])
    text = f"Successfully added marketplace: {name}"
    return write_marketplace(given, name, text)


def list_marketplaces(store: PluginStore, given: GivenArgs) -> int:
    rows = store.list_marketplaces()
    if given.has("json"):
        return write_json(rows)
    if not rows:
        return write_lines(["No marketplaces configured. Use `parley plugin marketplace add` to add one."])
    places = [(row["name"], row.get("repo") or row.get("url") or row.get("path"), row["source"]) for row in rows]
    lines = [
        (f"  ❯ {printable(name)}", f"    Source: {printable(str(place))} ({kind})") for name, place, kind in places
    ]
    return write_lines(["Configured marketplaces:", *(line for pair in lines for line in ("", *pair))])


def update_marketplaces(store: PluginStore, given: GivenArgs) -> int:
    names = given.words[1:] or [row["name"] for row in store.list_marketplaces()]
    changes = [(name, change) for name in names for change in store.update_marketplace(name)]
    text = f"Successfully updated {', '.join(names) or 'no marketplaces'}"
    return write_marketplace(given, ",".join(names), text, changes)


def remove_marketplace(store: PluginStore, given: GivenArgs) -> int:
    store.remove_marketplace(given.words[1])
    return write_marketplace(given, given.words[1], f"Successfully removed marketplace: {given.words[1]}")


def write_marketplace(given: GivenArgs, name: str, text: str, changes: list[tuple[str, str]] | None = None) -> int:
    listed = [f"{change}@{market}" for market, change in changes or ()]
    if given.has("json"):
        found = {} if changes is None else {"changes": listed}
        return write_line(given, marketplace=name, message=text, **found)
    return write_lines([f"✔ {text}", *(f"  {printable(change)}" for change in listed)])


ACTIONS: dict[str, Callable[[PluginStore, GivenArgs], int]] = {
    "list": list_plugins,
    "install": install,
    "update": update,
    "marketplace": manage_marketplaces,
    "enable": switch,
    "disable": switch,
    "uninstall": uninstall,
    "validate": validate,
}
