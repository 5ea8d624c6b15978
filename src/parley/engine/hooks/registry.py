"""The hooks that a session has registered.

Sessions without hooks never load the dispatcher: `dispatcher` stays None. One registry is shared by the
conversations of a session, because hooks can be added and removed while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from parley.engine.session.config import SessionConfig
from parley.host import Host
from parley.protocol.messages.requests import HookMatcher
from parley.settings.base import MergedSettings, SettingsValue

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import HookDispatcher


class HookRegistry:
    def __init__(self, config: SessionConfig, host: Host, make_dispatcher: Callable[[], HookDispatcher]) -> None:
        self._config = config
        self._host = host
        """The client, as callback hooks reach it."""
        self._make_dispatcher = make_dispatcher
        self.dispatcher: HookDispatcher | None = None
        self._main_agent_hooks: tuple[SettingsValue, ...] = ()
        """The hooks of the agent that the session runs as."""

    def register(self, hooks: Mapping[str, Sequence[HookMatcher]]) -> bool:
        """Replace the callbacks of the client. Returns False if one with `onFailure: block` can never run."""
        if not hooks and self.dispatcher is None:
            return True
        dispatcher = self._get_dispatcher()
        dispatcher.callbacks = self._config.extensions.make_callback_hooks(self._host, hooks)
        return dispatcher.can_guarantee(hooks)

    def set_commands(self, merged: MergedSettings) -> None:
        """Replace the command hooks by those of the settings."""
        wanted = (*merged.hooks, *self._main_agent_hooks) if merged.get("disableAllHooks") is not True else ()
        if wanted or self.dispatcher is not None:
            self._get_dispatcher().commands = self._config.extensions.make_command_hooks(wanted)

    def add_main_agent(self, hooks: SettingsValue) -> None:
        """Add the hooks of the agent that the session runs as."""
        if self._config.settings is not None:
            self._main_agent_hooks = (hooks,)
            self.set_commands(self._config.settings.merged)

    def add_agent(self, agent_id: str, hooks: SettingsValue) -> None:
        """Add the hooks of a subagent. They run for its events only."""
        settings = self._config.settings
        if settings is None or settings.merged.get("disableAllHooks") is not True:
            self._get_dispatcher().agent_hooks[agent_id] = self._config.extensions.make_command_hooks([hooks])

    def remove_agent(self, agent_id: str) -> None:
        if self.dispatcher is not None:
            self.dispatcher.agent_hooks.pop(agent_id, None)

    def _get_dispatcher(self) -> HookDispatcher:
        if self.dispatcher is None:
            self.dispatcher = self._make_dispatcher()
        return self.dispatcher
