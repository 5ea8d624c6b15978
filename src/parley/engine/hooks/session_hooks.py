"""The hooks around what a session does beside its turns: commands, models, MCP questions, worktrees, files, settings.

    watch = FileWatch(notify)                # notify(path, "change" | "add" | "unlink")
    watch.set_paths("hooks", ["/p/.env"])    # replaces the paths of that owner

Files of FileChanged hooks are watched by looking at them now and then. A folder stands for the files directly in it.
Sessions without watched paths have no task.

See also: `runner.py` runs the hooks.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.hooks.registry import SwitchSource
from parley.engine.hooks.tool_hooks import ToolHooks
from parley.engine.session.prompts import PromptIntake
from parley.errors import NotPossible, ToolError
from parley.hooks.base import HookServices, format_context
from parley.hooks.merge import HookVerdict
from parley.hooks.output import shorten
from parley.models.catalog import BUILT_IN_SOURCE, ModelRef, Prices
from parley.protocol.base import UNSET, Json, Struct
from parley.protocol.messages.requests import Elicitation
from parley.stores.base import USAGE, Log

CACHE_TTL = "5m"
CACHE_SECONDS = 300
COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


class LastResponse(Struct, frozen=True, kw_only=True):
    """The last answer of the model in a log."""

    seconds: float
    """When, in seconds since the epoch."""
    tokens: int
    """Its input and output, cached or not."""


def find_last_response(log: Log) -> LastResponse | None:
    found: LastResponse | None = None
    for entry in log.entries():
        if entry.kind == "conversation_reset":
            found = None
        elif entry.kind == "assistant" and isinstance(entry.message.get("message"), dict):
            usage = entry.message["message"].get("usage")
            if isinstance(usage, dict) and entry.message["message"].get("model") != "<synthetic>":
                found = LastResponse(seconds=parse_time(entry.at), tokens=count_tokens(usage))
        elif entry.kind == USAGE and found is not None and isinstance(entry.message.get("usage"), dict):
            found = LastResponse(seconds=parse_time(entry.at), tokens=count_tokens(entry.message["usage"]))
    return found


def parse_time(at: str) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def count_tokens(usage: Json) -> int:
    return sum(value for name in COUNTS if isinstance(value := usage.get(name), int))


def write_cost_usd(prices: Prices, model: ModelRef, tokens: int) -> float:
    """The estimated cost of writing tokens to the cache of a model; 0 if its price is unknown."""
    return prices.cost_usd(model.display_name, {"cache_creation_input_tokens": tokens}) or 0.0


def resume_facts(last: LastResponse | None, now: float, model: ModelRef, prices: Prices) -> Json:
    """The fields of SessionStart in a resumed session."""
    if last is None:
        return {}
    age = max(0.0, now - last.seconds)
    return {
        "seconds_since_last_response": round(age),
        "context_tokens": last.tokens,
        "prompt_cache_likely_expired": age > CACHE_SECONDS,
        "estimated_cache_write_usd": write_cost_usd(prices, model, last.tokens),
    }


def switch_facts(last: LastResponse | None, now: float, model: ModelRef, prices: Prices) -> Json:
    """The fields of PreModelSwitch and PostModelSwitch."""
    tokens = 0 if last is None else last.tokens
    known = prices.find(model.display_name)
    return {
        "context_tokens": tokens,
        "prompt_cache_warm": last is not None and now - last.seconds <= CACHE_SECONDS,
        "cache_ttl": CACHE_TTL,
        "estimated_cache_write_usd": write_cost_usd(prices, model, tokens),
        "pricing": "default" if known is None else "catalog" if known.source == BUILT_IN_SOURCE else "configured",
    }


POLL_SECONDS = 0.5
MAX_FILES = 1000
"""How many files are looked at."""
Stamp = tuple[int, int, int]


class FileWatch:
    def __init__(self, notify: Callable[[str, str], None], warn: Callable[[str], None]) -> None:
        self._notify = notify
        self._warn = warn
        self._paths: dict[str, tuple[str, ...]] = {}
        """The watched paths of each owner."""
        self._seen: dict[str, Stamp] = {}
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    @property
    def has_owners(self) -> bool:
        return bool(self._paths)

    def set_paths(self, owner: str, paths: Iterable[str]) -> None:
        """Replace the paths of an owner. Files that exist now are not reported as added.

        Under paths that were watched before, what changed since the last look is still reported by the next one.
        """
        before = self._list_paths()
        self._paths[owner] = tuple(dict.fromkeys(map(os.path.normpath, paths)))
        after = self._list_paths()
        kept = {path: stamp for path, stamp in self._seen.items() if covers(after, path)}
        new = {path: stamp for path, stamp in self._stat_all().items() if not covers(before, path)}
        self._seen = kept | new
        if any(self._paths.values()) and self._task is None:
            self._task = asyncio.create_task(self._poll())

    def accept(self, paths: Iterable[str]) -> None:
        """Do not report the changes of these files so far."""
        now = self._stat_all()
        for path in paths:
            if path in now:
                self._seen[path] = now[path]

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.check()

    def check(self) -> None:
        """Report what changed since the last look."""
        now, before = self._stat_all(), self._seen
        self._seen = now
        for path in dict.fromkeys([*before, *now]):
            if path not in before:
                self._notify(path, "add")
            elif path not in now:
                self._notify(path, "unlink")
            elif before[path] != now[path]:
                self._notify(path, "change")

    def _stat_all(self) -> dict[str, Stamp]:
        found: dict[str, Stamp] = {}
        for path in self._files():
            with suppress(OSError):
                stat = os.stat(path)
                found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if len(found) >= MAX_FILES:
                if not self._has_warned:
                    self._warn(f"watchPaths: too many files; only the first {MAX_FILES} are watched")
                self._has_warned = True
                break
        return found

    def _list_paths(self) -> dict[str, None]:
        return dict.fromkeys(path for paths in self._paths.values() for path in paths)

    def _files(self) -> Iterator[str]:
        for path in self._list_paths():
            if not os.path.isdir(path):
                yield path
                continue
            with suppress(OSError):
                yield from sorted(entry.path for entry in os.scandir(path) if entry.is_file())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None


def covers(paths: Collection[str], path: str) -> bool:
    """Whether watching these paths includes a file."""
    return path in paths or os.path.dirname(path) in paths


MEMORY_MARK = r"^Contents of (/.*):$"
"""The line before the text of a memory file."""
CONFIG_SOURCES = {
    "userSettings": "user_settings",
    "projectSettings": "project_settings",
    "localSettings": "local_settings",
    "user": "user_settings",
    "project": "project_settings",
    "local": "local_settings",
    "managed": "policy_settings",
}
"""The `source` of ConfigChange, by the name of a settings file."""


class SessionHooks(ToolHooks):
    def __init__(
        self, conversation: Conversation, prompts: PromptIntake, commands: Commands, services: HookServices
    ) -> None:
        super().__init__(conversation, prompts, commands, services)
        self._watch = FileWatch(self._on_change, self.warn)
        self._settings_files: dict[str, str] = {}
        """The watched settings files, and the sources they are."""

    # Slash commands.

    async def before_expansion(self, kind: str, name: str, arguments: str, source: str, prompt: str) -> list[str]:
        details = {
            "expansion_type": kind,
            "command_name": name,
            "command_args": arguments,
            "command_source": source,
            "prompt": prompt,
        }
        verdict = await self.fire("UserPromptExpansion", details)
        why = verdict.blocked if verdict.blocked is not None else verdict.stopped
        if why is None:
            return [format_context("UserPromptExpansion", text) for text in verdict.contexts]
        typed = "" if verdict.fields.get("suppressOriginalPrompt") else f"\n\nOriginal prompt: {shorten(prompt)}"
        raise ToolError(f"/{name} was not sent: blocked by a UserPromptExpansion hook:\n{why}{typed}")

    # Models.

    async def before_model_switch(
        self, before: ModelRef, after: ModelRef, asked: str | None, source: SwitchSource
    ) -> None:
        details = self._switch(before, after, asked, source)
        verdict = await self.fire("PreModelSwitch", details)
        if verdict.permission in (None, "allow") and verdict.blocked is None:
            return
        why = verdict.permission_reason or verdict.blocked or "no reason given"
        if verdict.permission == "ask":
            why = f"{why} (a hook wants a person to confirm it, and no one can be asked)"
        change = f"from {before.display_name} to {after.display_name}"
        text = f"the model was not changed {change}: a PreModelSwitch hook denied it: {why}"
        raise NotPossible(text, "model_switch_denied")

    async def after_model_switch(
        self, before: ModelRef, after: ModelRef, asked: str | None, source: SwitchSource
    ) -> None:
        verdict = await self.fire("PostModelSwitch", self._switch(before, after, asked, source))
        self.add_late_contexts("PostModelSwitch", verdict.contexts)

    def model_switched(self, before: ModelRef, after: ModelRef, asked: str | None) -> None:
        if self.has_hooks("PostModelSwitch"):
            self.run_in_background(self.after_model_switch(before, after, asked, "auto"))

    def _switch(self, before: ModelRef, after: ModelRef, asked: str | None, source: str) -> Json:
        config = self.config
        return {
            "from_model": before.display_name,
            "to_model": after.display_name,
            "requested_model": None if asked == "default" else asked,
            "source": source,
            **switch_facts(find_last_response(config.storage.log), config.clock.seconds(), after, config.model.prices),
        }

    # Questions of MCP servers.

    async def answer_elicitation(self, question: Elicitation) -> Json | None:
        names = ("mcp_server_name", "message", "mode", "url", "elicitation_id", "requested_schema")
        details = {name: value for name in names if (value := getattr(question, name)) is not UNSET}
        return elicitation_answer(await self.fire("Elicitation", details))

    async def check_elicitation(self, question: Elicitation, answer: Json) -> Json:
        names = ("mcp_server_name", "elicitation_id", "mode")
        details = {name: value for name in names if (value := getattr(question, name)) is not UNSET}
        replaced = elicitation_answer(await self.fire("ElicitationResult", {**details, **answer}), answer)
        return answer if replaced is None else replaced

    # Worktrees.

    async def create_worktree(self, name: str) -> str | None:
        if not self.has_hooks("WorktreeCreate"):
            return None
        verdict = await self.fire("WorktreeCreate", {"name": name})
        path = verdict.fields.get("worktreePath")
        if verdict.blocked is not None:
            raise ToolError(f"The worktree was not created: a WorktreeCreate hook blocked this: {verdict.blocked}")
        if not isinstance(path, str) or not os.path.isabs(path) or not await asyncio.to_thread(os.path.isdir, path):
            raise ToolError(
                "The worktree was not created: the WorktreeCreate hook must give the absolute path of a folder "
                f"that exists, not {path!r}."
            )
        return path

    async def remove_worktree(self, path: str) -> bool:
        if not self.has_hooks("WorktreeRemove"):
            return False
        await self.fire("WorktreeRemove", {"worktree_path": path})
        return True

    # Notices.

    def notify(self, event: str, details: Json, agent: Json | None = None) -> None:
        if self.has_hooks(event, agent):
            self.run_in_background(self._fire_and_watch(event, details, agent))

    async def _fire_and_watch(self, event: str, details: Json, agent: Json | None = None) -> None:
        subjects: tuple[str, ...] = ()
        if event == "FileChanged":
            path = details["file_path"]
            subjects = (os.path.basename(path), path)
        verdict = await self.fire(event, details, subjects=subjects, agent=agent)
        self.watch_from(verdict)

    async def cwd_changed(self, old: str, new: str, agent: Json | None) -> None:
        if self.has_hooks("CwdChanged", agent):
            verdict = await self.fire("CwdChanged", {"old_cwd": old, "new_cwd": new}, agent=agent)
            self.watch_from(verdict)
        if agent is None:
            self.watch_named_files()

    async def instructions_loaded(
        self, files: Sequence[tuple[str, str]], reason: str, parents: dict[str, str] | None = None, **more: str
    ) -> None:
        """Fire InstructionsLoaded for each file, given with its kind. `parents` has the files that import others."""
        for path, kind in files:
            parent = (parents or {}).get(path)
            how: Json = {"load_reason": "include", "parent_file_path": parent} if parent else {"load_reason": reason}
            details = {"file_path": path, "memory_type": kind, **how, **more}
            await self.fire("InstructionsLoaded", details)

    async def report_instructions(self, reason: str) -> None:
        """Fire InstructionsLoaded for the memory files of the session."""
        if self.has_hooks("InstructionsLoaded"):
            instructions = self.config.instructions
            files = [(path, kind) for path, kind, _ in instructions.memory_files()]
            await self.instructions_loaded(files, reason, instructions.memory_imports())

    async def nested_instructions(self, texts: Sequence[str], trigger: Any) -> None:
        if self.has_hooks("InstructionsLoaded"):
            paths = [path for text in texts for path in re.findall(MEMORY_MARK, text, re.MULTILINE)]
            files = [(path, "Local" if path.endswith(".local.md") else "Project") for path in paths]
            await self.instructions_loaded(files, "nested_traversal", trigger_file_path=trigger)

    # Settings.

    async def before_settings_change(self, destination: str) -> None:
        source, layers = CONFIG_SOURCES.get(destination, destination), self.config.settings.layers()
        path = next((layer.path for layer in layers if CONFIG_SOURCES.get(layer.source) == source), None)
        details = {"source": source, **({} if path is None else {"file_path": path})}
        verdict = await self.fire("ConfigChange", details)
        if verdict.blocked is not None:
            raise NotPossible(
                f"the settings were not changed: a ConfigChange hook blocked the change: {verdict.blocked}"
            )

    def settings_changed(self) -> None:
        self._watch.accept(self._settings_files)

    # Watched files.

    def start_watching(self) -> None:
        if self.has_hooks("ConfigChange"):
            remote = ("project", "local") if self.config.is_remote else ()
            found = [layer for layer in self.config.settings.layers() if layer.source not in remote]
            layers = [layer for layer in found if os.path.isabs(layer.path)]
            self._settings_files = {
                os.path.normpath(layer.path): CONFIG_SOURCES[layer.source]
                for layer in layers
                if layer.source in CONFIG_SOURCES
            }
            self._watch.set_paths("settings", self._settings_files)
        self.watch_named_files()

    def watch_named_files(self) -> None:
        """Watch the files in the working directory that matchers of FileChanged hooks name."""
        hooks = [hook for hook in self.registry.list_hooks() if hook.event == "FileChanged"]
        texts = [hook.matcher for hook in hooks]
        names = [name.strip() for text in texts if is_names(text) for name in text.split("|") if name.strip()]
        if names or self._watch.has_owners:
            cwd = self.conversation.tool_context.state.cwd
            self._watch_paths("matchers", [os.path.join(cwd, name) for name in names])

    def watch_from(self, verdict: HookVerdict) -> None:
        """Watch the paths that hooks return; they replace those of earlier answers."""
        paths: Any = verdict.fields.get("watchPaths")
        if paths is None:
            return
        wrong = [path for path in paths if not os.path.isabs(path)]
        if wrong:
            self.warn(f"hooks: watchPaths must be absolute paths; not watched: {', '.join(wrong):.200}")
        if not self.has_hooks("FileChanged"):
            self.report_once("watchPaths has no effect: there is no FileChanged hook")
        self._watch_paths("hooks", [path for path in paths if os.path.isabs(path)])

    def _watch_paths(self, owner: str, paths: list[str]) -> None:
        if self.config.is_remote:
            if paths:
                self.report_once("FileChanged hooks have no effect: the files are in a remote workspace")
            return
        self._watch.set_paths(owner, paths)

    def _on_change(self, path: str, change: str) -> None:
        if path in self._settings_files:
            self.notify("ConfigChange", {"source": self._settings_files[path], "file_path": path})
        self.notify("FileChanged", {"file_path": path, "event": change})

    async def close(self) -> None:
        self._watch.close()
        await super().close()


def is_names(matcher: str) -> bool:
    """Whether a matcher of FileChanged names files: `.envrc|.env`."""
    return matcher not in ("", "*") and re.fullmatch(r"[\w.|, -]+", matcher) is not None


def elicitation_answer(verdict: HookVerdict, given: Json | None = None) -> Json | None:
    """What hooks answer: a block declines; `content` belongs to an accept."""
    if verdict.blocked is not None:
        return {"action": "decline"}
    action, content = verdict.fields.get("action"), verdict.fields.get("content")
    if action is None:
        return None
    if action != "accept":
        return {"action": action}
    if content is None and given is not None:
        content = given.get("content")
    return {"action": action, **({} if content is None else {"content": content})}
