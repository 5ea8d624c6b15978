"""Who wants to hear of events. Mostly nobody: then `live` is None, and nothing of the hooks is loaded.

One object a session, shared by its conversations: hooks may come and go while they talk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parley.engine.recovery.pending_approvals import Recorded
from parley.protocol.messages.requests import HookMatcher
from parley.settings.base import Merged, Value

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import Hooking
    from parley.engine.session.session import Session


class Listeners:
    def __init__(self) -> None:
        self.live: Hooking | None = None
        self.of_lead: tuple[Value, ...] = ()
        """The hooks of the agent that the session runs as."""

    def register(self, session: Session, hooks: Mapping[str, Sequence[HookMatcher]]) -> bool:
        """Callbacks of the host, in the place of those it had; False if one that must not fail can never be asked."""
        if not hooks and self.live is None:
            return True
        live = self._opened(session)
        host = Recorded(session.host, session.questions, session.limits.line_bytes, session.setup.complain)
        live.callbacks = session.setup.make_callbacks(host, hooks)
        return live.can_keep_promises(hooks)

    def settle(self, session: Session, merged: Merged) -> None:
        """The commands that the settings have now."""
        wanted = (*merged.hooks, *self.of_lead) if merged.get("disableAllHooks") is not True else ()
        if wanted or self.live is not None:
            self._opened(session).commands = session.setup.make_commands(wanted)

    def dress(self, session: Session, agent_id: str, hooks: Value) -> None:
        """The hooks of a subagent, which hear of nobody else."""
        held = session.setup.settings
        if held is None or held.merged.get("disableAllHooks") is not True:
            self._opened(session).of_agents[agent_id] = session.setup.make_commands([hooks])

    def undress(self, agent_id: str) -> None:
        if self.live is not None:
            self.live.of_agents.pop(agent_id, None)

    def _opened(self, session: Session) -> Hooking:
        if self.live is None:
            from parley.engine.hooks.dispatcher import Hooking

            self.live = Hooking(session)
        return self.live
