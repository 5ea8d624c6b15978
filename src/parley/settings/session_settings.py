"""The settings of one session: read at the start, changed by the host, asked by everybody else.

Not here: what the layers say (sources.py), what of it counts (merge.py), the files a change
goes to (writer.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from parley.protocol.base import Json
from parley.settings import env_policy, safe_read, sources, trust
from parley.settings.base import (
    CHANGED,
    DEFAULT_STYLE,
    MCP_FILE,
    NOT_TRUSTED,
    SOURCES,
    IgnoredEntry,
    MergedSettings,
    OutputStyle,
    Plugin,
    ProjectTrust,
    PromptTemplate,
    SettingsLayer,
    SettingsProblem,
    SettingsValue,
    SettingsWriteError,
    Source,
    digest,
    format_entry,
    printable,
)
from parley.settings.keys import validate_layer
from parley.settings.merge import merge

if TYPE_CHECKING:
    from parley.protocol.messages.requests import AgentDefinition
    from parley.settings.files.memory_files import MemoryPaths, MemoryText
    from parley.settings.mcp_files import ServerDeclaration
    from parley.settings.writer import SettingsWriter

SOURCE_OF: dict[str, Source] = {"localSettings": "local", "userSettings": "user", "projectSettings": "project"}
MOST_NAMED = 12


class SessionSettings:
    """What is set. The one who owns it is the session."""

    def __init__(
        self,
        wanted: sources.SourceSelection,
        base: Mapping[str, str],
        without_secrets: Callable[[dict[str, str]], dict[str, str]] = dict,
    ) -> None:
        """Raises UsageError if the command line's settings are wrong."""
        self._selection = wanted
        self._base = base
        self._without_secrets = without_secrets
        self.trust, flaw = trust.evaluate(wanted.config, wanted.project, wanted.sources)
        read = sources.load_layers(wanted)
        self._layers = read.layers
        self._plugin_hooks: tuple[SettingsValue, ...] = ()
        """The hooks of plugins."""
        self.merged = self._compute()
        self._problems = (*read.problems, *((flaw,) if flaw else ()), *self.merged.problems)

    def layers(self) -> tuple[SettingsLayer, ...]:
        return self._layers

    @property
    def writer(self) -> SettingsWriter:
        """Who writes to the files. Seldom needed, so loaded when it is."""
        from parley.settings.writer import SettingsWriter

        return SettingsWriter(self._selection.config, self._selection.project)

    def warnings(self) -> list[str]:
        """What is wrong with the files, and what of them does not count; one line each."""
        return [
            *(str(flaw) for flaw in self._problems),
            *describe_ignored(self.merged.ignored, self._selection.project),
        ]

    # What follows from it.

    def environment(self) -> dict[str, str]:
        """What our own lookups see."""
        return env_policy.own_environment(self._base, self.merged)

    def child_environment(self) -> dict[str, str]:
        return self._without_secrets(env_policy.environment_for_commands(self._base, self.merged))

    def folders(self) -> tuple[str, ...]:
        """The working directories beside the first, absolute."""
        home = str(sources.home(self._base))
        return tuple(dict.fromkeys(resolve_folder(found.value, found.root, home) for found in self.merged.directories))

    def style(self) -> OutputStyle:
        name = self.merged.get("outputStyle", DEFAULT_STYLE)
        if name == DEFAULT_STYLE:
            return OutputStyle()
        from parley.settings.files.output_styles import find_style

        return find_style(
            name, self._selection.config, self._selection.project if self._selection.wants("project") else None
        )

    def templates(self, plugins: Sequence[Plugin] = ()) -> tuple[Sequence[PromptTemplate], Sequence[SettingsProblem]]:
        """The commands and skills of the enabled sources and of plugins, and what is wrong with their files."""
        wanted, trusted = self._selection, "project" in self.trust.sources
        tree = os.path.join(wanted.project, ".claude")
        folders = [str(wanted.config)] * wanted.wants("user") + [tree] * wanted.wants("project")
        places = [os.path.join(folder, kind) for folder in folders for kind in ("commands", "skills")]
        if not plugins and not any(map(os.path.isdir, places)):
            return (), ()
        from parley.settings.files.commands_and_skills import TemplateFolder, load_templates

        own = TemplateFolder(folder=str(wanted.config), source="user", is_trusted=True)
        theirs = TemplateFolder(
            folder=tree,
            source="project",
            beneath=(wanted.project,),
            is_trusted=trusted,
            obstacle=lambda data: self.trust.find_obstacle("project", data),
        )
        named = [
            TemplateFolder(folder=one.path, source="plugin", prefix=f"{one.name}:", is_trusted=True) for one in plugins
        ]
        return load_templates([*(place for place in (own, theirs) if place.folder in folders), *named])

    def styles(self) -> list[str]:
        """The names of the output styles there are."""
        from parley.settings.files.output_styles import list_styles

        return list_styles(
            self._selection.config if self._selection.wants("user") else None,
            self._selection.project if self._selection.wants("project") else None,
        )

    def agents(self) -> tuple[dict[str, AgentDefinition], list[SettingsProblem]]:
        """The subagents that files define, the project's before the person's, and what is wrong with the files."""
        config, project = self._selection.config, self._selection.project
        places: list[tuple[Path, tuple[str, ...] | None, bool, Callable[[bytes], str | None]]] = []
        if self._selection.wants("user"):
            places.append((config / "agents", None, True, lambda data: None))
        if self._selection.wants("project"):
            trusted = "project" in self.trust.sources
            folder = Path(project, ".claude", "agents")
            places.append((folder, (project,), trusted, lambda data: self.trust.find_obstacle("project", data)))
        found: dict[str, AgentDefinition] = {}
        flaws: list[SettingsProblem] = []
        for folder, beneath, trusted, obstacle in places:
            if os.path.isdir(folder):
                from parley.settings.files.agents import NOT_TRUSTED, load_agents

                withheld = "" if trusted else NOT_TRUSTED
                kinds, wrong = load_agents(folder, beneath, withheld=withheld, obstacle=obstacle)
                found |= kinds
                flaws += wrong
        return found, flaws

    def agent_memory(self, scope: str, name: str, denies: Callable[[str], bool]) -> tuple[str, str]:
        """What an agent is told of the memory it keeps, and what is wrong with that."""
        from parley.settings.files import agent_memory

        return agent_memory.load_text(
            agent_memory.find_path(scope, name, self._selection.config, self._selection.project), denies
        )

    def memory(self, cwd: str, more_roots: tuple[str, ...], denies: Callable[[str], bool]) -> MemoryText:
        """What the memory files of the enabled sources say, and which of them cannot be used."""
        from parley.settings.files import memory_files

        return memory_files.load_memory(self._memory_paths(cwd, more_roots), denies)

    def memory_between(
        self, path: str, cwd: str, more_roots: tuple[str, ...], denies: Callable[[str], bool]
    ) -> list[MemoryText]:
        """The same of the folders between the working directory and a file below it."""
        from parley.settings.files import memory_files

        return memory_files.load_between(self._memory_paths(cwd, more_roots), path, denies)

    def _memory_paths(self, cwd: str, more_roots: tuple[str, ...]) -> MemoryPaths:
        from parley.settings.files.memory_files import MemoryPaths

        return MemoryPaths(
            cwd=cwd,
            config=self._selection.config,
            home=sources.home(self._base),
            more_roots=more_roots,
            user=self._selection.wants("user"),
            project=self._selection.wants("project"),
            local=self._selection.wants("local"),
        )

    def servers(self, given: Sequence[str], cwd: str, *, strict: bool) -> tuple[list[ServerDeclaration], list[str]]:
        """What is written about MCP servers, the strongest first, and what is wrong with it. Raises UsageError."""
        merged = self.merged
        path = os.path.join(self._selection.project, MCP_FILE)
        has_file = not strict and self._selection.wants("project") and os.path.lexists(path)
        if not given and not has_file and (strict or not merged.servers):
            return [], []
        from parley.settings import mcp_files

        written = mcp_files.from_command_line(given, cwd)
        if strict:
            return written, []
        in_tree, flaws = mcp_files.from_project(path, self.trust, merged) if has_file else ([], [])
        return [*written, *mcp_files.from_settings(merged), *in_tree], flaws

    # Changing it.

    def apply(self, settings: Json) -> MergedSettings:
        """Merge into the flag layer, key by key; null takes a key out. Raises NotWritten if a value is wrong."""
        given = {key: value for key, value in settings.items() if value is not None}
        _, flaws = validate_layer(
            SettingsLayer(source="flag", path="settings", root=self._selection.project, values=given)
        )
        if flaws:
            raise SettingsWriteError("; ".join(flaw.text for flaw in flaws))
        old = next((layer for layer in self._layers if layer.source == "flag"), None)
        values = {**(old.values if old else {}), **settings}
        kept = {key: value for key, value in values.items() if value is not None}
        path = old.path if old else "--settings"
        return self._replace_layer(
            "flag", SettingsLayer(source="flag", path=path, root=self._selection.project, values=kept)
        )

    def update(self, destination: str, settings: Json) -> MergedSettings:
        """Write keys to a file; null takes a key out. Raises NotWritten."""
        self.writer.update(destination, settings)
        return self.reread(destination)

    def reread(self, destination: str) -> MergedSettings:
        """Take in what was written to a file meanwhile, where that layer is read at all."""
        self.trust, _ = trust.evaluate(self._selection.config, self._selection.project, self._selection.sources)
        source = SOURCE_OF[destination]
        flaws: list[SettingsProblem] = []
        layer = sources.load_file_layer(self._selection, source, flaws) if self._selection.wants(source) else None
        return self._replace_layer(source, layer)

    def _replace_layer(self, source: Source, new: SettingsLayer | None) -> MergedSettings:
        """Put a layer where it belongs, in the place of the old one."""
        others = [layer for layer in self._layers if layer.source != source]
        found = [*others, *([new] if new else [])]
        self._layers = tuple(sorted(found, key=lambda layer: SOURCES.index(layer.source)))
        return self._merge()

    def set_plugin_hooks(self, hooks: Sequence[SettingsValue]) -> MergedSettings:
        """Take in the hooks of plugins, in the place of those brought before."""
        self._plugin_hooks = tuple(hooks)
        return self._merge()

    def _merge(self) -> MergedSettings:
        self.merged = self._compute()
        return self.merged

    def _compute(self) -> MergedSettings:
        """What the layers come to, with the hooks that plugins brought."""
        merged = merge(self._layers, self.trust)
        hooks = (*merged.hooks, *self._plugin_hooks)
        if self._selection.managed_hooks_only:
            hooks = tuple(hook for hook in hooks if hook.source == "managed")
        return msgspec.structs.replace(merged, hooks=hooks)

    # Trust.

    def trust_dependent_entries(self) -> list[tuple[str, str]]:
        """What the project says that counts only if it is trusted: each entry, and the file it is in."""
        inert = merge(self._layers, ProjectTrust()).ignored
        found = [(item.entry, item.path) for item in inert if item.reason == NOT_TRUSTED]
        path = os.path.join(self._selection.project, MCP_FILE)
        with suppress(safe_read.UnreadableFile):
            mcp_files = safe_read.parse_json_object(
                safe_read.read_file(path, beneath=(self._selection.project,)).data
            ).get("mcpServers")
            for name, server in mcp_files.items() if isinstance(mcp_files, dict) else ():
                found.append((format_entry(f"{MCP_FILE}.{name}", server), path))
        return found

    def is_in_effect(self, said: str) -> bool:
        """Whether an entry of the project counts, by a record of the person's."""
        return said in self.trust.consents or self.trust.find_obstacle("project", said) is None

    def record_trust(self, trusted: bool, acting: Iterable[tuple[str, str]] | None = None) -> str:
        """Put on record whether the person trusts the project; its real path. Raises UsageError and NotWritten.

        It is trusted with what is `acting`, and with its agents, commands and skills as they are now.
        """
        identity = trust.identify(self._selection.project)
        covers: list[str] = []
        if trusted:
            entries = self.trust_dependent_entries() if acting is None else acting
            covers = [*(digest(said) for said, _ in entries), *map(digest, self._project_definitions())]
        trust.record_trust(self._selection.config, identity, trusted, covers)
        return identity.path

    def _project_definitions(self) -> Iterator[bytes]:
        """The files of the project that define agents, commands and skills."""
        from parley.settings.files.agents import list_files
        from parley.settings.files.commands_and_skills import MOST_BYTES, command_files, skill_files

        tree = os.path.join(self._selection.project, ".claude")
        recipes = [path for _, path in (*command_files(tree), *skill_files(tree))]
        for path in [*map(str, list_files(Path(tree, "agents"))), *recipes]:
            with suppress(safe_read.UnreadableFile):
                yield safe_read.read_file(path, (self._selection.project,), MOST_BYTES).data

    def trusted_folders(self) -> list[str]:
        """Raises NotWritten if the record cannot be read."""
        book = trust.read_trust_file(self._selection.config)
        if book.problem is not None:
            raise SettingsWriteError(str(book.problem))
        return sorted(path for path, record in book.folders.items() if record.trusted and record.covers is not None)


def resolve_folder(folder: str, root: str, home: str) -> str:
    """A folder as settings name it: `~/x`, or relative to the one that names it."""
    named = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
    return os.path.normpath(os.path.join(root, named))


def describe_ignored(inert: tuple[IgnoredEntry, ...], project: str) -> list[str]:
    """One line for each file and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for item in inert:
        groups.setdefault((item.path, item.reason), []).append(item.key)
    return [format_ignored(path, reason, keys, project) for (path, reason), keys in groups.items()]


def format_ignored(path: str, reason: str, keys: list[str], project: str) -> str:
    names = list(dict.fromkeys(printable(key) for key in keys))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    advice = f" (`parley trust {printable(project)}` trusts it)" if reason in (NOT_TRUSTED, CHANGED) else ""
    return f"settings: {printable(path)}: without effect: {', '.join(names[:MOST_NAMED])}{more}: {reason}{advice}"
