"""The hooks that a session has registered.

One registry is shared by the conversations of a session, because hooks can be added and removed while it runs. The
dispatcher is loaded with the first hook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from parley.engine.hooks.base import SessionEvents
from parley.engine.session.config import SessionConfig
from parley.engine.session.outbox import Outbox
from parley.host import Host
from parley.protocol.base import Json
from parley.protocol.messages.requests import HookMatcher
from parley.settings.base import MergedSettings, SettingsValue

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import HookDispatcher
    from parley.hooks.base import Hook


class HookRegistry:
    def __init__(
        self, config: SessionConfig, host: Host, outbox: Outbox, open_dispatcher: Callable[[], HookDispatcher]
    ) -> None:
        self._config = config
        self._host = host
        """The client, as callback hooks reach it."""
        self._outbox = outbox
        self._open_dispatcher = open_dispatcher
        self._dispatcher: HookDispatcher | None = None
        self.events = SessionEvents()
        """Fires the events of the session."""
        self.main_agent: Json = {}
        """The fields of the agent that the session runs as, in hook inputs."""
        self._main_agent_hooks: tuple[SettingsValue, ...] = ()
        """The hooks of the agent that the session runs as."""

    def register(self, hooks: Mapping[str, Sequence[HookMatcher]]) -> bool:
        """Replace the callbacks of the client. Returns False if one with `onFailure: block` can never run."""
        if not hooks and self._dispatcher is None:
            return True
        dispatcher = self._get_dispatcher()
        dispatcher.callbacks = self._config.extensions.make_callback_hooks(self._host, hooks)
        return dispatcher.can_guarantee(hooks)

    def set_commands(self, merged: MergedSettings) -> None:
        """Replace the command hooks by those of the settings."""
        wanted = (*merged.enabled_hooks(), *self._permitted(self._main_agent_hooks))
        self.add_extensions()
        if wanted or self._dispatcher is not None:
            dispatcher = self._get_dispatcher()
            dispatcher.commands = self._load(wanted)
            dispatcher.start_watching()

    def add_extensions(self) -> None:
        """Add the hooks of other installed packages, unless the settings say that they do not run."""
        if self._config.extensions.hooks:
            closed = any(map(self._config.settings.merged.is_on, ("disableAllHooks", "allowManagedHooksOnly")))
            self._get_dispatcher().extensions = () if closed else self._config.extensions.hooks

    def _load(self, layers: Sequence[SettingsValue]) -> Sequence[Hook]:
        """The hooks of settings. Problems are reported on stderr, and to the client after `system/init`."""
        hooks, problems = self._config.extensions.make_command_hooks(layers, self._get_dispatcher().services)
        for problem in problems:
            self._config.warn(problem)
            self._outbox.add_notice(problem)
        return hooks

    def add_main_agent(self, hooks: SettingsValue) -> None:
        """Add the hooks of the agent that the session runs as."""
        self._main_agent_hooks = (hooks,)
        self.set_commands(self._config.settings.merged)

    def add_agent(self, agent_id: str, hooks: SettingsValue) -> None:
        """Add the hooks of a subagent. They run for its events only."""
        if permitted := self._permitted([hooks]):
            self._get_dispatcher().agent_hooks[agent_id] = self._load(permitted)

    def _permitted(self, of_agents: Sequence[SettingsValue]) -> Sequence[SettingsValue]:
        """The hooks of agents that may run, wherever the agents are defined: all of them or none."""
        lock = "--safe-mode" if self._config.options.safe_mode else self._config.settings.merged.find_agent_hook_lock()
        for hooks in of_agents if lock else ():
            self._config.warn(f"{hooks.path}: hooks have no effect ({lock})")
        return () if lock else of_agents

    def remove_agent(self, agent_id: str) -> None:
        if self._dispatcher is not None:
            self._dispatcher.agent_hooks.pop(agent_id, None)

    def disable(self) -> None:
        """Run no hooks from now on."""
        self._dispatcher, self.events = None, SessionEvents()

    def _get_dispatcher(self) -> HookDispatcher:
        if self._dispatcher is None:
            self._dispatcher = self.events = self._open_dispatcher()
        return self._dispatcher
