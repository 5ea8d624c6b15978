"""Slash commands of a session: which there are, and what becomes of a prompt that is one.

    /cost               answered here, without a model (local.py)
    /compact, /clear    work on the conversation as a whole (compact_clear.py)
    /name arguments     a text from a file goes into the conversation instead (expansion.py)
    /unknown            a prompt like any other

A command may bring rules and a model of its own; they hold until the end of its turn. What a
client composed itself (`client_composed`) is never a command.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from parley.engine.commands.local import LOCAL, TERMINAL, CommandReply, unavailable_reply
from parley.engine.commands.standard import STANDARD
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn import outcome
from parley.errors import ToolError
from parley.protocol.base import UNSET, Json
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import Assistant, AssistantContent
from parley.protocol.messages.system import Informational
from parley.settings.base import PromptTemplate
from parley.tools.base import ListsSkills

if TYPE_CHECKING:
    from parley.engine.commands.turn_overrides import TurnOverrides
    from parley.engine.session.session import Session
    from parley.engine.turn.outcome import TurnOutcome
    from parley.engine.turn.turn import Turn

SKILL = "Skill"
NAME = r"\w[\w:.-]*"
COMMAND = rf"/({NAME})(?:\s+(.*))?"
NO_USAGE = dict.fromkeys(("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 0)


class Commands:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._templates: dict[str, PromptTemplate] | None = None
        self._may_offer = SKILL in session.config.tools
        self._allowed: frozenset[str] | None = None
        """What models may use; None for everything."""
        self._overrides: TurnOverrides | None = None
        """What commands of this turn brought with them."""

    # Which there are.

    @property
    def are_off(self) -> bool:
        return self._session.config.extensions.load_templates is None

    def templates(self) -> dict[str, PromptTemplate]:
        """By name; read when they are first needed."""
        if self._templates is None:
            load = self._session.config.extensions.load_templates
            found = [] if load is None else [*load(), *STANDARD]
            self._templates = {}
            for template in found:
                self._templates.setdefault(template.name, template)
        return self._templates

    def reload(self) -> None:
        """Files may have changed."""
        self._templates = None
        self.register_tool()

    def skills(self) -> list[PromptTemplate]:
        return [recipe for recipe in self.templates().values() if recipe.kind == "skill" and self._is_allowed(recipe)]

    def _is_allowed(self, template: PromptTemplate) -> bool:
        return self._allowed is None or template.name in self._allowed

    # For models.

    def restrict(self, names: Iterable[str] | None) -> None:
        """From now on models use only these; None for all."""
        self._allowed = None if names is None else frozenset(names)
        for name in sorted(self._allowed or ()):
            if name not in self.templates():
                self._session.config.warn(f"initialize: there is no skill {name!r}")
        self.register_tool()

    def _for_model(self) -> dict[str, PromptTemplate]:
        return {name: one for name, one in self.templates().items() if one.model_invocable and self._is_allowed(one)}

    def find_usable(self, name: str) -> PromptTemplate | None:
        """What a model may use under a name."""
        return self._for_model().get(name)

    def disable_for_model(self) -> None:
        """Models are not offered anything of this."""
        self._may_offer = False
        self._session.config.tools.remove(SKILL)

    def register_tool(self) -> None:
        """Offer what there is to the model, as one tool; without anything there is no such tool."""
        registry = self._session.config.tools
        if not self._may_offer:
            return
        registry.remove(SKILL)
        offered = [(recipe.name, recipe.description) for recipe in self._for_model().values()]
        tool = registry.builtin(SKILL) if offered else None
        # Python 3.12 loads `inspect` for the check of a protocol.
        if tool is not None and isinstance(tool, ListsSkills):
            registry.add(tool.with_skills(offered))
            self._session.config.tool_context.follow = self.run_skill

    async def run_skill(self, name: str, arguments: str) -> str | list[Json]:
        """What a model that asks for a skill is told. Raises ToolError."""
        name = name.removeprefix("/")
        if re.fullmatch(NAME, name) is None or ".." in name:
            raise ToolError(f"{name!r} is no name of a skill.")
        template = self._for_model().get(name)
        if template is None:
            raise ToolError(f"There is no skill {name!r}. There are: {', '.join(self._for_model()) or 'none'}.")
        blocks = await self.expand_template(template, arguments)
        return str(blocks[0]["text"]) if len(blocks) == 1 else blocks

    # For people.

    def list_commands(self) -> list[Json]:
        """All commands for people, as hosts are told of them."""
        if self.are_off:
            return []
        files = [
            {"name": template.name, "description": template.description, "argumentHint": template.hint}
            for template in self.templates().values()
            if template.user_invocable
        ]
        own = [
            {"name": name, "description": row.description, "argumentHint": row.hint}
            for name, row in LOCAL.items()
            if not row.alias_of and name not in self.templates()
        ]
        return [*files, *own, *self._session.servers.list_commands()]

    # What a prompt means.

    def mark_local(self, prompt: Prompt) -> Prompt:
        """The prompt, which knows whether it is a turn by itself."""
        return msgspec.structs.replace(prompt, runs_alone=True) if self._parse_local(prompt) else prompt

    def _parse_local(self, prompt: Prompt) -> tuple[str, str] | None:
        """The name and the arguments of a command that we answer ourselves."""
        called = self._parse_command(prompt)
        if called is None or called[0] in self.templates() or called[0] not in LOCAL.keys() | TERMINAL:
            return None
        return called

    def _parse_command(self, prompt: Prompt) -> tuple[str, str] | None:
        """The name and the arguments of a prompt that looks like a command."""
        text = first_text(prompt)
        if self.are_off or prompt.verbatim or prompt.is_notification or not text.startswith("/"):
            return None
        found = re.fullmatch(COMMAND, text.strip(), re.DOTALL)
        return None if found is None else (found[1], (found[2] or "").strip())

    async def expand_turn(self, turn: Turn) -> TurnOutcome | None:
        """Make prompts what they stand for; how the turn ends, if that was all."""
        if len(turn.prompts) == 1 and (called := self._parse_local(turn.prompts[0])):
            row = LOCAL.get(called[0])
            if row is None or row.run is not None:
                return self._answer(turn.prompts[0], *called)
            from parley.engine.commands import compact_clear

            return await compact_clear.run(self._session, turn, row.alias_of or called[0], called[1])
        try:
            turn.prompts[:] = [await self.expand_prompt(prompt) for prompt in turn.prompts]
        except ToolError as exc:
            return self._fail(turn.prompts, str(exc))
        return None

    async def expand_joining(self, prompts: list[Prompt]) -> list[Prompt]:
        """Prompts that join a running turn, as what they stand for. One that cannot be had is told, and left out."""
        found: list[Prompt] = []
        for prompt in prompts:
            try:
                found.append(await self.expand_prompt(await self._session.servers.expand_prompt(prompt)))
            except ToolError as exc:
                self._session.send(Informational(content=str(exc), level="warning"))
                self._session.prompts.send_lifecycle(prompt, "cancelled")
            except asyncio.CancelledError:
                self._session.prompt_queue.put_back(prompts)  # an interrupt: they are the next turn
                raise
        return found

    async def expand_prompt(self, prompt: Prompt) -> Prompt:
        """Raises ToolError if it is a command that cannot be had."""
        if prompt.verbatim or prompt.is_notification or prompt.expansion is not None or self.are_off:
            return prompt
        called = self._parse_command(prompt)
        template = self.templates().get(called[0]) if called is not None else None
        if called is None or template is None or not template.user_invocable:
            return await self._with_files(prompt)
        blocks = await self.expand_template(template, called[1])
        return msgspec.structs.replace(prompt, expansion=[*blocks, *prompt.content[1:]])

    async def _with_files(self, prompt: Prompt) -> Prompt:
        """The prompt, and before it the files that it mentions: what is asked is read last."""
        if not any("@" in block.get("text", "") for block in prompt.content):
            return prompt
        from parley.engine.context.mentions import attach_mentions

        texts = [str(block["text"]) for block in prompt.content if block.get("type") == "text"]
        files = await attach_mentions(self._session, texts)
        return msgspec.structs.replace(prompt, expansion=[*files, *prompt.content]) if files else prompt

    async def expand_template(self, template: PromptTemplate, arguments: str) -> list[Json]:
        """What a model reads of a command or a skill; its rules and its model count from now on. Raises ToolError."""
        from parley.engine.commands.expansion import expand_template

        if template.is_trusted and (template.tools or template.model):
            from parley.engine.commands.turn_overrides import TurnOverrides

            self._overrides = self._overrides or TurnOverrides(self._session)
            self._overrides.apply(template)
        return await expand_template(self._session, template, arguments)

    def end_turn(self) -> None:
        if self._overrides is not None:
            self._overrides.restore()

    # Answers of our own.

    def _answer(self, prompt: Prompt, name: str, arguments: str) -> TurnOutcome:
        session, row = self._session, LOCAL.get(name)
        said = unavailable_reply(name) if row is None or row.run is None else row.run(session, arguments)
        listed = name if row is None else row.alias_of or name
        session.journal.append_event(
            "command", {"uuid": prompt.uuid, "command": name, "args": arguments, "text": said.text}
        )
        self._start([prompt])
        session.send(self._reply_message(said, listed, arguments))
        if row is None:
            return outcome.TurnOutcome(text=said.text)
        # As recorded, a model that is asked later has it before it: people speak of what they have just read.
        session.conversation.append_contexts([describe_for_model(name, arguments, said.text)])
        return outcome.local_command(name, said.text)

    def _start(self, prompts: Iterable[Prompt]) -> None:
        self._session.send_init()
        self._session.prompts.echo(list(prompts))

    def _reply_message(self, said: CommandReply, name: str, arguments: str) -> Assistant:
        clock = self._session.clock
        run = {"command": name, "args": arguments}
        return Assistant(
            message=AssistantContent(
                id=clock.new_uuid(),
                type="message",
                model="<synthetic>",
                content=[Text.of(said.text)],
                stop_reason="end_turn",
                stop_sequence=None,
                usage=NO_USAGE,
                context_management=None,
            ),
            parent_tool_use_id=None,
            timestamp=clock.now(),
            local_command_source=f"<local-command-stdout>{said.text}</local-command-stdout>",
            local_command_run=run if name in LOCAL else UNSET,
            local_command_outcome=UNSET if name in LOCAL else {"kind": "unavailable_headless"},
            context_usage=said.context_usage,
        )

    def _fail(self, prompts: list[Prompt], text: str) -> TurnOutcome:
        """A command could not be had: the person is told, and the model hears nothing of it."""
        self._start(prompts)
        self._session.send(Informational(content=text, level="warning"))
        return outcome.failed(text, "validation_error")


def describe_for_model(name: str, arguments: str, text: str) -> str:
    """What a model reads of a command that was answered without it."""
    typed = f"/{name} {arguments}".strip()
    return (
        f"[The user ran {typed}, which the engine answered. Nothing is asked of you by that. The answer was:]\n"
        f"<local-command-stdout>{text}</local-command-stdout>"
    )


def first_text(prompt: Prompt) -> str:
    first = prompt.content[0] if prompt.content else {}
    return str(first.get("text", "")) if first.get("type") == "text" else ""
