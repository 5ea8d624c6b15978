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
    from parley.hooks.base import Hook, HookServices


class HookRegistry:
    def __init__(
        self,
        config: SessionConfig,
        host: Host,
        make_dispatcher: Callable[[], HookDispatcher],
        make_services: Callable[[], HookServices],
        report: Callable[[str], None],
    ) -> None:
        self._config = config
        self._host = host
        """The client, as callback hooks reach it."""
        self._make_dispatcher = make_dispatcher
        self._make_services = make_services
        """What hooks from settings use of the session."""
        self._report = report
        """Tells the client of a problem, after `system/init`."""
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
        wanted = (*merged.enabled_hooks(), *self._permitted(self._main_agent_hooks))
        self.add_extensions()
        if wanted or self.dispatcher is not None:
            dispatcher = self._get_dispatcher()
            dispatcher.commands = self._load(wanted)
            dispatcher.session_hooks.start_watching()

    def add_extensions(self) -> None:
        """Add the hooks of other installed packages, unless the settings say that they do not run."""
        if self._config.extensions.hooks:
            settings = self._config.settings
            keys = ("disableAllHooks", "allowManagedHooksOnly")
            closed = settings is not None and any(map(settings.merged.is_on, keys))
            self._get_dispatcher().extensions = () if closed else self._config.extensions.hooks

    def _load(self, layers: Sequence[SettingsValue]) -> Sequence[Hook]:
        """The hooks of settings. Problems are reported on stderr, and to the client after `system/init`."""
        hooks, problems = self._config.extensions.make_command_hooks(layers, self._make_services())
        for problem in problems:
            self._config.warn(problem)
            self._report(problem)
        return hooks

    def add_main_agent(self, hooks: SettingsValue) -> None:
        """Add the hooks of the agent that the session runs as."""
        if self._config.settings is not None:
            self._main_agent_hooks = (hooks,)
            self.set_commands(self._config.settings.merged)

    def add_agent(self, agent_id: str, hooks: SettingsValue) -> None:
        """Add the hooks of a subagent. They run for its events only."""
        if permitted := self._permitted([hooks]):
            self._get_dispatcher().agent_hooks[agent_id] = self._load(permitted)

    def _permitted(self, of_agents: Sequence[SettingsValue]) -> Sequence[SettingsValue]:
        """The hooks of agents that may run, wherever the agents are defined: all of them or none."""
        settings = self._config.settings
        lock = "" if settings is None else settings.merged.find_agent_hook_lock()
        if self._config.options.safe_mode:
            lock = "--safe-mode"
        for hooks in of_agents if lock else ():
            self._config.warn(f"{hooks.path}: hooks have no effect ({lock})")
        return () if lock else of_agents

    def remove_agent(self, agent_id: str) -> None:
        if self.dispatcher is not None:
            self.dispatcher.agent_hooks.pop(agent_id, None)

    def _get_dispatcher(self) -> HookDispatcher:
        if self.dispatcher is None:
            self.dispatcher = self._make_dispatcher()
        return self.dispatcher
