"""The settings of one session: loaded at the start, changed by the client, read by all other parts.

See also: loading layers (sources.py), merging them (merge.py), writing changes to files (writer.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from parley.mcp.base import ServerDeclaration
from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition
from parley.protocol.options import CliOptions
from parley.settings import env_vars, safe_read, sources, trust
from parley.settings.base import (
    CHANGED,
    DEFAULT_STYLE,
    MCP_FILE,
    NOT_TRUSTED,
    REPORTED,
    SOURCES,
    TREE,
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
    printable,
)
from parley.settings.secret_variables import keep_named

if TYPE_CHECKING:
    from parley.settings.files.memory_files import MemoryPaths, MemoryText
    from parley.settings.writer import SettingsWriter

SOURCE_OF: dict[str, Source] = {"localSettings": "local", "userSettings": "user", "projectSettings": "project"}
MOST_NAMED = 12
LEAST_OUTPUT_CHARS, MOST_OUTPUT_CHARS = 4_000, 80_000
"""The range of `bashOutputMaxChars`."""
MOST_USER_FILE_BYTES = 64_000_000
"""Older versions of Claude Code keep the history of all prompts in `.claude.json`."""
SERVER_KEYS = (b"mcpServers", b"disabledMcpjsonServers")
AGENTS_FOLDER = ".agents"
"""Its folder `skills` is shared with other agents, in the home folder and in a project."""


class SessionSettings:
    """The settings of a session, and what is loaded according to them."""

    def __init__(
        self,
        selection: sources.SourceSelection,
        base: Mapping[str, str],
        without_secrets: Callable[[dict[str, str]], dict[str, str]] = dict,
        command_base: Mapping[str, str] | None = None,
        find_sandbox_problem: Callable[[MergedSettings], str] = lambda merged: "this engine has no sandbox",
    ) -> None:
        """Raises UsageError for invalid settings on the command line.

        `command_base`: the environment of commands that run on another machine. `find_sandbox_problem`: says why
        commands cannot run in a sandbox; "" if they can."""
        self._selection = selection
        self._base = base
        self._command_base = keep_named(base if command_base is None else command_base)
        self._without_secrets = without_secrets
        self.trust, problem = self._evaluate_trust()
        loaded = sources.load_layers(selection)
        self._layers = loaded.layers
        self._plugin_hooks: tuple[SettingsValue, ...] = ()
        self.find_sandbox_problem = find_sandbox_problem
        self.agent_sources: dict[str, str] = {}
        """Where the agents of files come from, by name; set by `agents`."""
        self._without_project: MergedSettings | None = None
        self.merged = self._compute()
        self._problems = (*loaded.problems, *((problem,) if problem else ()), *self.merged.problems)

    def _evaluate_trust(self) -> tuple[ProjectTrust, SettingsProblem | None]:
        selection = self._selection
        return trust.evaluate(
            selection.config, selection.project, selection.sources, is_remote=selection.tree.is_remote
        )

    def layers(self) -> tuple[SettingsLayer, ...]:
        return self._layers

    @property
    def without_project(self) -> MergedSettings:
        """The settings without those of the project, to which the user's own hooks, servers and files are subject."""
        if all(layer.source not in TREE for layer in self._layers):
            return self.merged
        if self._without_project is None:
            from parley.settings.merge import merge

            own = [layer for layer in self._layers if layer.source not in TREE]
            self._without_project = merge(own, ProjectTrust())
        return self._without_project

    @property
    def writer(self) -> SettingsWriter:
        """Writes to the settings files. Imported on first use, because it is rarely needed."""
        from parley.settings.writer import SettingsWriter

        return SettingsWriter(self._selection.config, self._selection.project, is_remote=self._selection.tree.is_remote)

    def warnings(self) -> list[str]:
        """Return a line for each problem of the files and for entries that have no effect."""
        kept = tuple(entry for entry in self.merged.ignored if entry.reason not in REPORTED)
        return [
            *(str(problem) for problem in self._problems),
            *describe_ignored(kept, self._selection.project),
            *self.notices(),
        ]

    def notices(self) -> list[str]:
        """Return the warnings that clients receive, too: what users ask for and do not get."""
        missed = tuple(entry for entry in self.merged.ignored if entry.reason in REPORTED)
        lines = describe_ignored(missed, self._selection.project)
        if self.merged.is_on("sandbox.enabled"):
            from parley.settings.policy import SANDBOX_MISSING

            if problem := self.find_sandbox_problem(self.merged):
                lines.append(SANDBOX_MISSING.format(problem=problem))
        return lines

    def check_start(self, options: CliOptions, cwd: str) -> None:
        """Raises StartRefused if the settings forbid an option, or ask for a policy or a sandbox that is not there."""
        if not self._layers:
            return
        from parley.settings.policy import check_flags, check_start

        check_start(self._layers, self.merged, self.find_sandbox_problem)
        check_flags(options, self.merged, cwd)

    # Reading.

    def environment(self) -> dict[str, str]:
        """The environment that the engine reads."""
        return env_vars.own_environment(self._base, self.merged)

    def child_environment(self) -> dict[str, str]:
        found = self._without_secrets(env_vars.environment_for_commands(self._command_base, self.merged))
        if (most_chars := self.merged.get("bashOutputMaxChars")) is not None:
            found["BASH_MAX_OUTPUT_LENGTH"] = str(min(max(most_chars, LEAST_OUTPUT_CHARS), MOST_OUTPUT_CHARS))
        return found

    def folders(self) -> tuple[str, ...]:
        """The additional working directories, as absolute paths."""
        home = str(sources.home(self._command_base))
        return tuple(dict.fromkeys(resolve_folder(found.value, found.root, home) for found in self.merged.directories))

    def style(self) -> OutputStyle:
        name = self.merged.get("outputStyle", DEFAULT_STYLE)
        if name == DEFAULT_STYLE:
            return OutputStyle()
        from parley.settings.files.output_styles import find_style

        return find_style(
            name, self._selection.config, self._project_folder(), is_trusted="project" in self.trust.sources
        )

    def templates(self, plugins: Sequence[Plugin] = ()) -> tuple[Sequence[PromptTemplate], Sequence[SettingsProblem]]:
        """The commands and skills of the enabled sources and of plugins, and the problems of their files."""
        selection, of_user, of_project = self._selection, [], []
        if not self.merged.is_locked("skills"):
            if selection.includes("user"):
                of_user = [str(selection.config), os.path.join(self._command_base.get("HOME", "/"), AGENTS_FOLDER)]
            if self._project_folder() is not None:
                of_project = [os.path.join(selection.project, name) for name in (".claude", AGENTS_FOLDER)]
        paths = [os.path.join(folder, kind) for folder in (*of_user, *of_project) for kind in ("commands", "skills")]
        if not plugins and not any(map(os.path.isdir, paths)):
            return (), ()
        from parley.settings.files.commands_and_skills import list_folders, load_templates

        trust = self.trust if "project" in self.trust.sources else None
        found, problems = load_templates(list_folders(of_user, of_project, selection.project, trust, plugins))
        return self._limit_templates(found), problems

    def _limit_templates(self, templates: Sequence[PromptTemplate]) -> Sequence[PromptTemplate]:
        """Apply the settings about skills: hidden ones, and rules and commands that a policy forbids."""
        overrides = self.merged.get("skillOverrides", {})
        without_rules = self.merged.is_on("allowManagedPermissionRulesOnly")
        if not overrides and not without_rules and not self.merged.is_on("disableSkillShellExecution"):
            return templates
        found: list[PromptTemplate] = []
        for template in templates:
            state = overrides.get(template.name, "on")
            limits = self.merged if template.source == "project" else self.without_project
            without_shell = limits.is_on("disableSkillShellExecution")
            changes: Json = {"runs_commands": False} if without_shell else {}
            if without_rules:
                changes["tools"] = ()
            if state == "name-only":
                changes["description"] = ""
            if state == "user-invocable-only":
                changes["model_invocable"] = False
            if state != "off":
                found.append(msgspec.structs.replace(template, **changes))
        return found

    def styles(self) -> list[str]:
        """The names of the available output styles."""
        from parley.settings.files.output_styles import list_styles

        return list_styles(
            self._selection.config if self._selection.includes("user") else None,
            self._project_folder(),
        )

    def _project_folder(self) -> str | None:
        """The project, if its files on this machine are used: styles, templates and agents are read from here only."""
        selection = self._selection
        return selection.project if selection.includes("project") and not selection.tree.is_remote else None

    def agents(self) -> tuple[dict[str, AgentDefinition], list[SettingsProblem]]:
        """The subagents defined in files, the project's before the user's, and the problems of the files."""
        config, project = self._selection.config, self._selection.project
        is_trusted = "project" in self.trust.sources
        found: dict[str, AgentDefinition] = {}
        problems: list[SettingsProblem] = []
        for source, top, is_used in (
            ("userSettings", config, self._selection.includes("user")),
            ("projectSettings", Path(project, ".claude"), self._project_folder() is not None),
        ):
            folder, of_user = top / "agents", source == "userSettings"
            if not is_used or self.merged.is_locked("agents") or not os.path.isdir(folder):
                continue
            from parley.settings.files.agents import NOT_TRUSTED, load_agents

            agents, invalid = load_agents(
                folder,
                None if of_user else (project,),
                withheld="" if of_user or is_trusted else NOT_TRUSTED,
                obstacle=(lambda data: None) if of_user else partial(self.trust.find_obstacle, "project"),
            )
            if not of_user and not is_trusted:  # they do not take the place of the user's
                agents = {name: kind for name, kind in agents.items() if name not in found}
            found |= agents
            self.agent_sources |= dict.fromkeys(agents, source)
            problems += invalid
        return found, problems

    def agent_memory(self, scope: str, name: str, denies: Callable[[str], bool]) -> tuple[str, str]:
        """The instructions about an agent's memory, and a problem; one of them is empty."""
        from parley.settings.files import agents

        if scope != "user" and self._selection.tree.is_remote:
            return "", f"the {scope} memory of the agent {name} is not read: the workspace is remote"
        return agents.load_text(agents.find_path(scope, name, self._selection.config, self._selection.project), denies)

    def memory(
        self,
        cwd: str,
        more_roots: tuple[str, ...],
        denies: Callable[[str], bool],
        denies_user: Callable[[str], bool] | None = None,
    ) -> MemoryText:
        """The text of the memory files of the enabled sources."""
        from parley.settings.files import memory_files

        return memory_files.load_memory(self._memory_paths(cwd, more_roots), denies, denies_user)

    def memory_between(
        self, path: str, cwd: str, more_roots: tuple[str, ...], denies: Callable[[str], bool]
    ) -> list[MemoryText]:
        """The memory files in the folders between the working directory and a file below it."""
        from parley.settings.files import memory_files

        return memory_files.load_between(self._memory_paths(cwd, more_roots), path, denies)

    def _memory_paths(self, cwd: str, more_roots: tuple[str, ...]) -> MemoryPaths:
        from parley.settings.files.memory_files import MemoryPaths

        return MemoryPaths(
            cwd=cwd,
            config=self._selection.config,
            home=sources.home(self._base),
            more_roots=more_roots,
            user=self._selection.includes("user"),
            project=self._selection.includes("project"),
            local=self._selection.includes("local"),
            excluded=tuple(self.merged.get("claudeMdExcludes", ())),
            user_excluded=tuple(self.without_project.get("claudeMdExcludes", ())),
            managed=self.merged.get("claudeMd", ""),
            tree=self._selection.tree,
        )

    def servers(self, given: Sequence[str], cwd: str, *, strict: bool) -> tuple[list[ServerDeclaration], list[str]]:
        """The declared MCP servers, highest precedence first, and warnings. Raises UsageError."""
        merged, locked = self.merged, self.merged.is_locked("mcp")
        path = os.path.join(self._selection.project, MCP_FILE)
        has_file = not strict and not locked and self._selection.includes("project")
        has_file = has_file and self._selection.tree.lexists(path)
        user_file = None if strict or locked else self._selection.user_file
        has_user_file = user_file is not None and not self._selection.bare and may_declare_servers(user_file)
        provided = merged.get("managedMcpServers")
        is_empty = not has_file and not has_user_file and (strict or not merged.servers)
        if not given and not provided and is_empty:
            return [], []
        from parley.settings import mcp_files

        declared = mcp_files.from_command_line(given, cwd)
        if provided:
            path_of_policy = printable(merged.values["managedMcpServers"].path)
            own = ServerDeclaration(source="managed", path=path_of_policy, servers=provided)
            declared = [own, *declared]
        if strict:
            return declared, []
        if locked:
            of_policy = [entry for entry in mcp_files.from_settings(merged) if entry.source == "managed"]
            return [*declared, *of_policy], []
        kept = mcp_files.UserServers()
        if user_file is not None and has_user_file:
            kept = mcp_files.from_user_file(user_file, self._selection)
        in_tree: list[ServerDeclaration] = []
        warnings: list[str] = []
        if has_file:
            in_tree, warnings = mcp_files.from_project(
                path, self.trust, merged, kept.rejected, tree=self._selection.tree
            )
        found = [*declared, *mcp_files.from_settings(merged), *kept.local, *in_tree, *kept.user]
        return found, [*kept.problems, *warnings]

    # Changing.

    def apply(self, settings: Json) -> MergedSettings:
        """Merge keys into the flag layer; null removes a key. Raises SettingsWriteError for an invalid value."""
        from parley.settings.merge import validate_layer

        given = {key: value for key, value in settings.items() if value is not None}
        _, problems = validate_layer(
            SettingsLayer(source="flag", path="settings", root=self._selection.project, values=given)
        )
        if problems:
            raise SettingsWriteError("; ".join(problem.text for problem in problems))
        enables = isinstance(sandbox := given.get("sandbox"), dict) and sandbox.get("enabled") is True
        if enables and (problem := self.find_sandbox_problem(self.merged)):
            raise SettingsWriteError(f"sandbox.enabled: there is no sandbox: {problem}")
        if isinstance(permissions := given.get("permissions"), dict) and permissions.get("denyInsteadOfPrompting"):
            raise SettingsWriteError("permissions.denyInsteadOfPrompting can be set only when a session starts")
        old = next((layer for layer in self._layers if layer.source == "flag"), None)
        values = {**(old.values if old else {}), **settings}
        remaining = {key: value for key, value in values.items() if value is not None}
        path = old.path if old else "--settings"
        return self._replace_layer(
            "flag", SettingsLayer(source="flag", path=path, root=self._selection.project, values=remaining)
        )

    def update(self, destination: str, settings: Json) -> MergedSettings:
        """Write keys to a file; null removes a key. Raises SettingsWriteError."""
        self.writer.update(destination, settings)
        return self.reread(destination)

    def reread(self, destination: str) -> MergedSettings:
        """Load a file again, if its layer is enabled."""
        self.trust, _ = self._evaluate_trust()
        source = SOURCE_OF[destination]
        problems: list[SettingsProblem] = []
        layer = sources.load_file_layer(self._selection, source, problems) if self._selection.includes(source) else None
        return self._replace_layer(source, layer)

    def _replace_layer(self, source: Source, new: SettingsLayer | None) -> MergedSettings:
        """Replace or remove a layer, keeping the order of precedence."""
        others = [layer for layer in self._layers if layer.source != source]
        found = [*others, *([new] if new else [])]
        self._layers = tuple(sorted(found, key=lambda layer: SOURCES.index(layer.source)))
        return self._merge()

    def set_plugin_hooks(self, hooks: Sequence[SettingsValue]) -> MergedSettings:
        """Replace the hooks of plugins."""
        self._plugin_hooks = tuple(hooks)
        return self._merge()

    def _merge(self) -> MergedSettings:
        self._without_project = None
        self.merged = self._compute()
        return self.merged

    def _compute(self) -> MergedSettings:
        """Merge the layers and the hooks of plugins."""
        if not self._layers:  # the table of all keys is not needed
            return MergedSettings(hooks=() if self._selection.managed_hooks_only else self._plugin_hooks)
        from parley.settings.merge import merge

        merged = merge(self._layers, self.trust)
        own = merged.hooks
        if merged.is_locked("hooks"):
            own = tuple(hook for hook in own if hook.source == "managed")
        hooks = (*own, *self._plugin_hooks)
        if self._selection.managed_hooks_only or merged.is_on("allowManagedHooksOnly"):
            hooks = tuple(hook for hook in hooks if hook.source == "managed")
        return msgspec.structs.replace(merged, hooks=hooks)

    # Trust.

    def trust_dependent_entries(self) -> list[tuple[str, str]]:
        """The entries of the project that take effect only if it is trusted, each with its file."""
        from parley.settings.mcp_files import list_entries
        from parley.settings.merge import merge

        ignored = merge(self._layers, ProjectTrust()).ignored
        found = [(item.entry, item.path) for item in ignored if item.reason == NOT_TRUSTED]
        path = os.path.join(self._selection.project, MCP_FILE)
        return [*found, *((entry, path) for entry in list_entries(path).values())]

    def is_in_effect(self, entry: str) -> bool:
        """Whether an entry of the project takes effect because the user trusts it."""
        return entry in self.trust.consents or self.trust.find_obstacle("project", entry) is None

    def record_trust(self, trusted: bool, entries: Iterable[tuple[str, str]] | None = None) -> str:
        """Record whether the user trusts the project; returns its real path. Raises UsageError, SettingsWriteError.

        The trust covers `entries`, and the current agents, commands and skills.
        """
        identity = trust.identify(self._selection.project)
        covers: list[str] = []
        if trusted:
            covered = self.trust_dependent_entries() if entries is None else entries
            covers = [*(digest(entry) for entry, _ in covered), *map(digest, self._project_definitions())]
        trust.record_trust(self._selection.config, identity, trusted, covers)
        return identity.path

    def _project_definitions(self) -> Iterator[bytes]:
        """Yield the contents of the project's files that define agents, commands and skills."""
        from parley.settings.files.agents import list_files
        from parley.settings.files.commands_and_skills import MOST_BYTES, command_files, skill_files

        project = self._selection.project
        tree, shared = os.path.join(project, ".claude"), os.path.join(project, AGENTS_FOLDER)
        templates = [path for _, path in (*command_files(tree), *skill_files(tree), *skill_files(shared))]
        for path in [*map(str, list_files(Path(tree, "agents"))), *templates]:
            with suppress(safe_read.UnreadableFile):
                yield safe_read.read_file(path, (self._selection.project,), MOST_BYTES).data

    def forget_servers(self) -> list[str]:
        """Stop trusting the servers of `.mcp.json`; returns their names. Raises UsageError, SettingsWriteError."""
        start = f"{MCP_FILE}."
        entries = [entry for entry, _ in self.trust_dependent_entries() if entry.startswith(start)]
        trust.forget_entries(self._selection.config, trust.identify(self._selection.project), entries)
        return [entry.removeprefix(start).partition("=")[0] for entry in entries]

    def trusted_folders(self) -> list[str]:
        """Raises SettingsWriteError if the trust file cannot be read."""
        known = trust.read_trust_file(self._selection.config)
        if known.problem is not None:
            raise SettingsWriteError(str(known.problem))
        return sorted(path for path, record in known.folders.items() if record.trusted and record.covers is not None)


