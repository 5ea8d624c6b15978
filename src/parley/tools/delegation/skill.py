"""Skill: the text of a skill or command, for the model to follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import Context, Tool, ToolOutput
from parley.tools.delegation.calls import SkillInput
from parley.workspace.base import Scope

ABOUT = (
    "Gives you the instructions of a skill: how the user, or the project, wants a certain kind of work to be done. "
    "When what was asked fits one of them, call this before anything else, and then follow what it says. Use exact "
    "names, and only these:"
)
MOST_CHARS = 15_000
"""The limit of all descriptions together; if they are longer, each is truncated to its share."""
LEAST_CHARS = 40


class Skill:
    name: ClassVar[str] = "Skill"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = SkillInput
    description = ABOUT

    def with_skills(self, skills: Sequence[tuple[str, str]]) -> Tool:
        """The tool for these skills: names and descriptions."""
        made = Skill()
        made.description = f"{ABOUT}\n{listing(skills)}"
        # Its description is an attribute of the object, which the protocol cannot express.
        return cast(Tool, made)

    async def run(self, call: SkillInput, context: Context, reach: Scope) -> ToolOutput:
        if context.session.run_skill is None:
            raise ToolError("Skills are not available in this session.")
        content = await context.session.run_skill(call.skill, call.args or "")
        return ToolOutput(content=content, detail={"success": True, "commandName": call.skill})


def listing(skills: Sequence[tuple[str, str]]) -> str:
    whole = sum(len(about) for _, about in skills)
    share = max(LEAST_CHARS, MOST_CHARS // max(1, len(skills))) if whole > MOST_CHARS else MOST_CHARS
    return "\n".join(f"- {name}: {about if len(about) <= share else about[:share] + '…'}" for name, about in skills)
