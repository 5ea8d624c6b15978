"""From options to a ready session."""

from __future__ import annotations

import os
from collections.abc import Callable

from parley.compose import limits, memory, permissions, tools
from parley.compose.instructions import make_instructions
from parley.compose.launch_context import LaunchContext
from parley.compose.mcp import server_sources
from parley.compose.models import ModelFactory
from parley.compose.observers import make_observer
from parley.compose.paths import task_output_directory
from parley.compose.plugins import PluginLoader
from parley.compose.registry import get_profile, include_partial_messages, list_problems
from parley.compose.stores import SessionStores
from parley.engine.clock import Clock
from parley.engine.models.thinking import ThinkingOptions
from parley.engine.session.config import (
    AgentConfig,
    ClientConfig,
    ExtensionConfig,
    ModelConfig,
    PermissionConfig,
    SessionConfig,
    StorageConfig,
)
from parley.errors import UsageError
from parley.models.prices import Prices
from parley.protocol.options import ROWS, CliOptions
from parley.settings import credentials
from parley.settings.base import OutputStyle
from parley.settings.env_vars import is_truthy, read_int, state_events, sync_policy, takes_rate_limits
from parley.stores.base import Log
from parley.tools.base import Context
from parley.tools.registry import ToolRegistry

UNSUPPORTED_RESTRICTIONS = ("plugin_urls",)
OFF = ("false", "0", "off")
SAFE_MODE_IGNORED = ("mcp_config", "plugin_dirs", "plugin_dirs_no_mcp", "agents")
"""Options that `--safe-mode` ignores."""


