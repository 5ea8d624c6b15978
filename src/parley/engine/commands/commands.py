"""The slash commands and skills of a session.

    /cost               answered without a model call (local.py)
    /goal CONDITION     a prompt that sets the goal of the session (goal.py)
    /compact, /clear    work on the whole conversation (compact_clear.py)
    /name arguments     replaced by the text of a template (expansion.py)
    /unknown            an error that names the nearest command; the model is not called
    /etc/hosts, / x     not the form of a command: an ordinary prompt

A template can set allow rules and a model until the end of its turn (expansion.py). Prompts with
`client_composed` are never commands.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from parley.engine.commands.local import (
    ALIASES,
    CLEARING,
    LOCAL,
    STANDARD,
    TERMINAL,
    CommandCall,
    CommandReply,
    unavailable_reply,
)
from parley.engine.context.conversation import Conversation
from parley.engine.session.prompts import Prompt, PromptIntake
from parley.engine.turn import outcome
from parley.errors import NotPossible, ToolError
from parley.mcp.base import PREFIX
from parley.protocol.base import UNSET, Json
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import Assistant, AssistantContent
from parley.protocol.messages.system import Informational
from parley.settings.base import PromptTemplate
from parley.tools.base import customize_tool

if TYPE_CHECKING:
    from parley.engine.commands.expansion import TurnOverrides
    from parley.engine.turn.outcome import TurnOutcome
    from parley.engine.turn.turn import Turn
    from parley.models.catalog import ModelRef

SKILL = "Skill"
NAME = r"\w[\w:.-]*"
COMMAND = rf"/({NAME})(?:\s+(.*))?"
NO_USAGE = dict.fromkeys(("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 0)


class Commands:
    def __init__(
        self, conversation: Conversation, prompts: PromptIntake, send_init: Callable[[], None], started_at: float
    ) -> None:
        """`started_at` is when the session started, on the monotonic clock."""
        self._conversation = conversation
        self._config = conversation.config
        self._servers = conversation.parts.servers
        self._prompts = prompts
        self._send_init = send_init
        self._started_at = started_at
        self._templates: dict[str, PromptTemplate] | None = None
        self._may_offer = SKILL in self._config.tools
        self._allowed: frozenset[str] | None = None
        """The skills that models can use; None for all."""
        self._overrides: TurnOverrides | None = None
        """The rules and the model that templates of this turn set."""

    # Templates.

    @property
    def are_off(self) -> bool:
        return self._config.extensions.load_templates is None

    def templates(self) -> dict[str, PromptTemplate]:
        """The templates by name, read when first needed."""
        if self._templates is None:
            load = self._config.extensions.load_templates
            found = [] if load is None else [*load(), *STANDARD]
            self._templates = {}
            for template in found:
                self._templates.setdefault(template.name, template)
        return self._templates

    def allows_for_turn(self, tool: str, server: str) -> bool:
        """Whether a template allows calls of a tool until the end of the turn."""
        return self._overrides is not None and self._overrides.allows(tool, server)

    def reload(self) -> None:
        """Read the files again."""
        self._templates = None
        self.register_tool()

    def skills(self) -> list[PromptTemplate]:
        return [
            template
            for template in self.templates().values()
            if template.kind == "skill" and self._is_allowed(template)
        ]

    def _is_allowed(self, template: PromptTemplate) -> bool:
        return self._allowed is None or template.name in self._allowed

    # For models.

    def restrict(self, names: Iterable[str] | None) -> None:
        """Limit the skills that models can use; None for all."""
        self._allowed = None if names is None else frozenset(names)
        self.register_tool()

    def _for_model(self) -> dict[str, PromptTemplate]:
        return {name: one for name, one in self.templates().items() if one.model_invocable and self._is_allowed(one)}

    def offered(self) -> list[PromptTemplate]:
        """The templates that the model is told about."""
        return list(self._for_model().values()) if SKILL in self._config.tools else []

    def find_usable(self, name: str) -> PromptTemplate | None:
        """The template that a model can use under a name."""
        return self._for_model().get(name)

    def disable_for_model(self) -> None:
        """Remove the Skill tool."""
        self._may_offer = False
        self._config.tools.remove(SKILL)

    def register_tool(self) -> None:
        """Register the Skill tool with the current skills, or remove it if there are none."""
        registry = self._config.tools
        if not self._may_offer:
            return
        registry.remove(SKILL)
        offered = [(template.name, template.description) for template in self._for_model().values()]
        if offered:
            registry.add(customize_tool(registry.builtin(SKILL), "with_skills", offered))

    async def run_skill(self, name: str, arguments: str) -> str | list[Json]:
        """The text of a skill, for the Skill tool. Raises ToolError."""
        name = name.removeprefix("/")
        if re.fullmatch(NAME, name) is None or ".." in name:
            raise ToolError(f"{name!r} is not a valid skill name.")
        template = self._for_model().get(name)
        if template is None:
            raise ToolError(f"There is no skill {name!r}. The skills are: {', '.join(self._for_model()) or 'none'}.")
        blocks = await self.expand_template(template, arguments)
        return str(blocks[0]["text"]) if len(blocks) == 1 else blocks

    # For users.

    def list_names(self) -> list[str]:
        """The names of `list_commands`."""
        if self.are_off:
            return []
        templates = self.templates()
        files = [template.name for template in templates.values() if template.user_invocable]
        own = [name for name in ALIASES if name not in templates]
        return [*files, *own, *(command["name"] for command in self._servers.list_commands())]

    def list_commands(self) -> list[Json]:
        """All commands for users, as clients receive them."""
        if self.are_off:
            return []
        templates = self.templates()
        files = [
            {
                "name": template.name,
                "description": template.description,
                "argumentHint": template.hint,
                **({"builtin": True} if template.source == "builtin" else {}),
            }
            for template in templates.values()
            if template.user_invocable
        ]
        own = [
            {
                "name": name,
                "description": LOCAL[name].description,
                "argumentHint": LOCAL[name].hint,
                **({"aliases": aliases} if (aliases := ALIASES[name]) else {}),
                "builtin": True,
            }
            for name in ALIASES
            if name not in templates
        ]
        return [*files, *own, *self._servers.list_commands()]

    # Prompts.

    def mark_alone(self, prompt: Prompt) -> Prompt:
        """Mark a prompt that never reaches a model, a local or an unknown command, as a turn of its own."""
        called = self._parse_command(prompt)
        if called is None or self._find_template(called[0]) or called[0].startswith(PREFIX):
            return prompt  # servers may still be connecting, so their commands are not known yet
        return msgspec.structs.replace(prompt, runs_alone=True)

    def _parse_local(self, prompt: Prompt) -> tuple[str, str] | None:
        """The name and arguments of a local command."""
        called = self._parse_command(prompt)
        if called is None or called[0] in self.templates() or called[0] not in LOCAL.keys() | TERMINAL:
            return None
        return called

    def _parse_command(self, prompt: Prompt) -> tuple[str, str] | None:
        """The name and arguments of a prompt in the form of a command."""
        text = first_text(prompt)
        if self.are_off or prompt.verbatim or prompt.is_notification or not text.startswith("/"):
            return None
        found = re.fullmatch(COMMAND, text.strip(), re.DOTALL)
        return None if found is None else (found[1], (found[2] or "").strip())

    def _find_template(self, name: str) -> PromptTemplate | None:
        """The template that a user can run under a name."""
        template = self.templates().get(name)
        return template if template is not None and template.user_invocable else None

    async def expand_turn(self, turn: Turn) -> TurnOutcome | None:
        """Expand the prompts of a turn in place. Returns an outcome if the turn ends with that."""
        if len(turn.prompts) == 1 and (called := self._parse_local(turn.prompts[0])):
            row = LOCAL.get(called[0])
            if called[0] == "goal" and called[1] and called[1] not in CLEARING:
                return await self._set_goal(turn, called[1])
            if row is None or row.run is not None:
                before = self._conversation.model
                refusal = await self._guard_model(*called)
                reply = self._answer(turn.prompts[0], *called, refusal)
                await self._report_model(before, called[1])
                return reply
            from parley.engine.commands import compact_clear

            return await compact_clear.run(turn, row.alias_of or called[0], called[1], self._send_init)
        try:
            turn.prompts[:] = [await self.expand_prompt(prompt) for prompt in turn.prompts]
        except ToolError as exc:
            return self._fail(turn.prompts, str(exc))
        return None

    async def _set_goal(self, turn: Turn, condition: str) -> TurnOutcome | None:
        """Set the goal and make its condition the prompt. Returns an outcome if that fails."""
        from parley.engine.goal import STARTED, SessionGoal

        [prompt] = turn.prompts
        try:
            contexts = await self._check_expansion("goal", condition, "builtin", first_text(prompt))
            SessionGoal(self._conversation).start(condition)
        except ToolError as exc:
            return self._fail(turn.prompts, str(exc))
        turn.reply = self._reply_message(CommandReply(text=f"Goal set: {condition}"), "goal", condition)
        text = {"type": "text", "text": STARTED.format(condition=condition)}
        turn.prompts[:] = [msgspec.structs.replace(prompt, expansion=[text, *prompt.content[1:], *contexts])]
        return None

    async def expand_joining(self, prompts: list[Prompt]) -> list[Prompt]:
        """Expand prompts that join a running turn. A prompt that fails is reported and left out."""
        found: list[Prompt] = []
        for prompt in prompts:
            try:
                found.append(await self.expand_prompt(await self._servers.expand_prompt(prompt)))
            except ToolError as exc:
                self._conversation.send(Informational(content=str(exc), level="warning"))
                self._prompts.send_lifecycle(prompt, "cancelled")
            except asyncio.CancelledError:
                self._conversation.parts.prompt_queue.put_back(prompts)  # an interrupt: they make up the next turn
                raise
        return found

    async def expand_prompt(self, prompt: Prompt) -> Prompt:
        """Raises ToolError if a command cannot be expanded."""
        if prompt.verbatim or prompt.is_notification or prompt.expansion is not None or self.are_off:
            return prompt
        called = self._parse_command(prompt)
        if called is None:
            return await self._with_files(prompt)
        template = self._find_template(called[0])
        if template is None:
            from parley.engine.commands.expansion import refuse_unknown

            refuse_unknown(called[0], self.templates(), self.list_names())
            return prompt
        contexts = await self._check_expansion(called[0], called[1], template.source, first_text(prompt))
        blocks = await self.expand_template(template, called[1])
        return msgspec.structs.replace(prompt, expansion=[*blocks, *prompt.content[1:], *contexts])

    async def _check_expansion(self, name: str, arguments: str, source: str, text: str) -> list[Json]:
        """Run the hooks before a command becomes a prompt. Returns their context. Raises ToolError."""
        events = self._conversation.hooks.events
        contexts = await events.before_expansion("slash_command", name, arguments, source, text)
        return [{"type": "text", "text": context} for context in contexts]

    async def _with_files(self, prompt: Prompt) -> Prompt:
        """Put the files that a prompt mentions before it."""
        if not any("@" in block.get("text", "") for block in prompt.content):
            return prompt
        from parley.engine.commands.expansion import attach_mentions

        texts = [str(block["text"]) for block in prompt.content if block.get("type") == "text"]
        files = await attach_mentions(self._conversation, texts)
        return msgspec.structs.replace(prompt, expansion=[*files, *prompt.content]) if files else prompt

    async def expand_template(self, template: PromptTemplate, arguments: str) -> list[Json]:
        """Expand a template and apply its rules and its model. Raises ToolError."""
        from parley.engine.commands.expansion import expand_template

        if template.is_trusted and (template.tools or template.model):
            from parley.engine.commands.expansion import TurnOverrides

            self._overrides = self._overrides or TurnOverrides(self._conversation)
            self._overrides.apply(template)
        return await expand_template(self._conversation, template, arguments)

    def end_turn(self) -> None:
        if self._overrides is not None:
            self._overrides.restore()

    # Local commands.

    async def _guard_model(self, name: str, arguments: str) -> CommandReply | None:
        """Run the hooks before `/model NAME`. Returns the reply if a hook denies it."""
        conversation = self._conversation
        if name != "model" or not arguments:
            return None
        before = conversation.chosen_model
        try:
            after = conversation.find_model(arguments)
            if after != before:
                await conversation.hooks.events.before_model_switch(before, after, arguments, "command")
        except NotPossible as exc:
            return CommandReply(text=str(exc), was_run=False)
        return None

    async def _report_model(self, before: ModelRef, asked: str) -> None:
        """Run the hooks after `/model NAME`."""
        after = self._conversation.model
        if after != before:
            await self._conversation.hooks.events.after_model_switch(before, after, asked, "command")

    def _answer(self, prompt: Prompt, name: str, arguments: str, refusal: CommandReply | None = None) -> TurnOutcome:
        conversation, row = self._conversation, LOCAL.get(name)
        if refusal is not None:
            reply = refusal
        elif row is None or row.run is None:
            reply = unavailable_reply(name)
        else:
            reply = row.run(
                CommandCall(
                    arguments=arguments,
                    conversation=conversation,
                    started_at=self._started_at,
                    commands=self.list_commands(),
                    skills=self.skills(),
                )
            )
        listed = name if row is None else row.alias_of or name
        conversation.journal.append_event(
            "command", {"uuid": prompt.uuid, "command": name, "args": arguments, "text": reply.text}
        )
        self._start([prompt])
        conversation.send(self._reply_message(reply, listed, arguments))
        if row is None:
            return outcome.TurnOutcome(text=reply.text)
        # As in recordings of Claude Code: users refer to what they have just read.
        conversation.append_contexts([describe_for_model(name, arguments, reply.text)])
        return outcome.local_command(name, reply.text)

    def _start(self, prompts: Iterable[Prompt]) -> None:
        self._send_init()
        self._prompts.echo(list(prompts))

    def _reply_message(self, reply: CommandReply, name: str, arguments: str) -> Assistant:
        clock = self._conversation.clock
        run = {"command": name, "args": arguments}
        return Assistant(
            message=AssistantContent(
                id=clock.new_uuid(),
                type="message",
                model="<synthetic>",
                content=[Text.of(reply.text)],
                stop_reason="end_turn",
                stop_sequence=None,
                usage=NO_USAGE,
                context_management=None,
            ),
            parent_tool_use_id=None,
            timestamp=clock.now(),
            local_command_source=f"<local-command-stdout>{reply.text}</local-command-stdout>",
            local_command_run=run if name in LOCAL else UNSET,
            local_command_outcome=UNSET if name in LOCAL else {"kind": "unavailable_headless"},
            context_usage=reply.context_usage,
        )

    def _fail(self, prompts: list[Prompt], text: str) -> TurnOutcome:
        """Report a command that failed; the model is not told."""
        self._start(prompts)
        self._conversation.send(Informational(content=text, level="warning"))
        return outcome.failed(text, "validation_error")


def describe_for_model(name: str, arguments: str, text: str) -> str:
    """The text for the model about a command that was answered without it."""
    typed = f"/{name} {arguments}".strip()
    return (
        f"[The user ran {typed}, which the engine answered. You do not need to respond to it. The answer was:]\n"
        f"<local-command-stdout>{text}</local-command-stdout>"
    )


def first_text(prompt: Prompt) -> str:
    first = prompt.content[0] if prompt.content else {}
    return str(first.get("text", "")) if first.get("type") == "text" else ""
