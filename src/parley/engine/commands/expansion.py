"""What a command or a skill comes to: its text with arguments, the output of commands and files put in.

    $ARGUMENTS, $1 … $9        what was typed behind the command
    !`git status`              the output of a command, which runs under permission like any call of Bash
    @notes/plan.md             the file stands before the text (context/mentions.py)

Arguments and output are put in once and never read again: a `!` in them is a letter.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from parley.engine.context.mentions import attached
from parley.errors import ToolError
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.settings.base import Recipe

if TYPE_CHECKING:
    from parley.engine.session.session import Session

RUN = re.compile(r"(?:^|(?<=\s))!`([^`\n]+)`", re.MULTILINE)
ARGUMENT = re.compile(r"\$ARGUMENTS(?:\[(\d{1,2})\])?|\$([1-9])(?!\d)")
SKILL_FOLDER = "${CLAUDE_SKILL_DIR}"


async def expand(session: Session, recipe: Recipe, arguments: str) -> list[Json]:
    """The blocks that go into the conversation. Raises ToolError."""
    words = split(arguments)
    folder = recipe.path.rpartition("/")[0]
    template = recipe.text.replace(SKILL_FOLDER, folder)
    written: list[str] = []
    parts: list[str] = []
    end = 0
    for found in RUN.finditer(template):
        written.append(put_in(template[end : found.start()], arguments, words))
        parts += [written[-1], await output(session, recipe, put_in(found[1], arguments, words))]
        end = found.end()
    written.append(put_in(template[end:], arguments, words))
    text = "".join([*parts, written[-1]])
    if arguments and not ARGUMENT.search(template):
        written.append(arguments)
        text = f"{text}\n\nARGUMENTS: {arguments}"
    if recipe.kind == "skill":
        text = f"Base directory for this skill: {folder}\n\n{text}"
    return [*await attached(session, written, must_be_there=True), {"type": "text", "text": text.strip()}]


def split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # a quote that is not closed is a letter like others
        return arguments.split()


def put_in(template: str, arguments: str, words: list[str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[2] is None and found[1] is None:
            return arguments
        at = int(found[2]) - 1 if found[2] is not None else int(found[1])
        return words[at] if at < len(words) else ""

    return ARGUMENT.sub(value, template)


async def output(session: Session, recipe: Recipe, command: str) -> str:
    """What a command writes. Raises ToolError if it may not run."""
    if not recipe.may_act:
        raise ToolError(
            f"/{recipe.name} was not sent: it runs `{command}`, and the project it comes from is not trusted "
            f"with it as it is now (`parley trust` trusts it)"
        )
    json = {"type": "tool_use", "id": f"toolu_{session.setup.tool_context.new_id()}", "name": "Bash"}
    call = ToolUse({**json, "input": {"command": command, "description": f"Part of /{recipe.name}"}})
    called = await session.caller.run(call, lambda: session.mode)
    content = called.result.content
    text = content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
    if called.ran is None:
        raise ToolError(f"/{recipe.name} was not sent: `{command}` did not run: {text}")
    if called.stopped is not None:
        raise ToolError(f"/{recipe.name} was not sent: a hook ended it behind `{command}`: {called.stopped}")
    return "\n".join([text, *called.contexts])