class Composer:
    """Turns options and the environment into the parts of a session."""

    def __init__(self, options: CliOptions, environment: dict[str, str], cwd: str, clock: Clock | None = None) -> None:
        """Raises UsageError if the settings on the command line are wrong."""
        self.launch = LaunchContext(options, environment, cwd, clock)
        self.models = ModelFactory(self.launch)
        self.stores = SessionStores(self.launch)
        self.plugins = PluginLoader(self.launch)

    def make_config(self, warn: Callable[[str], None]) -> SessionConfig:
        """Everything a session needs. Raises UsageError or SessionError."""
        launch, models, sessions = self.launch, self.models, self.stores
        options, environment = launch.options, launch.environment
        launch.warn = warn
        for warning in (*warn_unsupported(options), *list_problems()):
            warn(warning)
        # First what may be wrong with the command line, then what is to be opened: a refusal leaves nothing behind.
        bounds, prices, schema = limits.make_limits(launch), models.prices(), limits.output_schema(launch)
        models.check_first()
        memory.check_models(launch, models.check_first)
        for warning in launch.settings.warnings():
            warn(warning)
        session_id, log = sessions.open()
        begins_in = permissions.permission_mode(launch)
        watching = make_observer(environment, warn)
        context = tools.tool_context(launch, session_id, watching)
        style = self._output_style()
        make_keeper = memory.memory_opener(launch, sessions.store, session_id)
        if make_keeper is not None:
            context.open_memory = lambda: make_keeper().recall
        if models.is_wrapped:
            # The last step that can fail: a session that does not start leaves no recording.
            models.wrapping.open_recording()
        return SessionConfig(
            session_id=session_id,
            cwd=launch.cwd,
            model=self._model_config(prices),
            storage=self._storage_config(session_id, log),
            permissions=self._permission_config(session_id, begins_in),
            client=self._client_config(),
            agents=self._agent_config(context),
            extensions=self._extension_config(context, style),
            instructions=make_instructions(launch, session_id, style, context, make_keeper),
            tools=self.tools(),
            tool_context=context,
            task_output=task_output_directory(launch, session_id),
            settings=launch.settings,
            limits=bounds,
            compaction=limits.compaction_policy(launch),
            make_memory=memory.worker_factory(make_keeper),
            output_schema=schema,
            clock=launch.clock,
            random=random,
            observer=watching,
            warn=warn,
        )

    def _model_config(self, prices: Prices) -> ModelConfig:
        launch, models, options = self.launch, self.models, self.launch.options
        return ModelConfig(
            open=models.open,
            name=models.name(),
            is_explicit=options.model is not None,
            get_info=models.get_model_info,
            fallbacks=models.fallbacks(),
            small=models.small_name(),
            thinking=self._thinking(),
            effort=options.effort
            or launch.environment.get("CLAUDE_CODE_EFFORT_LEVEL")
            or launch.settings.merged.get("effortLevel"),
            betas=options.betas or (),
            prices=prices,
            api_key_source=credentials.find_source(launch.credentials()),
        )

    def _storage_config(self, session_id: str, log: Log) -> StorageConfig:
        launch, sessions, options = self.launch, self.stores, self.launch.options
        return StorageConfig(
            log=log,
            sync=sync_policy(options.fsync, launch.environment, launch.settings.merged.get("fsync")),
            start_source=sessions.open_request().begins_as,
            title=" ".join((options.name or "").split()) or None,
            transcript_path=lambda: sessions.transcript_path(session_id),
            mirror_log=lambda log, send: sessions.mirror_log(session_id, log, send),
            mirror_agent_log=lambda agent_id, meta, log, send: sessions.mirror_agent_log(
                session_id, agent_id, meta, log, send
            ),
            open_agent_log=lambda agent_id, meta: sessions.agent_log(session_id, agent_id, meta),
            list_agents=lambda: sessions.agents(session_id),
            agent_transcript_path=lambda agent_id: sessions.agent_transcript(session_id, agent_id),
        )

    def _permission_config(self, session_id: str, mode: str) -> PermissionConfig:
        launch, options = self.launch, self.launch.options
        return PermissionConfig(
            policy=permissions.make_policy(launch, session_id),
            mode=mode,
            mode_is_explicit=options.skip_permissions or options.permission_mode is not None,
            may_bypass=permissions.may_bypass(launch, mode),
            asks_host=permissions.asks_host(launch),
            prompt_tool=permissions.prompt_tool(launch),
            guarded=options.guard,
        )

    def _client_config(self) -> ClientConfig:
        options, environment = self.launch.options, self.launch.environment
        profile = get_profile(options)
        return ClientConfig(
            include_partial_messages=include_partial_messages(options),
            replay_user_messages=options.replay_user_messages,
            prompt_suggestions=options.prompt_suggestions is not None and options.prompt_suggestions not in OFF,
            include_tool_schemas=profile.include_tool_schemas,
            extension_fields=options.extension_fields,
            prompt_separator=profile.prompt_separator,
            merge_prompts=profile.merge_prompts,
            hook_events=options.include_hook_events or profile.hook_events,
            forwards_subagent_text=options.forward_subagent_text,
            send_rate_limits=takes_rate_limits(environment),
            state_events=state_events(environment),
            may_rewind=is_truthy(environment.get("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING")),
            tools=tools.client_tools(self.launch),
        )

    def _agent_config(self, context: Context) -> AgentConfig:
        launch, plugins, options = self.launch, self.plugins, self.launch.options
        return AgentConfig(
            registry=plugins.agents,
            main=options.agent or (None if options.safe_mode else launch.settings.merged.get("agent")),
            subagent_model=launch.environment.get("CLAUDE_CODE_SUBAGENT_MODEL") or None,
            load_memory=lambda scope, name: plugins.load_agent_memory(scope, name, context.hides),
            make_worktrees=None if launch.is_restricted else lambda: tools.make_worktrees(context),
        )

    def _extension_config(self, context: Context, style: OutputStyle) -> ExtensionConfig:
        launch, plugins = self.launch, self.plugins
        return ExtensionConfig(
            mcp=server_sources(launch, context, plugins.plugins),
            make_callback_hooks=tools.callback_hooks,
            make_command_hooks=lambda layers: tools.command_hooks(launch, layers, context),
            list_plugins=plugins.list_plugins,
            load_templates=None if launch.options.disable_slash_commands else plugins.load_templates,
            output_style=style.name,
            list_styles=launch.settings.styles,
        )

    def tools(self) -> ToolRegistry:
        """The tools the model may call."""
        return tools.make_registry(self.launch, lambda: self.plugins.agents)

    def _output_style(self) -> OutputStyle:
        style = OutputStyle() if self.launch.options.safe_mode else self.launch.settings.style()
        if style.problem is not None:
            self.launch.warn(str(style.problem))
        return style

    def _thinking(self) -> ThinkingOptions:
        options = self.launch.options
        tokens = options.max_thinking_tokens
        return ThinkingOptions(
            budget_tokens=read_int(self.launch.environment, "MAX_THINKING_TOKENS") if tokens is None else tokens,
            mode=options.thinking,
            display=options.thinking_display,
        )


def warn_unsupported(options: CliOptions) -> list[str]:
    """A warning for every option without effect. Raises UsageError for an unsupported one that restricts."""
    flags = {row.field: row.flags[0] for row in ROWS}
    refused = [flags[field] for field in UNSUPPORTED_RESTRICTIONS if field in options.given]
    if refused:
        raise UsageError(f"option '{refused[0]}' is not supported, and ignoring it could do harm")
    left_out = [flags[field] for field in SAFE_MODE_IGNORED if options.safe_mode and field in options.given]
    return [f"option '{flag}' has no effect with --safe-mode" for flag in left_out]


def random() -> float:
    """A number in [0, 1); the standard library's module costs 3 ms at start-up."""
    return int.from_bytes(os.urandom(4)) / 2**32
