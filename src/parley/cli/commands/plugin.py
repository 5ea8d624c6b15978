"""`parley plugin`: install, update and switch plugins, and add marketplaces.

With `--json`, what changes something prints one line in the shape of Claude Code's, also if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from parley.cli.commands.subcommand import GivenArgs, Subcommand, open_launch, write_lines
from parley.cli.nearest import find_nearest
from parley.cli.stdio import warn
from parley.compose.setup.extensions import PluginFailure, PluginStore
from parley.errors import UsageError
from parley.protocol.base import Json
from parley.settings.base import printable
from parley.terminal.rendering.text import format_quantity


class PluginCommand(Subcommand):
    def __init__(self, given: GivenArgs) -> None:
        super().__init__(given)
        self.scope = given.one("scope")

    def run(self) -> int:
        """Raises UsageError, unless the failure is printed as JSON."""
        try:
            self.store = PluginStore(open_launch())
            return super().run()
        except UsageError as exc:
            if not self.given.has("json") or self.given.action in ("list", "validate"):
                raise
            fields: Json = {"outcome": "failed", "message": str(exc)}
            if isinstance(exc, PluginFailure):
                fields["failureCode"] = exc.code
            if fields.get("failureCode") == "already_in_goal_state":
                fields["alreadyInGoalState"] = True
            self.report("", **fields)
            return 1

    def report(self, text: str, *more: str, **fields: Any) -> int:
        """Say what was done: with `--json`, in one line."""
        given = self.given
        if not given.has("json"):
            return write_lines([f"✔ {text}", *(f"  {printable(line)}" for line in more)])
        command, subject = given.action, ({"plugin": given.words[0]} if given.words else {})
        if command == "marketplace":
            command, subject = f"marketplace-{given.words[0]}", dict(zip([command], given.words[1:], strict=False))
        line = {"command": command, "outcome": "ok", **subject, "message": text, **fields}
        return write_lines([msgspec.json.encode(line).decode()])

    def list(self) -> int:
        rows, has_more = self.store.list_all(), self.given.has("available")
        lines = ["Installed plugins:", *(line for row in rows for line in format_row(row))]
        if not rows:
            lines = ["No plugins installed. Use `parley plugin install` to install a plugin."]
        return self.write({"installed": rows, "available": self.store.list_available()} if has_more else rows, lines)

    def install(self, source: str) -> int:
        scope = self.scope or "user"
        entry, report = self.store.install(source, self.given.one("path"), scope)
        for warning in report.warnings:
            warn(f"plugin {entry['id']}: {warning}")
        return self.report(
            f"Successfully installed plugin: {entry['id']} (scope: {scope})",
            f"It contains: {', '.join(report.contents) or 'nothing that Parley uses'}",
            pluginId=entry["id"],
            scope=scope,
            contentHash=entry["contentHash"],
            contents=report.contents,
        )

    def update(self, plugin: str) -> int:
        done = self.store.update(plugin, self.scope)
        versions = f"from {done.old_version} to {done.new_version}" if done.changes else f"({done.new_version})"
        return self.report(
            f'Plugin "{done.id}" {"updated" if done.changes else "is already at the latest version"} {versions}',
            *done.changes,
            pluginId=done.id,
            scope=done.scope,
            updateOutcome="updated" if done.changes else "up_to_date",
            oldVersion=done.old_version,
            newVersion=done.new_version,
            changes=done.changes,
            contentHash=done.content_hash,
        )

    def details(self, plugin: str) -> int:
        row, parts = self.store.describe(plugin)
        names = (f"  {kind} ({len(found)})  {', '.join(found)}".rstrip() for kind, found in parts.items())
        lines = [f"{row['name']} {row['version']}", f"  Source: {row['id']}", "", *names]
        return self.write({**row, "provides": parts}, [printable(line, 2_000) for line in lines])

    def prune(self) -> int:
        return self.report(f"Nothing to prune (no auto-installed plugins at {self.scope or 'user'} scope).")

    def enable(self, plugin: str) -> int:
        return self.report_change("enabled", *self.store.switch(plugin, self.scope, True))

    def disable(self, plugin: str = "") -> int:
        if self.given.has("all"):
            enabled = [row["id"] for row in self.store.list_all() if row["enabled"]]
            for id in enabled:
                self.store.switch(id, self.scope, False)
            return self.report(f"Disabled {format_quantity(len(enabled), 'plugin')}", all=True)
        if not plugin:
            raise UsageError("missing argument PLUGIN")
        return self.report_change("disabled", *self.store.switch(plugin, self.scope, False))

    def uninstall(self, plugin: str) -> int:
        return self.report_change("uninstalled", *self.store.uninstall(plugin, self.scope))

    def report_change(self, verb: str, id: str, scope: str) -> int:
        return self.report(f"Successfully {verb} plugin: {id} (scope: {scope})", pluginId=id, scope=scope)

    def validate(self, source: str) -> int:
        """Check a plugin without installing it; the exit code is 1 if it cannot be used."""
        path = Path(source)
        if path.name == "plugin.json":
            source = str(path.parent.parent if path.parent.name == ".claude-plugin" else path.parent)
        report = self.store.validate(source, self.given.one("path"))
        found = {
            kind: [{"path": "", "message": text, "code": None} for text in texts]
            for kind, texts in (("errors", report.errors), ("warnings", report.warnings))
        }
        manifest = {"file": source, "type": report.kind, **found, "notes": []}
        is_strict = self.given.has("strict")
        is_valid = not (report.errors or (is_strict and report.warnings))
        shape = {"success": is_valid, "strict": is_strict, "target": source, "manifest": manifest}
        lines = [
            f"Validating {report.kind}: {source}",
            *(f"  ✘ {printable(error, 500)}" for error in report.errors),
            *(f"  ⚠ {printable(text, 500)}" for text in report.warnings),
            *([f"  It contains: {', '.join(report.contents)}"] if report.contents else []),
            "✔ Validation passed" if is_valid else "✘ Validation failed",
        ]
        value = {**shape, "contents": [], "provides": report.provides, "advice": []}
        return self.write(value, lines, 0 if is_valid else 1)

    def marketplace(self, name: str, *words: str) -> int:
        """Raises UsageError."""
        name = {"rm": "remove"}.get(name, name)
        actions: dict[str, Callable[..., int]] = {
            "add": self.add_marketplace,
            "list": self.list_marketplaces,
            "update": self.update_marketplaces,
            "remove": self.remove_marketplace,
        }
        if name not in actions:
            raise UsageError(
                f"unknown command `parley plugin marketplace {printable(name)}`{find_nearest(name, actions)} "
                f"(choose from {', '.join(actions)})"
            )
        if self.scope not in ("", "user"):
            raise UsageError("marketplaces are those of the user; --scope must be user")
        if name in ("add", "remove") and not words:
            raise UsageError(f"`parley plugin marketplace {name}` needs {'a SOURCE' if name == 'add' else 'a NAME'}")
        return actions[name](*words)

    def add_marketplace(self, source: str) -> int:
        name = self.store.add_marketplace(source)
        return self.report(f"Successfully added marketplace: {name}", marketplace=name)

    def list_marketplaces(self, *_words: str) -> int:
        rows = self.store.list_marketplaces()
        lines = ["Configured marketplaces:"]
        for row in rows:
            place = row.get("repo") or row.get("url") or row.get("path")
            lines += ["", f"  ❯ {printable(row['name'])}", f"    Source: {printable(str(place))} ({row['source']})"]
        if not rows:
            lines = ["No marketplaces configured. Use `parley plugin marketplace add` to add one."]
        return self.write(rows, lines)

    def update_marketplaces(self, *words: str) -> int:
        names = words or [row["name"] for row in self.store.list_marketplaces()]
        changes = [f"{change}@{name}" for name in names for change in self.store.update_marketplace(name)]
        text = f"Successfully updated {', '.join(names) or 'no marketplaces'}"
        return self.report(text, *changes, marketplace=",".join(names), changes=changes)

    def remove_marketplace(self, name: str) -> int:
        self.store.remove_marketplace(name)
        return self.report(f"Successfully removed marketplace: {name}", marketplace=name)


def format_row(row: Json) -> Iterator[str]:
    yield ""
    yield f"  ❯ {printable(row['id'])}"
    yield f"    Version: {printable(str(row.get('version', 'unknown')))}"
    yield f"    Scope: {row['scope']}"
    status = "✘ failed to load" if "error" in row else "✔ enabled" if row["enabled"] else "✘ disabled"
    yield f"    Status: {status}"
    if "error" in row:
        yield f"    Error: {printable(row['error'])}"
