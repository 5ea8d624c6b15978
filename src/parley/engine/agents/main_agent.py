"""The agent that a session runs as (`--agent NAME`): its prompt, tools, model and the rest, for the main conversation.

The client can define the agent, so it is looked up at `initialize`, and at the latest with the first prompt.
If it is not defined, the session calls no model: without the agent's limits it would be a different session.

Options of the command line (`--model`, `--permission-mode`, `--max-turns`, a prompt) take precedence over the
agent's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.agents.resources import agent_hooks, load_skills, server_entries, server_specs
from parley.engine.agents.setup import choose_model, is_offered
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.errors import NotPossible
from parley.protocol.messages.requests import AgentDefinition
from parley.protocol.options import MODES
from parley.tools.catalog import find_traits

if TYPE_CHECKING:
    from parley.engine.session.prompts import Prompt
    from parley.engine.turn.turn import Turn


class MainAgent:
    def __init__(self, conversation: Conversation, commands: Commands, name: str) -> None:
        self._conversation = conversation
        self._commands = commands
        self._name = name
        self._kind: AgentDefinition | None = None
        self._initial_prompt = ""
        """Text that is put before the first prompt."""
        self._has_started = False
        self.error = ""
        """Why the session cannot run as this agent."""

    def activate(self) -> None:
        """Apply the definition, if it is known."""
        if self._kind is not None:
            return
        agents = self._conversation.config.agents.registry
        kind = agents.find(self._name)
        if kind is None:
            known = ", ".join(agents.definitions)
            self.error = f"There is no agent {self._name!r} (--agent, or agent in settings). The agents are: {known}"
            return
        self._kind, self.error = kind, ""
        self._conversation.hooks.main_agent["agent_type"] = self._name
        self._set_prompt(kind)
        self._set_tools(kind)
        self._set_options(kind)

    def _set_prompt(self, kind: AgentDefinition) -> None:
        conversation, config = self._conversation, self._conversation.config
        reminder = kind.criticalSystemReminder_EXPERIMENTAL
        memory = config.agents.load_memory(kind.memory, self._name) if isinstance(kind.memory, str) else ""
        parts = [kind.prompt, memory, reminder if isinstance(reminder, str) else ""]
        role = "\n\n".join(part for part in parts if part)
        conversation.instructions = msgspec.structs.replace(conversation.instructions, role=role)
        if isinstance(kind.initialPrompt, str) and conversation.journal.is_empty:
            self._initial_prompt = kind.initialPrompt.strip()

    def _set_tools(self, kind: AgentDefinition) -> None:
        """Apply the tools, servers and hooks."""
        conversation = self._conversation
        config = conversation.config
        requested = kind.tools if isinstance(kind.tools, list) else None
        denied = kind.disallowedTools if isinstance(kind.disallowedTools, list) else []
        named = [name for entry in server_entries(kind) for name in ([entry] if isinstance(entry, str) else entry)]
        schema = conversation.output_schema

        def keeps(name: str, server: str = "") -> bool:
            return (schema is not None and name == schema.name) or is_offered(name, requested, denied, named, server)

        config.tools.restrict(keeps)
        if not keeps("Skill"):
            self._commands.disable_for_model()
        if allowed := allowed_agents(requested or []):
            config.agents.registry.restrict(allowed)
        hooks = agent_hooks(config, self._name, kind, {})
        if hooks is not None:
            conversation.hooks.add_main_agent(hooks)
        conversation.parts.servers.add_agent_servers(server_specs(config, self._name, kind))

    def _set_options(self, kind: AgentDefinition) -> None:
        """Apply model, mode, effort and turn limit, unless the command line sets them."""
        conversation, config = self._conversation, self._conversation.config
        if isinstance(kind.model, str) and not config.model.is_explicit:
            choice = choose_model(kind.model, conversation.model, config.model.resolve)
            try:
                if choice != conversation.model:
                    conversation.use_model(kind.model)
            except NotPossible as exc:
                self.error = f"The model of the agent {self._name!r} cannot be used: {exc}"
        mode = kind.permissionMode
        if (
            isinstance(mode, str)
            and not config.permissions.mode_is_explicit
            and conversation.journal.grants.mode is None
        ):
            if mode in MODES and (mode != "bypassPermissions" or conversation.parts.mode.may_bypass()):
                conversation.parts.mode.current = mode
            else:
                config.warn(f"agent {self._name!r}: permissionMode {mode!r} is not allowed in this session")
        if isinstance(kind.effort, str) and config.options.effort is None:
            conversation.effort = kind.effort
        if isinstance(kind.maxTurns, int) and conversation.options.max_turns is None:
            conversation.options = conversation.options.replace(max_turns=kind.maxTurns)

    def with_initial_prompt(self, prompt: Prompt) -> Prompt:
        """Put the agent's initial prompt before the first prompt."""
        self.activate()
        opening, self._initial_prompt = self._initial_prompt, ""
        if not opening:
            return prompt
        first, rest = (prompt.content or [{}])[0], prompt.content[1:]
        if first.get("type") != "text":
            return msgspec.structs.replace(prompt, content=[{"type": "text", "text": opening}, *prompt.content])
        return msgspec.structs.replace(prompt, content=[{**first, "text": f"{opening}\n\n{first['text']}"}, *rest])

    async def start_turn(self, turn: Turn) -> None:
        """Add the agent's skills to the first turn."""
        if self._kind is not None and not self._has_started:
            turn.hook_feedback.contexts += await load_skills(self._conversation, self._commands, self._name, self._kind)
            self._has_started = True


def allowed_agents(tools: list[str]) -> list[str]:
    """The agent types that `Agent(a, b)` in a list of tools allows; empty for all."""
    found: list[str] = []
    for tool in tools:
        name, opened, inner = tool.partition("(")
        if opened and find_traits(name.strip()).effect == "delegates":
            found += [kind.strip() for kind in inner.removesuffix(")").split(",") if kind.strip() not in ("", "*")]
    return found
