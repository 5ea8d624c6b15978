"""The agent that a session runs as (`--agent NAME`): its prompt, tools, model and the rest, for the main conversation.

It may be defined by the host, so it is looked for when `initialize` comes, and at the latest with the first
prompt. A session whose agent nobody defines asks no model: without its limits it would be another session.

What the command line says itself (`--model`, `--permission-mode`, `--max-turns`, a prompt) comes before what the
agent says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.agents.resources import agent_hooks, load_skills, server_entries, server_specs
from parley.engine.agents.setup import is_offered
from parley.errors import NotPossible
from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition
from parley.protocol.options import MODES
from parley.tools.selection import canonical_name

if TYPE_CHECKING:
    from parley.engine.session.prompt_queue import Prompt
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn


class MainAgent:
    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._kind: AgentDefinition | None = None
        self._initial_prompt = ""
        """What is said before the first prompt, until that comes."""
        self._has_started = False
        self.error = ""
        """Why the session cannot run as this agent."""

    @property
    def hook_fields(self) -> Json:
        """What hooks are told of it."""
        return {} if self._kind is None else {"agent_type": self._name}

    def activate(self) -> None:
        """Become the agent, if it is known by now."""
        if self._kind is not None:
            return
        agents = self._session.config.agents.registry
        kind = agents.find(self._name)
        if kind is None:
            known = ", ".join(agents.names())
            self.error = f"There is no agent {self._name!r} (--agent, or agent in settings). There are: {known}"
            return
        self._kind, self.error = kind, ""
        self._set_prompt(kind)
        self._set_tools(kind)
        self._set_options(kind)

    # What it takes from the agent.

    def _set_prompt(self, kind: AgentDefinition) -> None:
        conversation, config = self._session.conversation, self._session.config
        reminder = kind.criticalSystemReminder_EXPERIMENTAL
        memory = config.agents.load_memory(kind.memory, self._name) if isinstance(kind.memory, str) else ""
        parts = [kind.prompt, memory, reminder if isinstance(reminder, str) else ""]
        role = "\n\n".join(part for part in parts if part)
        conversation.instructions = msgspec.structs.replace(conversation.instructions, role=role)
        if isinstance(kind.initialPrompt, str) and self._session.journal.is_empty:
            self._initial_prompt = kind.initialPrompt.strip()

    def _set_tools(self, kind: AgentDefinition) -> None:
        """Its tools, servers and hooks."""
        session = self._session
        wanted = kind.tools if isinstance(kind.tools, list) else None
        denied = kind.disallowedTools if isinstance(kind.disallowedTools, list) else []
        named = [name for entry in server_entries(kind) for name in ([entry] if isinstance(entry, str) else entry)]
        schema = session.conversation.output_schema

        def keeps(name: str, server: str = "") -> bool:
            return (schema is not None and name == schema.name) or is_offered(name, wanted, denied, named, server)

        session.config.tools.restrict(keeps)
        if not keeps("Skill"):
            session.commands.disable_for_model()
        if allowed := allowed_agents(wanted or []):
            session.config.agents.registry.restrict(allowed)
        hooks = agent_hooks(session, self._name, kind, {})
        if hooks is not None:
            session.hooks.add_main_agent(hooks)
        session.servers.add_agent_servers(server_specs(session, self._name, kind))

    def _set_options(self, kind: AgentDefinition) -> None:
        """Model, mode, effort and turns, where nobody nearer has said them."""
        from parley.engine.agents.setup import choose_model

        session = self._session
        conversation, config = session.conversation, session.config
        if isinstance(kind.model, str) and not config.model.is_explicit:
            choice = choose_model(kind.model, conversation.model)
            try:
                if choice != conversation.model:
                    conversation.use_model(choice.display_name)
            except NotPossible as exc:
                self.error = f"The model of the agent {self._name!r} cannot be had: {exc}"
        mode = kind.permissionMode
        if isinstance(mode, str) and not config.permissions.mode_is_explicit and session.journal.grants.mode is None:
            if mode in MODES and (mode != "bypassPermissions" or session.may_bypass()):
                session.permission_mode.current = mode
            else:
                config.warn(f"agent {self._name!r}: permissionMode {mode!r} is not possible here")
        if isinstance(kind.effort, str) and config.model.effort is None:
            conversation.effort = kind.effort
        if isinstance(kind.maxTurns, int) and conversation.limits.max_turns is None:
            conversation.limits = msgspec.structs.replace(conversation.limits, max_turns=kind.maxTurns)

    # When the talk begins.

    def with_initial_prompt(self, prompt: Prompt) -> Prompt:
        """The prompt; the first one stands behind what the agent always begins with."""
        self.activate()
        opening, self._initial_prompt = self._initial_prompt, ""
        if not opening:
            return prompt
        first, rest = (prompt.content or [{}])[0], prompt.content[1:]
        if first.get("type") != "text":
            return msgspec.structs.replace(prompt, content=[{"type": "text", "text": opening}, *prompt.content])
        return msgspec.structs.replace(prompt, content=[{**first, "text": f"{opening}\n\n{first['text']}"}, *rest])

    async def start_turn(self, turn: Turn) -> None:
        """The first turn hears of the skills that the agent knows."""
        if self._kind is not None and not self._has_started:
            turn.hook_feedback.contexts += await load_skills(self._session, self._name, self._kind)
            self._has_started = True


def allowed_agents(tools: list[str]) -> list[str]:
    """The kinds that `Agent(a, b)` in a list of tools lets it call; none for all of them."""
    found: list[str] = []
    for tool in tools:
        name, opened, inner = tool.partition("(")
        if opened and canonical_name(name.strip()) == "Task":
            found += [kind.strip() for kind in inner.removesuffix(")").split(",") if kind.strip() not in ("", "*")]
    return found
