"""From options to a ready session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from parley.compose import memory, permissions, tools
from parley.compose.instructions import make_instructions
from parley.compose.launch_context import LaunchContext, ignore, max_line_bytes, option_values, task_output_directory
from parley.compose.mcp import parse_plugin_servers, server_sources
from parley.compose.models import ModelFactory
from parley.compose.plugins import PluginLoader
from parley.compose.registry import get_profile, include_partial_messages, list_problems
from parley.compose.stores import SessionStores
from parley.engine.clock import Clock, SessionIdentity
from parley.engine.context.history import CompactionPolicy, make_policy
from parley.engine.session.config import (
    AgentConfig,
    ClientConfig,
    ExtensionConfig,
    ModelConfig,
    PermissionConfig,
    PluginReload,
    SessionConfig,
    SessionLimits,
    StorageConfig,
)
from parley.errors import ModelForbidden, SessionError, StartRefused, UsageError
from parley.models.catalog import ModelRef, Prices
from parley.observer import NULL_OBSERVER, Observer
from parley.permissions.base import Policy
from parley.protocol.messages.requests import PluginEntry
from parley.protocol.options import FIELDS, CliOptions
from parley.settings import credentials
from parley.settings.base import OutputStyle, SettingsValue
from parley.settings.env_vars import (
    background_wait_seconds,
    heartbeat_seconds,
    is_truthy,
    read_int,
    read_int_or,
    state_events,
    takes_rate_limits,
)
from parley.stores.base import Log, Store
from parley.tools.base import ToolRegistry, Workspace
from parley.version import how_to_install
from parley.workspace.base import Worktree
from parley.workspace.local import LocalFiles

if TYPE_CHECKING:
    from parley.engine.turn.structured_output import OutputSchema
    from parley.hooks.base import Hook, HookServices
    from parley.workspace.remote.client import RemoteFiles

UNSUPPORTED_RESTRICTIONS = ("plugin_urls",)
SAFE_MODE_IGNORED = ("mcp_config", "plugin_dirs", "plugin_dirs_no_mcp", "agents")
"""Options that `--safe-mode` ignores."""
UNUSED_EXPORTERS = ("OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")


class Composer:
    """Turns options and the environment into the parts of a session."""

    def __init__(
        self,
        options: CliOptions,
        environment: dict[str, str],
        cwd: str,
        clock: Clock | None = None,
        worktree: Worktree | None = None,
        store: Store | None = None,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        """`store`: instead of the one that the options name.

        Raises UsageError if the settings on the command line are wrong.
        """
        self.launch = LaunchContext(options, environment, cwd, clock, worktree, warn)
        self.models = ModelFactory(self.launch)
        self.stores = SessionStores(self.launch, store)
        self.plugins = PluginLoader(self.launch)

    def make_config(self, warned: Sequence[str] = ()) -> SessionConfig:
        """Everything a session needs. Raises UsageError or SessionError.

        `warned`: what was wrong with the command line. It is on stderr already, and the client is sent it too.
        """
        launch, models, sessions = self.launch, self.models, self.stores
        warn = launch.warn
        ignored = self._check_options()
        # First what may be wrong with the command line, then what is to be opened: a refusal leaves nothing behind.
        resolved, bounds = resolve_options(launch), make_limits(launch)
        prices, schema = models.prices(), output_schema(resolved)
        try:
            models.check_first()
        except ModelForbidden as exc:
            raise StartRefused(str(exc), exc.reason) from None
        memory.check_models(launch, models.check_first)
        restrictions = models.restrictions()
        for warning in (*launch.settings.warnings(), *restrictions):
            warn(warning)
        session_id, log = sessions.open()
        identity, files = SessionIdentity(session_id), self._open_files(session_id, log)
        begins_in = permissions.permission_mode(launch)
        watching = make_observer(launch.environment, warn)
        policy = permissions.make_policy(launch, session_id)
        workspace = tools.make_workspace(launch, session_id, watching, resolved, files, policy)
        style = self._output_style()
        make_keeper = memory.memory_opener(launch, sessions.store, session_id)
        if models.is_wrapped:
            # The last step that can fail: a session that does not start leaves no recording.
            models.wrapping.open_recording()
        return SessionConfig(
            identity=identity,
            cwd=launch.cwd,
            options=resolved,
            model=self._model_config(prices),
            storage=self._storage_config(identity, log, files.files),
            permissions=self._permission_config(policy, begins_in),
            client=self._client_config(),
            agents=self._agent_config(workspace, policy, files),
            extensions=self._extension_config(workspace, style),
            instructions=make_instructions(launch, session_id, style, policy.is_hidden, make_keeper),
            tools=self.tools(resolved),
            tool_search=tools.tool_search_policy(launch, models.is_first_party, models.uses_cloud),
            workspace=workspace,
            task_output=task_output_directory(launch, session_id),
            settings=launch.settings,
            limits=bounds,
            compaction=compaction_policy(launch),
            open_memory=make_keeper,
            make_memory=memory.worker_factory(make_keeper),
            output_schema=schema,
            clock=launch.clock,
            random=random,
            observer=watching,
            warn=warn,
            worktree=launch.worktree,
            notices=(*warned, *ignored, *launch.settings.notices(), *restrictions),
            is_remote=launch.remote is not None,
        )

    def _check_options(self) -> list[str]:
        """Refuse options that cannot be enforced. Returns what has no effect; stderr has it already.

        Raises UsageError or SessionError.
        """
        launch, options = self.launch, self.launch.options
        ignored = [*warn_unsupported(options), *self.plugins.unused_agent_fields()]
        ignored += [*list_unused_exporters(launch.environment), *tools.list_unknown_tools(launch)]
        ignored += permissions.check_restrictions(launch, tools.list_tools(launch))
        check_worktree(launch)
        if launch.remote is not None:
            ignored += launch.remote.list_left_out(launch.started_in)
        missing = [
            f"option '--add-dir': there is no folder {folder!r:.200}"
            for folder in options.add_dirs or ()
            if launch.remote is None and not os.path.isdir(os.path.join(launch.started_in, folder))
        ]
        for warning in (*ignored, *missing, *list_problems()):
            launch.warn(warning)
        launch.settings.check_start(options, launch.started_in)
        if options.require_sandbox:
            from parley.settings.policy import require_sandbox

            require_sandbox(launch.settings.find_sandbox_problem(launch.settings.merged))
        return ignored

    def _model_config(self, prices: Prices) -> ModelConfig:
        models = self.models
        get_info = cache(models.get_model_info)

        def discover(choice: ModelRef) -> None:
            models.discover(choice)
            get_info.cache_clear()

        return ModelConfig(
            open=models.open,
            name=models.name(),
            is_explicit=self.launch.options.model is not None,
            get_info=get_info,
            discover=discover,
            is_allowed=models.is_allowed,
            list_served=models.list_served,
            fallbacks=models.fallbacks(),
            small=models.small_name(),
            prices=prices,
            aliases=models.aliases,
            api_key_source=credentials.find_source(self.launch.credentials()),
        )

    def _open_files(self, session_id: str, log: Log) -> tools.SessionFiles:
        """Raises SessionError; then the log is closed."""
        try:
            files = tools.make_files(self.launch, session_id)
            self.stores.inherit_remote_checkpoints(session_id, files.files)
        except SessionError:
            log.close()
            raise
        return files

    def _storage_config(self, identity: SessionIdentity, log: Log, files: LocalFiles | RemoteFiles) -> StorageConfig:
        launch, sessions, options = self.launch, self.stores, self.launch.options

        def begin_session() -> Log:
            identity.id, log = sessions.begin(identity.id, files)
            return log

        # A memory belongs to one session, and so does a database.
        keeps_id = bool(options.database) or memory.memory_path(launch) is not None
        return StorageConfig(
            log=log,
            start_source=sessions.open_request().begins_as,
            begin_session=None if keeps_id else begin_session,
            transcript_path=lambda: sessions.transcript_path(identity.id),
            mirror_log=lambda *given: sessions.mirror_log(identity.id, *given),
            open_agent_log=lambda agent_id, meta: sessions.agent_log(identity.id, agent_id, meta),
            list_agents=lambda: sessions.agents(identity.id),
            agent_transcript_path=lambda agent_id: sessions.agent_transcript(identity.id, agent_id),
        )

    def _permission_config(self, policy: Policy, mode: str) -> PermissionConfig:
        launch, options = self.launch, self.launch.options
        return PermissionConfig(
            policy=policy,
            mode=mode,
            mode_is_explicit=options.skip_permissions or options.permission_mode is not None,
            may_bypass=permissions.may_bypass(launch, mode),
            asks_host=permissions.asks_host(launch),
            prompt_tool=permissions.prompt_tool(launch),
            guarded=options.guard,
            refuses_unapproved=permissions.refuses_unapproved(launch),
        )

    def _client_config(self) -> ClientConfig:
        environment, profile = self.launch.environment, get_profile(self.launch.options)
        return ClientConfig(
            include_tool_schemas=profile.include_tool_schemas,
            prompt_separator=profile.prompt_separator,
            merge_prompts=profile.merge_prompts,
            sends_more_prompts=tools.has_more_input(self.launch.options),
            send_rate_limits=takes_rate_limits(environment),
            needs_costs=environment.get("CLAUDE_CODE_ENTRYPOINT") == "sdk-ts",
            state_events=state_events(environment),
            tools=tools.client_tools(self.launch),
        )

    def _agent_config(self, workspace: Workspace, policy: Policy, files: tools.SessionFiles) -> AgentConfig:
        launch, plugins, options = self.launch, self.plugins, self.launch.options
        return AgentConfig(
            registry=plugins.agents,
            main=options.agent or (None if options.safe_mode else launch.settings.merged.get("agent")),
            subagent_model=launch.environment.get("CLAUDE_CODE_SUBAGENT_MODEL") or None,
            load_memory=lambda scope, name: plugins.load_agent_memory(scope, name, policy.is_hidden),
            make_worktrees=None
            if launch.is_restricted
            else lambda: tools.make_worktrees(workspace, tools.folder_lister(launch, policy), files.remote),
        )

    def _extension_config(self, workspace: Workspace, style: OutputStyle) -> ExtensionConfig:
        launch, plugins = self.launch, self.plugins

        def prepare_plugins(added: Sequence[PluginEntry]) -> PluginReload:
            found, apply = plugins.prepare(added)
            return PluginReload(servers=parse_plugin_servers(launch, workspace, found.found), apply=apply)

        def load_hooks(layers: Sequence[SettingsValue], services: HookServices) -> tuple[Sequence[Hook], Sequence[str]]:
            from parley.compose.hooks import load_settings_hooks

            return load_settings_hooks(launch, layers, workspace, services)

        return ExtensionConfig(
            mcp=server_sources(launch, workspace, plugins.plugins),
            make_callback_hooks=tools.callback_hooks,
            make_command_hooks=load_hooks,
            hooks=tools.extension_hooks(launch),
            list_plugins=plugins.list_plugins,
            prepare_plugins=prepare_plugins,
            load_templates=None if launch.options.disable_slash_commands else plugins.load_templates,
            output_style=style.name,
            list_styles=launch.settings.styles,
        )

    def tools(self, options: CliOptions | None = None) -> ToolRegistry:
        """The tools the model may call. `options` are those with the values of variables and settings."""
        return tools.make_registry(self.launch, options or self.launch.options, lambda: self.plugins.agents)

    def _output_style(self) -> OutputStyle:
        style = OutputStyle() if self.launch.options.safe_mode else self.launch.settings.style()
        if style.problem is not None:
            self.launch.warn(str(style.problem))
        return style


def resolve_options(launch: LaunchContext) -> CliOptions:
    """The options with what variables, settings and the dialect say, and without the key. Raises UsageError."""
    given, merged, found = launch.options, launch.settings.merged, option_values(launch).resolve()
    thinks = found.max_thinking_tokens is not None or merged.get("alwaysThinkingEnabled") is not False
    return found.replace(
        include_partial_messages=include_partial_messages(given),
        include_hook_events=given.include_hook_events or get_profile(given).hook_events,
        thinking=found.thinking or (None if thinks else "disabled"),
        thinking_display=found.thinking_display or ("summarized" if merged.is_on("showThinkingSummaries") else None),
        prompt_suggestions=found.prompt_suggestions and merged.get("promptSuggestionEnabled") is not False,
        api_key=None,
    )


def make_limits(launch: LaunchContext) -> SessionLimits:
    """Raises UsageError."""
    environment = launch.environment
    return SessionLimits(
        max_agent_turns=launch.settings.merged.managed_limits().get("maxTurns"),
        max_parallel_tools=max(1, read_int_or(environment, "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY", 10)),
        max_line_bytes=max_line_bytes(launch),
        heartbeat_seconds=heartbeat_seconds(environment),
        background_wait_seconds=background_wait_seconds(environment),
    )


def compaction_policy(launch: LaunchContext) -> CompactionPolicy:
    """Raises UsageError."""
    environment = launch.environment
    found = make_policy(
        disabled=is_truthy(environment.get("DISABLE_COMPACT")),
        auto_disabled=is_truthy(environment.get("DISABLE_AUTO_COMPACT")),
        flag=launch.options.autocompact,
        window=launch.settings.merged.get("autoCompactWindow"),
        percent=read_int(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),
    )
    view_tokens = memory.make_policy(launch).view_tokens if memory.memory_path(launch) is not None else None
    return found if view_tokens is None else replace(found, max_tokens=view_tokens)


def output_schema(options: CliOptions) -> OutputSchema | None:
    """The schema of the result. Raises UsageError if it is not valid."""
    if options.json_schema is None:
        return None
    from parley.engine.turn.structured_output import parse_output_schema

    return parse_output_schema(options.json_schema, options.max_schema_attempts)


def check_worktree(launch: LaunchContext) -> None:
    """Raises UsageError if the session cannot work in the worktree that `--worktree` asks for."""
    if launch.options.worktree is None:
        return
    if launch.worktree is None:
        raise UsageError("--worktree cannot be combined with --await-claim, nor with Options(engine='local')")
    for hooks in launch.settings.merged.enabled_hooks():
        if isinstance(hooks.value, dict) and "WorktreeCreate" in hooks.value:
            raise UsageError(
                f"--worktree cannot be used: {hooks.path} has a WorktreeCreate hook, which runs only for agents"
            )


def warn_unsupported(options: CliOptions) -> list[str]:
    """A warning for every option without effect. Raises UsageError for an unsupported one that restricts."""
    refused = [FIELDS[field].flags[0] for field in UNSUPPORTED_RESTRICTIONS if field in options.given]
    if refused:
        raise UsageError(f"option '{refused[0]}' is not supported: sessions do not download plugins; use --plugin-dir")
    left_out = [FIELDS[field].flags[0] for field in SAFE_MODE_IGNORED if options.safe_mode and field in options.given]
    return [f"option '{flag}' has no effect with --safe-mode" for flag in left_out]


def random() -> float:
    """A number in [0, 1); the standard library's module costs 3 ms at start-up."""
    return int.from_bytes(os.urandom(4)) / 2**32


