"""From options to a ready session."""

from __future__ import annotations

import os
from collections.abc import Callable

from parley.compose import limits, memory, permissions, tools
from parley.compose.instructions import instructions
from parley.compose.launch_context import Basis
from parley.compose.mcp import servers
from parley.compose.models import Models
from parley.compose.observers import observer
from parley.compose.paths import task_place
from parley.compose.plugins import Extensions
from parley.compose.registry import manners, partial
from parley.compose.stores import Sessions
from parley.engine.clock import Stamp
from parley.engine.models.thinking import Wish
from parley.engine.session.config import Setup
from parley.errors import UsageError
from parley.protocol.options import ROWS, Options
from parley.settings import credentials
from parley.settings.base import Style
from parley.settings.client_profile import takes_rate_limits
from parley.settings.env_vars import state_events, sync_policy, truthy, whole
from parley.tools.registry import Shelf

RESTRICTING_NOT_YET = ("plugin_urls",)
OFF = ("false", "0", "off")
LEFT_OUT = ("mcp_config", "plugin_dirs", "plugin_dirs_no_mcp", "agents")
"""What `--safe-mode` leaves out though the command line names it."""


class Composer:
    """Turns options and the surroundings into the parts of a session."""

    def __init__(self, options: Options, environment: dict[str, str], cwd: str, stamp: Stamp | None = None) -> None:
        """Raises UsageError if the settings on the command line are wrong."""
        self.basis = Basis(options, environment, cwd, stamp)
        self.models = Models(self.basis)
        self.sessions = Sessions(self.basis)
        self.extensions = Extensions(self.basis)

    def setup(self, complain: Callable[[str], None]) -> Setup:
        """Everything a session needs. Raises UsageError or SessionError."""
        basis, models, sessions, extensions = self.basis, self.models, self.sessions, self.extensions
        options, environment = basis.options, basis.environment
        wanted = manners(options)
        basis.complain = complain
        for warning in unheeded(options):
            complain(warning)
        # First what may be wrong with the command line, then what is to be opened: a refusal leaves nothing behind.
        bounds, prices, form = limits.limits(basis), models.prices(), limits.form(basis)
        models.check_first()
        memory.check(basis, models)
        for complaint in basis.settings.complaints():
            complain(complaint)
        session_id, log = sessions.open()
        begins_in = permissions.permission_mode(basis)
        watching = observer(environment, complain)
        context = tools.tool_context(basis, session_id, watching)
        style = self._style()
        make_keeper = memory.keeper(basis, sessions, session_id)
        if make_keeper is not None:
            context.open_memory = lambda: make_keeper().recall
        if models.is_wrapped:
            models.wraps.tape()  # the last thing that may fail: nothing is recorded of a session that never was
        return Setup(
            session_id=session_id,
            cwd=basis.cwd,
            log=log,
            sync=sync_policy(options.fsync, environment, basis.settings.merged.get("fsync")),
            open_model=models.open,
            model_name=models.name(),
            facts_of=models.facts_of,
            fallback_models=models.fallbacks(),
            small_model=models.small(),
            instructions=instructions(basis, session_id, style, context, make_keeper),
            tools=self.tools(),
            client_tools=tools.client_tools(basis),
            tool_context=context,
            task_place=task_place(basis, session_id),
            permits=permissions.permits(basis, session_id),
            asks_host=permissions.asks_host(basis),
            prompt_tool=permissions.prompt_tool(basis),
            guarded=options.guard,
            permission_mode=begins_in,
            mode_is_given=options.skip_permissions or options.permission_mode is not None,
            may_bypass=permissions.may_bypass(basis, begins_in),
            partial=partial(options),
            replay=options.replay_user_messages,
            extension_fields=options.extension_fields,
            joint=wanted.joint,
            folds=wanted.folds,
            hook_events=options.include_hook_events or wanted.hook_events,
            lists_schemas=wanted.lists_schemas,
            suggests=options.prompt_suggestions is not None and options.prompt_suggestions not in OFF,
            make_callbacks=tools.callback_hooks,
            make_commands=lambda layers: tools.command_hooks(basis, layers, context),
            mirrored=lambda log, told: sessions.mirrored(session_id, log, told),
            mirrored_agent=lambda agent_id, meta, log, told: sessions.mirrored_agent(
                session_id, agent_id, meta, log, told
            ),
            transcript_path=lambda: sessions.transcript_path(session_id),
            agents=extensions.agents,
            agent=options.agent or (None if options.safe_mode else basis.settings.merged.get("agent")),
            model_is_given=options.model is not None,
            subagent_model=environment.get("CLAUDE_CODE_SUBAGENT_MODEL") or None,
            agent_memory=lambda scope, name: extensions.agent_memory(scope, name, context.hides),
            forwards_subagent_text=options.forward_subagent_text,
            open_agent_log=lambda agent_id, meta: sessions.agent_log(session_id, agent_id, meta),
            known_agents=lambda: sessions.agents(session_id),
            agent_transcript_path=lambda agent_id: sessions.agent_transcript(session_id, agent_id),
            make_worktrees=None if basis.is_restricted else lambda: tools.worktrees(context),
            begins_as=sessions.wanted().begins_as,
            title=" ".join((options.name or "").split()) or None,
            thinking=self._thinking(),
            effort=options.effort
            or environment.get("CLAUDE_CODE_EFFORT_LEVEL")
            or basis.settings.merged.get("effortLevel"),
            mcp=servers(basis, context, extensions.plugins),
            settings=basis.settings,
            output_style=style.name,
            styles=basis.settings.styles,
            plugins=extensions.listed_plugins,
            recipes=None if options.disable_slash_commands else extensions.recipes,
            betas=options.betas or (),
            limits=bounds,
            compaction=limits.compaction(basis),
            make_keeper=make_keeper,
            form=form,
            may_rewind=truthy(environment.get("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING")),
            state_events=state_events(environment),
            tells_quota=takes_rate_limits(environment),
            api_key_source=credentials.source(basis.credentials()),
            prices=prices,
            stamp=basis.stamp,
            dice=throw,
            observer=watching,
            complain=complain,
        )

    def tools(self) -> Shelf:
        """The tools the model may call."""
        return tools.shelf(self.basis, lambda: self.extensions.agents)

    def _style(self) -> Style:
        style = Style() if self.basis.options.safe_mode else self.basis.settings.style()
        if style.flaw is not None:
            self.basis.complain(str(style.flaw))
        return style

    def _thinking(self) -> Wish:
        options = self.basis.options
        tokens = options.max_thinking_tokens
        return Wish(
            tokens=whole(self.basis.environment, "MAX_THINKING_TOKENS") if tokens is None else tokens,
            mode=options.thinking,
            display=options.thinking_display,
        )


def unheeded(options: Options) -> list[str]:
    """A warning for every option that is given and not heeded. Raises UsageError for those that restrict."""
    flags = {row.field: row.flags[0] for row in ROWS}
    refused = [flags[field] for field in RESTRICTING_NOT_YET if field in options.given]
    if refused:
        raise UsageError(f"option '{refused[0]}' is not supported yet, and to go on without it could do harm")
    left_out = [flags[field] for field in LEFT_OUT if options.safe_mode and field in options.given]
    return [f"option '{flag}' has no effect with --safe-mode" for flag in left_out]


def throw() -> float:
    """A number in [0, 1); the standard library's module costs 3 ms at start-up."""
    return int.from_bytes(os.urandom(4)) / 2**32
