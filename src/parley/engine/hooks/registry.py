"""Who wants to hear of events. Mostly nobody: then `live` is None, and nothing of the hooks is loaded.

One object a session, shared by its conversations: hooks may come and go while they talk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parley.engine.recovery.pending_approvals import RecordingHost
from parley.protocol.messages.requests import HookMatcher
from parley.settings.base import MergedSettings, SettingsValue

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import HookDispatcher
    from parley.engine.session.session import Session


class HookRegistry:
    def __init__(self) -> None:
        self.dispatcher: HookDispatcher | None = None
        self.main_agent_hooks: tuple[SettingsValue, ...] = ()
        """The hooks of the agent that the session runs as."""

    def register(self, session: Session, hooks: Mapping[str, Sequence[HookMatcher]]) -> bool:
        """Callbacks of the host, in the place of those it had; False if one that must not fail can never be asked."""
        if not hooks and self.dispatcher is None:
            return True
        dispatcher = self._get_dispatcher(session)
        host = RecordingHost(
            session.host, session.pending_approvals, session.limits.max_line_bytes, session.config.warn
        )
        dispatcher.callbacks = session.config.extensions.make_callback_hooks(host, hooks)
        return dispatcher.can_guarantee(hooks)

    def set_commands(self, session: Session, merged: MergedSettings) -> None:
        """The commands that the settings have now."""
        wanted = (*merged.hooks, *self.main_agent_hooks) if merged.get("disableAllHooks") is not True else ()
        if wanted or self.dispatcher is not None:
            self._get_dispatcher(session).commands = session.config.extensions.make_command_hooks(wanted)

    def add_agent(self, session: Session, agent_id: str, hooks: SettingsValue) -> None:
        """The hooks of a subagent, which hear of nobody else."""
        held = session.config.settings
        if held is None or held.merged.get("disableAllHooks") is not True:
            self._get_dispatcher(session).agent_hooks[agent_id] = session.config.extensions.make_command_hooks([hooks])

    def remove_agent(self, agent_id: str) -> None:
        if self.dispatcher is not None:
            self.dispatcher.agent_hooks.pop(agent_id, None)

    def _get_dispatcher(self, session: Session) -> HookDispatcher:
        if self.dispatcher is None:
            from parley.engine.hooks.dispatcher import HookDispatcher

            self.dispatcher = HookDispatcher(session)
        return self.dispatcher
