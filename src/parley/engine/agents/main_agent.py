"""The agent that a session runs as (`--agent NAME`): its prompt, tools, model and the rest, for the main conversation.

It may be defined by the host, so it is looked for when `initialize` comes, and at the latest with the first
prompt. A session whose agent nobody defines asks no model: without its limits it would be another session.

What the command line says itself (`--model`, `--permission-mode`, `--max-turns`, a prompt) comes before what the
agent says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.agents.resources import entries_of, hooks_of, preloaded, specs_of
from parley.engine.agents.setup import is_offered
from parley.errors import NotPossible
from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition
from parley.protocol.options import MODES
from parley.tools.selection import canonical

if TYPE_CHECKING:
    from parley.engine.session.prompt_queue import Prompt
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn


class Lead:
    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._kind: AgentDefinition | None = None
        self._opening = ""
        """What is said before the first prompt, until that comes."""
        self._has_begun = False
        self.flaw = ""
        """Why the session cannot run as this agent."""

    @property
    def signature(self) -> Json:
        """What hooks are told of it."""
        return {} if self._kind is None else {"agent_type": self._name}

    def settle(self) -> None:
        """Become the agent, if it is known by now."""
        if self._kind is not None:
            return
        agents = self._session.setup.agents
        kind = agents.find(self._name)
        if kind is None:
            known = ", ".join(agents.names())
            self.flaw = f"There is no agent {self._name!r} (--agent, or agent in settings). There are: {known}"
            return
        self._kind, self.flaw = kind, ""
        self._speak(kind)
        self._work(kind)
        self._choose(kind)

    # What it takes from the agent.

    def _speak(self, kind: AgentDefinition) -> None:
        talk, setup = self._session.conversation, self._session.setup
        reminder = kind.criticalSystemReminder_EXPERIMENTAL
        memory = setup.agent_memory(kind.memory, self._name) if isinstance(kind.memory, str) else ""
        parts = [kind.prompt, memory, reminder if isinstance(reminder, str) else ""]
        role = "\n\n".join(part for part in parts if part)
        talk.instructions = msgspec.structs.replace(talk.instructions, role=role)
        if isinstance(kind.initialPrompt, str) and self._session.record.is_empty:
            self._opening = kind.initialPrompt.strip()

    def _work(self, kind: AgentDefinition) -> None:
        """Its tools, servers and hooks."""
        session = self._session
        wanted = kind.tools if isinstance(kind.tools, list) else None
        denied = kind.disallowedTools if isinstance(kind.disallowedTools, list) else []
        named = [name for entry in entries_of(kind) for name in ([entry] if isinstance(entry, str) else entry)]
        form = session.conversation.form

        def keeps(name: str, server: str = "") -> bool:
            return (form is not None and name == form.name) or is_offered(name, wanted, denied, named, server)

        session.setup.tools.narrow(keeps)
        if not keeps("Skill"):
            session.commands.withhold()
        if allowed := agents_in(wanted or []):
            session.setup.agents.restrict(allowed)
        hooks = hooks_of(session, self._name, kind, {})
        if hooks is not None and session.setup.settings is not None:
            session.listeners.of_lead = (hooks,)
            session.listeners.settle(session, session.setup.settings.merged)
        session.servers.bring(specs_of(session, self._name, kind))

    def _choose(self, kind: AgentDefinition) -> None:
        """Model, mode, effort and turns, where nobody nearer has said them."""
        from parley.engine.agents.setup import model_for
        from parley.engine.control.handlers.settings import take_model

        session = self._session
        talk, setup = session.conversation, session.setup
        if isinstance(kind.model, str) and not setup.model_is_given:
            choice = model_for(kind.model, talk.model)
            try:
                if choice != talk.model:
                    take_model(session, choice.shown)
            except NotPossible as flaw:
                self.flaw = f"The model of the agent {self._name!r} cannot be had: {flaw}"
        mode = kind.permissionMode
        if isinstance(mode, str) and not setup.mode_is_given and session.record.grants.mode is None:
            if mode in MODES and (mode != "bypassPermissions" or session.may_bypass()):
                session.permission_mode.current = mode
            else:
                setup.complain(f"agent {self._name!r}: permissionMode {mode!r} is not possible here")
        if isinstance(kind.effort, str) and setup.effort is None:
            talk.effort = kind.effort
        if isinstance(kind.maxTurns, int) and talk.limits.max_turns is None:
            talk.limits = msgspec.structs.replace(talk.limits, max_turns=kind.maxTurns)

    # When the talk begins.

    def opened(self, prompt: Prompt) -> Prompt:
        """The prompt; the first one stands behind what the agent always begins with."""
        self.settle()
        opening, self._opening = self._opening, ""
        if not opening:
            return prompt
        first, rest = (prompt.content or [{}])[0], prompt.content[1:]
        if first.get("type") != "text":
            return msgspec.structs.replace(prompt, content=[{"type": "text", "text": opening}, *prompt.content])
        return msgspec.structs.replace(prompt, content=[{**first, "text": f"{opening}\n\n{first['text']}"}, *rest])

    async def begin(self, turn: Turn) -> None:
        """The first turn hears of the skills that the agent knows."""
        if self._kind is not None and not self._has_begun:
            turn.hearing.contexts += await preloaded(self._session, self._name, self._kind)
            self._has_begun = True


def agents_in(tools: list[str]) -> list[str]:
    """The kinds that `Agent(a, b)` in a list of tools lets it call; none for all of them."""
    found: list[str] = []
    for tool in tools:
        name, opened, inner = tool.partition("(")
        if opened and canonical(name.strip()) == "Task":
            found += [kind.strip() for kind in inner.removesuffix(")").split(",") if kind.strip() not in ("", "*")]
    return found
