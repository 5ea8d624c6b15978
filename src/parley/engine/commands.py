"""Slash commands of a session: which there are, and what becomes of a prompt that is one.

    /cost               answered here, without a model (local_commands.py)
    /compact, /clear    work on the conversation as a whole (renewal.py)
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

from parley.engine import outcome
from parley.engine.inbox import Prompt
from parley.engine.local_commands import LOCAL, TERMINAL, Said, unavailable
from parley.engine.standard_commands import STANDARD
from parley.errors import ToolError
from parley.protocol.base import UNSET, Json
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import Assistant, AssistantContent
from parley.protocol.messages.system import Informational
from parley.settings.base import Recipe
from parley.tools.base import Offering

if TYPE_CHECKING:
    from parley.engine.loan import Loan
    from parley.engine.outcome import Outcome
    from parley.engine.session import Session
    from parley.engine.turn import Turn

SKILL = "Skill"
NAME = r"\w[\w:.-]*"
COMMAND = rf"/({NAME})(?:\s+(.*))?"
NO_USAGE = dict.fromkeys(("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 0)


class Commands:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._recipes: dict[str, Recipe] | None = None
        self._may_offer = SKILL in session.setup.tools
        self._wanted: frozenset[str] | None = None
        """What models may use; None for everything."""
        self._loan: Loan | None = None
        """What commands of this turn brought with them."""

    # Which there are.

    @property
    def are_off(self) -> bool:
        return self._session.setup.recipes is None

    def recipes(self) -> dict[str, Recipe]:
        """By name; read when they are first needed."""
        if self._recipes is None:
            load = self._session.setup.recipes
            found = [] if load is None else [*load(), *STANDARD]
            self._recipes = {}
            for recipe in found:
                self._recipes.setdefault(recipe.name, recipe)
        return self._recipes

    def reload(self) -> None:
        """Files may have changed."""
        self._recipes = None
        self.shelve()

    def skills(self) -> list[Recipe]:
        return [recipe for recipe in self.recipes().values() if recipe.kind == "skill" and self._is_wanted(recipe)]

    def _is_wanted(self, recipe: Recipe) -> bool:
        return self._wanted is None or recipe.name in self._wanted

    # For models.

    def want(self, names: Iterable[str] | None) -> None:
        """From now on models use only these; None for all."""
        self._wanted = None if names is None else frozenset(names)
        for name in sorted(self._wanted or ()):
            if name not in self.recipes():
                self._session.setup.complain(f"initialize: there is no skill {name!r}")
        self.shelve()

    def _for_model(self) -> dict[str, Recipe]:
        return {name: one for name, one in self.recipes().items() if one.for_model and self._is_wanted(one)}

    def usable(self, name: str) -> Recipe | None:
        """What a model may use under a name."""
        return self._for_model().get(name)

    def withhold(self) -> None:
        """Models are not offered anything of this."""
        self._may_offer = False
        self._session.setup.tools.drop(SKILL)

    def shelve(self) -> None:
        """Offer what there is to the model, as one tool; without anything there is no such tool."""
        shelf = self._session.setup.tools
        if not self._may_offer:
            return
        shelf.drop(SKILL)
        offered = [(recipe.name, recipe.description) for recipe in self._for_model().values()]
        tool = shelf.own(SKILL) if offered else None
        # Python 3.12 loads `inspect` for the check of a protocol.
        if tool is not None and isinstance(tool, Offering):
            shelf.add(tool.offering(offered))
            self._session.setup.tool_context.follow = self.use

    async def use(self, name: str, arguments: str) -> str | list[Json]:
        """What a model that asks for a skill is told. Raises ToolError."""
        name = name.removeprefix("/")
        if re.fullmatch(NAME, name) is None or ".." in name:
            raise ToolError(f"{name!r} is no name of a skill.")
        recipe = self._for_model().get(name)
        if recipe is None:
            raise ToolError(f"There is no skill {name!r}. There are: {', '.join(self._for_model()) or 'none'}.")
        blocks = await self.follow(recipe, arguments)
        return str(blocks[0]["text"]) if len(blocks) == 1 else blocks

    # For people.

    def listed(self) -> list[Json]:
        """All commands for people, as hosts are told of them."""
        if self.are_off:
            return []
        files = [
            {"name": recipe.name, "description": recipe.description, "argumentHint": recipe.hint}
            for recipe in self.recipes().values()
            if recipe.for_person
        ]
        own = [
            {"name": name, "description": row.description, "argumentHint": row.hint}
            for name, row in LOCAL.items()
            if not row.alias_of and name not in self.recipes()
        ]
        return [*files, *own, *self._session.servers.commands()]

    # What a prompt means.

    def marked(self, prompt: Prompt) -> Prompt:
        """The prompt, which knows whether it is a turn by itself."""
        return msgspec.structs.replace(prompt, is_alone=True) if self._local(prompt) else prompt

    def _local(self, prompt: Prompt) -> tuple[str, str] | None:
        """The name and the arguments of a command that we answer ourselves."""
        called = self._called(prompt)
        if called is None or called[0] in self.recipes() or called[0] not in LOCAL.keys() | TERMINAL:
            return None
        return called

    def _called(self, prompt: Prompt) -> tuple[str, str] | None:
        """The name and the arguments of a prompt that looks like a command."""
        text = first_text(prompt)
        if self.are_off or prompt.verbatim or prompt.is_notification or not text.startswith("/"):
            return None
        found = re.fullmatch(COMMAND, text.strip(), re.DOTALL)
        return None if found is None else (found[1], (found[2] or "").strip())

    async def take(self, turn: Turn) -> Outcome | None:
        """Make prompts what they stand for; how the turn ends, if that was all."""
        if len(turn.prompts) == 1 and (called := self._local(turn.prompts[0])):
            row = LOCAL.get(called[0])
            if row is None or row.run is not None:
                return self._answer(turn.prompts[0], *called)
            from parley.engine import renewal

            return await renewal.run(self._session, turn, row.alias_of or called[0], called[1])
        try:
            turn.prompts[:] = [await self.expanded(prompt) for prompt in turn.prompts]
        except ToolError as flaw:
            return self._fail(turn.prompts, str(flaw))
        return None

    async def let_in(self, prompts: list[Prompt]) -> list[Prompt]:
        """Prompts that join a running turn, as what they stand for. One that cannot be had is told, and left out."""
        found: list[Prompt] = []
        for prompt in prompts:
            try:
                found.append(await self.expanded(await self._session.servers.expand(prompt)))
            except ToolError as flaw:
                self._session.tell(Informational(content=str(flaw), level="warning"))
                self._session.prompts.report(prompt, "cancelled")
            except asyncio.CancelledError:
                self._session.inbox.put_back(prompts)  # an interrupt: they are the next turn
                raise
        return found

    async def expanded(self, prompt: Prompt) -> Prompt:
        """Raises ToolError if it is a command that cannot be had."""
        if prompt.verbatim or prompt.is_notification or prompt.expansion is not None or self.are_off:
            return prompt
        called = self._called(prompt)
        recipe = self.recipes().get(called[0]) if called is not None else None
        if called is None or recipe is None or not recipe.for_person:
            return await self._with_files(prompt)
        blocks = await self.follow(recipe, called[1])
        return msgspec.structs.replace(prompt, expansion=[*blocks, *prompt.content[1:]])

    async def _with_files(self, prompt: Prompt) -> Prompt:
        """The prompt, and before it the files that it mentions: what is asked is read last."""
        if not any("@" in block.get("text", "") for block in prompt.content):
            return prompt
        from parley.engine.mentions import attached

        texts = [str(block["text"]) for block in prompt.content if block.get("type") == "text"]
        files = await attached(self._session, texts)
        return msgspec.structs.replace(prompt, expansion=[*files, *prompt.content]) if files else prompt

    async def follow(self, recipe: Recipe, arguments: str) -> list[Json]:
        """What a model reads of a command or a skill; its rules and its model count from now on. Raises ToolError."""
        from parley.engine.expansion import expand

        if recipe.may_act and (recipe.tools or recipe.model):
            from parley.engine.loan import Loan

            self._loan = self._loan or Loan(self._session)
            self._loan.grant(recipe)
        return await expand(self._session, recipe, arguments)

    def end_turn(self) -> None:
        if self._loan is not None:
            self._loan.end()

    # Answers of our own.

    def _answer(self, prompt: Prompt, name: str, arguments: str) -> Outcome:
        session, row = self._session, LOCAL.get(name)
        said = unavailable(name) if row is None or row.run is None else row.run(session, arguments)
        listed = name if row is None else row.alias_of or name
        session.record.note("command", {"uuid": prompt.uuid, "command": name, "args": arguments, "text": said.text})
        self._begin([prompt])
        session.tell(self._line(said, listed, arguments))
        if row is None:
            return outcome.Outcome(text=said.text)
        # As recorded, a model that is asked later has it before it: people speak of what they have just read.
        session.conversation.keep_contexts([heard_of(name, arguments, said.text)])
        return outcome.commanded(name, said.text)

    def _begin(self, prompts: Iterable[Prompt]) -> None:
        from parley.engine.lines import init_line

        self._session.tell(init_line(self._session))
        self._session.prompts.echo(list(prompts))

    def _line(self, said: Said, name: str, arguments: str) -> Assistant:
        stamp = self._session.stamp
        run = {"command": name, "args": arguments}
        return Assistant(
            message=AssistantContent(
                id=stamp.new_uuid(),
                type="message",
                model="<synthetic>",
                content=[Text.of(said.text)],
                stop_reason="end_turn",
                stop_sequence=None,
                usage=NO_USAGE,
                context_management=None,
            ),
            parent_tool_use_id=None,
            timestamp=stamp.now(),
            local_command_source=f"<local-command-stdout>{said.text}</local-command-stdout>",
            local_command_run=run if name in LOCAL else UNSET,
            local_command_outcome=UNSET if name in LOCAL else {"kind": "unavailable_headless"},
            context_usage=said.context_usage,
        )

    def _fail(self, prompts: list[Prompt], text: str) -> Outcome:
        """A command could not be had: the person is told, and the model hears nothing of it."""
        self._begin(prompts)
        self._session.tell(Informational(content=text, level="warning"))
        return outcome.broken(text, "validation_error")


def heard_of(name: str, arguments: str, text: str) -> str:
    """What a model reads of a command that was answered without it."""
    typed = f"/{name} {arguments}".strip()
    return (
        f"[The user ran {typed}, which the engine answered. Nothing is asked of you by that. The answer was:]\n"
        f"<local-command-stdout>{text}</local-command-stdout>"
    )


def first_text(prompt: Prompt) -> str:
    first = prompt.content[0] if prompt.content else {}
    return str(first.get("text", "")) if first.get("type") == "text" else ""