def resolve_folder(folder: str, root: str, home: str) -> str:
    """Resolve a folder of a settings file: `~/x`, or relative to the file's root."""
    expanded = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
    return os.path.normpath(os.path.join(root, expanded))


def may_declare_servers(path: Path) -> bool:
    """Whether `.claude.json` is worth decoding: most users have it, and few have servers in it."""
    if not os.path.lexists(path):
        return False
    try:
        data = safe_read.read_file(path, most_bytes=MOST_USER_FILE_BYTES).data
    except safe_read.UnreadableFile:
        return True  # to report it
    return any(re.search(rb'"%s"\s*+:\s*+(?!\{\s*\}|\[\s*\])' % key, data) is not None for key in SERVER_KEYS)


def describe_ignored(ignored: tuple[IgnoredEntry, ...], project: str) -> list[str]:
    """Return one line for each file and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for item in ignored:
        groups.setdefault((item.path, item.reason), []).append(item.key)
    return [format_ignored(path, reason, keys, project) for (path, reason), keys in groups.items()]


def format_ignored(path: str, reason: str, keys: list[str], project: str) -> str:
    names = list(dict.fromkeys(printable(key) for key in keys))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    advice = f" (to trust it, run `parley trust {printable(project)}`)" if reason in (NOT_TRUSTED, CHANGED) else ""
    have = "has" if len(names) == 1 else "have"
    return f"settings: {printable(path)}: {', '.join(names[:MOST_NAMED])}{more} {have} no effect: {reason}{advice}"