def list_unused_exporters(environment: Mapping[str, str]) -> list[str]:
    """A warning for every exporter that CLAUDE_CODE_ENABLE_TELEMETRY would start in Claude Code, and not here."""
    if not is_truthy(environment.get("CLAUDE_CODE_ENABLE_TELEMETRY")):
        return []
    wanted = [name for name in UNUSED_EXPORTERS if environment.get(name, "none").strip() not in ("", "none")]
    return [f"{name} has no effect: only traces are exported (OTEL_TRACES_EXPORTER)" for name in wanted]


def make_observer(environment: Mapping[str, str], warn: Callable[[str], None]) -> Observer:
    """Spans are made if the program uses OpenTelemetry itself, or the environment names an exporter."""
    names_one = environment.get("OTEL_TRACES_EXPORTER", "none").strip() not in ("", "none")
    if is_truthy(environment.get("OTEL_SDK_DISABLED")) or not (names_one or "opentelemetry.trace" in sys.modules):
        return NULL_OBSERVER
    try:
        from parley.telemetry.otel import create_observer
    except ImportError:
        warn(f"OTEL_TRACES_EXPORTER is set, but OpenTelemetry is not installed: {how_to_install('otel')}")
        return NULL_OBSERVER
    return create_observer(environment, warn) or NULL_OBSERVER
