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
    Flaw,
    Inert,
    Layer,
    Merged,
    NotWritten,
    Plugin,
    Recipe,
    Source,
    Style,
    Trust,
    Value,
    digest,
    entry,
    shown,
)
from parley.settings.keys import vetted
from parley.settings.merge import merge

if TYPE_CHECKING:
    from parley.protocol.messages.requests import AgentDefinition
    from parley.settings.files.memory_files import Memory, Places
    from parley.settings.mcp_files import Written
    from parley.settings.writer import Store

SOURCE_OF: dict[str, Source] = {"localSettings": "local", "userSettings": "user", "projectSettings": "project"}
MOST_NAMED = 12


class Desk:
    """What is set. The one who owns it is the session."""

    def __init__(
        self,
        wanted: sources.Wanted,
        base: Mapping[str, str],
        without_secrets: Callable[[dict[str, str]], dict[str, str]] = dict,
    ) -> None:
        """Raises UsageError if the command line's settings are wrong."""
        self._wanted = wanted
        self._base = base
        self._without_secrets = without_secrets
        self.trust, flaw = trust.judge(wanted.config, wanted.project, wanted.sources)
        read = sources.read(wanted)
        self._layers = read.layers
        self._brought: tuple[Value, ...] = ()
        """The hooks of plugins."""
        self.merged = self._counted()
        self._flaws = (*read.flaws, *((flaw,) if flaw else ()), *self.merged.flaws)

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @property
    def store(self) -> Store:
        """Who writes to the files. Seldom needed, so loaded when it is."""
        from parley.settings.writer import Store

        return Store(self._wanted.config, self._wanted.project)

    def complaints(self) -> list[str]:
        """What is wrong with the files, and what of them does not count; one line each."""
        return [*(str(flaw) for flaw in self._flaws), *inert_lines(self.merged.inert, self._wanted.project)]

    # What follows from it.

    def environment(self) -> dict[str, str]:
        """What our own lookups see."""
        return env_policy.for_us(self._base, self.merged)

    def child_environment(self) -> dict[str, str]:
        return self._without_secrets(env_policy.for_commands(self._base, self.merged))

    def folders(self) -> tuple[str, ...]:
        """The working directories beside the first, absolute."""
        home = str(sources.home(self._base))
        return tuple(dict.fromkeys(absolute(found.value, found.root, home) for found in self.merged.directories))

    def style(self) -> Style:
        name = self.merged.get("outputStyle", DEFAULT_STYLE)
        if name == DEFAULT_STYLE:
            return Style()
        from parley.settings.files.output_styles import find

        return find(name, self._wanted.config, self._wanted.project if self._wanted.wants("project") else None)

    def recipes(self, plugins: Sequence[Plugin] = ()) -> tuple[Sequence[Recipe], Sequence[Flaw]]:
        """The commands and skills of the enabled sources and of plugins, and what is wrong with their files."""
        wanted, trusted = self._wanted, "project" in self.trust.sources
        tree = os.path.join(wanted.project, ".claude")
        folders = [str(wanted.config)] * wanted.wants("user") + [tree] * wanted.wants("project")
        places = [os.path.join(folder, kind) for folder in folders for kind in ("commands", "skills")]
        if not plugins and not any(map(os.path.isdir, places)):
            return (), ()
        from parley.settings.files.commands_and_skills import Place, gather

        own = Place(folder=str(wanted.config), source="user", may_act=True)
        theirs = Place(
            folder=tree,
            source="project",
            beneath=(wanted.project,),
            may_act=trusted,
            obstacle=lambda data: self.trust.obstacle("project", data),
        )
        named = [Place(folder=one.path, source="plugin", prefix=f"{one.name}:", may_act=True) for one in plugins]
        return gather([*(place for place in (own, theirs) if place.folder in folders), *named])

    def styles(self) -> list[str]:
        """The names of the output styles there are."""
        from parley.settings.files.output_styles import names

        return names(
            self._wanted.config if self._wanted.wants("user") else None,
            self._wanted.project if self._wanted.wants("project") else None,
        )

    def agents(self) -> tuple[dict[str, AgentDefinition], list[Flaw]]:
        """The subagents that files define, the project's before the person's, and what is wrong with the files."""
        config, project = self._wanted.config, self._wanted.project
        places: list[tuple[Path, tuple[str, ...] | None, bool, Callable[[bytes], str | None]]] = []
        if self._wanted.wants("user"):
            places.append((config / "agents", None, True, lambda data: None))
        if self._wanted.wants("project"):
            trusted = "project" in self.trust.sources
            folder = Path(project, ".claude", "agents")
            places.append((folder, (project,), trusted, lambda data: self.trust.obstacle("project", data)))
        found: dict[str, AgentDefinition] = {}
        flaws: list[Flaw] = []
        for folder, beneath, trusted, obstacle in places:
            if os.path.isdir(folder):
                from parley.settings.files.agents import NOT_TRUSTED, gather

                withheld = "" if trusted else NOT_TRUSTED
                kinds, wrong = gather(folder, beneath, withheld=withheld, obstacle=obstacle)
                found |= kinds
                flaws += wrong
        return found, flaws

    def agent_memory(self, scope: str, name: str, denies: Callable[[str], bool]) -> tuple[str, str]:
        """What an agent is told of the memory it keeps, and what is wrong with that."""
        from parley.settings.files import agent_memory

        return agent_memory.told(agent_memory.place(scope, name, self._wanted.config, self._wanted.project), denies)

    def memory(self, cwd: str, more_roots: tuple[str, ...], denies: Callable[[str], bool]) -> Memory:
        """What the memory files of the enabled sources say, and which of them cannot be used."""
        from parley.settings.files import memory_files

        return memory_files.gather(self._memory_places(cwd, more_roots), denies)

    def memory_between(
        self, path: str, cwd: str, more_roots: tuple[str, ...], denies: Callable[[str], bool]
    ) -> list[Memory]:
        """The same of the folders between the working directory and a file below it."""
        from parley.settings.files import memory_files

        return memory_files.between(self._memory_places(cwd, more_roots), path, denies)

    def _memory_places(self, cwd: str, more_roots: tuple[str, ...]) -> Places:
        from parley.settings.files.memory_files import Places

        return Places(
            cwd=cwd,
            config=self._wanted.config,
            home=sources.home(self._base),
            more_roots=more_roots,
            user=self._wanted.wants("user"),
            project=self._wanted.wants("project"),
            local=self._wanted.wants("local"),
        )

    def servers(self, given: Sequence[str], cwd: str, *, strict: bool) -> tuple[list[Written], list[str]]:
        """What is written about MCP servers, the strongest first, and what is wrong with it. Raises UsageError."""
        merged = self.merged
        path = os.path.join(self._wanted.project, MCP_FILE)
        has_file = not strict and self._wanted.wants("project") and os.path.lexists(path)
        if not given and not has_file and (strict or not merged.servers):
            return [], []
        from parley.settings import mcp_files

        written = mcp_files.on_command_line(given, cwd)
        if strict:
            return written, []
        in_tree, flaws = mcp_files.in_project(path, self.trust, merged) if has_file else ([], [])
        return [*written, *mcp_files.in_settings(merged), *in_tree], flaws

    # Changing it.

    def apply(self, settings: Json) -> Merged:
        """Merge into the flag layer, key by key; null takes a key out. Raises NotWritten if a value is wrong."""
        given = {key: value for key, value in settings.items() if value is not None}
        _, flaws = vetted(Layer(source="flag", path="settings", root=self._wanted.project, values=given))
        if flaws:
            raise NotWritten("; ".join(flaw.text for flaw in flaws))
        old = next((layer for layer in self._layers if layer.source == "flag"), None)
        values = {**(old.values if old else {}), **settings}
        kept = {key: value for key, value in values.items() if value is not None}
        path = old.path if old else "--settings"
        return self._put("flag", Layer(source="flag", path=path, root=self._wanted.project, values=kept))

    def update(self, destination: str, settings: Json) -> Merged:
        """Write keys to a file; null takes a key out. Raises NotWritten."""
        self.store.update(destination, settings)
        return self.reread(destination)

    def reread(self, destination: str) -> Merged:
        """Take in what was written to a file meanwhile, where that layer is read at all."""
        self.trust, _ = trust.judge(self._wanted.config, self._wanted.project, self._wanted.sources)
        source = SOURCE_OF[destination]
        flaws: list[Flaw] = []
        layer = sources.ambient(self._wanted, source, flaws) if self._wanted.wants(source) else None
        return self._put(source, layer)

    def _put(self, source: Source, new: Layer | None) -> Merged:
        """Put a layer where it belongs, in the place of the old one."""
        others = [layer for layer in self._layers if layer.source != source]
        found = [*others, *([new] if new else [])]
        self._layers = tuple(sorted(found, key=lambda layer: SOURCES.index(layer.source)))
        return self._merge()

    def bring(self, hooks: Sequence[Value]) -> Merged:
        """Take in the hooks of plugins, in the place of those brought before."""
        self._brought = tuple(hooks)
        return self._merge()

    def _merge(self) -> Merged:
        self.merged = self._counted()
        return self.merged

    def _counted(self) -> Merged:
        """What the layers come to, with the hooks that plugins brought."""
        merged = merge(self._layers, self.trust)
        hooks = (*merged.hooks, *self._brought)
        if self._wanted.managed_hooks_only:
            hooks = tuple(hook for hook in hooks if hook.source == "managed")
        return msgspec.structs.replace(merged, hooks=hooks)

    # Trust.

    def acting(self) -> list[tuple[str, str]]:
        """What the project says that counts only if it is trusted: each entry, and the file it is in."""
        inert = merge(self._layers, Trust()).inert
        found = [(item.entry, item.path) for item in inert if item.reason == NOT_TRUSTED]
        path = os.path.join(self._wanted.project, MCP_FILE)
        with suppress(safe_read.Unfit):
            mcp_files = safe_read.json_object(safe_read.read(path, beneath=(self._wanted.project,)).data).get(
                "mcpServers"
            )
            for name, server in mcp_files.items() if isinstance(mcp_files, dict) else ():
                found.append((entry(f"{MCP_FILE}.{name}", server), path))
        return found

    def is_in_effect(self, said: str) -> bool:
        """Whether an entry of the project counts, by a record of the person's."""
        return said in self.trust.consents or self.trust.obstacle("project", said) is None

    def record_trust(self, trusted: bool, acting: Iterable[tuple[str, str]] | None = None) -> str:
        """Put on record whether the person trusts the project; its real path. Raises UsageError and NotWritten.

        It is trusted with what is `acting`, and with its agents, commands and skills as they are now.
        """
        identity = trust.identify(self._wanted.project)
        covers: list[str] = []
        if trusted:
            entries = self.acting() if acting is None else acting
            covers = [*(digest(said) for said, _ in entries), *map(digest, self._texts())]
        trust.record(self._wanted.config, identity, trusted, covers)
        return identity.path

    def _texts(self) -> Iterator[bytes]:
        """The files of the project that define agents, commands and skills."""
        from parley.settings.files.agents import files_in
        from parley.settings.files.commands_and_skills import MOST_BYTES, command_files, skill_files

        tree = os.path.join(self._wanted.project, ".claude")
        recipes = [path for _, path in (*command_files(tree), *skill_files(tree))]
        for path in [*map(str, files_in(Path(tree, "agents"))), *recipes]:
            with suppress(safe_read.Unfit):
                yield safe_read.read(path, (self._wanted.project,), MOST_BYTES).data

    def trusted_folders(self) -> list[str]:
        """Raises NotWritten if the record cannot be read."""
        book = trust.read(self._wanted.config)
        if book.flaw is not None:
            raise NotWritten(str(book.flaw))
        return sorted(path for path, record in book.folders.items() if record.trusted and record.covers is not None)


def absolute(folder: str, root: str, home: str) -> str:
    """A folder as settings name it: `~/x`, or relative to the one that names it."""
    named = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
    return os.path.normpath(os.path.join(root, named))


def inert_lines(inert: tuple[Inert, ...], project: str) -> list[str]:
    """One line for each file and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for item in inert:
        groups.setdefault((item.path, item.reason), []).append(item.key)
    return [inert_line(path, reason, keys, project) for (path, reason), keys in groups.items()]


def inert_line(path: str, reason: str, keys: list[str], project: str) -> str:
    names = list(dict.fromkeys(shown(key) for key in keys))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    advice = f" (`parley trust {shown(project)}` trusts it)" if reason in (NOT_TRUSTED, CHANGED) else ""
    return f"settings: {shown(path)}: without effect: {', '.join(names[:MOST_NAMED])}{more}: {reason}{advice}"
